"""``history``, ``show``, ``board``, ``export`` and ``delete`` over what competitions left in a workspace."""

import asyncio
import csv
import io
import itertools
import json
import os
import pty
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import duckdb
import pytest

from mixseek.cli import main
from mixseek.orchestrator import Orchestrator, load_orchestrator_settings
from mixseek.records import ExecutionSummary
from mixseek.testing import Match, ModelServer, ModelServerProcess, ToolCall, scripted, write_workspace
from soak import forked
from tests.agents.tool_rounds import arena_with

TASK = "Name the capital of Japan.\nTell why."
ANSWER = "a better answer\n```\n# not a heading"
HOSTILE = "\x1b]0;owned\x07\x1b[2J=cmd|' /C calc'!A0 \u202e"
STEERING = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e]")
KEY = "sk-0123456789abcdefghijklmnop"
SAFETY_SECONDS = 60


async def _play(root: Path, task: str, attachment: Path) -> str:
    """Three teams: a wins, b loses, c has no answer."""
    file = write_workspace(root, teams=3, members=1, max_rounds=2)
    with scripted() as script:
        script.on(Match("judge", contains="better"), lambda call: {"evaluator_comment": "good", "score": 100 / 1.1})
        script.on(Match("judge", contains="worse"), lambda call: {"evaluator_comment": HOSTILE, "score": 12.5})
        script.on(Match("leader-a"), lambda call: ANSWER if call.tool_results else None)
        script.on(Match("leader-b"), lambda call: f"a worse answer {HOSTILE}" if call.tool_results else None)
        script.on(Match("leader-c"), lambda call: "" if call.tool_results else None)
        orchestrator = Orchestrator(load_orchestrator_settings(file, root))
        return (await orchestrator.execute(task, attachments=[attachment])).execution_id


Played = tuple[Path, list[str]]


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> Played:
    """A workspace in which two competitions were played, and their ids, the newest first."""
    root = tmp_path_factory.mktemp("played")
    shared = root / "shared.txt"
    shared.write_text("for both")
    first = asyncio.run(_play(root, TASK, shared))
    second = asyncio.run(_play(root, "Another task", shared))
    return root, [second, first]


@pytest.fixture
def workspace(played: Played, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of it, which a test may change, as the current directory."""
    root = tmp_path / "workspace"
    shutil.copytree(played[0], root)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MIXSEEK_WORKSPACE", str(root))
    monkeypatch.setenv("TZ", "UTC")
    return root


@pytest.fixture(scope="module")
def dear_and_cheap(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("dear_and_cheap")
    asyncio.run(_play_dear_and_cheap(root))
    return root


Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    def call(*arguments: str) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as end:
            main(arguments)
        told = capsys.readouterr()
        return int(end.value.code or 0), told.out, told.err

    return call


# --- history ----------------------------------------------------------------------------------------------------------


def test_history_lists_the_newest_first_in_80_columns(workspace: Path, played: Played, run: Run) -> None:
    code, out, err = run("history")
    head, newest, oldest = out.splitlines()
    assert (code, err) == (0, "")
    assert head.split() == ["Id", "Started", "State", "Teams", "Best", "Time", "USD", "Task"]
    assert [line.split()[0] for line in (newest, oldest)] == [each[:8] for each in played[1]]
    assert " partial " in newest
    assert " 90.91 " in newest
    assert newest.endswith("Another task")
    assert oldest.endswith("Name the capital of Japan. Tell why.")
    assert "\x1b" not in out


def test_history_as_json_has_whole_ids_and_readable_numbers(workspace: Path, played: Played, run: Run) -> None:
    code, out, err = run("history", "-f", "json", "--limit", "1")
    [line] = json.loads(out)
    assert (code, err, line["execution_id"]) == (0, "", played[1][0])
    assert (line["status"], line["total_teams"], line["best_team"]) == ("partial_failure", 3, "Team A")
    assert line["best_score"] == 90.9091
    assert line["cost_usd"] is None


def test_history_says_how_many_more_there_are(workspace: Path, run: Run) -> None:
    _, out, _ = run("history", "--limit", "1")
    assert out.splitlines()[-1] == "1 more: --limit 2 lists all"


def test_an_empty_workspace_has_no_history_and_stays_empty(tmp_path: Path, run: Run) -> None:
    code, out, _ = run("history", "-w", str(tmp_path))
    assert (code, "nothing was played in" in out) == (0, True)
    assert run("history", "-w", str(tmp_path), "-f", "json")[1] == "[]\n"
    assert run("board", "-w", str(tmp_path), "-f", "json")[1] == "[]\n"
    for command in (["show"], ["show", "last"], ["board", "last"], ["export"], ["delete", "last", "--yes"]):
        code, out, err = run(*command, "-w", str(tmp_path))
        assert (code, out) == (2, "")
        assert err.startswith("mixseek: nothing was played in ")
        assert "Traceback" not in err
    assert list(tmp_path.iterdir()) == []


# --- ids --------------------------------------------------------------------------------------------------------------


def test_ids_are_whole_shortened_or_last_everywhere(workspace: Path, played: Played, run: Run) -> None:
    newest, oldest = played[1]
    for command, wanted in (
        ("show", newest),
        ("show", newest[:6]),
        ("show", "last"),
        ("board", "last"),
        ("export", newest),
    ):
        _, out, _ = run(command, wanted, "-f", "json")
        told = json.loads(out)
        assert (told[0] if isinstance(told, list) else told)["execution_id"] == newest
    assert json.loads(run("show", oldest[:6], "-f", "json")[1])["user_prompt"] == TASK
    assert json.loads(run("show", "-f", "json")[1])["execution_id"] == newest


@pytest.mark.parametrize("command", ["show", "board", "export", "delete"])
def test_an_unknown_id_is_told_with_the_remedy(command: str, workspace: Path, run: Run) -> None:
    code, out, err = run(command, "no-such-id")
    assert (code, out) == (2, "")
    assert err == "mixseek: there is no execution 'no-such-id' here: mixseek history lists those there are\n"


@pytest.mark.parametrize("command", [("board", ""), ("show", ""), ("show", "--team", "")])
def test_an_empty_name_does_not_stand_for_all(command: tuple[str, ...], workspace: Path, run: Run) -> None:
    code, out, err = run(*command)
    assert (code, out) == (2, "")
    assert "''" in err


@pytest.mark.parametrize("command", ["show", "board", "export", "delete"])
def test_an_ambiguous_id_is_told_with_those_it_may_mean(command: str, workspace: Path, run: Run) -> None:
    with duckdb.connect(str(workspace / "mixseek.db")) as db:
        for each in ("zz-1", "zz-2"):
            db.execute("INSERT INTO execution_summary (execution_id) VALUES (?)", [each])
    code, out, err = run(command, "zz", *(["-f", "json"] if command != "delete" else []))
    told = out + err
    assert code == 2
    assert "may be any of 2 executions: give more of the id (zz-1, zz-2)" in told
    if command != "delete":
        assert json.loads(out)["error"]["type"] == "ConfigurationError"


# --- show and board ---------------------------------------------------------------------------------------------------


def test_show_tells_board_scores_rounds_bill_failures_and_the_answer_last(workspace: Path, run: Run) -> None:
    code, out, err = run("show")
    assert (code, err) == (0, "")
    order = [
        "Execution ",
        "Task",
        "Leader board",
        "Scores by round",
        "Team A, round 1: 90.91",
        "Team C failed: ",
        "Bill",
    ]
    places = [out.index(part) for part in order]
    assert places == sorted(places)
    assert "shared.txt (text/plain, 8 bytes)" in out
    assert "judgment: go on, round 1 of at least 2 (min_rounds)" in out
    assert re.search(r"Team A +evaluator +scripted:judge +6 ", out)
    assert out.endswith("Best answer: Team A (a), round 2\n\na better answer\n```\n# not a heading\n")
    assert "a worse answer" not in out
    assert not STEERING.search(out)


def test_show_rounds_has_every_submission_and_member(workspace: Path, run: Run) -> None:
    _, out, _ = run("show", "last", "--rounds", "--team", "b")
    assert out.count("  submission\n    a worse answer") == 2
    assert out.count("  member member-1, ") == 2
    assert "    Your part as delegate_to_member-1" in out
    assert "Team A, round" not in out
    assert not STEERING.search(out)


def test_show_of_one_team_knows_it_by_name_too_and_names_the_others(workspace: Path, run: Run) -> None:
    told = json.loads(run("show", "last", "--team", "Team B", "-f", "json")[1])
    assert [team["team_id"] for team in told["teams"]] == ["b"]
    assert {line["team_id"] for line in told["bill"]} == {"b"}
    code, _, err = run("show", "last", "--team", "nobody")
    assert (code, err) == (2, "mixseek: no team 'nobody' took part; there are: 'a', 'b', 'c'\n")


def test_show_of_one_team_tells_what_that_team_took_beside_the_run(workspace: Path, run: Run) -> None:
    with closing(sqlite3.connect(workspace / "journal.db")) as db, db:
        cached = "CASE team_id WHEN 'b' THEN 3 ELSE 5 END"
        db.execute(f"UPDATE calls SET usage = json_set(usage, '$.cache_read_tokens', {cached})")
        # As of a run that was killed, of which the journal alone knows what it took.
        db.execute("DELETE FROM events WHERE kind = 'RunFinished'")
    whole, ours = (json.loads(run("show", "last", *more, "-f", "json")[1]) for more in ([], ["--team", "b"]))
    counts = {name: sum(line[name] for line in ours["bill"]) for name in ("requests", "input_tokens", "output_tokens")}
    assert {name: ours["usage"][name] for name in counts} == counts
    assert 0 < ours["usage"]["requests"] < whole["usage"]["requests"]
    assert ours["usage"]["cache_read_tokens"] == 3 * counts["requests"]
    assert ours["usage"] == ours["teams"][0]["usage"]
    teams = [team["usage"] for team in whole["teams"]]
    for name in ("requests", "cache_read_tokens", "tool_calls", "output_tokens"):
        assert sum(usage[name] for usage in teams) == whole["usage"][name]
    _, out, _ = run("show", "last", "--team", "b")
    assert f"\nof which Team B: {counts['requests']} model calls, {counts['input_tokens']:,} tokens in, " in out
    assert "of which" not in run("show", "last")[1]


def test_show_of_one_team_tells_what_that_team_cost(dear_and_cheap: Path, run: Run) -> None:
    of_team = json.loads(run("show", "-w", str(dear_and_cheap), "--team", "a", "-f", "json")[1])
    whole = json.loads(run("show", "-w", str(dear_and_cheap), "-f", "json")[1])
    # To the digits that are shown; another team took more than that.
    assert of_team["cost_usd"] == pytest.approx(sum(line["cost_usd"] for line in of_team["bill"]), abs=0.001)
    assert 0 < of_team["cost_usd"] < whole["cost_usd"] - 0.01


async def _play_dear_and_cheap(root: Path) -> None:
    """Twice, and at prices so far apart that a cost by itself would have 2, 4 or 6 digits."""
    file = write_workspace(root, teams=2, members=0, max_rounds=1)
    head = file.read_text()
    for dear in (1, 100_000):
        prices = {"leader-a": dear, "leader-b": 1, "judge": 10, "judgment": 10}
        tables = (
            f'[prices."scripted:{model}"]\ninput_usd_per_million = {price}\noutput_usd_per_million = {price}\n'
            for model, price in prices.items()
        )
        file.write_text(head + "\n".join(tables))
        with scripted():
            await Orchestrator(load_orchestrator_settings(file, root)).execute("a task")


@pytest.mark.parametrize(
    ("command", "title", "digits"),
    [
        (("history",), "Id ", 4),
        (("board", "last"), "# ", 4),
        (("show",), "Team  ", 6),
        (("journal", "calls", "last"), "Team  ", 6),
        (("export", "--format", "md"), "| Team | Role", 6),
    ],
)
def test_costs_in_one_column_have_as_many_digits_as_the_smallest(
    command: tuple[str, ...], title: str, digits: int, dear_and_cheap: Path, run: Run
) -> None:
    lines = iter(run(*command, "-w", str(dear_and_cheap))[1].splitlines())
    head = next(line for line in lines if line.startswith(title) and "USD" in line)
    end = head.index("USD") + 3
    is_markdown = head.startswith("|")
    rows = itertools.takewhile(lambda line: line and "calls, " not in line, lines)
    costs = [line.split()[-2] if is_markdown else line[:end].split()[-1] for line in rows]
    fractions = [cost.partition(".")[2] for cost in costs if "-" not in cost]
    assert len(fractions) >= 2
    assert {len(fraction) for fraction in fractions} == {digits}


async def _use_tools(root: Path) -> ExecutionSummary:
    calls = [ToolCall("refuse", {"reason": "closed"}), ToolCall("price", {"item": "tea"})]
    calls.append(ToolCall("refuse", {"reason": "sold\nout"}))
    async with ModelServer() as server:
        played = arena_with(root, server, 'functions = ["shop_functions:refuse", "shop_functions:price"]', *calls)
        return (await played.play()).summary


def test_show_tells_of_the_usage_what_exec_told(tmp_path: Path, run: Run) -> None:
    summary = asyncio.run(_use_tools(tmp_path))
    assert summary.usage.tool_calls == 3
    shown = json.loads(run("show", "-f", "json", "-w", str(tmp_path))[1])
    assert shown["usage"] == summary.usage.model_dump(mode="json")
    # The end of a run that was killed is not there to be read.
    with closing(sqlite3.connect(tmp_path / "journal.db")) as db:
        db.execute("DELETE FROM events WHERE kind = 'RunFinished'")
        db.commit()
    assert json.loads(run("show", "-f", "json", "-w", str(tmp_path))[1])["usage"]["tool_calls"] == 3


def test_tools_that_failed_are_counted_where_members_are_told(
    tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    asyncio.run(_use_tools(tmp_path))
    monkeypatch.setenv("MIXSEEK_WORKSPACE", str(tmp_path))
    told = "member m1: 3 tool calls, 2 failed: ValueError: refused: sold out"
    _, shown, _ = run("show")
    assert f"\n  {told}\n" in shown
    _, in_full, _ = run("show", "--rounds")
    assert in_full.count(told) == 1
    [tools] = json.loads(run("show", "-f", "json")[1])["teams"][0]["rounds"][0]["tools"]
    assert tools == {"agent_name": "m1", "calls": 3, "failed": 2, "error": "ValueError: refused: sold\nout"}
    assert f"- {told}\n" in run("export", "--format", "md")[1]


def test_the_board_of_one_execution_as_text_json_and_csv(workspace: Path, run: Run) -> None:
    _, out, _ = run("board", "last")
    rows = [line.split() for line in out.splitlines()]
    assert [row[:4] for row in rows] == [
        ["#", "Team", "Score", "Round"],
        ["1", "Team", "A", "90.91"],
        ["2", "Team", "B", "12.50"],
        ["-", "Team", "C", "-"],
    ]
    told = json.loads(run("board", "last", "-f", "json")[1])
    assert [(one["rank"], one["team_id"], one["score"]) for one in told] == [
        (1, "a", 90.9091),
        (2, "b", 12.5),
        (None, "c", None),
    ]
    table = list(csv.DictReader(io.StringIO(run("board", "last", "-f", "csv")[1])))
    assert [(row["rank"], row["team_name"]) for row in table] == [("1", "Team A"), ("2", "Team B"), ("", "Team C")]
    assert int(table[0]["input_tokens"]) > 0


def test_the_board_of_all_executions_is_in_the_one_order(workspace: Path, played: Played, run: Run) -> None:
    told = json.loads(run("board", "-f", "json")[1])
    assert [(one["rank"], one["team_id"]) for one in told] == [(1, "a"), (2, "a"), (3, "b"), (4, "b")]
    assert {one["execution_id"] for one in told} == set(played[1])
    assert len(run("board", "--limit", "3")[1].splitlines()) == 4


def test_a_secret_of_the_environment_is_not_shown(workspace: Path, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    with duckdb.connect(str(workspace / "mixseek.db")) as db:
        db.execute("UPDATE leader_board SET submission_content = ? WHERE team_id = 'a'", [f"the key is {KEY}"])
    monkeypatch.setenv("SOME_API_KEY", KEY)
    for command in (["show"], ["show", "-f", "json"], ["export", "-f", "md"], ["export", "-f", "html", "-o", "-"]):
        _, out, _ = run(*command)
        assert KEY not in out
        assert "the key is" in out


def test_in_a_terminal_tables_are_drawn_and_fit_80_columns(workspace: Path) -> None:
    out = _in_terminal(["history"], workspace)
    lines = out.splitlines()
    assert set(lines[1]) == {"─"}
    assert max(map(len, lines)) <= 80
    assert "\x1b" not in _in_terminal(["board", "last"], workspace, NO_COLOR="1", TERM="dumb")


def test_in_a_narrow_terminal_neither_ids_nor_numbers_are_cut(workspace: Path, played: Played) -> None:
    told = _in_terminal(["history"], workspace, COLUMNS="40")
    for execution_id in played[1]:
        assert f"Id       {execution_id[:8]}\n" in told
    assert "Best     90.91\n" in told
    assert "…" not in told


def _in_terminal(arguments: list[str], workspace: Path, **variables: str) -> str:
    ours, theirs = pty.openpty()
    environment = {**os.environ, "COLUMNS": "80", "TERM": "dumb", **variables}
    command = [sys.executable, "-m", "mixseek", *arguments, "-w", str(workspace)]
    child = forked.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, env=environment)
    os.close(theirs)
    told = b""
    while True:
        try:
            told += os.read(ours, 65536)
        except OSError:  # the other end is closed
            break
    os.close(ours)
    assert child.wait(SAFETY_SECONDS) == 0
    return told.decode().replace("\r\n", "\n")


def test_a_pipe_is_given_whole_names_and_only_the_beginning_of_a_long_task(tmp_path: Path, run: Run) -> None:
    name = "a-team-whose-name-is-as-long-as-a-line-of-a-terminal-may-be-and-then-some"
    write_workspace(tmp_path, teams=1, max_rounds=1)
    file = tmp_path / "configs/agents/team-a.toml"
    model = f"leader-{'-of-a-kind' * 6}"
    file.write_text(file.read_text().replace("Team A", name).replace("leader-a", model))
    settings = load_orchestrator_settings(tmp_path / "configs/orchestrator.toml", tmp_path)
    with scripted():
        asyncio.run(Orchestrator(settings).execute("a long task " * 50))
    place = ("-w", str(tmp_path))
    for command in (("show",), ("journal", "calls"), ("board", "last"), ("board",), ("history",)):
        out = run(*command, *place)[1]
        assert (name in out) == (command not in [("history",), ("journal", "calls")])
        assert (f"scripted:{model} " in out) == (command in [("show",), ("journal", "calls")])
        if command in [("board",), ("history",)]:
            assert out.count("a long task") < 10


# --- export -----------------------------------------------------------------------------------------------------------


def test_a_page_is_written_where_reports_are_and_its_place_is_told(workspace: Path, played: Played, run: Run) -> None:
    code, out, _ = run("export")
    page = workspace / "reports" / f"{played[1][0]}.html"
    assert (code, out) == (0, f"wrote {page}\n")
    assert "<html" in page.read_text(encoding="utf-8")
    assert [path.name for path in page.parent.iterdir()] == [page.name]


def test_markdown_may_be_called_by_its_name(workspace: Path, run: Run) -> None:
    assert run("export", "--format", "markdown") == run("export", "--format", "md")


def test_the_name_of_the_file_says_what_is_written(workspace: Path, run: Run) -> None:
    assert run("export", "-o", "rounds.csv")[1] == "wrote rounds.csv\n"
    assert Path("rounds.csv").read_text().startswith("execution_id,rank,")
    # Where JSON is asked for, standard output is for JSON alone.
    assert run("export", "last", "-o", "all.json")[1:] == ("", "wrote all.json\n")
    assert json.loads(Path("all.json").read_text(encoding="utf-8"))["teams"][0]["team_id"] == "a"
    code, _, err = run("export", "-o", "what.pdf")
    assert (code, "does not say what to write: give --format html|md|markdown|json|csv" in err) == (2, True)


def test_a_file_that_cannot_be_written_is_told(workspace: Path, run: Run) -> None:
    code, _, err = run("export", "-o", "no/such/place.md")
    assert code == 2
    assert (
        err
        == "mixseek: 'no/such/place.md' cannot be written: No such file or directory; name another file with --output\n"
    )


def test_a_journal_that_cannot_be_read_is_told_once(workspace: Path, run: Run) -> None:
    (workspace / "journal.db").write_bytes(b"This is not a database, and never was one." * 100)
    code, _, err = run("show")
    assert code == 0
    assert [line.partition("; ")[0] for line in err.splitlines()] == [
        f"WARNING journal '{workspace}/journal.db' is damaged (file is not a database)"
    ]


def test_a_directory_is_told_to_be_one_before_its_name_is_looked_at(workspace: Path, run: Run) -> None:
    Path("reports-of-mine").mkdir()
    code, _, err = run("export", "-o", "reports-of-mine")
    assert (code, "'reports-of-mine' cannot be written: Is a directory; name another file" in err) == (2, True)


def test_a_table_has_a_row_for_each_round_with_metrics_tokens_and_time(workspace: Path, run: Run) -> None:
    _, out, _ = run("export", "-f", "csv")
    rows = list(csv.DictReader(io.StringIO(out)))
    assert [(row["team_id"], row["round"], row["final"]) for row in rows] == [
        ("a", "1", "false"),
        ("a", "2", "true"),
        ("b", "1", "false"),
        ("b", "2", "true"),
        ("c", "1", "false"),
        ("c", "2", "false"),
    ]
    assert float(rows[0]["score"]) == float(rows[0]["Coverage"]) == pytest.approx(100 / 1.1)
    assert int(rows[0]["input_tokens"]) > 0
    assert float(rows[0]["seconds"]) > 0
    assert rows[0]["cost_usd"] == "", "the price is not known, which is not zero"
    assert rows[4]["score"] == ""
    assert rows[4]["failure"].startswith("the leader gave no usable answer")
    assert rows[1]["exit_reason"] == "max_rounds_reached"


# --- delete -----------------------------------------------------------------------------------------------------------


def _left_of(workspace: Path, execution_id: str) -> int:
    with duckdb.connect(str(workspace / "mixseek.db")) as db:
        tables = ["leader_board", "round_status", "round_history", "model_usage", "attachments", "execution_summary"]
        rows = sum(_count(db, table, execution_id) for table in tables)
    with sqlite3.connect(workspace / "journal.db") as journal:
        tables = ["calls", "started_calls", "tool_results", "prompts", "events"]
        return rows + sum(_count(journal, table, execution_id) for table in tables)


def _count(db: Any, table: str, execution_id: str) -> int:
    [(count,)] = db.execute(f"SELECT count(*) FROM {table} WHERE execution_id = ?", [execution_id]).fetchall()
    return int(count)


def test_delete_removes_one_execution_from_every_table_and_says_so(workspace: Path, played: Played, run: Run) -> None:
    newest, oldest = played[1]
    before = _left_of(workspace, oldest)
    [kept] = (workspace / "attachments").iterdir()
    code, out, err = run("delete", newest[:8], "--yes")
    assert (code, err) == (0, "")
    assert out.splitlines()[0] == f"removed execution {newest}"
    assert "6 of leader_board" in out
    assert out.endswith("  attachments: none\n"), "the other execution has the same file"
    assert (_left_of(workspace, newest), _left_of(workspace, oldest)) == (0, before)
    assert kept.exists()
    told = json.loads(run("delete", "last", "--yes", "-f", "json")[1])
    assert (told["execution_id"], told["attachments"]) == (oldest, [kept.name])
    assert not kept.exists()
    assert _left_of(workspace, oldest) == 0
    assert run("history")[1].startswith("nothing was played")


def test_what_was_deleted_is_no_longer_in_the_journal(workspace: Path, run: Run) -> None:
    run("delete", "last", "--yes")
    files = [path for path in workspace.iterdir() if path.name.startswith("journal.db")]
    assert not any(b"Another task" in path.read_bytes() for path in files)
    assert any(TASK.partition("\n")[0].encode() in path.read_bytes() for path in files)


def test_delete_asks_and_takes_no_for_an_answer(workspace: Path, played: Played, run: Run) -> None:
    code, _, err = run("delete", "last")
    assert (code, err) == (2, "mixseek: nobody can be asked here: give --yes to remove it without a question\n")
    for answer, left in (("n", 2), ("y", 1)):
        assert f"Remove execution {played[1][0]} (partial, " in _answered(answer, workspace)
        assert len(json.loads(run("history", "-f", "json")[1])) == left


def _answered(answer: str, workspace: Path) -> str:
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "mixseek", "delete", "last", "-w", str(workspace)]
    child = forked.Popen(command, stdin=theirs, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    os.close(theirs)
    os.write(ours, f"{answer}\n".encode())
    _, err = child.communicate(timeout=SAFETY_SECONDS)
    os.close(ours)
    assert child.returncode == (0 if answer == "y" else 1)
    return err


def test_an_execution_that_only_the_journal_knew_is_deleted_from_both_files(workspace: Path, run: Run) -> None:
    (workspace / "mixseek.db").unlink()
    assert len(json.loads(run("history", "-f", "json")[1])) == 2
    assert run("delete", "last", "--yes")[0] == 0
    assert len(json.loads(run("history", "-f", "json")[1])) == 1
    with duckdb.connect(workspace / "mixseek.db", read_only=True) as results:
        assert results.execute("SELECT count(DISTINCT execution_id) FROM leader_board").fetchone() == (1,)


# --- while a competition is played ------------------------------------------------------------------------------------


@pytest.fixture
def playing(tmp_path: Path) -> Iterator[tuple[Path, subprocess.Popen[str]]]:
    """A workspace in which another process plays, slowly."""
    root = tmp_path / "busy"
    root.mkdir()
    with ModelServerProcess() as server:
        write_workspace(root, teams=2, members=0, max_rounds=2, base_url=server.base_url)
        server.set_latency(0.3)
        command = [
            sys.executable,
            "-m",
            "mixseek",
            "exec",
            "a slow task",
            "-c",
            "configs/orchestrator.toml",
            "-w",
            str(root),
        ]
        environment = {**os.environ, "MIXSEEK_ONLY_LOOPBACK": "1"}
        child = forked.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment, cwd=root
        )
        yield root, child
        if child.poll() is None:
            child.kill()
        child.communicate()


def test_a_running_execution_is_read_and_not_deleted(playing: tuple[Path, subprocess.Popen[str]], run: Run) -> None:
    root, child = playing
    ends = time.monotonic() + SAFETY_SECONDS
    seen: list[str] = []
    while not seen:
        assert time.monotonic() < ends
        assert child.poll() is None
        time.sleep(0.05)
        seen = [one["execution_id"] for one in json.loads(run("history", "-w", str(root), "-f", "json")[1])]
    states = set[tuple[str, bool]]()
    code, _, err = run("delete", "last", "--yes", "-w", str(root))
    assert (code, f"is being played by process {child.pid} (mixseek exec)" in err) == (2, True), err
    while child.poll() is None:
        assert time.monotonic() < ends
        code, out, err = run("show", "-w", str(root), "-f", "json")
        assert (code, err) == (0, "")
        told = json.loads(out)
        states.add((told["status"], told["is_running"]))
        assert run("board", "last", "-w", str(root))[0] == 0
        assert run("export", "-f", "md", "-w", str(root))[0] == 0
        time.sleep(0.2)
    assert child.returncode == 0
    assert ("unfinished", True) in states
    [line] = json.loads(run("history", "-w", str(root), "-f", "json")[1])
    assert (line["status"], line["is_running"]) == ("completed", False)
    assert run("delete", "last", "--yes", "-w", str(root))[0] == 0


def test_a_run_that_was_killed_is_unfinished_and_can_be_deleted(
    playing: tuple[Path, subprocess.Popen[str]], run: Run
) -> None:
    root, child = playing
    ends = time.monotonic() + SAFETY_SECONDS
    while not json.loads(run("history", "-w", str(root), "-f", "json")[1]):
        assert time.monotonic() < ends
        time.sleep(0.05)
    told = ""
    while "on its way now" not in told and "on their way now" not in told:
        assert time.monotonic() < ends
        told = run("journal", "calls", "-w", str(root))[1]
    _stop_with_a_call_on_its_way(child, root)
    child.kill()
    child.wait(SAFETY_SECONDS)
    *_, total = run("journal", "calls", "-w", str(root))[1].splitlines()
    assert re.search(r"and \d that (was|were) on (its|their) way when (its|their) process ended$", total), total
    [line] = json.loads(run("history", "-w", str(root), "-f", "json")[1])
    assert (line["status"], line["is_running"], line["user_prompt"]) == ("unfinished", False, "a slow task")
    _, out, _ = run("show", "-w", str(root))
    assert "unfinished, started" in out
    assert run("delete", "last", "--yes", "-w", str(root))[0] == 0


def _stop_with_a_call_on_its_way(child: subprocess.Popen[str], root: Path) -> None:
    """Let the process stand still in a moment in which the journal has a start without an end."""
    while True:
        child.send_signal(signal.SIGSTOP)
        with closing(sqlite3.connect(root / "journal.db")) as db:
            ids = "SELECT call_id FROM started_calls EXCEPT SELECT call_id FROM calls"
            if db.execute(ids).fetchall():
                return
        child.send_signal(signal.SIGCONT)
        assert child.poll() is None
        time.sleep(0.01)
