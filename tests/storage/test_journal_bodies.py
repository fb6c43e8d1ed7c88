"""Large bodies are compressed, whatever is kept comes back as it was, and SQL can look into it."""

import sqlite3
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

import pytest
from pydantic import JsonValue

from mixseek.storage.bodies import packed, unpacked
from mixseek.storage.journal import CallScope, Journal, JournalEvent, ModelCall, RoundPrompt, ToolResult

NOW = datetime(2026, 11, 15, 12, 0, 0, 123456, tzinfo=UTC)
SCOPE = CallScope(execution_id="e", team_id="t", round_number=1, role="leader", agent_name="leader")
LONG = "質問と答えを繰り返す、 with \x00 control \\ marks and \ud800 half a pair; " * 200


def large_call(request: JsonValue, answer: JsonValue) -> ModelCall:
    return ModelCall(
        scope=SCOPE, key="k", occurrence=0, model="m", request=request, answer=answer, started_at=NOW, ended_at=NOW
    )


def column(path: Path, statement: str) -> object:
    with closing(sqlite3.connect(path)) as db:
        return db.execute(statement).fetchone()[0]


async def test_large_bodies_are_blobs_a_fraction_of_their_size_and_come_back_as_they_were(tmp_path: Path) -> None:
    async with Journal(tmp_path / "journal.db") as journal:
        await journal.record_call(large_call({"messages": [LONG]}, {"parts": [LONG]}))
        [call] = await journal.calls("e")
        stored = column(journal.path, "SELECT request FROM calls")
    assert isinstance(stored, bytes)
    assert len(stored) < len(LONG) / 3
    assert call.request == {"messages": [LONG]}
    assert call.answer == {"parts": [LONG]}


async def test_small_bodies_stay_text_that_any_program_reads(tmp_path: Path) -> None:
    async with Journal(tmp_path / "journal.db") as journal:
        await journal.record_call(large_call({"messages": ["short"]}, "yes"))
        assert column(journal.path, "SELECT request FROM calls") == '{"messages":["short"]}'


async def test_every_kind_of_record_may_be_large(tmp_path: Path) -> None:
    result = ToolResult(
        scope=SCOPE,
        tool="m1",
        key="k",
        arguments={"task": LONG},
        occurrence=0,
        result={"content": LONG},
        started_at=NOW,
        ended_at=NOW,
    )
    prompt = RoundPrompt(
        execution_id="e", team_id="t", round_number=1, role="leader", text=LONG, clock="", ranking=[LONG], made_at=NOW
    )
    async with Journal(tmp_path / "journal.db") as journal:
        await journal.record_tool_result(result)
        await journal.record_prompt(prompt)
        assert await journal.tool_results("e") == [result]
        assert await journal.prompts("e") == [prompt]


async def test_what_sql_looks_up_inside_bodies_is_found_in_large_ones(tmp_path: Path) -> None:
    task = "a task " * 1000
    begun: JsonValue = {"user_prompt": task, "team_names": {"a": "A", "b": "B"}}
    result = ToolResult(
        scope=SCOPE,
        tool="m1",
        key="k",
        arguments={},
        occurrence=0,
        result={"content": task, "all_messages": [task]},
        started_at=NOW,
        ended_at=NOW,
    )
    async with Journal(tmp_path / "journal.db") as journal:
        await journal.record_event(JournalEvent(execution_id="e", sequence=0, kind="RunStarted", at=NOW, payload=begun))
        await journal.record_tool_result(result)
        [run] = await journal.started_runs()
        [member] = await journal.member_calls("e")
    assert (run.user_prompt, run.total_teams) == (task, 2)
    assert member.result == {"content": task}


async def test_bodies_that_were_kept_as_text_before_are_read_beside_new_ones(tmp_path: Path) -> None:
    async with Journal(tmp_path / "journal.db") as journal:
        await journal.record_call(large_call({"messages": [LONG]}, {"parts": [LONG]}))
        stored = column(journal.path, "SELECT request FROM calls")
        assert isinstance(stored, bytes)
        with closing(sqlite3.connect(journal.path)) as db:
            db.execute("UPDATE calls SET request = ?", (unpacked(stored),))
            db.commit()
        await journal.record_call(large_call({"messages": [LONG]}, "second"))
        assert [call.request for call in await journal.calls("e")] == [{"messages": [LONG]}] * 2


@pytest.mark.parametrize("text", ["", "x", "x" * 100_000, "字" * 5000])
def test_packing_loses_nothing(text: str) -> None:
    assert unpacked(packed(text.encode())) == text


async def test_deleting_an_execution_empties_every_table_that_knows_executions(tmp_path: Path) -> None:
    async with Journal(tmp_path / "journal.db") as journal:
        await journal.record_call(large_call({}, "yes"))
        with closing(sqlite3.connect(journal.path)) as db:
            db.execute("CREATE TABLE added_by_a_later_version (execution_id TEXT)")
            db.execute("INSERT INTO added_by_a_later_version VALUES ('e'), ('other')")
            db.commit()
        assert await journal.delete("e") == 2
        assert column(journal.path, "SELECT group_concat(execution_id) FROM added_by_a_later_version") == "other"


async def test_deleting_an_execution_keeps_one_that_was_played_under_a_name_which_begins_with_its_own(
    tmp_path: Path,
) -> None:
    async with Journal(tmp_path / "journal.db") as journal:
        for name in ("nightly", "nightly~2"):
            await journal.record_event(
                JournalEvent(execution_id=name, team_id=None, sequence=0, kind="RunStarted", at=NOW, payload={})
            )
        assert await journal.delete("nightly") == 1
        assert [event.execution_id for event in await journal.events()] == ["nightly~2"]
