"""Executions made by hand, for the page that tells of them."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from itertools import cycle

from mixseek.records import (
    AttachmentInfo,
    ImprovementJudgment,
    MetricScore,
    ModelUsage,
    Usage,
)
from mixseek.report.record import ExecutionRecord, MemberCall, RoundRecord, TeamRecord

STARTED = datetime(2026, 11, 16, 9, 30, tzinfo=UTC)

PARAGRAPHS = (
    "## 手順 {n}: Take stock of the work",
    "中小企業が生成AIを導入するときは、まず**業務を棚卸し**し、時間のかかる仕事から小さく試す。効果は*必ず*数字で測る。",
    "Most of the gain comes from *meeting minutes* and e-mail; see [the survey](https://example.com/survey?year=2026) "
    "and run `audit --week` before you buy anything. A licence costs about $300 a month for ten people.",
    "- 議事録の作成: 週に4時間\n- Answers to customers: 6 hours a week\n  - of which drafts: 4 hours\n- 見積書の下書き",
    "| step | cost (USD) | 期間 |\n| --- | ---: | :-: |\n"
    "| 棚卸し | 0 | 1 week |\n| Trial | 300 | 2 週間 |\n| 展開 | 900 | 3か月 |",
    "```python\nhours = {'minutes': 4, 'mail': 6}\nprint(sum(hours.values()) * 4.3)\n```",
    "> 小さく始めて、測って、広げる。 Start small, measure, widen.",
    "次の段階では、社内の規程を整え、全員に研修を行う。個人情報を入力してはならないことと、答えを人が確かめることを、"
    "最初の日に決めておく。それから部署ごとに一人ずつ相談役を置き、困りごとを毎週集めて、翌週の研修で取り上げる。",
)


def markdown(size: int) -> str:
    """So many bytes, and a few more, of an answer in two languages."""
    pieces: list[str] = []
    length = 0
    for number, paragraph in enumerate(cycle(PARAGRAPHS)):
        if length >= size:
            return "\n\n".join(pieces)
        pieces.append(paragraph.replace("{n}", str(number)))
        length += len(pieces[-1].encode()) + 2
    raise AssertionError("a cycle does not end")


def make_round(number: int, score: float | None, *, team: str = "a", submission: str | None = None) -> RoundRecord:
    """A round with everything a round can have."""
    started = STARTED + timedelta(seconds=20 * number)
    return RoundRecord(
        round_number=number,
        submission=submission if submission is not None else f"Answer {number} of team {team}",
        score=score,
        metrics=() if score is None else (MetricScore(metric_name="Coverage", score=score, evaluator_comment="Good."),),
        judgment=ImprovementJudgment(should_continue=True, reasoning="More is possible.", confidence_score=0.75),
        members=(
            MemberCall(
                task="Look for sources.",
                agent_name="researcher",
                agent_type="plain",
                content="**Found** three sources.",
                status="SUCCESS",
                usage=Usage(requests=1, input_tokens=120, output_tokens=40),
                timestamp=started,
                execution_time_ms=1520.0,
            ),
        ),
        bill=(
            ModelUsage(
                execution_id="x", team_id=team, round_number=number, role="leader", agent_name="leader",
                model="openai:gpt", requests=2, input_tokens=1200, output_tokens=300, cost_usd=0.0021,
            ),
        ),
        started_at=started,
        ended_at=started + timedelta(seconds=12.5),
    )  # fmt: skip


def make_team(
    team: str, scores: Sequence[float | None], *, rank: int | None = 1, submission: str | None = None
) -> TeamRecord:
    """A team with a round for each score."""
    rounds = tuple(make_round(n, score, team=team, submission=submission) for n, score in enumerate(scores, 1))
    scored = [(each.score, each.round_number) for each in rounds if each.score is not None]
    best = max(scored, default=(None, None))
    return TeamRecord(
        team_id=team,
        team_name=f"Team {team}",
        rank=rank if scored else None,
        best_score=best[0],
        best_round=best[1],
        exit_reason="max_rounds_reached" if scored else None,
        rounds=rounds,
    )


def make_record(*teams: TeamRecord) -> ExecutionRecord:
    """An execution of these teams, which stand in their order."""
    ranked = tuple(
        team.model_copy(update={"rank": place if team.best_score is not None else None})
        for place, team in enumerate(teams, 1)
    )
    bill = tuple(line for team in teams for each in team.rounds for line in each.bill)
    return ExecutionRecord(
        execution_id="0f8c2c6e-5d0e-4d9b-9f6a-3c1a7f3f9a10",
        user_prompt="Name the first three steps for a small company that wants to use generative AI.",
        status="completed",
        started_at=STARTED,
        seconds=83.4,
        max_rounds=max((len(team.rounds) for team in teams), default=1),
        teams=ranked,
        bill=bill,
        usage=Usage(requests=len(bill) * 2, input_tokens=len(bill) * 1200, output_tokens=len(bill) * 300),
        cost_usd=len(bill) * 0.0021,
        attachments=(AttachmentInfo(name="minutes.pdf", media_type="application/pdf", size=12345, sha256="ab" * 32),),
        reference="Take stock, try, widen.",
        configuration={"orchestrator": {"max_rounds": 3}, "teams": ["configs/team_a.toml"]},
    )


def long_record() -> ExecutionRecord:
    """Three teams with two rounds, so long that these wait to become elements; as plain text, which is soon written."""
    answer = "A line of a long answer that goes on and on.\n" * 4_500
    return make_record(*(make_team(team, [80.0, 70.0], submission=answer) for team in "abc"))


def large_record(teams: int = 50, rounds: int = 10, size: int = 20_000) -> ExecutionRecord:
    """Many teams that play long, each submission of so many bytes."""
    text = markdown(size)
    made = []
    for place in range(teams):
        scores: list[float | None] = [
            round(90 - place * 0.8 - 12 / number + place * number % 5, 2) for number in range(1, rounds + 1)
        ]
        made.append(make_team(f"t{place:02}", scores, submission=text))
    return make_record(*made)
