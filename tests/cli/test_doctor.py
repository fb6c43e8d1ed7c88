"""``mixseek doctor``: what it finds, what it advises, and that it leaves everything as it is."""

import json
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import pytest

from mixseek.cli import main
from mixseek.testing import scripted, write_workspace
from soak import forked

SAFETY_SECONDS = 60
HOLDING = """
import duckdb, sys
connection = duckdb.connect(sys.argv[1])
print("held", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    root = tmp_path / "workspace"
    root.mkdir()
    write_workspace(root, teams=1, max_rounds=1)
    return root


def _doctor(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int | str | None, dict[str, Any]]:
    capsys.readouterr()
    with scripted(), pytest.raises(SystemExit) as ended:
        main(["doctor", "-f", "json", *arguments])
    told: dict[str, Any] = json.loads(capsys.readouterr().out)
    return ended.value.code, told


def _found(told: dict[str, Any], state: str, words: str) -> dict[str, str]:
    (finding,) = [one for one in told["findings"] if one["state"] == state and words in one["message"]]
    return dict(finding)


def _play(workspace: Path) -> None:
    with scripted(), pytest.raises(SystemExit) as ended:
        main(["exec", "task", "-c", "configs/orchestrator.toml", "-w", str(workspace), "--no-log-file"])
    assert ended.value.code == 0


def _files(workspace: Path) -> dict[str, bytes]:
    """All there is; of a lock only that it is there, since whoever looks takes a turn as well."""
    found = [path for path in workspace.rglob("*") if path.is_file()]
    return {str(path): b"" if path.suffix == ".lock" else path.read_bytes() for path in found}


def test_nothing_fails_where_all_is_well_and_nothing_is_changed(
    workspace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _play(workspace)
    before = _files(workspace)
    code, told = _doctor(capsys, "-w", str(workspace))
    assert (code, told["ok"]) == (0, True)
    assert _files(workspace) == before
    assert _found(told, "ok", "mixseek.db opens, 1 execution")
    assert _found(told, "ok", "journal.db opens")
    assert _found(told, "ok", "scripted: leader-a, judge, judgment; no key to set")


def test_executions_are_counted_as_history_counts_them(workspace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _play(workspace)
    with duckdb.connect(workspace / "mixseek.db") as connection:
        connection.execute("DELETE FROM execution_summary")  # as an interrupted run leaves it
    assert _found(_doctor(capsys, "-w", str(workspace))[1], "ok", "mixseek.db opens, 1 execution")
    with duckdb.connect(workspace / "mixseek.db") as connection:
        for table in ("leader_board", "round_status", "round_history", "model_usage"):
            connection.execute(f"DELETE FROM {table}")
    assert _found(_doctor(capsys, "-w", str(workspace))[1], "ok", "mixseek.db opens, 1 execution"), "the journal has it"


def test_a_new_workspace_is_told_and_stays_as_it_is(workspace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = _files(workspace)
    code, told = _doctor(capsys, "-w", str(workspace))
    assert code == 0
    assert _found(told, "ok", "no mixseek.db yet")
    assert _files(workspace) == before


def test_without_a_workspace_the_rest_is_told(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("MIXSEEK_WORKSPACE", raising=False)
    code, told = _doctor(capsys)
    assert code == 0
    found = _found(told, "warn", "no workspace")
    assert found["remedy"] == "mixseek init makes one"
    assert found["remedy"] not in str(found["message"])
    code, told = _doctor(capsys, "-w", str(tmp_path / "nowhere"))
    assert code == 1
    assert _found(told, "fail", "does not exist")


def test_what_is_wrong_is_told_with_its_remedy(
    workspace: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    team = workspace / "configs/agents/team-a.toml"
    team.write_text(team.read_text().replace("scripted:leader-a", "openai:gpt-5"))
    (workspace / "configs/judgment.toml").write_text("modell = 'scripted:judgment'\n")
    (workspace / "mixseek.db").write_bytes(b"not a database")
    (workspace / "journal.db").write_bytes(b"not a journal")
    code, told = _doctor(capsys, "-w", str(workspace))
    assert (code, told["ok"]) == (1, False)
    key = _found(told, "fail", "openai: gpt-5; no key for the models of 'openai'")
    assert key["remedy"] == "set OPENAI_API_KEY in the environment or in .env of the workspace"
    assert _found(told, "fail", "modell: unknown key")["area"] == "workspace"
    assert "move mixseek.db away" in _found(told, "fail", "is not a DuckDB database file")["remedy"]
    assert (
        "move journal.db away together with journal.db-wal"
        in _found(told, "fail", "journal.db: file is not a database")["remedy"]
    )


def test_a_database_that_the_journal_can_make_anew_is_told_with_that(
    workspace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with scripted(), pytest.raises(SystemExit):
        main(["exec", "Name one.", "-w", str(workspace)])
    whole = (workspace / "mixseek.db").read_bytes()
    (workspace / "mixseek.db").write_bytes(whole[: len(whole) // 2])
    shutil.rmtree(workspace / "logs")
    before = _files(workspace)
    code, told = _doctor(capsys, "-w", str(workspace))
    assert code == 1
    assert (
        _found(told, "fail", "Could not read enough bytes")["remedy"] == "mixseek rebuild makes it anew from journal.db"
    )
    assert {name: kept for name, kept in _files(workspace).items() if "/logs" not in name} == before


def test_no_key_is_asked_for_a_model_that_nobody_would_ask(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    place = tmp_path / "demo"
    with pytest.raises(SystemExit):
        main(["init", str(place), "--template", "demo"])
    _, told = _doctor(capsys, "-w", str(place))
    providers = [one["message"] for one in told["findings"] if one["area"] == "providers"]
    assert [message.partition(":")[0] for message in providers] == ["local"]


def test_a_key_is_never_shown(
    workspace: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "the-key-of-somebody")
    team = workspace / "configs/agents/team-a.toml"
    team.write_text(team.read_text().replace("scripted:leader-a", "openai:gpt-5"))
    _, told = _doctor(capsys, "-w", str(workspace))
    assert _found(told, "ok", "openai: gpt-5; OPENAI_API_KEY is in the environment")
    assert "the-key-of-somebody" not in json.dumps(told)


def test_a_file_of_an_older_form_is_only_told(workspace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with duckdb.connect(workspace / "mixseek.db") as connection:
        connection.execute("CREATE TABLE execution_summary (execution_id VARCHAR PRIMARY KEY)")
    before = _files(workspace)
    code, told = _doctor(capsys, "-w", str(workspace))
    assert code == 0
    assert "keeps a copy" in _found(told, "warn", "mixseek.db is of an older MixSeek")["remedy"]
    assert _files(workspace) == before


@pytest.fixture
def holder(workspace: Path) -> Iterator[subprocess.Popen[str]]:
    _play(workspace)
    command = [sys.executable, "-c", HOLDING, str(workspace / "mixseek.db")]
    with forked.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "held\n"
        yield child
        child.communicate(timeout=SAFETY_SECONDS)


def test_who_holds_the_database_is_named(
    workspace: Path, holder: subprocess.Popen[str], capsys: pytest.CaptureFixture[str]
) -> None:
    began = time.monotonic()
    code, told = _doctor(capsys, "-w", str(workspace))
    assert time.monotonic() - began < SAFETY_SECONDS
    assert code == 0
    assert _found(told, "warn", str(holder.pid))


def test_people_get_a_line_for_each_finding(workspace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with scripted(), pytest.raises(SystemExit):
        main(["doctor", "-w", str(workspace)])
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "Environment"
    assert f"  ok    found at {workspace}" in lines
    assert lines[-1].startswith("0 failed, ")
