"""Text of any kind is kept bit by bit, or refused by the name of its column before anything is written."""

import json
import math
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from mixseek.errors import UnstorableValueError
from mixseek.records import MemberSubmission, MemberSubmissionsRecord, ModelUsage
from mixseek.storage.aggregation_store import AggregationStore

KEPT = {
    "nul": "a\0b",
    "nul at the end": "a\0",
    "only nul": "\0",
    "empty": "",
    "emoji": "👩‍👩‍👧‍👦 🏴󠁧󠁢󠁥󠁮󠁧󠁿",
    "right to left": "\u202eabc\u05d0\u0627",
    "quotes": "'\"`'; DROP TABLE leader_board; --",
    "sql comment": "*/ /* -- $$ ? :x %s",
    "control": "\x01\x1b[31m\x7f\x80\r\n\t",
    "not characters": "\ufffe\uffff\ufeff",
    "composed": "e\u0301 é",
    "json": '{"a": "\\u0000"}',
    "template": "{{ ''.__class__ }}",
    "path": "../../etc/passwd",
}
LONE = "a\ud800b"


@pytest.mark.parametrize("value", KEPT.values(), ids=KEPT.keys())
async def test_text_is_kept_bit_by_bit_in_every_column(tmp_path: Path, value: str) -> None:
    member = MemberSubmission(agent_name=value, agent_type=value, content=value, status="ERROR", error_message=value)
    record = MemberSubmissionsRecord(
        execution_id=value, team_id=value, team_name=value, round_number=1, submissions=[member]
    )
    usage = ModelUsage(execution_id=value, team_id=value, round_number=1, role="leader", agent_name=value, model=value)
    async with AggregationStore(tmp_path) as store:
        for _ in range(2):  # the second time each row is found again by its key
            await store.save_to_leader_board(value, value, value, 1, value, value, 1.0, {value: [value]}, True, value)
            await store.save_aggregation(value, record, [{value: value}])
            await store.save_round_status(value, value, value, 1, True, value, 0.5, None, None, usage=[usage])
            await store.save_execution_summary(value, value, "completed", [value], 1, value, 1.0, 1.0)
        await store.save_to_leader_board(value + "x", value, value, 1, "other", "md", 2.0, {})
        (row,) = [row for row in await store.get_leader_board() if row["submission_content"] == value]
        for column in (
            "execution_id",
            "team_id",
            "team_name",
            "submission_content",
            "submission_format",
            "exit_reason",
        ):
            assert row[column] == value, column
        assert row["score_details"] == {value: [value]}
        assert await store.load_round_history(value, value, 1) == (record, [{value: value}])
        assert await store.get_model_usage(value, value) == [usage]
        ranking = [{"team_id": value, "team_name": value, "max_score": 1.0, "total_rounds": 1}]
        assert await store.get_leader_board_ranking(value) == ranking
        assert await store.get_team_current_rank(value, value) == 1
        status = await store._read(
            lambda c: c.execute("SELECT execution_id, team_name, reasoning FROM round_status").fetchall()
        )
        summary = await store._read(
            lambda c: c.execute(
                "SELECT execution_id, user_prompt, best_team_id, team_results FROM execution_summary"
            ).fetchall()
        )
    assert status == [(value,) * 3]
    assert [(*columns[:3], json.loads(columns[3])) for columns in summary] == [(value, value, value, [value])]


async def test_ids_that_differ_only_after_a_nul_are_different_teams(tmp_path: Path) -> None:
    async with AggregationStore(tmp_path) as store:
        for team in ("a", "a\0", "a\0b"):
            await store.save_to_leader_board("e", team, team, 1, "s", "md", 1.0, {})
        assert [row["team_id"] for row in await store.get_leader_board_ranking("e")] == ["a", "a\0", "a\0b"]


async def test_ten_megabytes_are_kept_in_text_and_in_json(tmp_path: Path) -> None:
    text = "😀é\0\u202e" * 1_000_000
    async with AggregationStore(tmp_path) as store:
        await store.save_to_leader_board("e", "t", "n", 1, text, "md", 1.0, {"text": text})
        (row,) = await store.get_leader_board()
    assert len(text.encode()) >= 10_000_000
    assert row["submission_content"] == text
    assert row["score_details"] == {"text": text}


Save = Callable[[AggregationStore], Coroutine[Any, Any, None]]


def board(**more: Any) -> Save:
    values: dict[str, Any] = {
        "execution_id": "e",
        "team_id": "t",
        "team_name": "n",
        "round_number": 1,
        "submission_content": "s",
        "submission_format": "md",
        "score": 1.0,
        "score_details": {},
    }
    return lambda store: store.save_to_leader_board(**{**values, **more})


def status(**more: Any) -> Save:
    values: dict[str, Any] = {"execution_id": "e", "team_id": "t", "team_name": "n", "round_number": 1}
    return lambda store: store.save_round_status(**{**values, **more})


def summary(**more: Any) -> Save:
    values: dict[str, Any] = {
        "execution_id": "e",
        "user_prompt": "p",
        "status": "completed",
        "team_results": [],
        "total_teams": 1,
    }
    return lambda store: store.save_execution_summary(**{**values, **more})


def usage(**more: Any) -> Save:
    values = {"execution_id": "e", "team_id": "t", "round_number": 1, "role": "leader", "agent_name": "a", "model": "m"}
    return lambda store: store.save_model_usage([ModelUsage.model_construct(**{**values, **more})])


def history(messages: Any = (), **more: Any) -> Save:
    values = {"execution_id": "e", "team_id": "t", "team_name": "n", "round_number": 1}
    record = MemberSubmissionsRecord.model_validate({**values, **more})
    return lambda store: store.save_aggregation("e", record, messages)


def nested(depth: int) -> Any:
    value: Any = []
    for _ in range(depth - 1):
        value = [value]
    return value


MEMBER = {"agent_name": "a", "agent_type": "plain", "status": "SUCCESS"}
REFUSED: list[tuple[str, Save]] = [
    *((name, board(**{name: LONE})) for name in ("execution_id", "team_id", "team_name", "submission_content")),
    *((name, board(**{name: LONE})) for name in ("submission_format", "exit_reason")),
    ("score_details", board(score_details={"a": LONE})),
    ("score_details", board(score_details={LONE: 1})),
    ("score_details", board(score_details={"a": math.nan})),
    ("score_details", board(score_details={"a": -math.inf})),
    ("score_details", board(score_details={"a": 10**5000})),
    ("score_details", board(score_details={"a": {1, 2}})),
    ("score_details", board(score_details={"a": nested(151)})),
    ("score_details", board(score_details={"a": nested(100_000)})),
    ("team_id", board(team_id=None)),
    ("team_id", board(team_id=7)),
    ("round_number", board(round_number=0)),
    ("round_number", board(round_number=2**31)),
    ("round_number", board(round_number="1")),
    ("round_number", board(round_number=True)),
    ("score", board(score="80")),
    ("score", board(score=10**400)),
    ("reasoning", status(reasoning=LONE)),
    ("round_started_at", status(round_started_at="yesterday")),
    ("round_ended_at", status(round_ended_at=5)),
    ("round_ended_at", status(round_ended_at="0001-01-01T00:00:00+09:00")),
    ("user_prompt", summary(user_prompt=LONE)),
    ("team_results", summary(team_results=[LONE])),
    ("best_team_id", summary(best_team_id=LONE)),
    ("total_teams", summary(total_teams=-1)),
    ("agent_name", usage(agent_name=LONE)),
    ("model", usage(model=LONE)),
    ("input_tokens", usage(input_tokens=2**63)),
    ("message_history", history([LONE])),
    ("message_history", history([math.nan])),
    ("message_history", history([nested(200)])),
    ("member_submissions_record", history(submissions=[{**MEMBER, "content": LONE}])),
    ("member_submissions_record", history(submissions=[{**MEMBER, "content": "", "all_messages": [nested(149)]}])),
    ("team_id", history(team_id=LONE)),
]


async def test_what_cannot_be_kept_is_refused_by_name_and_nothing_is_written(tmp_path: Path) -> None:
    async with AggregationStore(tmp_path) as store:
        for column, save in REFUSED:
            with pytest.raises(UnstorableValueError, match=rf"^{column}: .*nothing was written$"):
                await save(store)
        for table in ("leader_board", "round_status", "round_history", "execution_summary", "model_usage"):
            sql = f"SELECT count(*) FROM {table}"
            assert await store._read(lambda c, sql=sql: c.execute(sql).fetchone()) == (0,)  # type: ignore[misc]


@pytest.mark.parametrize(
    "value", [10**400, -(10**30), 1e-320, 1.7976931348623157e308, 0.1 + 0.2, nested(149), "\u2028", {}]
)
async def test_json_values_read_back_as_they_were(tmp_path: Path, value: Any) -> None:
    async with AggregationStore(tmp_path) as store:
        await store.save_to_leader_board("e", "t", "n", 1, "s", "md", 1.0, {"value": value})
        (row,) = await store.get_leader_board()
    assert row["score_details"] == {"value": value}


async def test_brackets_inside_strings_are_no_nesting(tmp_path: Path) -> None:
    text = '[{"\\' * 500
    async with AggregationStore(tmp_path) as store:
        await store.save_to_leader_board("e", "t", "n", 1, "s", "md", 1.0, {"text": [text, text]})
        assert (await store.get_leader_board())[0]["score_details"] == {"text": [text, text]}
