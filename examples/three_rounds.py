"""Three teams, three rounds, no model: what each team would be told, and how the leader board moves.

The answers and scores are scripted; everything else is real: the prompts come from the prompt builder, the rounds are
written to a DuckDB file in a temporary workspace, and the ranking is read back from it.

    python examples/three_rounds.py
"""

import asyncio
import tempfile
from datetime import UTC, datetime
from pathlib import Path

from rich.console import Console
from rich.markup import escape

from mixseek.prompt_builder import RoundPromptContext, UserPromptBuilder, format_ranking_table
from mixseek.records import EvaluationResult, MetricScore, RoundState
from mixseek.storage.aggregation_store import AggregationStore

TASK = "日本の中小企業が生成AIを導入するときの、最初の3つの手順を提案してください。"
EXECUTION = "three-rounds"
TEAMS = {"alpha": "Alpha", "beta": "Beta", "gamma": "Gamma"}

# For each team and round: the answer, its score, and what the evaluator says about it.
SCRIPT = {
    "alpha": [
        ("業務を棚卸しし、小さく試し、広げる。", 71.5, "手順は明確だが、具体例がない。"),
        ("業務の棚卸し(例: 議事録)、2週間の試行、全社展開。", 79.0, "具体例が加わった。費用の見通しがない。"),
        ("棚卸し、月3万円での2週間の試行、効果測定のうえ全社展開。", 84.25, "費用と効果測定まで示されている。"),
    ],
    "beta": [
        ("まず社内規程を整え、研修を行い、導入する。", 76.0, "安全面に強い。効果の測り方がない。"),
        ("規程の整備、全員研修、効果を測る指標つきの導入。", 83.5, "指標が加わり説得力が増した。"),
        ("規程の整備、研修、指標つきの導入。", 82.0, "前回より短く、根拠が減った。"),
    ],
    "gamma": [
        ("専門家に相談しましょう。", 38.0, "手順になっていない。"),
        ("相談、見積もり、契約。", 52.5, "手順になったが、AI導入に固有の内容がない。"),
        ("課題の選定、無料ツールでの検証、効果があれば契約。", 74.0, "大きく改善した。"),
    ],
}


async def play(workspace: Path, console: Console) -> None:
    """Play all rounds; show what team Alpha reads before each of them."""
    history: dict[str, list[RoundState]] = {team_id: [] for team_id in TEAMS}
    async with AggregationStore(workspace) as store:
        builder = UserPromptBuilder(workspace, store)
        for number in range(1, 4):
            prompt = await builder.build_team_prompt(context("alpha", number, history["alpha"]))
            console.rule(f"Round {number}: what team Alpha is told")
            console.print(escape(prompt), soft_wrap=True)
            for team_id in TEAMS:
                history[team_id].append(await submit(store, team_id, number))
        console.rule("Leader board after round 3")
        console.print(escape(format_ranking_table(await store.get_leader_board_ranking(EXECUTION), "alpha")))


def context(team_id: str, number: int, history: list[RoundState]) -> RoundPromptContext:
    """All the prompt builder needs to know about a team before a round."""
    return RoundPromptContext(
        user_prompt=TASK,
        round_number=number,
        round_history=history,
        team_id=team_id,
        team_name=TEAMS[team_id],
        execution_id=EXECUTION,
    )


async def submit(store: AggregationStore, team_id: str, number: int) -> RoundState:
    """Take the scripted answer and score as this round's outcome and write it to the leader board."""
    started = datetime.now(UTC)
    answer, score, comment = SCRIPT[team_id][number - 1]
    metric = MetricScore(metric_name="Coverage", score=score, evaluator_comment=comment)
    details = EvaluationResult(metrics=[metric], overall_score=score).to_score_details()
    await store.save_to_leader_board(
        execution_id=EXECUTION,
        team_id=team_id,
        team_name=TEAMS[team_id],
        round_number=number,
        submission_content=answer,
        submission_format="md",
        score=score,
        score_details=details,
    )
    return RoundState(
        round_number=number,
        submission_content=answer,
        evaluation_score=score,
        score_details=details,
        round_started_at=started,
        round_ended_at=datetime.now(UTC),
    )


def main() -> None:
    """Play in a workspace that is gone afterwards."""
    with tempfile.TemporaryDirectory() as workspace:
        asyncio.run(play(Path(workspace), Console(highlight=False)))


if __name__ == "__main__":
    main()
