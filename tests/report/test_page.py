"""What the report tells of an execution."""

import re
from datetime import datetime
from html import unescape
from typing import Any

import pytest

from mixseek.records import Usage
from mixseek.report.html import render
from mixseek.report.record import ExecutionRecord, TeamRecord, ToolsUsed
from tests.report.execution_records import make_record, make_round, make_team

TWO_TEAMS = make_record(make_team("a", [71.5, 84.25]), make_team("b", [60.0, None]))


def words(record: ExecutionRecord) -> str:
    """The page without its tags, in one line."""
    body = render(record).partition("<body>")[2]
    return " ".join(unescape(re.sub(r"<[^>]+>", " ", body)).split())


def with_first_round(**changed: Any) -> ExecutionRecord:
    first = make_round(1, 70.0).model_copy(update=changed)
    team = make_team("a", [70.0]).model_copy(update={"rounds": (first,)})
    return make_record(team)


def test_the_page_tells_everything_about_a_round() -> None:
    page = words(TWO_TEAMS)
    for told in (
        "Round 2 84.25 final submission 12.5 s · 2 calls · 1,500 tokens · cost 0.0021 USD",
        "From 2026-11-16 09:30:40 UTC to 2026-11-16 09:30:52 UTC",
        "Coverage 84.25 Good.",
        "Go on (confidence 0.75) More is possible.",
        "Submission Answer 2 of team a",
        "researcher plain · success · 09:30:40 · 1.5 s · 1 calls, 120 tokens in, 40 out",
        "Asked Look for sources. Answered Found three sources.",
        "leader leader openai:gpt 2 1,200 300 0.0021 USD",
        "Round 2 unscored",
    ):
        assert told in page


def test_the_page_tells_the_whole_execution() -> None:
    page = words(TWO_TEAMS)
    for told in (
        "completed 2026-11-16 09:30:00 UTC · execution 0f8c2c6e-5d0e-4d9b-9f6a-3c1a7f3f9a10",
        "best score 84.25 teams 2 rounds 2 of 2 time 83.4 s model calls 8",
        "By Team a , round 2, 84.25 points Answer 2 of team a",
        "minutes.pdf application/pdf 12,345 abab",
        "Reference answer Take stock, try, widen.",
        "1 Team a a 84.25 2 2 max rounds reached 4 3,000 0.0042 USD",
        "Team b 60.00 unscored",
        "openai:gpt leader 8 4,800 1,200 0.0084 USD all 8 4,800 1,200 0.0084 USD",
        '{ "orchestrator": { "max_rounds": 3 }, "teams": [ "configs/team_a.toml" ] }',
    ):
        assert told in page


def test_a_failure_is_told_at_the_leader_board_and_at_its_place() -> None:
    failed = make_team("b", [None]).model_copy(update={"error": "the provider is down"})
    page = words(make_record(make_team("a", [70.0]), failed))
    assert "– Team b b failed unscored – 1 –" in page
    assert page.count("the provider is down") == 2
    assert "failure" in words(with_first_round(failure="the answer was empty"))
    assert "the answer was empty" in words(with_first_round(failure="the answer was empty"))


def test_the_chart_gives_each_team_the_score_of_the_leader_board() -> None:
    chart = words(make_record(make_team("a", [71.5, 84.25, 60.0]), make_team("b", [80.0, 55.0])))
    legend = chart.partition("Score by round")[2].partition("All scores as a table")[0]
    assert "Team a best 84.25 Team b best 80.00 Beside a team's name stands its best score." in legend


def test_costs_in_one_table_have_the_digits_of_the_smallest() -> None:
    made = make_round(1, 70.0)
    costs = {"leader": 12.5, "judgment": 0.000434, "member": 0.0, "evaluator": None}
    bill = tuple(made.bill[0].model_copy(update={"role": role, "cost_usd": cost}) for role, cost in costs.items())
    record = with_first_round(bill=bill).model_copy(update={"bill": bill, "cost_usd": 12.500434})
    page = words(record)
    for told in (
        "leader judgment openai:gpt 2 1,200 300 0.000434 USD leader member openai:gpt 2 1,200 300 0 USD",
        "openai:gpt leader 2 1,200 300 12.500000 USD",
        "300 0 USD all 8 4,800 1,200 12.500434 USD",
        "openai:gpt evaluator 2 1,200 300 not known",
    ):
        assert told in page
    teams = words(make_record(_with_cost("a", 0.000434), _with_cost("b", 12.5)))
    assert (
        "max rounds reached 2 1,500 0.000434 USD 2 Team b b 70.00 1 1 max rounds reached 2 1,500 12.500000 USD" in teams
    )


def _with_cost(team: str, cost: float) -> TeamRecord:
    made = make_team(team, [70.0])
    [only] = made.rounds
    line = only.bill[0].model_copy(update={"cost_usd": cost})
    return made.model_copy(update={"rounds": (only.model_copy(update={"bill": (line,)}),)})


def test_flags_stand_beside_the_round() -> None:
    assert "Round 1 70.00 final submission repeats_task hidden_characters" in words(
        with_first_round(flags=("repeats_task", "hidden_characters"))
    )


def test_tools_that_failed_are_counted_beside_the_round_and_told_with_its_members() -> None:
    failing = ToolsUsed(agent_name="searcher", calls=3, failed=3, error="HTTP <403>")
    page = words(with_first_round(tools=(failing, ToolsUsed(agent_name="reader", calls=1))))
    assert "Round 1 70.00 final submission 3 of 4 tool calls failed" in page
    assert "Member calls searcher : 3 tool calls, 3 failed: HTTP <403> reader : 1 tool call researcher plain" in page
    assert "tool call" not in words(TWO_TEAMS)


def test_a_price_that_is_not_known_makes_no_sum() -> None:
    line = make_round(1, 70.0).bill[0]
    unknown = line.model_copy(update={"cost_usd": None, "model": "own:model"})
    record = with_first_round(bill=(line, unknown)).model_copy(update={"bill": (line, unknown), "cost_usd": None})
    page = words(record)
    assert "Round 1 70.00 final submission 12.5 s · 4 calls · 3,000 tokens · cost not known" in page
    assert "openai:gpt leader 2 1,200 300 0.0021 USD" in page
    assert "own:model leader 2 1,200 300 not known" in page


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"status": "unfinished"}, "This execution was interrupted; this is what was kept of it."),
        ({"status": "unfinished", "is_running": True}, "This execution is being played"),
        ({"configuration": None}, "The settings of this execution were not kept."),
        ({"user_prompt": "word " * 300}, "1,500 characters"),
        ({"started_at": datetime(2026, 1, 2, 3, 4)}, "2026-01-02 03:04:00 UTC"),
        ({"started_at": None, "seconds": None}, "not known · execution"),
        ({"seconds": 3661.0}, "time 61 min 1 s"),
        ({"bill": (), "usage": Usage()}, "No model call is on the bill."),
    ],
)
def test_what_is_special_about_an_execution_is_told(changed: dict[str, Any], told: str) -> None:
    assert told in words(TWO_TEAMS.model_copy(update=changed))


def test_an_execution_without_teams_is_told_too() -> None:
    page = words(make_record())
    assert "No team has a result." in page
    assert "No team is known." in page


def test_a_round_without_a_submission_says_so() -> None:
    assert "The round gave no submission." in words(with_first_round(submission=None))


def test_a_json_submission_is_shown_as_it_was_written() -> None:
    text = '{"a": 1.0,\n "b": "*x* <i>"}'
    page = render(with_first_round(submission=text, submission_format="json"))
    assert '<pre class=plain>\n{"a": 1.0,\n "b": "*x* &lt;i&gt;"}</pre>' in page


def test_of_an_endless_text_the_rest_is_left_out_and_counted() -> None:
    page = render(with_first_round(submission="x" * 1_500_000))
    assert "… (500,000 more characters are not shown)" in page
    assert len(page) < 2_200_000
