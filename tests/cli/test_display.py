"""How a run looks at every size, without a terminal."""

import pytest
from rich.cells import cell_len

from mixseek.cli.chart import fit, score_chart
from mixseek.cli.display import Display
from mixseek.events import (
    MemberCalled,
    MemberFinished,
    ModelCalled,
    RoundFinished,
    RoundJudged,
    RoundStarted,
    RunStarted,
    SubmissionMade,
    TeamFailed,
    TeamFinished,
    TeamStarted,
)
from mixseek.records import ImprovementJudgment, LeaderBoardEntry, MemberSubmission, RoundState, utc_now

NAMES = ["Alpha", "東京チーム 渋谷区", "A team with quite a long name indeed", "[red]x[/red]", "👨‍👩‍👧"]


def _run(teams: int, max_rounds: int = 5) -> Display:
    display = Display()
    names = {f"t{number}": NAMES[number % len(NAMES)] for number in range(teams)}
    display.hear(RunStarted(execution_id="e", user_prompt="p", team_names=names, max_rounds=max_rounds), 0)
    return display


def _finished(team_id: str, number: int, score: float | None) -> RoundFinished:
    now = utc_now()
    state = RoundState(
        round_number=number,
        submission_content="",
        evaluation_score=score,
        score_details={},
        evaluation_feedback="",
        round_started_at=now,
        round_ended_at=now,
    )
    return RoundFinished(execution_id="e", team_id=team_id, state=state, entry=_entry(team_id, number, score), usage=[])


def _entry(team_id: str, number: int, score: float | None) -> LeaderBoardEntry:
    return LeaderBoardEntry(
        execution_id="e", team_id=team_id, team_name="n", round_number=number, submission_content="", score=score
    )


def _line(display: Display, name: str) -> str:
    return next(line.plain for line in display.lines(100, 40, 75) if line.plain.startswith(f" {name}"))


@pytest.mark.parametrize("teams", [1, 3, 50, 200])
@pytest.mark.parametrize("size", [(80, 24), (40, 12), (25, 10), (10, 24), (120, 3), (200, 60), (1, 1)])
def test_no_line_is_too_wide_and_there_are_never_too_many(teams: int, size: tuple[int, int]) -> None:
    width, height = size
    display = _run(teams)
    for number in range(0, teams, 2):
        display.hear(TeamStarted(execution_id="e", team_id=f"t{number}", team_name="n"), 1)
        display.hear(_finished(f"t{number}", 1, 50 + number), 2)
    lines = display.lines(width, height, 3)
    assert max(cell_len(line.plain) for line in lines) < max(width, 2)
    assert len(lines) <= max(height - 1, 1)


def test_a_line_tells_each_phase_of_a_team() -> None:
    display, about = _run(1), {"execution_id": "e", "team_id": "t0"}
    member = MemberSubmission(agent_name="reader", agent_type="plain", content="x", status="SUCCESS")
    goes_on = ImprovementJudgment(should_continue=True, reasoning="", confidence_score=1)
    steps = [
        (TeamStarted(**about, team_name="n"), "0/5 prompting"),
        (RoundStarted(**about, round_number=1, prompt=""), "1/5 leader"),
        (MemberCalled(**about, round_number=1, agent_name="reader", task=""), "1/5 member reader"),
        (MemberCalled(**about, round_number=1, agent_name="critic", task=""), "1/5 2 members"),
        (MemberFinished(**about, round_number=1, submission=member), "1/5 member critic"),
        (SubmissionMade(**about, round_number=1, submission_content=""), "1/5 evaluating"),
        (_finished("t0", 1, 81.5), "1/5 judging"),
        (RoundJudged(**about, round_number=1, judgment=goes_on, usage=[]), "1/5 prompting"),
        (RoundStarted(**about, round_number=2, prompt=""), "2/5 leader"),
        (TeamFailed(**about, team_name="n", reason=""), "2/5 failed"),
    ]
    assert "0/5 waiting" in _line(display, "Alpha")
    for event, phase in steps:
        display.hear(event, 10)
        assert phase in _line(display, "Alpha")


def test_scores_tokens_cost_and_time_are_those_of_the_team() -> None:
    display, about = _run(2), {"execution_id": "e", "team_id": "t0"}
    display.hear(TeamStarted(**about, team_name="n"), 10)
    for number, score in enumerate([60, None, 80, 70], start=1):
        display.hear(_finished("t0", number, score), 20)
    call = ModelCalled(
        **about,
        round_number=1,
        role="leader",
        agent_name="leader",
        model="m",
        seconds=1,
        attempts=1,
        input_tokens=1000,
        output_tokens=234,
        cost_usd=0.01,
    )
    display.hear(call, 21)
    shown = _line(display, "Alpha").split()
    assert shown[3:] == ["80.00", "↓▁", "█▅", "1.2k", "0.0100", "1:05"]
    display.hear(call.model_copy(update={"cost_usd": None}), 22)
    assert _line(display, "Alpha").split()[-2] == "-"
    display.hear(TeamFinished(**about, team_name="n", best=_entry("t0", 3, 80)), 30)
    assert _line(display, "Alpha").endswith("0:20")
    assert "4 of 9 rounds · 1 waiting, 1 finished" in display.lines(100, 40, 75)[-1].plain


def test_with_many_teams_the_leading_one_comes_first_and_the_others_are_counted() -> None:
    display = _run(50)
    for number in range(50):
        display.hear(TeamStarted(execution_id="e", team_id=f"t{number}", team_name="n"), 1)
    display.hear(_finished("t47", 1, 90), 2)
    display.hear(TeamFinished(execution_id="e", team_id="t47", team_name="n", best=_entry("t47", 1, 90)), 3)
    lines = [line.plain for line in display.lines(80, 24, 4)]
    assert "90.00" in lines[1]
    assert lines[-2] == " and 35 more: 35 at work"


def test_a_chart_has_a_line_for_each_team_with_its_numbers() -> None:
    assert score_chart([("Alpha", [60, None, 80]), ("東京", [70])]) == [
        "                  1      2      3",
        "  Alpha  ▁ █  60.00      -  80.00",
        "  東京   ▅    70.00      -      -",
    ]
    assert score_chart([("Alpha", [None])]) == []


def test_a_text_is_cut_between_letters_of_two_cells() -> None:
    assert [cell_len(fit("東京都庁", width)) for width in range(1, 10)] == list(range(1, 10))
