"""What goes into the store comes out of it."""

import asyncio
import math
import subprocess
import sys
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import duckdb
import pytest

from mixseek.errors import DatabaseReadError, DatabaseWriteError, UnstorableValueError, WorkspaceNotFoundError
from mixseek.events import HistoryKept
from mixseek.records import (
    ImprovementJudgment,
    LeaderBoardEntry,
    MemberSubmission,
    MemberSubmissionsRecord,
    ModelUsage,
    RankingSource,
    RoundState,
    Usage,
)
from mixseek.storage.aggregation_store import AggregationStore

STARTED = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
ENDED = STARTED + timedelta(seconds=90)


async def put(store: AggregationStore, team: str, number: int, score: float | None, **more: Any) -> None:
    values: dict[str, Any] = {
        "execution_id": "e",
        "team_id": team,
        "team_name": team.upper(),
        "round_number": number,
        "submission_content": f"{team}{number}",
        "submission_format": "md",
        "score": score,
        "score_details": {},
    }
    await store.save_to_leader_board(**{**values, **more})


def line(role: str = "leader", **more: Any) -> ModelUsage:
    values = {"execution_id": "e", "team_id": "a", "round_number": 1, "role": role, "agent_name": "x", "model": "m"}
    return ModelUsage.model_validate({**values, **more})


def rows(path: Path, sql: str) -> list[tuple[Any, ...]]:
    with duckdb.connect(str(path)) as connection:
        return connection.execute(sql).fetchall()


async def test_a_row_of_the_leader_board_comes_back_with_all_its_columns(tmp_path: Path) -> None:
    details = {"overall_score": 85.57, "metrics": [{"metric_name": "深さ", "score": 1, "evaluator_comment": "良い"}]}
    async with AggregationStore(tmp_path) as store:
        await put(store, "a", 1, 85.57, score_details=details, final_submission=True, exit_reason="score_plateau")
        (row,) = await store.get_leader_board()
    assert row.pop("created_at") == row.pop("updated_at") > STARTED
    assert row == {
        "id": 1,
        "execution_id": "e",
        "team_id": "a",
        "team_name": "A",
        "round_number": 1,
        "submission_content": "a1",
        "submission_format": "md",
        "score": 85.57,
        "score_details": details,
        "final_submission": True,
        "exit_reason": "score_plateau",
    }


async def test_the_leader_board_shows_the_best_rounds_first_and_unscored_ones_last(tmp_path: Path) -> None:
    async with AggregationStore(tmp_path) as store:
        for number, score in enumerate([None, 10.0, 30.0, 20.0], 1):
            await put(store, "a", number, score)
        assert [row["score"] for row in await store.get_leader_board()] == [30.0, 20.0, 10.0, None]
        assert [row["score"] for row in await store.get_leader_board(limit=2)] == [30.0, 20.0]


async def test_the_ranking_goes_by_best_score_then_later_round_then_team_id(tmp_path: Path) -> None:
    async with AggregationStore(tmp_path) as store:
        for team, number, score in [
            ("c", 1, 80),
            ("b", 1, 80),
            ("a", 1, 80),
            ("a", 2, 10),
            ("d", 1, 90),
            ("d", 2, None),
        ]:
            await put(store, team, number, score)
        await put(store, "z", 1, 99.0, execution_id="another")
        ranking = await store.get_leader_board_ranking("e")
        standings = await store.get_leaderboard_ranking_by_execution("e", limit=2)
        with pytest.raises(DatabaseReadError, match="a limit cannot be negative"):
            await store.get_leaderboard_ranking_by_execution("e", limit=-1)
        places = [await store.get_team_current_rank("e", team) for team in "dabcz"]
    assert ranking == [
        {"team_id": "d", "team_name": "D", "max_score": 90.0, "total_rounds": 2},
        {"team_id": "a", "team_name": "A", "max_score": 80.0, "total_rounds": 2},
        {"team_id": "b", "team_name": "B", "max_score": 80.0, "total_rounds": 1},
        {"team_id": "c", "team_name": "C", "max_score": 80.0, "total_rounds": 1},
    ]
    assert [(s.rank, s.team_id, s.latest_round) for s in standings] == [(1, "d", 2), (2, "a", 2)]
    assert places == [1, 2, 3, 4, None]


async def test_a_team_is_shown_by_its_latest_name(tmp_path: Path) -> None:
    async with AggregationStore(tmp_path) as store:
        await put(store, "a", 2, 1.0, team_name="new")
        await put(store, "a", 1, 2.0, team_name="old")
        assert [row["team_name"] for row in await store.get_leader_board_ranking("e")] == ["new"]


@pytest.mark.parametrize("score", [None, math.nan, math.inf, -math.inf])
async def test_a_round_without_a_finite_score_counts_but_is_not_ranked(tmp_path: Path, score: float | None) -> None:
    async with AggregationStore(tmp_path) as store:
        await put(store, "a", 1, score)
        assert await store.get_leader_board_ranking("e") == []
        await put(store, "a", 2, 5.0)
        assert [(r["max_score"], r["total_rounds"]) for r in await store.get_leader_board_ranking("e")] == [(5.0, 2)]
        assert (await store.get_leader_board())[1]["score"] is None


async def test_an_empty_board_has_no_ranking(tmp_path: Path) -> None:
    async with AggregationStore(tmp_path) as store:
        assert isinstance(store, RankingSource)
        assert await store.get_leader_board_ranking("e") == []
        assert await store.get_leader_board() == []


async def test_writing_the_same_round_twice_adds_nothing_and_keeps_when_it_was_made(tmp_path: Path) -> None:
    async with AggregationStore(tmp_path) as store:
        await put(store, "a", 1, 1.0)
        (before,) = await store.get_leader_board()
        await put(store, "a", 1, 2.0)
        (after,) = await store.get_leader_board()
    assert after["created_at"] == before["created_at"]
    assert after["updated_at"] > before["updated_at"]
    assert (after["id"], after["score"]) == (before["id"], 2.0)


async def test_a_round_is_saved_with_its_status_and_usage_in_one_go(tmp_path: Path) -> None:
    entry = LeaderBoardEntry(
        execution_id="e", team_id="a", team_name="A", round_number=1, submission_content="s", score=70.0
    )
    usage = [line(requests=2, input_tokens=10, output_tokens=20, cost_usd=0.5), line("member")]
    async with AggregationStore(tmp_path) as store:
        await store.save_round(entry, round_started_at=STARTED, round_ended_at=ENDED, usage=usage)
        assert await store.get_model_usage("e") == usage
        assert await store.get_model_usage("e", "b") == []
        assert [row["score"] for row in await store.get_leader_board()] == [70.0]
    assert rows(
        tmp_path / "mixseek.db", "SELECT should_continue, round_started_at, round_ended_at FROM round_status"
    ) == [(None, STARTED.replace(tzinfo=None), ENDED.replace(tzinfo=None))]


async def test_a_round_with_one_value_that_cannot_be_stored_leaves_nothing_behind(tmp_path: Path) -> None:
    entry = LeaderBoardEntry(
        execution_id="e", team_id="a", team_name="A", round_number=1, submission_content="s", score=70.0
    )
    async with AggregationStore(tmp_path) as store:
        with pytest.raises(UnstorableValueError, match=r"^agent_name: .*surrogate"):
            await store.save_round(
                entry, round_started_at=STARTED, round_ended_at=ENDED, usage=[line(agent_name="\ud800")]
            )
        assert await store.get_leader_board() == []
        assert await store.get_model_usage("e") == []


async def test_the_verdict_is_a_second_write_of_the_status_and_brings_its_usage(tmp_path: Path) -> None:
    verdict = ImprovementJudgment(should_continue=False, reasoning="頭打ち", confidence_score=0.75)
    async with AggregationStore(tmp_path) as store:
        await store.save_round_status("e", "a", "A", 1, None, None, None, STARTED, ENDED)
        await store.save_round_status(
            execution_id="e",
            team_id="a",
            team_name="A",
            round_number=1,
            **verdict.model_dump(),
            round_started_at="2026-01-02T12:04:05+09:00",
            round_ended_at=ENDED.astimezone(timezone(timedelta(hours=-3))),
            usage=[line("judgment")],
        )
        assert [u.role for u in await store.get_model_usage("e")] == ["judgment"]
    status = "SELECT should_continue, reasoning, confidence_score, round_started_at, round_ended_at FROM round_status"
    assert rows(tmp_path / "mixseek.db", status) == [
        (False, "頭打ち", 0.75, STARTED.replace(tzinfo=None), ENDED.replace(tzinfo=None))
    ]


async def test_usage_is_replaced_by_key_and_an_unknown_price_stays_unknown(tmp_path: Path) -> None:
    async with AggregationStore(tmp_path) as store:
        await store.save_model_usage([])
        await store.save_model_usage([line(requests=1, cost_usd=0.25), line("member", agent_name="y")])
        await store.save_model_usage([line(requests=3), line("member", agent_name="z")])
        usage = await store.get_model_usage("e", "a")
    assert [(u.role, u.agent_name, u.requests, u.cost_usd) for u in usage] == [
        ("leader", "x", 3, None),
        ("member", "y", 0, None),
        ("member", "z", 0, None),
    ]


async def test_more_rows_than_one_statement_takes_are_written_together_and_replaced(tmp_path: Path) -> None:
    async with AggregationStore(tmp_path) as store:
        for requests in (1, 2):
            lines = [line(agent_name=f"agent {number}", requests=requests) for number in range(300)]
            await store.save_model_usage(lines)
        usage = await store.get_model_usage("e", "a")
    assert {line.agent_name: line.requests for line in usage} == {f"agent {number}": 2 for number in range(300)}
    assert len(usage) == 300


async def test_of_rows_that_are_written_together_each_keeps_what_it_has_and_lacks(tmp_path: Path) -> None:
    begun = datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=UTC)

    async def save(store: AggregationStore, number: int, *, later: bool) -> None:
        known = (number % 2 == 0) != later
        await store.save_round_status(
            *("e", "a", "A", number),
            should_continue=(True if number > 3 else None) if known else None,
            reasoning="理由" if known else None,
            confidence_score=number / 10 if known else None,
            round_started_at=begun if known else None,
        )

    for later in (False, True):
        async with AggregationStore(tmp_path) as store:
            await asyncio.gather(*(save(store, number, later=later) for number in range(1, 8)))
        with duckdb.connect(str(store.db_path)) as connection:
            found = connection.execute(
                "SELECT round_number, should_continue, reasoning, confidence_score, round_started_at"
                " FROM round_status ORDER BY round_number"
            ).fetchall()
        assert found == [
            (n, True if n > 3 else None, "理由", n / 10, begun.replace(tzinfo=None))
            if (n % 2 == 0) != later
            else (n, None, None, None, None)
            for n in range(1, 8)
        ]


async def test_only_one_round_of_a_team_is_its_final_submission(tmp_path: Path) -> None:
    async with AggregationStore(tmp_path) as store:
        for team, number in [("a", 1), ("a", 2), ("b", 1)]:
            await put(store, team, number, float(number))
        await store.mark_final_submission("e", "b", 1, "partial_failure")
        await store.mark_final_submission("e", "a", 1, "score_plateau")
        await store.mark_final_submission("e", "a", 2, "max_rounds_reached")
        board = {
            (r["team_id"], r["round_number"]): (r["final_submission"], r["exit_reason"])
            for r in await store.get_leader_board()
        }
        with pytest.raises(DatabaseWriteError, match="'a' has no round 9"):
            await store.mark_final_submission("e", "a", 9, None)
    assert board == {
        ("a", 1): (False, None),
        ("a", 2): (True, "max_rounds_reached"),
        ("b", 1): (True, "partial_failure"),
    }


async def test_marks_that_come_together_are_set_together_and_a_wrong_one_fails_alone(tmp_path: Path) -> None:
    async with AggregationStore(tmp_path) as store:
        for team, number in [("a", 1), ("a", 2), ("b", 1)]:
            await put(store, team, number, float(number))
        await store.mark_final_submission("e", "a", 1, "score_plateau")
        outcomes = await asyncio.gather(
            put(store, "c", 1, 3.0),
            store.mark_final_submission("e", "a", 2, "max_rounds_reached"),
            store.mark_final_submission("e", "b", 7, None),
            store.mark_final_submission("e", "b", 1, "partial_failure"),
            store.mark_final_submission("e", "c", 1, None),
            return_exceptions=True,
        )
        board = {(r["team_id"], r["round_number"]): r["exit_reason"] for r in await store.get_leader_board()}
        finals = [(r["team_id"], r["round_number"]) for r in await store.get_leader_board() if r["final_submission"]]
    assert [str(outcome) for outcome in outcomes if outcome is not None] == [
        "team 'b' has no round 7 on the leader board of 'e'"
    ]
    assert sorted(finals) == [("a", 2), ("b", 1), ("c", 1)]
    assert board == {("a", 1): None, ("a", 2): "max_rounds_reached", ("b", 1): "partial_failure", ("c", 1): None}


def a_round(number: int, score: float | None = 1.0) -> tuple[LeaderBoardEntry, RoundState, list[ModelUsage]]:
    entry = LeaderBoardEntry(
        execution_id="e", team_id="a", team_name="A", round_number=number, submission_content="s", score=score
    )
    state = RoundState(
        round_number=number,
        submission_content="s",
        evaluation_score=score,
        round_started_at=STARTED,
        round_ended_at=ENDED,
    )
    return entry, state, [line(round_number=number)]


async def save(store: AggregationStore, entry: LeaderBoardEntry, state: RoundState, usage: list[ModelUsage]) -> None:
    await store.save_round(
        entry, round_started_at=state.round_started_at, round_ended_at=state.round_ended_at, usage=usage
    )


async def test_a_verdict_that_is_written_with_its_round_leaves_the_time_the_round_was_made(tmp_path: Path) -> None:
    entry, state, usage = a_round(1)
    later = entry.updated_at + timedelta(seconds=5)
    async with AggregationStore(tmp_path) as store:
        await asyncio.gather(
            save(store, entry, state, usage),
            store.save_round_status("e", "a", "A", 1, True, "more", 0.5, STARTED, ENDED, at=later),
        )
    told = rows(tmp_path / "mixseek.db", "SELECT should_continue, created_at, updated_at FROM round_status")
    assert told == [(True, entry.updated_at.replace(tzinfo=None), later.replace(tzinfo=None))]


async def test_rounds_are_caught_up_with_that_are_missing_or_were_written_before(tmp_path: Path) -> None:
    unscored, scored = a_round(3, score=None), a_round(3)
    async with AggregationStore(tmp_path) as store:
        await save(store, *a_round(1))
        await store.mark_final_submission("e", "a", 1, "partial_failure")
        await save(store, *unscored)
        await store.catch_up(
            [(a_round(1)[0].model_copy(update={"score": 9.0, "updated_at": STARTED}), *a_round(1)[1:])]
        )
        await store.catch_up([a_round(2), scored])
        board = [(r["round_number"], r["score"], r["exit_reason"]) for r in await store.get_leader_board()]
    assert sorted(board) == [(1, 1.0, "partial_failure"), (2, 1.0, None), (3, 1.0, None)]
    for table in ("round_status", "model_usage"):
        assert rows(tmp_path / "mixseek.db", f"SELECT round_number FROM {table} ORDER BY 1") == [(1,), (2,), (3,)]


async def test_a_round_history_comes_back_as_it_went_in(tmp_path: Path) -> None:
    member = MemberSubmission(
        agent_name="m", agent_type="plain", content="答え", status="ERROR", error_message="x", usage=Usage(requests=2)
    )
    record = MemberSubmissionsRecord(execution_id="e", team_id="a", team_name="A", round_number=1, submissions=[member])
    async with AggregationStore(tmp_path) as store:
        await store.save_aggregation("e", record, [{"kind": "request", "parts": [1, 2.5, None]}])
        assert await store.load_round_history("e", "a", 1) == (record, [{"kind": "request", "parts": [1, 2.5, None]}])
        await store.save_aggregation("e", record, [])
        assert await store.load_round_history("e", "a", 1) == (record, [])
        assert await store.load_round_history("e", "a", 2) == (None, [])


async def test_a_history_is_caught_up_with_also_where_no_round_is(tmp_path: Path) -> None:
    record = MemberSubmissionsRecord(execution_id="e", team_id="a", team_name="A", round_number=1, submissions=[])
    told = HistoryKept(execution_id="e", team_id="a", record=record, message_history=["said"])
    async with AggregationStore(tmp_path) as store:
        for _ in range(2):
            await store.catch_up([], [told])
        assert await store.load_round_history("e", "a", 1) == (record, ["said"])


async def test_the_submission_history_holds_the_newest_rounds_in_order_with_their_feedback(tmp_path: Path) -> None:
    details = {"overall_score": 1.0, "metrics": [{"metric_name": "M", "score": 1.0, "evaluator_comment": "short"}]}
    async with AggregationStore(tmp_path) as store:
        await put(store, "a", 3, None, score_details={"reason": "timed out"})
        await put(store, "a", 4, None, score_details={"reason": "no number", **details})
        await put(store, "a", 1, 5.0)
        await put(store, "a", 2, 6.0, score_details=details)
        await put(store, "b", 1, 7.0)
        history = await store.get_team_submission_history("e", "a")
        newest = await store.get_team_submission_history("e", "a", limit=3)
        assert await store.get_team_submission_history("e", "nobody") == []
    assert [(r.round_number, r.content, r.score, r.feedback) for r in history] == [
        (1, "a1", 5.0, ""),
        (2, "a2", 6.0, "M: short"),
        (3, "a3", None, "timed out"),
        (4, "a4", None, "M: short"),
    ]
    assert newest == history[1:]


async def test_evaluation_results_are_rebuilt_from_whatever_the_details_hold(tmp_path: Path) -> None:
    full = {"overall_score": 80.0, "metrics": [{"metric_name": "M", "score": 80, "evaluator_comment": "ok"}, "?", {}]}
    async with AggregationStore(tmp_path) as store:
        await put(store, "b", 1, 50.0, score_details={"accuracy": 80.0, "note": "text"})
        await put(store, "a", 2, None, score_details={"reason": "failed"})
        await put(store, "a", 1, 80.0, score_details=full)
        results = await store.get_evaluation_results_by_execution("e")
        assert await store.get_evaluation_results_by_execution("e", team_id="b") == results[2:]
    shown = [([(m.metric_name, m.score, m.evaluator_comment) for m in r.metrics], r.overall_score) for r in results]
    assert shown == [([("M", 80.0, "ok")], 80.0), ([], None), ([("accuracy", 80.0, "")], 50.0)]


async def test_statistics_of_a_team_cover_all_executions(tmp_path: Path) -> None:
    async with AggregationStore(tmp_path) as store:
        await put(store, "a", 1, 40.0)
        await put(store, "a", 2, None)
        await put(store, "a", 1, 60.0, execution_id="f", team_name="renamed", final_submission=True)
        assert await store.get_team_statistics("a") == {
            "team_id": "a",
            "team_name": "renamed",
            "total_executions": 2,
            "total_rounds": 3,
            "scored_rounds": 2,
            "best_score": 60.0,
            "average_score": 50.0,
            "final_submissions": 1,
        }
        unknown = await store.get_team_statistics("nobody")
    assert (unknown["total_rounds"], unknown["best_score"], unknown["team_name"]) == (0, None, None)


async def test_an_execution_summary_is_an_upsert_that_keeps_its_beginning(tmp_path: Path) -> None:
    database = tmp_path / "mixseek.db"
    sql = "SELECT status, team_results, best_score, total_teams, created_at, completed_at FROM execution_summary"
    async with AggregationStore(tmp_path) as store:
        await store.save_execution_summary("e", "問い", "failed", [], 2, None, None, 1.5)
    ((*_, created, completed),) = rows(database, sql)
    async with AggregationStore(tmp_path) as store:
        await store.save_execution_summary("e", "問い", "completed", [{"team_id": "a"}], 2, "a", 85.57, 2.5)
        with pytest.raises(UnstorableValueError, match=r"^status: 'done' is not one of"):
            await store.save_execution_summary("e", "q", "done", [], 0, None, None, 1.0)  # type: ignore[arg-type]
    ((*values, created_again, completed_again),) = rows(database, sql)
    assert values == ["completed", '[{"team_id":"a"}]', 85.57, 2]
    assert created_again == created
    assert completed_again > completed


async def test_the_view_offers_scores_from_zero_to_one(tmp_path: Path) -> None:
    async with AggregationStore(tmp_path) as store:
        await put(store, "a", 1, 85.0)
        await put(store, "a", 2, None)
    assert rows(tmp_path / "mixseek.db", "SELECT score_normalized FROM leader_board_scored ORDER BY id") == [
        (0.85,),
        (None,),
    ]


def test_times_are_utc_whatever_the_zone_of_the_process(tmp_path: Path) -> None:
    code = """
import asyncio, sys
from mixseek.storage.aggregation_store import AggregationStore
async def main():
    async with AggregationStore(sys.argv[1]) as store:
        await store.save_to_leader_board("e", "a", "A", 1, "s", "md", 1.0, {})
        times = ("2026-01-01T09:00:00+09:00", "2026-01-01T00:00:00")
        await store.save_round_status("e", "a", "A", 1, None, None, None, *times)
        print((await store.get_leader_board())[0]["created_at"].isoformat())
asyncio.run(main())
"""
    environment = {"PYTHONPATH": ":".join(filter(None, sys.path)), "TZ": "Asia/Tokyo"}
    before = datetime.now(UTC)
    done = subprocess.run([sys.executable, "-c", code, tmp_path], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert before <= datetime.fromisoformat(done.stdout.strip()) <= datetime.now(UTC)
    kept = rows(tmp_path / "mixseek.db", "SELECT round_started_at, round_ended_at, created_at FROM round_status")[0]
    assert kept[:2] == (datetime(2026, 1, 1), datetime(2026, 1, 1))
    assert before <= kept[2].replace(tzinfo=UTC) <= datetime.now(UTC)


async def test_a_closed_store_is_closed_and_closing_twice_is_nothing(tmp_path: Path) -> None:
    store = AggregationStore(tmp_path)
    await put(store, "a", 1, 1.0)
    await store.close()
    await store.close()
    duckdb.connect(str(tmp_path / "mixseek.db")).close()
    with pytest.raises(DatabaseReadError, match="closed"):
        await store.get_leader_board()
    with pytest.raises(DatabaseWriteError, match="closed"):
        await put(store, "a", 2, 1.0)


async def test_the_workspace_may_come_from_the_environment_and_has_to_exist(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MIXSEEK_WORKSPACE", str(tmp_path))
    assert AggregationStore().db_path == tmp_path / "mixseek.db"
    assert AggregationStore(tmp_path, tmp_path / "other.db").db_path == tmp_path / "other.db"
    with pytest.raises(WorkspaceNotFoundError):
        AggregationStore(tmp_path / "missing")


async def test_the_event_loop_goes_on_while_the_store_works(tmp_path: Path) -> None:
    beats = 0

    async def beat() -> None:
        nonlocal beats
        while True:
            await asyncio.sleep(0.001)
            beats += 1

    heart = asyncio.create_task(beat())
    async with AggregationStore(tmp_path) as store:
        await put(store, "a", 1, 1.0)
    heart.cancel()
    assert beats >= 5


def test_importing_the_package_loads_no_duckdb() -> None:
    code = "import sys, mixseek, mixseek.storage; print('duckdb' in sys.modules)"
    environment = {"PYTHONPATH": ":".join(filter(None, sys.path))}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True)
    assert done.stdout.strip() == "False", done.stderr
