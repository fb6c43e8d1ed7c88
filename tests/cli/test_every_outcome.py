"""``-f json`` gives one JSON document and nothing else on standard output, whatever becomes of a command."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from mixseek.cli import logs, main
from mixseek.testing import ModelServer, write_workspace

LENGTH = '[[metrics]]\nname = "Length"\noptions = {maximum = 1000}\n'
SECRET = "sesame-123456"


@pytest.fixture
def workspace(tmp_path: Path, server: ModelServer, monkeypatch: pytest.MonkeyPatch) -> Path:
    write_workspace(tmp_path, teams=2, max_rounds=1, base_url=server.base_url, judgment="judge_on_final_round = false")
    (tmp_path / "configs" / "evaluator.toml").write_text(LENGTH)
    monkeypatch.setenv("MIXSEEK_WORKSPACE", str(tmp_path))
    return tmp_path


@pytest.fixture(autouse=True)
def _no_logs_of_others() -> Iterator[None]:
    logs._exchange([])
    yield
    logs._exchange([])


@pytest.fixture
def ran(capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, Any]]:
    """The exit code, and what the one JSON document on standard output says."""

    def run(*arguments: str) -> tuple[int, Any]:
        with pytest.raises(SystemExit) as ended:
            main(list(arguments))
        assert isinstance(ended.value.code, int)
        return ended.value.code, json.loads(capsys.readouterr().out)

    return run


Ran = Callable[..., tuple[int, Any]]


def test_a_summary_is_one_whatever_became_of_the_teams(ran: Ran, workspace: Path, server: ModelServer) -> None:
    code, summary = ran("exec", "task", "-f", "json")
    assert (code, summary["completed_teams"], summary["failed_teams"]) == (0, 2, 0)
    server.fault("spend_limit", model="leader-b")
    code, summary = ran("exec", "task", "--format=json")
    assert (code, summary["completed_teams"], summary["failed_teams"]) == (1, 1, 1)
    server.fault("spend_limit", model="leader-a")
    code, summary = ran("exec", "task", "--format", "json")
    assert (code, summary["completed_teams"], summary["failed_teams"]) == (2, 0, 2)


def test_a_time_out_is_a_failure_in_the_summary(ran: Ran, workspace: Path, server: ModelServer) -> None:
    file = workspace / "configs" / "orchestrator.toml"
    file.write_text(file.read_text().replace("max_rounds", "submission_timeout_seconds = 1\nmax_rounds"))
    server.fault("hang_before_headers", model="leader-a")
    code, summary = ran("exec", "task", "-f", "json")
    assert code == 1
    assert "no submission within 1 s" in summary["failed_teams_info"][0]["error_message"]


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["exec", "task", "--tiemout", "3", "-f", "json"], "No such option"),
        (["-f", "json"], "No such option"),
        (["exek", "-f", "json"], "No such command"),
        (["exec", "one", "two", "-f", "json"], "unexpected extra argument"),
        (["exec", "task", "--timeout", "soon", "-fjson"], "'--timeout': Input should be a valid integer"),
        (["exec", "task", "--config", "-f", "json"], "unexpected extra argument"),
        (["exec", "task", "--log-level", "loud", "-f", "json"], "'loud' is not one of"),
    ],
)
def test_a_mistake_on_the_command_line_is_json_too(arguments: list[str], told: str, ran: Ran, workspace: Path) -> None:
    code, printed = ran(*arguments)
    assert code == 2
    assert printed["error"]["type"] == "UsageError"
    assert told in printed["error"]["message"]


def test_a_mistake_on_the_command_line_is_told_to_people_without_codes(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["\x1b[31mexec"])
    printed = capsys.readouterr()
    assert (ended.value.code, printed.out) == (2, "")
    assert (
        printed.err
        == "mixseek: No such command '\\x1b[31mexec'. Did you mean 'exec'? mixseek --help lists the commands\n"
    )
    assert "\x1b" not in printed.err


def test_mistakes_in_files_and_what_is_not_there_are_json(ran: Ran, workspace: Path, server: ModelServer) -> None:
    code, printed = ran("exec", "task", "-c", "nowhere.toml", "-f", "json")
    assert (code, printed["error"]["type"]) == (2, "MissingFileError")
    code, printed = ran("exec", "task", "-w", "nowhere", "-f", "json")
    assert (code, printed["error"]["type"]) == (2, "WorkspaceNotFoundError")
    (workspace / "configs" / "evaluator.toml").write_text("[[metrics]]\nname = 'Lenth'")
    code, printed = ran("exec", "task", "-f", "json")
    assert (code, printed["error"]["problems"][0]["file"]) == (2, "configs/evaluator.toml")
    assert server.requests == []


def test_a_database_that_cannot_be_opened_is_json_before_any_call(
    ran: Ran, workspace: Path, server: ModelServer
) -> None:
    (workspace / "mixseek.db").write_text("no database")
    code, printed = ran("exec", "task", "-f", "json")
    assert code == 2
    assert "mixseek.db" in printed["error"]["message"]
    assert server.requests == []


def test_a_member_or_a_metric_that_ends_the_program_has_failed(ran: Ran, workspace: Path, server: ModelServer) -> None:
    (workspace / "leaving.py").write_text(
        "import sys\n"
        "from mixseek.agents.member import BaseMemberAgent\n"
        "from mixseek.evaluator.metrics import BaseMetric\n"
        "class Leaving(BaseMemberAgent):\n"
        "    async def execute(self, task, context=None, **kwargs):\n"
        "        sys.exit(3)\n"
        "class Gone(BaseMetric):\n"
        "    async def evaluate(self, user_query, submission, **context):\n"
        "        sys.exit(4)\n"
    )
    team = workspace / "configs" / "agents" / "team-a.toml"
    plugin = 'plugin = { path = "leaving.py", agent_class = "Leaving" }'
    team.write_text(
        f'{team.read_text()}[[team.members]]\nname = "m"\ntype = "custom"\nmodel = "loopback:m"\n{plugin}\n'
    )
    code, answer = ran("team", "task", "-c", "configs/agents/team-a.toml", "-f", "json")
    assert (code, answer["members"][0]["error_message"]) == (0, "SystemExit: 3 (leaving.py, line 6)")
    metric = '[[metrics]]\nname = "Gone"\n[custom_metrics]\nGone = {path = "leaving.py", class = "Gone"}\n'
    (workspace / "configs" / "evaluator.toml").write_text(metric)
    code, summary = ran("exec", "task", "-f", "json")
    assert (code, summary["failed_teams"]) == (2, 2)
    assert (
        "metric 'Gone' failed at leaving.py, line 9: SystemExit: 4" in summary["failed_teams_info"][0]["error_message"]
    )


# --- what nobody expected ---------------------------------------------------------------------------------------------


@pytest.fixture
def _bug(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_given: object, **_named: object) -> None:
        raise LookupError(f"no luck with {SECRET}")

    monkeypatch.setattr("mixseek.cli.exec.plan_of", fail)
    monkeypatch.setenv("SHOP_TOKEN", SECRET)


@pytest.mark.usefixtures("_bug")
def test_a_bug_is_one_line_and_its_traceback_is_kept_without_secrets(
    workspace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["exec", "task", "--dry-run"])
    printed = capsys.readouterr()
    assert (ended.value.code, printed.out) == (2, "")
    told, _, place = printed.err.strip().rpartition(" ")
    assert told == "mixseek: unexpected: LookupError: no luck with [redacted]; this is a bug; details in"
    details = Path(place).read_text()
    Path(place).unlink()
    assert "Traceback" in details
    assert SECRET not in details


@pytest.mark.usefixtures("_bug")
def test_a_bug_is_json_where_json_is_asked_for(ran: Ran, workspace: Path) -> None:
    code, printed = ran("exec", "task", "--dry-run", "-f", "json")
    assert (code, printed["error"]["type"]) == (2, "LookupError")
    Path(printed["error"]["message"].rpartition(" ")[2]).unlink()


def test_the_details_of_a_bug_are_in_the_log_and_with_verbose_on_the_console(
    workspace: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(*_given: object, **_named: object) -> None:
        raise LookupError("no luck")

    monkeypatch.setattr("mixseek.cli.exec.play", fail)
    for more, is_shown in (([], False), (["-v"], True)):
        with pytest.raises(SystemExit):
            main(["exec", "task", *more])
        printed = capsys.readouterr().err
        assert printed.endswith(f"this is a bug; details in {workspace}/logs/mixseek.log\n")
        assert ("Traceback" in printed) is is_shown
    assert "LookupError: no luck" in (workspace / "logs" / "mixseek.log").read_text()


# --- streams that take no more ----------------------------------------------------------------------------------------


def _command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "mixseek", *arguments]


def test_a_reader_that_goes_away_ends_the_command_quietly() -> None:
    """As ``| head`` does, but without a race: the pipe has no reader from the start."""
    reading, writing = os.pipe()
    os.close(reading)
    for more in ([], ["-f", "json"]):
        ran = subprocess.run(
            _command("config", "list", "-w", str(Path(__file__).parent), *more),
            stdout=writing, stderr=subprocess.PIPE, timeout=60, check=False,
        )  # fmt: skip
        assert (ran.returncode, ran.stderr) == (141, b"")
    os.close(writing)


def test_a_run_goes_on_when_nobody_reads_its_progress(workspace: Path) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    ran = subprocess.run(
        _command("exec", "task", "-f", "json"), stdout=subprocess.PIPE, stderr=writing, timeout=60, check=False
    )
    os.close(writing)
    assert ran.returncode == 0
    assert json.loads(ran.stdout)["completed_teams"] == 2


def test_a_warning_that_nobody_reads_changes_no_exit_code(workspace: Path) -> None:
    with (workspace / "configs/orchestrator.toml").open("a") as file:
        file.write('\n[prices."openai:nobodys"]\ninput_usd_per_million = 1\noutput_usd_per_million = 1\n')
    reading, writing = os.pipe()
    os.close(reading)
    # With buffers, as most have it: what a stream that broke still holds would be written once more at the end.
    environ = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    ran = subprocess.run(
        _command("exec", "task", "-f", "json"),
        stdout=subprocess.PIPE,
        stderr=writing,
        timeout=60,
        check=False,
        env=environ,
    )
    os.close(writing)
    assert "has a price" in (workspace / "logs/mixseek.log").read_text()
    assert ran.returncode == 0


@pytest.mark.parametrize("more", [[], ["-f", "json"]])
def test_a_full_disk_behind_standard_output_is_told_on_standard_error(more: list[str]) -> None:
    with Path("/dev/full").open("w") as full:
        ran = subprocess.run(
            _command("config", "list", "-w", str(Path(__file__).parent), *more),
            stdout=full, stderr=subprocess.PIPE, text=True, timeout=60, check=False,
        )  # fmt: skip
    assert ran.returncode == 2
    assert ran.stderr == "mixseek: standard output cannot be written: No space left on device\n"


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_disk_that_becomes_full_in_the_middle_of_an_answer_is_told(unbuffered: str, tmp_path: Path) -> None:
    """Python itself drops what an unbuffered stream did not take at once, and says nothing."""
    command = _command("config", "show", "-f", "json", "-w", str(Path(__file__).parent))
    with (tmp_path / "out").open("w") as out:
        ran = subprocess.run(
            ["bash", "-c", 'ulimit -f 1 && exec "$@"', "bash", *command],
            env={**os.environ, "PYTHONUNBUFFERED": unbuffered, "PYTHONDONTWRITEBYTECODE": "1"},
            stdout=out, stderr=subprocess.PIPE, text=True, timeout=60, check=False,
        )  # fmt: skip
    assert (ran.returncode, ran.stderr) == (2, "mixseek: standard output cannot be written: File too large\n")
