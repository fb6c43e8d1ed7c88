"""The records: frozen, exact about what is unscored, and one order of teams."""

import json
from itertools import permutations
from math import isnan
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from mixseek.records import (
    EvaluationResult,
    ExecutionSummary,
    FailedTeamInfo,
    LeaderBoardEntry,
    MemberAgentResult,
    MemberSubmission,
    MemberSubmissionsRecord,
    MetricScore,
    ModelUsage,
    OrchestratorTask,
    ResultStatus,
    RoundState,
    Standing,
    Usage,
    order_standings,
    utc_now,
)


def a_standing(team_id: str, score: float, latest: int) -> Standing:
    return Standing(team_id=team_id, team_name=team_id, best_score=score, latest_round=latest, total_rounds=latest)


def an_entry(team_id: str, score: float | None = 50.0) -> LeaderBoardEntry:
    return LeaderBoardEntry(
        execution_id="e", team_id=team_id, team_name=team_id, round_number=1, submission_content="", score=score
    )


def test_teams_are_ordered_by_score_then_later_round_then_id() -> None:
    expected = [a_standing("d", 90, 1), a_standing("c", 80, 3), a_standing("a", 80, 2), a_standing("b", 80, 2)]
    for order in permutations(expected):
        ranked = order_standings(order)
        assert [standing.team_id for standing in ranked] == ["d", "c", "a", "b"]
        assert [standing.rank for standing in ranked] == [1, 2, 3, 4]


standings = st.builds(
    a_standing, st.text(max_size=3), st.floats(allow_nan=False), st.integers(min_value=1, max_value=10)
)


@given(st.lists(standings, unique_by=lambda standing: standing.team_id), st.randoms())
def test_the_order_never_depends_on_the_order_of_insertion(teams: list[Standing], random: object) -> None:
    shuffled = list(teams)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    assert order_standings(shuffled) == order_standings(teams)


def test_a_record_cannot_be_changed() -> None:
    with pytest.raises(ValidationError, match="frozen"):
        a_standing("a", 1, 1).best_score = 2.0  # type: ignore[misc]


def test_a_field_that_does_not_exist_is_refused() -> None:
    with pytest.raises(ValidationError, match="Extra inputs"):
        Usage.model_validate({"inputs": 3})


@pytest.mark.parametrize("score", [float("nan"), float("inf")])
def test_a_round_without_a_finite_score_is_refused_rather_than_ranked(score: float) -> None:
    with pytest.raises(ValidationError, match="finite"):
        RoundState(
            round_number=1,
            submission_content="",
            evaluation_score=score,
            round_started_at=utc_now(),
            round_ended_at=utc_now(),
        )


def test_usage_adds_up_field_by_field() -> None:
    one = Usage(requests=1, input_tokens=10, output_tokens=5, details={"reasoning": 2})
    two = Usage(requests=2, input_tokens=1, cache_read_tokens=7, details={"reasoning": 1, "audio": 4})
    assert one + two == Usage(
        requests=3, input_tokens=11, output_tokens=5, cache_read_tokens=7, details={"reasoning": 3, "audio": 4}
    )
    assert (one + two).total_tokens == 16


def test_a_rounds_members_are_counted_by_how_they_ended() -> None:
    submissions = [
        MemberSubmission(agent_name="a", agent_type="plain", content="x", status="SUCCESS", usage=Usage(requests=1)),
        MemberSubmission(agent_name="b", agent_type="plain", content="", status="ERROR", error_message="down"),
        MemberSubmission(agent_name="c", agent_type="plain", content="y", status="WARNING", usage=Usage(requests=2)),
    ]
    record = MemberSubmissionsRecord(
        execution_id="e", team_id="t", team_name="T", round_number=1, submissions=submissions
    )
    assert (record.total_count, record.success_count, record.failure_count) == (3, 2, 1)
    assert [s.agent_name for s in record.failed_submissions] == ["b"]
    assert record.total_usage == Usage(requests=3)
    assert MemberSubmissionsRecord.model_validate_json(record.model_dump_json()) == record


def test_a_members_result_is_made_by_its_outcome() -> None:
    good = MemberAgentResult.success("text", "search", "web_search", execution_time_ms=12.5)
    bad = MemberAgentResult.error("no key", "search", "web_search", error_code="AUTH")
    assert (good.status, good.content, good.error_message) == (ResultStatus.SUCCESS, "text", None)
    assert (bad.status, bad.content, bad.error_message, bad.error_code) == (ResultStatus.ERROR, "", "no key", "AUTH")


def test_feedback_is_the_comments_joined() -> None:
    result = EvaluationResult(
        metrics=[
            MetricScore(metric_name="A", score=1, evaluator_comment="良い"),
            MetricScore(metric_name="B", score=2),
            MetricScore(metric_name="C", score=3, evaluator_comment="短い"),
        ],
        overall_score=2.0,
    )
    assert result.feedback_summary == "A: 良い / C: 短い"


def test_an_evaluation_is_read_back_from_the_details_of_its_row() -> None:
    result = EvaluationResult(
        metrics=[MetricScore(metric_name="A", score=70.5, evaluator_comment="良い")], overall_score=70.5
    )
    assert EvaluationResult.from_score_details(result.to_score_details(), 70.5) == result


def test_a_metric_that_is_not_a_number_is_kept_as_null_and_read_back() -> None:
    result = EvaluationResult(metrics=[MetricScore(metric_name="A", score=float("nan"))], overall_score=None)
    details = result.to_score_details()
    assert json.loads(json.dumps(details, allow_nan=False))["metrics"][0]["score"] is None
    assert isnan(EvaluationResult.from_score_details(details, None).metrics[0].score)


def test_details_of_another_shape_give_their_numbers() -> None:
    read = EvaluationResult.from_score_details({"accuracy": 80, "note": "text", "ok": True, "overall_score": 75}, 75.0)
    assert [(metric.metric_name, metric.score) for metric in read.metrics] == [("accuracy", 80.0)]


def test_min_rounds_follow_max_rounds() -> None:
    def task(**rounds: int) -> OrchestratorTask:
        return OrchestratorTask.model_validate(
            {"user_prompt": "x", "team_configs": [Path("t.toml")], "timeout_seconds": 60, **rounds}
        )

    assert (task().max_rounds, task().min_rounds) == (5, 2)
    assert task(max_rounds=1).min_rounds == 1
    assert task(max_rounds=3, min_rounds=3).min_rounds == 3
    with pytest.raises(ValidationError, match=r"min_rounds \(4\) must be <= max_rounds \(3\)"):
        task(max_rounds=3, min_rounds=4)
    assert task().execution_id != task().execution_id


def test_a_task_needs_a_team() -> None:
    with pytest.raises(ValidationError, match="at least 1"):
        OrchestratorTask(user_prompt="x", team_configs=[], timeout_seconds=60)


def test_a_summary_counts_its_teams() -> None:
    summary = ExecutionSummary(
        execution_id="e",
        user_prompt="x",
        team_results=[an_entry("a"), an_entry("b")],
        total_execution_time_seconds=1.0,
        failed_teams_info=[
            FailedTeamInfo(team_id="b", team_name="b", error_message="time-out"),
            FailedTeamInfo(team_id="c", team_name="c", error_message="no key"),
        ],
    )
    counted = summary.model_dump(mode="json")
    assert {name: counted[name] for name in counted if "teams" in name and name != "failed_teams_info"} == {
        "total_teams": 3,
        "completed_teams": 2,
        "failed_teams": 2,
        "partial_teams": 1,
    }
    assert counted["partial_team_ids"] == ["b"]


def test_what_cost_nothing_adds_up_to_the_number_that_each_line_has() -> None:
    line = ModelUsage(
        execution_id="x", team_id="a", round_number=1, role="leader", agent_name="leader", model="m", cost_usd=0.0
    )
    assert repr(line.plus(line).cost_usd) == repr(line.cost_usd)
