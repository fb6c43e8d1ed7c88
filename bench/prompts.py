"""Prompts beside the least they could cost: the same formatters, then plain Jinja2's render of the compiled template.

The ranking comes from memory, so that a prompt is measured without the store; what the read from DuckDB adds is shown
in a row of its own.
"""

import asyncio
import tempfile
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import jinja2

from bench.harness import Row, compare, interleave, table
from mixseek.config.schema import PromptBuilderSettings, RoundPromptConfig
from mixseek.prompt_builder import RoundPromptContext, UserPromptBuilder
from mixseek.prompt_builder.formatters import (
    format_ranking_table,
    format_submission_history,
    generate_position_message,
    get_current_datetime_with_timezone,
)
from mixseek.records import EvaluationResult, MetricScore, RoundState
from mixseek.storage.aggregation_store import AggregationStore
from mixseek.templating import DEFAULT_TEAM_USER_PROMPT, JAPANESE

__all__ = ["rows", "run"]

NOW = datetime(2026, 1, 1, tzinfo=UTC)
TEAM = "team-3"
LIMIT = "formatters + plain render"
CONTRACT_ROUND_1 = 0.010
CONTRACT_LATER_ROUNDS = 0.050


class _Board:
    """A ranking source that keeps the board in memory."""

    def __init__(self, teams: int) -> None:
        self.rows = [
            {"team_id": f"team-{i}", "team_name": f"チーム{i}", "max_score": 95.0 - i, "total_rounds": 4}
            for i in range(teams)
        ]

    async def get_leader_board_ranking(self, execution_id: str) -> Sequence[dict[str, Any]]:
        del execution_id
        return self.rows


def _history(rounds: int, kilobytes: int) -> list[RoundState]:
    content = ("提出内容の一文です。 A sentence of the submission.\n" * (kilobytes * 20))[: kilobytes * 1024]
    metrics = [MetricScore(metric_name=name, score=80.0, evaluator_comment="良い") for name in ("A", "B", "C")]
    details = EvaluationResult(metrics=metrics, overall_score=80.0).to_score_details()
    return [
        RoundState(
            round_number=number,
            submission_content=content,
            evaluation_score=80.0,
            score_details=details,
            round_started_at=NOW,
            round_ended_at=NOW,
        )
        for number in range(1, rounds + 1)
    ]


def _context(round_number: int, history: list[RoundState], store: Any = None) -> RoundPromptContext:
    return RoundPromptContext(
        user_prompt="日本の中小企業が生成AIを導入するときの手順を提案してください。",
        round_number=round_number,
        round_history=history,
        team_id=TEAM,
        team_name="チーム3",
        execution_id="bench",
        store=store,
    )


async def _beside_plain(name: str, context: RoundPromptContext, contract: float, runs: int) -> list[Row]:
    builder = UserPromptBuilder(settings=PromptBuilderSettings())
    plain = jinja2.Environment(trim_blocks=True, lstrip_blocks=True, autoescape=False).from_string(
        DEFAULT_TEAM_USER_PROMPT
    )
    board = [] if context.store is None else list(await context.store.get_leader_board_ranking("bench"))

    def limit() -> str:
        first = context.round_number == 1
        return plain.render(
            user_prompt=context.user_prompt,
            round_number=context.round_number,
            submission_history=JAPANESE.no_history if first else format_submission_history(context.round_history),
            ranking_table="" if first else format_ranking_table(board, TEAM, context.team_name),
            team_position_message="" if first else generate_position_message(4, len(board)),
            current_datetime=get_current_datetime_with_timezone(),
        )

    row = await compare(
        name, lambda: builder.build_team_prompt(context), LIMIT, limit, aim="<= 2x", runs=runs, warm_up=5
    )
    allowed = f"p95 < {contract * 1000:.0f} ms"
    return [row, Row(f"{name}, p95", row.p95, row.p95, "contract", contract, row.p95 / contract, allowed)]


async def _ranking_read(directory: Path, history: list[RoundState]) -> Row:
    async with AggregationStore(db_path=directory / "mixseek.db") as store:
        for team in range(10):
            for number in range(1, 5):
                await store.save_to_leader_board(
                    "bench", f"team-{team}", f"チーム{team}", number, "text", "md", 80.0 + team, {}
                )
        builder = UserPromptBuilder(settings=PromptBuilderSettings())
        context = _context(5, history, store)
        whole, read = await interleave(
            [lambda: builder.build_team_prompt(context), lambda: store.get_leader_board_ranking("bench")], runs=100
        )
    share = whole.median / read.median
    return Row("round-5 prompt with DuckDB", whole.median, whole.p95, "the ranking read alone", read.median, share)


async def _with_budget(history: list[RoundState]) -> Row:
    settings = PromptBuilderSettings(round_prompt=RoundPromptConfig())
    builder = UserPromptBuilder(settings=settings)
    context = _context(len(history) + 1, history, _Board(10))
    [budgeted] = await interleave([lambda: builder.build_team_prompt(context)], runs=50)
    name = f"{len(history)} x 20 KB, within 3,000 tokens"
    return Row(
        name,
        budgeted.median,
        budgeted.p95,
        "contract",
        CONTRACT_LATER_ROUNDS,
        budgeted.p95 / CONTRACT_LATER_ROUNDS,
        "p95 < 50 ms",
    )


async def _rows(directory: Path) -> list[Row]:
    four, fifty = _history(4, 5), _history(50, 20)
    board = _Board(10)
    return [
        *await _beside_plain("round-1 prompt", _context(1, []), CONTRACT_ROUND_1, 500),
        *await _beside_plain(
            "round-5 prompt, 4 x 5 KB, 10 teams", _context(5, four, board), CONTRACT_LATER_ROUNDS, 300
        ),
        *await _beside_plain("50 x 20 KB history", _context(51, fifty, board), CONTRACT_LATER_ROUNDS, 100),
        await _with_budget(fifty),
        await _ranking_read(directory, four),
    ]


def rows() -> list[Row]:
    """All rows of this part."""
    with tempfile.TemporaryDirectory() as directory:
        return asyncio.run(_rows(Path(directory)))


def run() -> str:
    """This part of the report."""
    return table("Prompts, beside plain Jinja2 in the same run", rows())


if __name__ == "__main__":
    print(run())
