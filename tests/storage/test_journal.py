import asyncio
import json
import sqlite3
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

import pytest
from pydantic import JsonValue, ValidationError

from mixseek.errors import (
    DatabaseReadError,
    DatabaseVersionError,
    DatabaseWriteError,
    StorageError,
    UnstorableValueError,
)
from mixseek.records import Usage
from mixseek.redaction import MARK, Redactor
from mixseek.storage.health import journal_health
from mixseek.storage.journal import (
    Attempt,
    CallFailure,
    CallScope,
    Journal,
    JournalEvent,
    ModelCall,
    RoundPrompt,
    StartedCall,
    ToolResult,
    new_call_id,
)
from mixseek.storage.journal_checks import check_journal

NOW = datetime(2026, 11, 15, 12, 0, 0, 123456, tzinfo=UTC)
SCOPE = CallScope(execution_id="e1", team_id="team/'1'", round_number=2, role="leader", agent_name="lead")


def a_call(key: str = "k", *, answer: JsonValue = "ok", occurrence: int = 0, request: JsonValue = None) -> ModelCall:
    return ModelCall(
        scope=SCOPE,
        key=key,
        occurrence=occurrence,
        model="openai:gpt-x",
        request=request or {"messages": ["質問"]},
        answer=answer,
        usage=Usage(requests=1, input_tokens=10, output_tokens=5, details={"reasoning": 2}),
        cost_usd=0.00123,
        attempts=(
            Attempt(at=NOW, outcome="overloaded", status=529, seconds=0.5),
            Attempt(at=NOW + timedelta(seconds=1), outcome="ok", status=200, seconds=1.5),
        ),
        started_at=NOW,
        ended_at=NOW + timedelta(seconds=3),
    )


def a_failure(key: str = "k", message: str = "no answer") -> ModelCall:
    failure = CallFailure(error="ModelError", message=message, status=500)
    return ModelCall(**{**dict(a_call(key)), "call_id": new_call_id(), "answer": None, "failure": failure})


def an_event(sequence: int, *, team_id: str | None = "t1", payload: JsonValue = None) -> JournalEvent:
    return JournalEvent(
        execution_id="e1", team_id=team_id, sequence=sequence, kind="round_finished", at=NOW, payload=payload or {}
    )


def a_prompt(text: str = "プロンプト") -> RoundPrompt:
    return RoundPrompt(
        execution_id="e1",
        team_id="t1",
        round_number=2,
        role="leader",
        text=text,
        clock="2026-11-15T21:00:00+09:00",
        ranking=[{"team_id": "t1", "max_score": 80.5}],
        nonce="c0ffee",
        made_at=NOW,
    )


def a_tool_result(occurrence: int = 0, result: JsonValue = "done") -> ToolResult:
    return ToolResult(
        scope=SCOPE,
        tool="analyst",
        arguments={"task": "look", "deep": [1, 2.5]},
        key="used",
        occurrence=occurrence,
        result=result,
        started_at=NOW,
        ended_at=NOW,
    )


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[Journal]:
    made = Journal(tmp_path / "journal.db", redactor=Redactor(), retry_delays=())
    yield made
    made.close()


# --- what goes in comes out -------------------------------------------------------------------------------------------


async def test_an_answered_call_is_found_as_it_was(journal: Journal) -> None:
    call = a_call()
    await journal.record_call(call)
    assert await journal.find_call("k", 0) == call
    assert await journal.calls("e1") == [call]
    assert await journal.calls("e1", SCOPE.team_id) == [call]
    assert await journal.calls("e1", "another") == []


async def test_a_call_and_the_event_that_tells_of_it_are_kept_together_and_in_their_order(journal: Journal) -> None:
    makers: list[str] = []

    def told() -> JournalEvent:
        makers.append(threading.current_thread().name)
        return an_event(1)

    journal.record_event_later(an_event(0))
    asked = journal.record_call_by(SCOPE, a_call, told)
    await asyncio.gather(asked, journal.record_event(an_event(2)))
    assert makers == ["mixseek-journal"]
    assert len(await journal.calls("e1")) == 1
    assert [event.sequence for event in await journal.events("e1")] == [0, 1, 2]


async def test_a_call_that_cannot_be_made_a_row_is_refused_alone(journal: Journal) -> None:
    def broken() -> ModelCall:
        raise ValueError("no answer")

    outcomes = await asyncio.gather(
        journal.record_call_by(SCOPE, broken, lambda: an_event(0)),
        journal.record_call_by(SCOPE, a_call, lambda: an_event(1)),
        return_exceptions=True,
    )
    assert [type(outcome) for outcome in outcomes] == [UnstorableValueError, type(None)]
    assert [event.sequence for event in await journal.events("e1")] == [1]


async def test_a_tool_result_is_found_by_key_and_occurrence(journal: Journal) -> None:
    result = a_tool_result(1, {"status": "error", "content": None})
    await journal.record_tool_result(result)
    assert await journal.find_tool_result("used", 1) == result
    assert await journal.find_tool_result("used", 0) is None
    assert await journal.find_tool_result("another", 1) is None
    assert await journal.tool_results("e1") == [result]


async def test_of_several_results_of_one_use_the_last_one_holds(journal: Journal) -> None:
    for words in ("cancelled", "done"):
        await journal.record_tool_result(a_tool_result(result=words))
    found = await journal.find_tool_result("used", 0)
    assert found is not None
    assert found.result == "done"


async def test_a_tool_result_of_nothing_is_found_too(journal: Journal) -> None:
    await journal.record_tool_result(a_tool_result(result=None))
    found = await journal.find_tool_result("used", 0)
    assert found is not None
    assert found.result is None


async def test_of_several_prompts_for_a_round_and_role_the_last_holds(journal: Journal) -> None:
    for text in ("first", "second"):
        await journal.record_prompt(a_prompt(text))
    assert await journal.find_prompt("e1", "t1", 2, "leader") == a_prompt("second")
    assert await journal.find_prompt("e1", "t1", 2, "evaluator") is None
    assert [prompt.text for prompt in await journal.prompts("e1")] == ["first", "second"]


async def test_events_are_read_in_order_and_on_from_a_position(journal: Journal) -> None:
    for sequence in range(5):
        await journal.record_event(an_event(sequence, payload={"row": [sequence, None, "行"]}))
    events = await journal.events("e1")
    assert [event.sequence for event in events] == [0, 1, 2, 3, 4]
    assert events[3].payload == {"row": [3, None, "行"]}
    position = events[1].position
    assert position is not None
    assert [event.sequence for event in await journal.events(after=position, limit=2)] == [2, 3]
    assert await journal.events("another") == []


async def test_a_sequence_number_is_used_once_per_team_and_once_for_the_execution(journal: Journal) -> None:
    for team_id in ("t1", "t2", "", None):
        await journal.record_event(an_event(7, team_id=team_id))
    for team_id in ("t1", "", None):
        with pytest.raises(UnstorableValueError, match="events"):
            await journal.record_event(an_event(7, team_id=team_id))
    assert len(await journal.events()) == 4
    assert await journal.last_sequence("e1", "t1") == 7
    assert await journal.last_sequence("e1") == 7
    assert await journal.last_sequence("e1", "t3") is None


async def test_a_failed_call_is_no_answer_and_stays_on_the_bill(journal: Journal) -> None:
    await journal.record_call(a_failure(message="first"))
    await journal.record_call(a_failure(message="second"))
    assert await journal.find_call("k", 0) is None
    await journal.record_call(a_call(answer="at last"))
    found, failed = await journal.find_call("k", 0), await journal.find_failed_call("k", 0)
    assert found is not None
    assert found.answer == "at last"
    assert failed is not None
    assert failed.failure is not None
    assert failed.failure.message == "second"
    assert len(await journal.calls("e1")) == 3


async def test_of_two_answers_the_first_is_found(journal: Journal) -> None:
    for answer in ("first", "second"):
        await journal.record_call(a_call(answer=answer))
    found = await journal.find_call("k", 0)
    assert found is not None
    assert found.answer == "first"


async def test_occurrences_of_one_key_have_answers_of_their_own(journal: Journal) -> None:
    for occurrence, answer in enumerate(("one", "two")):
        await journal.record_call(a_call(answer=answer, occurrence=occurrence))
    found = [await journal.find_call("k", occurrence) for occurrence in range(3)]
    assert [call and call.answer for call in found] == ["one", "two", None]


def test_a_call_has_an_answer_or_a_failure() -> None:
    with pytest.raises(ValidationError, match="either an answer or a failure"):
        a_call(answer=None)


@pytest.mark.parametrize("durable", [True, False])
async def test_a_started_call_is_in_flight_until_it_ends(journal: Journal, durable: bool) -> None:
    call = a_call()
    start = StartedCall(
        call_id=call.call_id,
        scope=SCOPE,
        key="k",
        occurrence=0,
        model="m",
        started_at=NOW,
        reserved_tokens=4096,
        reserved_usd=0.25,
    )
    other = start.model_copy(update={"call_id": "other", "key": "k2"})
    await journal.call_starts(start, durable=durable)
    await journal.call_starts(other, durable=True)
    assert await journal.calls_in_flight("e1") == [start, other]
    await journal.record_call(call)
    assert await journal.calls_in_flight("e1") == [other]


async def test_a_start_that_is_not_durable_is_written_before_what_follows(journal: Journal) -> None:
    for number in range(20):
        call = a_call(f"k{number}")
        start = StartedCall(call_id=call.call_id, scope=SCOPE, key=call.key, occurrence=0, model="m", started_at=NOW)
        await journal.call_starts(start, durable=False)
        await journal.record_call(call)
    with sqlite3.connect(journal.path) as db:
        (both,) = db.execute("SELECT count(*) FROM calls JOIN started_calls USING (call_id)").fetchone()
    db.close()
    assert both == 20


async def test_times_are_kept_in_utc(journal: Journal) -> None:
    there = NOW.astimezone(timezone(timedelta(hours=9)))
    await journal.record_event(an_event(1).model_copy(update={"at": there}))
    (event,) = await journal.events()
    assert event.at == NOW
    assert event.at.utcoffset() == timedelta(0)


async def test_a_file_that_is_not_there_holds_nothing_and_is_not_made_by_reading(tmp_path: Path) -> None:
    async with Journal(tmp_path / "journal.db") as journal:
        assert await journal.find_call("k", 0) is None
        assert await journal.events() == []
        assert await journal.last_sequence("e1") is None
        assert not journal.path.exists()
        await journal.record_event(an_event(1))
        assert len(await journal.events()) == 1


async def test_a_workspace_with_odd_characters_in_its_name_works(tmp_path: Path) -> None:
    folder = tmp_path / "a b?c#d%41 仕事"
    folder.mkdir()
    async with Journal(folder / "journal.db") as journal:
        await journal.record_event(an_event(1))
        assert len(await journal.events()) == 1


# --- bit by bit -------------------------------------------------------------------------------------------------------

ODD_TEXTS = {
    "nul": "before\0after",
    "lone surrogate": "half \ud83d of a pair, and the other \udca9",
    "astral": "😀𠮷",
    "controls": "\x01\x1f\x7f\u2028\r\n\t",
    "not normalised": "e\u0301 é ﷺ",
    "json in json": json.dumps({"a": '"\\\n'}),
    "ten megabytes": "長い文" * 1_200_000,
}


@pytest.mark.parametrize("text", ODD_TEXTS.values(), ids=ODD_TEXTS.keys())
async def test_texts_come_back_bit_by_bit(journal: Journal, text: str) -> None:
    await journal.record_call(a_call(answer={"parts": [text], text[:50]: 1}, request=[text]))
    await journal.record_prompt(a_prompt(text))
    found = await journal.find_call("k", 0)
    prompt = await journal.find_prompt("e1", "t1", 2, "leader")
    assert found is not None
    assert prompt is not None
    assert found.answer == {"parts": [text], text[:50]: 1}
    assert found.request == [text]
    assert prompt.text == text


@pytest.mark.parametrize("number", [0, -1, 2**80, 0.1, 1e308, -0.0, 5e-324, True, None])
async def test_numbers_come_back_as_they_were(journal: Journal, number: JsonValue) -> None:
    await journal.record_call(a_call(answer=[number]))
    found = await journal.find_call("k", 0)
    assert found is not None
    assert repr(found.answer) == repr([number])


@pytest.mark.parametrize("team_id", ["a\0b", "../../x", "'; DROP TABLE calls; --", "", "チーム"])
async def test_a_team_may_have_any_name(journal: Journal, team_id: str) -> None:
    scope = SCOPE.model_copy(update={"team_id": team_id})
    await journal.record_call(a_call().model_copy(update={"scope": scope}))
    assert [call.scope for call in await journal.calls("e1", team_id)] == [scope]


def _deep() -> JsonValue:
    value: JsonValue = None
    for _ in range(100_000):
        value = [value]
    return value


@pytest.mark.parametrize(
    ("event", "name"),
    [
        (an_event(1, payload=float("nan")), "payload"),
        (an_event(1, payload=[float("inf")]), "payload"),
        (an_event(1, payload="two halves \ud83d\ude00 in a row"), "payload"),
        (an_event(1).model_copy(update={"payload": _deep()}), "payload"),
        (an_event(1).model_copy(update={"payload": {1, 2}}), "payload"),
        (an_event(1, team_id="\ud800"), "team_id"),
        (an_event(2**70), "events"),
    ],
    ids=["nan", "infinity", "surrogate pair", "depth", "set", "name", "number"],
)
async def test_what_cannot_be_kept_is_refused_by_name_and_alone(
    journal: Journal, event: JournalEvent, name: str
) -> None:
    records = [journal.record_event(an_event(10)), journal.record_event(event), journal.record_event(an_event(11))]
    before, refused, after = await asyncio.gather(*records, return_exceptions=True)
    assert before is after is None
    assert isinstance(refused, UnstorableValueError)
    assert name in str(refused)
    assert [kept.sequence for kept in await journal.events()] == [10, 11]


async def test_calls_made_about_an_execution_later_are_known_by_their_ids(tmp_path: Path) -> None:
    async with Journal(tmp_path / "journal.db", redactor=Redactor([CANARY])) as journal:
        for name in (CANARY, f"{CANARY}~b", f"{CANARY}~a", f"{CANARY}~b", f"{CANARY}-2~c"):
            scope = SCOPE.model_copy(update={"execution_id": name})
            await journal.record_call(a_call().model_copy(update={"scope": scope}))
        assert await journal.derived_ids(CANARY) == [f"{CANARY}~b", f"{CANARY}~a"]
        assert await journal.derived_ids("another") == []


# --- secrets ----------------------------------------------------------------------------------------------------------

CANARY = 'CANARY-"7f3a9c51"-value'
SHAPED_CANARY = "sk-proj-CANARY7f3a9c5100aa"


async def test_no_byte_of_a_secret_reaches_the_file(tmp_path: Path) -> None:
    c = f"x {CANARY} {SHAPED_CANARY} x"
    scope = CallScope(execution_id=c, team_id=c, round_number=1, role=c, agent_name=c)
    journal = Journal(tmp_path / "journal.db", redactor=Redactor([CANARY]))
    answered = a_call(answer={c: [c, json.dumps(c)]}, request={"headers": {"k": c}})
    await journal.record_call(answered.model_copy(update={"scope": scope, "model": c}))
    attempt = Attempt(at=NOW, outcome=c, seconds=1)
    failed = a_failure(message=c).model_copy(update={"scope": scope, "attempts": (attempt,)})
    await journal.record_call(failed)
    usage = Usage(details={c: 1})
    await journal.record_call(a_call("k3").model_copy(update={"usage": usage}))
    await journal.call_starts(StartedCall(call_id=c, scope=scope, key=c, occurrence=0, model=c, started_at=NOW))
    result = a_tool_result(result=c).model_copy(update={"scope": scope, "tool": c, "key": c, "arguments": {c: c}})
    await journal.record_tool_result(result)
    prompt = {"execution_id": c, "team_id": c, "role": c, "clock": c, "nonce": c, "ranking": [c]}
    await journal.record_prompt(a_prompt(c).model_copy(update=prompt))
    event = {"execution_id": c, "kind": c}
    await journal.record_event(an_event(1, team_id=c, payload={c: c}).model_copy(update=event))

    # What was redacted is found by those who still know the secret.
    assert await journal.find_prompt(c, c, 2, c) is not None
    assert await journal.find_tool_result(c, 0) is not None
    assert len(await journal.calls(c, c)) == 2
    assert len(await journal.calls_in_flight(c)) == 1
    assert len(await journal.events(c)) == 1
    assert await journal.last_sequence(c, c) == 1

    def bytes_on_disk() -> bytes:
        return b"".join(path.read_bytes() for path in sorted(tmp_path.iterdir()))

    while_open = bytes_on_disk()
    journal.close()
    for content in (while_open, bytes_on_disk()):
        assert MARK.encode() in content
        assert b"7f3a9c51" not in content
        assert b"CANARY" not in content


# --- versions and other files -----------------------------------------------------------------------------------------


async def test_the_file_says_which_version_it_has_and_what_made_it(journal: Journal) -> None:
    await journal.record_event(an_event(1))
    db = sqlite3.connect(journal.path)
    known = [row[:2] for row in db.execute("SELECT * FROM schema_version")]
    assert known == [(1, "m001_create_tables"), (2, "m002_places"), (3, "m003_compressed_bodies_and_pruned_executions")]
    assert db.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    db.close()


async def test_a_journal_of_a_newer_version_is_refused_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    async with Journal(path) as journal:
        await journal.record_event(an_event(1))
    db = sqlite3.connect(path)
    db.execute("INSERT INTO schema_version VALUES (99, 'm099_later', '')")
    db.commit()
    db.close()
    before = path.read_bytes()
    async with Journal(path) as journal:
        with pytest.raises(DatabaseVersionError, match=r"version 99.*newer"):
            await journal.record_event(an_event(2))
        with pytest.raises(DatabaseVersionError, match=r"journal\.db"):
            await journal.events()
    assert path.read_bytes() == before


async def test_another_sqlite_file_of_that_name_is_refused_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    db = sqlite3.connect(path)
    db.execute("CREATE TABLE addresses (name TEXT)")
    db.commit()
    db.close()
    before = path.read_bytes()
    async with Journal(path) as journal:
        with pytest.raises(StorageError, match="not a MixSeek journal"):
            await journal.record_event(an_event(1))
        with pytest.raises(StorageError, match="not a MixSeek journal"):
            await journal.events()
    assert path.read_bytes() == before


@pytest.mark.parametrize("content", [b"no database at all " * 100, b"SQLite format 3\0" + b"\xff" * 5000])
async def test_a_damaged_file_is_named_and_left_alone(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "journal.db"
    path.write_bytes(content)
    async with Journal(path, retry_delays=()) as journal:
        with pytest.raises(DatabaseWriteError, match=r"journal\.db.* is damaged .*move it aside"):
            await journal.record_event(an_event(1))
        with pytest.raises(DatabaseReadError, match=r"journal\.db.* is damaged .*move it aside"):
            await journal.events()
    assert path.read_bytes() == content


async def test_a_log_whose_journal_is_gone_is_kept_and_spoils_no_new_one(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    old, new = tmp_path / "old", tmp_path / "new"
    old.mkdir()
    new.mkdir()
    async with Journal(old / "journal.db") as journal:
        for sequence in range(200):
            await journal.record_event(an_event(sequence, payload="x" * 3000))
        log = (old / "journal.db-wal").read_bytes()
    (new / "journal.db-wal").write_bytes(log)
    for sequence in range(2):
        async with Journal(new / "journal.db") as journal:
            await journal.record_event(an_event(sequence))
    async with Journal(new / "journal.db") as journal:
        assert [event.sequence for event in await journal.events()] == [0, 1]
    assert check_journal(new / "journal.db").faults == ()
    [kept] = list(new.glob("journal.db-wal.damaged-*"))
    assert kept.read_bytes() == log
    assert f"is gone and a new one begins; its write-ahead log is kept as {kept.name}" in caplog.text


async def test_a_directory_in_the_place_of_the_journal_is_told_as_such_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    path.mkdir()
    told = r"journal\.db' is a directory, and no journal file: move it away$"
    async with Journal(path) as journal:
        with pytest.raises(DatabaseWriteError, match=told):
            await journal.record_event(an_event(1))
        with pytest.raises(DatabaseReadError, match=told):
            await journal.events()
    assert journal_health(path).words == "is a directory, and no journal file"
    assert path.is_dir()


async def test_an_empty_file_is_a_journal_not_yet_begun(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    path.touch()
    async with Journal(path) as journal:
        assert await journal.events() == []
        await journal.record_event(an_event(1))
        assert len(await journal.events()) == 1


async def test_a_place_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    for place in (tmp_path / "missing" / "journal.db", Path("/proc/journal.db"), tmp_path):
        async with Journal(place) as journal:
            with pytest.raises(DatabaseWriteError, match=str(place)):
                await journal.record_event(an_event(1))


async def test_a_closed_journal_refuses_and_closing_twice_is_fine(journal: Journal) -> None:
    await journal.record_event(an_event(1))
    journal.close()
    await journal.aclose()
    with pytest.raises(DatabaseWriteError, match="closed"):
        await journal.record_event(an_event(2))
    with pytest.raises(DatabaseWriteError, match="closed"):
        await journal.call_starts(
            StartedCall(scope=SCOPE, key="", occurrence=0, model="", started_at=NOW), durable=False
        )
    with pytest.raises(DatabaseReadError, match="closed"):
        await journal.events()
