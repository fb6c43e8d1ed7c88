"""``journal tail|calls|verify``, ``prune`` and ``rebuild`` over what a competition left in a workspace."""

import asyncio
import csv
import io
import json
import random
import re
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from mixseek.amounts import cost_words
from mixseek.cli import main
from mixseek.errors import NotResumableError
from mixseek.orchestrator import Orchestrator, load_orchestrator_settings
from mixseek.storage.journal import Journal
from mixseek.testing import Match, ModelServer, scripted, write_workspace
from soak import forked
from soak.arena import Arena, Team

STEERING = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f]")
HOSTILE = "\x1b[2J=1+1"
LONG = f"long answer {random.Random(0).randbytes(20_000).hex()}"
"""Large also when it is compressed."""
Run = Callable[..., tuple[int, str, str]]


async def _play(root: Path) -> str:
    """Two teams: a answers, b has none and fails."""
    file = write_workspace(root, teams=2, members=1, max_rounds=1)
    with scripted() as script:
        script.on(Match("judge"), lambda call: {"evaluator_comment": HOSTILE, "score": 90})
        script.on(Match("leader-a"), lambda call: LONG if call.tool_results else None)
        script.on(Match("leader-b"), lambda call: "" if call.tool_results else None)
        return (await Orchestrator(load_orchestrator_settings(file, root)).execute(f"A task {HOSTILE}")).execution_id


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    root = tmp_path_factory.mktemp("played")
    return root, asyncio.run(_play(root))


@pytest.fixture
def workspace(played: tuple[Path, str], tmp_path: Path) -> Path:
    return Path(shutil.copytree(played[0], tmp_path / "copy"))


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], workspace: Path) -> Run:
    def call(*arguments: str) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as end:
            main([*arguments, "-w", str(workspace)])
        told = capsys.readouterr()
        return int(end.value.code or 0), told.out, told.err

    return call


def change(workspace: Path, statement: str) -> None:
    with closing(sqlite3.connect(workspace / "journal.db")) as db:
        db.execute(statement)
        db.commit()


# --- tail and calls ---------------------------------------------------------------------------------------------------


def test_tail_prints_the_newest_events_and_steers_no_terminal(run: Run) -> None:
    code, out, _ = run("journal", "tail", "-n", "200")
    lines = out.splitlines()
    assert code == 0
    assert "RunStarted  user_prompt A task \\x1b[2J=1+1" in lines[0]
    assert lines[-1].endswith("-  RunFinished")
    assert not STEERING.search(out)
    assert run("journal", "tail", "last", "-n", "2")[1].splitlines() == lines[-2:]


def test_tail_as_json_is_one_document_a_line(run: Run, played: tuple[Path, str]) -> None:
    _, out, _ = run("journal", "tail", "-n", "3", "--format", "json")
    events = [json.loads(line) for line in out.splitlines()]
    assert [event["execution_id"] for event in events] == [played[1]] * 3
    assert events[-1]["kind"] == "RunFinished"


def test_following_an_execution_that_is_over_ends(run: Run) -> None:
    assert run("journal", "tail", "last", "--follow", "-n", "1")[1].endswith("RunFinished\n")


def test_following_prints_what_another_process_does(workspace: Path) -> None:
    watch = [sys.executable, "-m", "mixseek", "journal", "tail", "--follow", "-n", "1", "-w", str(workspace)]
    with forked.Popen(watch, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        assert child.stdout.readline().endswith("RunFinished\n")
        played = asyncio.run(_play(workspace))
        line = child.stdout.readline()
        child.terminate()
    assert line.split()[2] == played[:8]
    assert "RunStarted" in line


def test_calls_are_listed_narrowed_down_and_added_up(run: Run) -> None:
    _, out, _ = run("journal", "calls", "--team", "a", "--role", "evaluator", "--round", "1")
    title, *rows, total = out.splitlines()
    assert title.split()[:3] == ["Team", "Round", "Role"]
    assert {tuple(row.split()[:3]) for row in rows} == {("a", "1", "evaluator")}
    assert total.startswith(f"{len(rows)} call")


def test_a_round_that_is_not_there_is_told_as_a_team_is_that_did_not_play(run: Run) -> None:
    code, out, err = run("journal", "calls", "--round", "99")
    assert (code, out) == (2, "")
    assert "no call was made in round 99: --round takes one of 1" in err
    code, _, err = run("journal", "calls", "--team", "a", "--round", "2")
    assert (code, "no call was made in round 2 of team 'a': --round takes one of 1" in err) == (2, True), err


def test_a_call_that_was_cut_off_is_told_in_plain_words(run: Run, workspace: Path) -> None:
    failure = '{"error": "CancelledError", "message": "cut off"}'
    change(workspace, f"UPDATE calls SET answer = NULL, failure = '{failure}' WHERE role = 'evaluator'")
    _, *rows, total = run("journal", "calls", "--role", "evaluator")[1].splitlines()
    assert rows
    assert f" ({len(rows)} without an answer), " in total
    assert all(" interrupted " in row and "CancelledError" not in row for row in rows)
    [one, *_] = json.loads(run("journal", "calls", "--role", "evaluator", "-f", "json")[1])
    assert one["outcome"] == "CancelledError"
    assert ",CancelledError,cut off," in run("journal", "calls", "--role", "evaluator", "-f", "csv")[1]


@pytest.mark.parametrize(
    ("fault", "limit", "outcome", "lost"),
    [
        # The time of the whole round: member and model have the same, and either of them may give up first.
        ("hang_before_headers", "submission_timeout_seconds = 4\n", "interrupted", [1, 1]),
        ("reset_in_body", "", "ModelIncompleteError", [1, 1, 0, 0, 0]),
    ],
)
def test_what_a_call_took_that_broke_off_is_a_dash_and_not_a_zero_and_the_sums_say_that_it_is_left_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], fault: Any, limit: str, outcome: str, lost: list[int]
) -> None:
    def told(*more: str) -> str:
        with pytest.raises(SystemExit):
            main(["journal", "calls", "-w", str(tmp_path), *more])
        return capsys.readouterr().out

    with ModelServer() as server:
        price = "input_usd_per_million = 1\noutput_usd_per_million = 1\n"
        arena = Arena(
            tmp_path,
            server.base_url,
            [Team("alpha", member="max_retries = 0\n")],
            orchestrator=f"max_rounds = 1\n{limit}",
        )
        file = tmp_path / "configs/orchestrator.toml"
        models = ("leader-alpha", "member-alpha", "judge", "judgment")
        file.write_text(file.read_text() + "".join(f'[prices."loop:{model}"]\n{price}' for model in models))
        arena.script(server)
        server.fault(fault, model="member-alpha")
        server.fault("reset_in_body", model="leader-alpha", at=1)
        server.fault(503, model="judge", at=1)
        asyncio.run(arena.play())
    _, *rows, total = told().splitlines()
    assert [row.split()[5:-1] for row in rows if " member " in row] == [[outcome, "1", "-", "-", "-"]]
    assert sum("-" in row.split() for row in rows) == 1, "what is known of the others is shown"
    calls = json.loads(told("-f", "json"))
    [member] = [call for call in calls if call["role"] == "member"]
    assert (member["input_tokens"], member["output_tokens"], member["cost_usd"]) == (None, None, None)
    assert [call["lost_attempts"] for call in calls] == lost
    known = sum((call["input_tokens"] or 0) + (call["output_tokens"] or 0) for call in calls)
    cost = cost_words(known / 1_000_000)
    left_out = "without 2 attempts that broke off or told no usage"
    assert total == f"{len(lost)} calls (1 without an answer), {known:,} tokens, {cost} {left_out}"


def _leave_on_its_way(workspace: Path, call_id: str, team: str) -> None:
    """A mark of a start, as a process leaves it that is killed before the call ends."""
    change(
        workspace,
        f"""INSERT INTO started_calls (call_id, execution_id, team_id, round_number, role, agent_name, key, occurrence,
            model, started_at) SELECT '{call_id}', execution_id, '{team}', 1, 'leader', 'leader', 'a key', 0, model,
            started_at FROM started_calls LIMIT 1""",
    )


def test_calls_that_were_on_their_way_when_a_process_ended_are_counted_in_the_last_line_and_listed_in_json_and_csv(
    run: Run, workspace: Path
) -> None:
    before = run("journal", "calls")[1].splitlines()
    _leave_on_its_way(workspace, "one", "a")
    _leave_on_its_way(workspace, "one#2", "a")
    assert run("journal", "calls")[1].splitlines() == [
        *before[:-1],
        f"{before[-1]}, and 1 that was on its way when its process ended",
    ]
    _leave_on_its_way(workspace, "two", "b")
    *_, total = run("journal", "calls")[1].splitlines()
    assert total == f"{before[-1]}, and 2 that were on their way when their process ended"
    assert "process" not in run("journal", "calls", "--role", "evaluator")[1]
    told = json.loads(run("journal", "calls", "--team", "a", "-f", "json")[1])
    left = [
        (one["call_id"], one["outcome"], one["output_tokens"], one["cost_usd"])
        for one in told
        if one["ended_at"] is None
    ]
    assert left == [("one", "never ended", None, None)]
    rows = list(csv.DictReader(io.StringIO(run("journal", "calls", "-f", "csv")[1])))
    assert [(row["call_id"], row["cost_usd"], row["seconds"]) for row in rows[-2:]] == [
        ("one", "", ""),
        ("two", "", ""),
    ]


def test_bodies_of_calls_come_only_when_they_are_asked_for(run: Run) -> None:
    plain = json.loads(run("journal", "calls", "-f", "json")[1])
    assert all("request" not in call for call in plain)
    whole = json.loads(run("journal", "calls", "-f", "json", "--bodies")[1])
    assert any("long answer" in json.dumps(call["answer"]) for call in whole)


def test_calls_as_csv_hold_no_formula(run: Run) -> None:
    rows = list(csv.DictReader(io.StringIO(run("journal", "calls", "-f", "csv", "--bodies")[1])))
    assert {row["outcome"] for row in rows} == {"answered"}
    assert not [cell for row in rows for cell in row.values() if cell and cell[0] in "=+@"]


# --- verify -----------------------------------------------------------------------------------------------------------


def test_a_whole_journal_is_told_to_be_whole(run: Run) -> None:
    code, out, _ = run("journal", "verify")
    assert (code, "the journal is whole: 1 execution, " in out) == (0, True), out


@pytest.mark.parametrize(
    ("statement", "told"),
    [
        ("UPDATE calls SET answer = x'78da00' WHERE id = 1", "calls 1 of .* answer is no readable JSON"),
        ("UPDATE events SET payload = '{' WHERE position = 2", "events 2 of .* payload is no readable JSON"),
        ("UPDATE calls SET usage = '{' WHERE id = 1", "calls 1 of .* usage is no readable JSON"),
        ("UPDATE calls SET request = NULL WHERE id = 1", "has lost what was asked or answered"),
        ("UPDATE tool_results SET key = 'x' WHERE id = 1", "tool_results 1 of .*: 'x' is no key"),
        ("DELETE FROM started_calls WHERE rowid = 1", "was never started"),
        ("UPDATE started_calls SET occurrence = 7 WHERE rowid = 1", "was started as another call"),
        ("DELETE FROM events WHERE position = 4", "1 of \\d+ are missing"),
        ("DELETE FROM calls WHERE role = 'evaluator'", "bill of evaluator .*; its calls: nothing"),
    ],
)
def test_what_is_wrong_with_a_journal_is_told_with_exit_code_1(
    run: Run, workspace: Path, statement: str, told: str
) -> None:
    change(workspace, statement)
    code, out, _ = run("journal", "verify")
    assert code == 1
    assert re.search(told, out), out
    document = json.loads(run("journal", "verify", "-f", "json")[1])
    assert (document["ok"], bool(document["faults"])) == (False, True)


def test_executions_that_the_journal_does_not_have_are_counted_and_are_no_fault(run: Run, workspace: Path) -> None:
    for file in workspace.glob("journal.db*"):
        file.unlink()
    lost = "1 execution in mixseek.db is not in the journal: it was played without one, or by another program, or its"
    code, out, _ = run("journal", "verify")
    assert (code, out.splitlines()[0], lost in out) == (0, "the journal is empty", True), out
    document = json.loads(run("journal", "verify", "-f", "json")[1])
    assert (document["ok"], document["not_in_journal"]) == (True, 1)
    code, out, err = run("journal", "tail")
    assert (code, out, lost in err, "nothing was played" in err) == (0, "", True, False), err
    nothing_of_it = "it was played without one, or its journal was removed"
    for command in (("tail", "last"), ("tail", "last", "--follow"), ("calls", "last")):
        code, out, err = run("journal", *command)
        assert (code, out, nothing_of_it in err) == (2, "", True), err
    asyncio.run(_play(workspace))
    _, out, _ = run("journal", "verify")
    assert out.startswith("the journal is whole: 1 execution, ")
    assert lost in out


def test_of_pages_that_make_no_sense_the_first_is_told_and_how_many_more(run: Run, workspace: Path) -> None:
    file = workspace / "journal.db"
    with closing(sqlite3.connect(file)) as journal:
        journal.execute("CREATE TABLE broad (text)")
        journal.executemany("INSERT INTO broad VALUES (?)", [("x" * 3000,)] * 100)
        journal.commit()
        journal.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    data = bytearray(file.read_bytes())
    last = len(data) // 4096
    for page in range(last - 40, last - 10):
        data[4096 * page : 4096 * (page + 1)] = b"\x55" * 4096
    file.write_bytes(bytes(data))
    code, out, err = run("journal", "verify")
    assert code == 1, err
    first, more, total = out.splitlines()
    assert (code, "\\n" in out) == (1, False)
    assert first.startswith("file: ")
    assert "btreeInitPage" in first
    faults = json.loads(run("journal", "verify", "-f", "json")[1])["faults"]
    assert len(faults) > 10
    assert not any("\n" in fault for fault in faults)
    assert more == f"and at least {len(faults) - 1} more"
    assert total.startswith(f"at least {len(faults)} faults in 1 execution")


def test_events_and_calls_of_a_damaged_journal_are_told_with_a_warning_that_some_may_be_missing(
    run: Run, workspace: Path
) -> None:
    commands = [("tail",), ("tail", "last", "-f"), ("tail", "--format", "json"), ("calls",), ("calls", "-f", "json")]
    whole = [run("journal", *command) for command in commands]
    assert not any("damaged" in err for _, _, err in whole)
    file = workspace / "journal.db"
    with closing(sqlite3.connect(file)) as journal:
        # Needed by none of the commands, and by nobody but them known to be so.
        journal.execute("CREATE TABLE broad (text)")
        journal.execute("INSERT INTO broad VALUES (?)", ("x" * 3000,))
        journal.commit()
        journal.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        (page,) = journal.execute("SELECT rootpage FROM sqlite_master WHERE name = 'broad'").fetchone()
    data = bytearray(file.read_bytes())
    data[4096 * (page - 1) : 4096 * page] = b"\x55" * 4096
    file.write_bytes(bytes(data))
    for command, (code, out, _) in zip(commands, whole, strict=True):
        told = run("journal", *command)
        assert told[:2] == (code, out), command
        assert told[2].count("is damaged (") == 1, command
        assert told[2].endswith("; what is told here may lack some of it\n"), command


def test_what_was_kept_and_is_no_json_any_more_is_told_as_damage_and_not_as_a_bug(run: Run, workspace: Path) -> None:
    change(workspace, "UPDATE events SET payload = '{' WHERE kind = 'RunStarted'")
    change(workspace, "UPDATE calls SET attempts = x'78da00' WHERE id = 1")
    for command in (("journal", "tail", "-n", "200"), ("journal", "calls"), ("rebuild",)):
        code, _, err = run(*command)
        told = "journal.db' has a damaged row: what was kept is no readable JSON: " in err
        assert (code, told or command == ("rebuild",)) == (1 if command == ("rebuild",) else 2, True), (command, err)
    for reading in ("history", "show"):
        code, out, err = run(reading)
        assert (code, "what cannot be read of it is left out" in err) == (0, True), (reading, err)
        assert "A task" in out


@pytest.mark.parametrize(
    ("table", "column", "value"),
    [
        ("calls", "usage", "'[]'"),
        ("calls", "attempts", "'5'"),
        ("calls", "failure", "'[]'"),
        ("calls", "answer", "CAST(x'7b22a522' AS TEXT)"),
        ("prompts", "text", "'[]'"),
        ("tool_results", "result", "'5'"),
        ("tool_results", "result", "NULL"),
        ("events", "payload", "CAST(x'7b22a522' AS TEXT)"),
    ],
)
def test_a_row_that_cannot_have_been_written_so_is_told_as_damage_with_what_to_do(
    table: str, column: str, value: str, run: Run, workspace: Path, played: tuple[Path, str]
) -> None:
    where = "WHERE failure IS NULL" if column == "answer" else "WHERE kind = 'RunStarted'" if table == "events" else ""
    change(workspace, f"UPDATE {table} SET {column} = {value} {where}")
    code, out, err = run("journal", "verify")
    if table != "tool_results":  # of which any JSON may be kept, and nothing where it was pruned
        assert (code, f"{table} " in out, f"of {played[1]}: {column} is " in out) == (1, True, True), (out, err)
    for command in (
        ("journal", "calls", "-f", "json", "--bodies"),
        ("journal", "tail", "-n", "200"),
        ("history",),
        ("show", "last"),
        ("export", "last", "-f", "json"),
        ("replay", "last"),
        ("rebuild",),
    ):
        code, out, err = run(*command)
        assert "this is a bug" not in err, (command, err)
        assert code in (0, 1, 2), command
        if code == 2:
            told = re.search("has a damaged row: .*; mixseek journal verify names it, and mixseek delete", out + err)
            assert told, (command, out, err)


@pytest.mark.parametrize(("table", "column"), [("calls", "ended_at"), ("calls", "model"), ("events", "kind")])
def test_verify_names_rows_whose_names_or_times_cannot_be_read(
    table: str, column: str, run: Run, workspace: Path, played: tuple[Path, str]
) -> None:
    change(workspace, f"UPDATE {table} SET {column} = CAST(x'a5' AS TEXT) WHERE rowid = 3")
    code, out, _ = run("journal", "verify")
    assert (code, f"{table} 3 of {played[1]}: {column} is no t" in out) == (1, True), out


def test_a_beginning_that_cannot_be_read_leaves_out_its_own_execution_alone(
    workspace: Path, played: tuple[Path, str], caplog: pytest.LogCaptureFixture
) -> None:
    async def begun() -> list[str]:
        async with Journal(workspace / "journal.db") as journal:
            return [run.execution_id for run in await journal.started_runs()]

    damaged = asyncio.run(_play(workspace))
    assert set(asyncio.run(begun())) == {played[1], damaged}
    change(
        workspace,
        f"UPDATE events SET payload = CAST(x'a5' AS TEXT) WHERE kind = 'RunStarted' AND execution_id = '{damaged}'",
    )
    assert asyncio.run(begun()) == [played[1]]
    assert f"({damaged})" in caplog.text


def test_a_damaged_row_of_one_execution_takes_no_results_of_another_away(
    run: Run, workspace: Path, played: tuple[Path, str]
) -> None:
    whole = {command: run(*command)[1] for command in (("show", played[1]), ("export", played[1], "-f", "csv"))}
    damaged = asyncio.run(_play(workspace))
    where = f"kind = 'RoundFinished' AND execution_id = '{damaged}'"
    change(workspace, f"UPDATE events SET payload = '{{' WHERE {where}")
    (workspace / "mixseek.db").unlink()
    code, out, err = run("show", played[1])
    assert (code, out) == (0, whole["show", played[1]])
    assert f"journal.db has a damaged row of execution {damaged}, team 'a': what was kept is no readable JSON" in err
    assert run("export", played[1], "-f", "csv")[1] == whole["export", played[1], "-f", "csv"]
    assert "90.00" in run("board")[1]
    code, out, _ = run("rebuild", "-f", "json")
    assert (code, json.loads(out)["executions"], json.loads(out)["unreadable"]) == (1, [played[1]], [damaged])
    code, out, _ = run("rebuild")
    assert (code, f"mixseek delete {damaged} takes it out" in out) == (1, True), out
    assert run("delete", damaged, "--yes")[0] == 0
    assert run("rebuild")[0] == 0


def test_where_the_journal_makes_no_sense_and_the_results_are_gone_nothing_is_told_as_if_it_were_all(
    run: Run, workspace: Path
) -> None:
    with closing(sqlite3.connect(workspace / "journal.db")) as db:
        (page,) = db.execute("SELECT rootpage FROM sqlite_master WHERE name = 'events'").fetchone()
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    file = workspace / "journal.db"
    data = bytearray(file.read_bytes())
    data[4096 * (page - 1) : 4096 * page] = b"\x55" * 4096
    file.write_bytes(bytes(data))
    (workspace / "mixseek.db").unlink()
    for command in (("show", "last"), ("board",), ("whatif", "last", "--stop-rule", "max_rounds=1")):
        code, out, err = run(*command)
        assert (code, out, "is damaged (" in err) == (2, "", True), (command, out, err)


def test_pages_that_make_no_sense_are_told(run: Run, workspace: Path) -> None:
    file = workspace / "journal.db"
    data = bytearray(file.read_bytes())
    data[4096 * 5 : 4096 * 6] = b"\x55" * 4096
    file.write_bytes(bytes(data))
    code, out, err = run("journal", "verify")
    assert code in (1, 2)
    assert "file: " in out or "is damaged" in err


# --- prune ------------------------------------------------------------------------------------------------------------


def test_pruning_drops_bodies_gives_room_back_and_leaves_all_that_is_shown(run: Run, workspace: Path) -> None:
    before = {command: run(*command)[1] for command in (("show", "last"), ("export", "last", "-f", "json"))}
    size = (workspace / "journal.db").stat().st_size
    assert "would be pruned" in run("prune", "--older-than", "0s", "--dry-run")[1]
    assert (workspace / "journal.db").stat().st_size == size
    code, out, _ = run("prune", "--older-than", "0s")
    assert (code, "1 execution pruned; the files of the journal are " in out) == (0, True), out
    assert (workspace / "journal.db").stat().st_size < size
    assert _free_pages(workspace) == 0
    assert {command: run(*command)[1] for command in before} == before
    assert run("journal", "verify")[0] == 0
    assert all(call["pruned"] for call in json.loads(run("journal", "calls", "-f", "json", "--bodies")[1]))
    (workspace / "mixseek.db").unlink()
    assert {command: run(*command)[1] for command in before} == before
    assert "nothing to prune" in run("prune", "--older-than", "0s")[1]


def test_deleting_gives_room_back(run: Run, workspace: Path) -> None:
    size = (workspace / "journal.db").stat().st_size
    assert run("delete", "last", "--yes")[0] == 0
    assert (workspace / "journal.db").stat().st_size < size / 2
    assert _free_pages(workspace) == 0


def _free_pages(workspace: Path) -> int:
    with closing(sqlite3.connect(workspace / "journal.db")) as journal:
        return int(journal.execute("PRAGMA freelist_count").fetchone()[0])


def test_young_and_kept_executions_are_not_pruned(run: Run) -> None:
    assert "nothing to prune" in run("prune")[1]
    assert "nothing to prune" in run("prune", "--older-than", "0s", "--keep", "1")[1]


def test_the_newest_that_are_kept_are_the_first_ones_of_the_history(
    run: Run, workspace: Path, played: tuple[Path, str]
) -> None:
    newest = asyncio.run(_play(workspace))
    # As where the other one was begun before it and gone on with after its end.
    ended = f"WHERE kind = 'RunFinished' AND execution_id = '{newest}'"
    change(workspace, f"UPDATE events SET at = '2001-01-01T00:00:00+00:00' {ended}")
    ids = [line["execution_id"] for line in json.loads(run("history", "-f", "json")[1])]
    pruned = json.loads(run("prune", "--older-than", "0s", "--keep", "1", "-f", "json")[1])
    assert ids == [newest, played[1]]
    assert [one["execution_id"] for one in pruned["executions"]] == [played[1]]


def test_an_execution_that_did_not_end_is_not_pruned(run: Run, workspace: Path) -> None:
    change(workspace, "DELETE FROM events WHERE kind = 'RunFinished'")
    assert "nothing to prune" in run("prune", "--older-than", "0s")[1]


async def test_a_pruned_execution_says_so_when_it_is_to_be_resumed(workspace: Path, played: tuple[Path, str]) -> None:
    settings = load_orchestrator_settings(workspace / "configs/orchestrator.toml", workspace)
    change(workspace, f"INSERT INTO pruned VALUES ('{played[1]}', '2026-01-02T00:00:00+00:00')")
    async with Journal(workspace / "journal.db") as journal:
        assert await journal.pruned_at(played[1]) is not None
    with scripted(), pytest.raises(NotResumableError, match="was pruned on 2026-01-02"):
        await Orchestrator(settings).resume(played[1], accept_changes=True)


def test_an_age_that_is_none_is_a_mistake_with_an_example(run: Run) -> None:
    code, _, err = run("prune", "--older-than", "soon")
    assert code == 2
    assert "'soon' is no age: write a number and s, m, h, d or w, 30d for example" in " ".join(err.split())


# --- rebuild ----------------------------------------------------------------------------------------------------------


def test_rebuilding_by_hand_mends_what_differs_and_says_what_it_did(run: Run, workspace: Path) -> None:
    assert json.loads(run("rebuild", "-f", "json")[1])["changed"] == 0
    (workspace / "mixseek.db").unlink()
    code, out, err = run("rebuild")
    assert code == 0
    told = re.search(r"was missing and is made from journal.db: (\d+ rows) of 1 execution", err)
    assert told, err
    assert f"1 execution in the journal: {told[1]} made anew, 0 more added, 0 changed" in out
    assert "1 execution in the journal: 0 rows added, 0 changed" in run("rebuild")[1]


def test_without_a_journal_there_is_nothing_to_rebuild_from(run: Run, workspace: Path) -> None:
    (workspace / "journal.db").unlink()
    code, _, err = run("rebuild")
    assert code == 2
    assert "holds no execution to make anything from" in err
