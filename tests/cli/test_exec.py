"""``mixseek exec`` as its users run it: real files, a model server on this machine."""

import json
import os
import shlex
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import duckdb
import pytest

from mixseek.cli.output import rounded
from mixseek.testing import ModelServerProcess, write_workspace
from soak import forked
from tests.commands import Ran, run_here
from tests.waiting import until_true

TASK = "日本の首都は？"
HOSTILE = "\x1b]0;owned\x07\x1b[2Jfirst line\nsecond \u202eline\r\x9b31m"
HARMLESS = "\\x1b]0;owned\\x07\\x1b[2Jfirst line\nsecond \\u202eline\\r\\x9b31m"
STEERING = ("\x1b", "\x07", "\x9b", "\u202e", "\r")
CUSTOM_METRIC = """
[[metrics]]
name = "Loud"
[custom_metrics.Loud]
path = "loud.py"
class = "Loud"
"""
LOUD = """
from mixseek.evaluator.metrics.base import BaseMetric
from mixseek.models.evaluation_result import MetricScore

print("printed while it loads")

class Loud(BaseMetric):
    async def evaluate(self, user_query, submission, **context):
        print("printed while it scores")
        return MetricScore(metric_name="Loud", score=50, evaluator_comment="")
"""
SAFETY_SECONDS = 60


@pytest.fixture
def server(server_process: ModelServerProcess) -> ModelServerProcess:
    return server_process


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    root = tmp_path / "workspace"
    root.mkdir()
    return root


def _environment() -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("MIXSEEK_")}
    # The process that tests is one whose locale nobody knows.
    return {**kept, "MIXSEEK_ONLY_LOOPBACK": "1", "PYTHONIOENCODING": "utf-8"}


def _command(workspace: Path, *arguments: str) -> list[str]:
    # The file is not in the current directory, so it is found in the workspace.
    return ["exec", *arguments, "-c", "configs/orchestrator.toml", "-w", str(workspace)]


def _run(workspace: Path, *arguments: str, **variables: str) -> Ran:
    return run_here(*_command(workspace, *arguments), cwd=workspace.parent, variables=variables)


def _run_apart(workspace: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """In a process of its own."""
    return forked.run(
        [sys.executable, "-m", "mixseek", *_command(workspace, *arguments)],
        capture_output=True,
        text=True,
        cwd=workspace.parent,
        env=_environment(),
        timeout=SAFETY_SECONDS,
        check=False,
    )


def _start(workspace: Path, *arguments: str) -> subprocess.Popen[str]:
    return forked.Popen(
        [sys.executable, "-m", "mixseek", *_command(workspace, *arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=workspace.parent,
        env=_environment(),
    )


def _rows(workspace: Path, query: str) -> list[dict[str, Any]]:
    with duckdb.connect(workspace / "mixseek.db", read_only=True) as connection:
        found = connection.execute(query)
        names = [column[0] for column in found.description or ()]
        return [dict(zip(names, row, strict=True)) for row in found.fetchall()]


def _change(file: Path, old: str, new: str) -> None:
    text = file.read_text()
    assert old in text
    file.write_text(text.replace(old, new))


# --- what is worth a warning ------------------------------------------------------------------------------------------


def test_a_price_of_a_model_that_nobody_names_is_a_warning_with_the_model_that_may_be_meant(
    server: ModelServerProcess, workspace: Path
) -> None:
    price = "input_usd_per_million = 1\noutput_usd_per_million = 2\n"
    file = write_workspace(workspace, teams=1, max_rounds=1, base_url=server.base_url)
    models = ("loopback:leader-a", "loopback:judgge", "other:thing")
    file.write_text(file.read_text() + "".join(f'[prices."{model}"]\n{price}' for model in models))
    with (workspace / "configs/providers.toml").open("a") as providers:
        providers.write(f'[providers.other]\nbase_url = "{server.base_url}"\n')

    told = _run(workspace, TASK)
    assert told.returncode == 0
    unused = "has a price, but nobody here names this model"
    assert [line for line in told.stderr.splitlines() if "WARNING" in line] == [
        f"WARNING configs/orchestrator.toml: prices.\"loopback:judgge\": {unused}; did you mean 'loopback:judge'?",
        f'WARNING configs/orchestrator.toml: prices."other:thing": {unused}',
    ]


@pytest.mark.parametrize("how", [(), ("--dry-run",)])
def test_a_prompt_that_is_missing_is_warned_of_once_however_often_its_file_is_read(
    how: tuple[str, ...], server: ModelServerProcess, workspace: Path
) -> None:
    write_workspace(workspace, teams=2, max_rounds=1, base_url=server.base_url)
    prompts = '[prompt_builder]\nteam_user_prompt = "{{ user_prompt }}"\n'
    (workspace / "configs/prompt_builder.toml").write_text(prompts)
    told = _run(workspace, TASK, *how)
    assert told.returncode == 0
    assert told.stderr.count("prompt_builder.evaluator_user_prompt is missing") == 1
    assert told.stderr.count("prompt_builder.judgment_user_prompt is missing") == 1


# --- progress ---------------------------------------------------------------------------------------------------------


def test_a_team_stops_after_its_last_round_for_that_reason_and_not_for_what_its_judge_thought(
    server: ModelServerProcess, workspace: Path
) -> None:
    write_workspace(workspace, teams=1, max_rounds=1, base_url=server.base_url)
    server.on("judgment", [{"reasoning": "more is to come", "should_continue": True, "confidence_score": 1}])
    ran = _run(workspace, TASK, "--log-level", "debug")
    stops = "a: stops (max_rounds_reached) after round 1, the last one"
    judged = "judgment: go on, more is to come"
    assert f"{stops}; {judged}\n" in ran.stderr
    assert judged in run_here("show", "last", "-w", str(workspace)).stdout
    logged = (workspace / "logs" / "mixseek.log").read_text()
    assert f"{stops}\n" in logged
    assert f"{stops}: {judged}\n" in logged


def test_without_a_judge_what_is_told_of_the_last_round_is_what_is_shown(
    server: ModelServerProcess, workspace: Path
) -> None:
    write_workspace(workspace, teams=1, max_rounds=1, base_url=server.base_url)
    (workspace / "configs/judgment.toml").write_text('model = "none"\n')
    judged = "judgment: stop, round 1 is the last of 1"
    assert f"a: stops (max_rounds_reached) after round 1, the last one; {judged}\n" in _run(workspace, TASK).stderr
    assert judged in run_here("show", "last", "-w", str(workspace)).stdout


# --- results ----------------------------------------------------------------------------------------------------------


def test_the_board_the_bill_and_the_best_answer_are_printed_and_nothing_in_them_steers_the_terminal(
    server: ModelServerProcess, workspace: Path
) -> None:
    write_workspace(workspace, teams=1, max_rounds=2, base_url=server.base_url, orchestrator="min_rounds = 1")
    # The key stands in .env alone, so it has to reach both the check and the model.
    _change(workspace / "configs/providers.toml", "base_url", 'api_key_env = "LOOPBACK_KEY"\nbase_url')
    (workspace / ".env").write_text("LOOPBACK_KEY=key-of-the-env-file\n")
    server.on("leader-a", [HOSTILE])
    server.on("judgment", [{"reasoning": HOSTILE, "should_continue": False, "confidence_score": 1}])

    ran = _run_apart(workspace, TASK)

    assert ran.returncode == 0, ran.stderr
    (entry,) = _rows(workspace, "FROM leader_board")
    board, _, answer = ran.stdout.partition("Best answer: Team A (a), round 1\n\n")
    assert answer == f"{HARMLESS}\n"
    assert board.startswith(
        f"Leader board\n  1. Team A (a): {entry['score']:.2f} in round 1, no_improvement_expected\n"
    )
    bill = server.bill.total
    assert f"\n{bill.requests} model calls, {bill.input_tokens:,} tokens in, {bill.output_tokens:,} out, " in board
    assert f"a: round 1 finished, score {entry['score']:.2f}\n" in ran.stderr
    assert "a: stops (no_improvement_expected) after round 1: \\x1b]0;owned\\x07" in ran.stderr
    assert not any(code in ran.stdout + ran.stderr for code in STEERING)
    assert "key-of-the-env-file" not in (workspace / "logs" / "mixseek.log").read_text()


def test_as_json_the_summary_stands_alone_and_is_what_the_database_has(
    server: ModelServerProcess, workspace: Path
) -> None:
    write_workspace(workspace, teams=2, members=1, max_rounds=1, base_url=server.base_url)
    planned = json.loads(_run(workspace, TASK, "-f", "json", "--dry-run").stdout)

    ran = _run(workspace, TASK, "-f", "json", "--timeout", "60", "--no-log-file")

    assert ran.returncode == 0, ran.stderr
    summary = json.loads(ran.stdout)
    (row,) = _rows(workspace, "FROM execution_summary")
    kept = ("execution_id", "user_prompt", "total_teams", "best_team_id", "best_score", "total_execution_time_seconds")
    assert {name: summary[name] for name in kept} == rounded({name: row[name] for name in kept})
    assert summary["team_results"] == rounded(json.loads(row["team_results"]))
    assert not any("id" in entry for entry in summary["team_results"])
    assert row["status"] == "completed"
    shown = {entry["team_id"]: (entry["score"], entry["submission_content"]) for entry in summary["team_results"]}
    rows = _rows(workspace, "FROM leader_board")
    assert shown == {row["team_id"]: (rounded(row["score"]), row["submission_content"]) for row in rows}
    bill = server.bill.total
    assert (summary["usage"]["requests"], summary["usage"]["input_tokens"]) == (bill.requests, bill.input_tokens)
    assert planned["calls"] == bill.requests
    assert summary["failed_teams_info"] == []
    assert not (workspace / "logs").exists()


def test_some_results_and_some_failures_are_told_apart(server: ModelServerProcess, workspace: Path) -> None:
    write_workspace(workspace, teams=2, max_rounds=1, base_url=server.base_url, evaluator=CUSTOM_METRIC)
    (workspace / "loud.py").write_text(LOUD)
    server.fault(401, model="leader-b")

    ran = _run(workspace, TASK)

    assert ran.returncode == 1
    assert ran.stdout.startswith("Leader board\n  1. Team A (a): 50.00 in round 1")
    assert "printed while it loads\n" in ran.stderr
    assert "printed while it scores\n" in ran.stderr
    assert "\nFailed\n  Team B (b): loopback:leader-b: HTTP 401" in ran.stdout
    assert "Best answer: Team A (a), round 1\n" in ran.stdout
    assert "b: failed: loopback:leader-b: HTTP 401" in ran.stderr
    # The line about the event is enough: what is logged of it goes to the file.
    assert ran.stderr.count("HTTP 401") == 1
    assert "team 'b' failed: loopback:leader-b: HTTP 401" in (workspace / "logs" / "mixseek.log").read_text()


def test_without_any_result_the_reasons_are_told(server: ModelServerProcess, workspace: Path) -> None:
    write_workspace(workspace, teams=1, max_rounds=1, base_url=server.base_url)
    server.fault(401, model="leader-a")

    ran = _run(workspace, TASK, "-f", "json")

    assert ran.returncode == 2
    summary = json.loads(ran.stdout)
    assert summary["team_results"] == []
    assert summary["best_team_id"] is None
    assert "HTTP 401" in summary["failed_teams_info"][0]["error_message"]
    assert "Traceback" not in ran.stderr


def test_a_command_to_copy_names_a_workspace_with_a_space_in_quotes(server: ModelServerProcess, tmp_path: Path) -> None:
    workspace = tmp_path / "my own"
    write_workspace(workspace, teams=1, max_rounds=1, base_url=server.base_url)
    server.fault(401, model="judge")
    told = _run(workspace, TASK).stderr.splitlines()[-1]
    assert shlex.split(told)[:2] == ["mixseek", "resume"]
    assert shlex.split(told)[3:] == ["-w", str(workspace)]


def test_results_are_printed_even_when_the_last_writes_fail(server: ModelServerProcess, workspace: Path) -> None:
    file = write_workspace(
        workspace, teams=1, max_rounds=1, base_url=server.base_url, orchestrator="max_retries_per_team = 0"
    )
    file.write_text(file.read_text() + "\n[storage]\nlock_wait_seconds = 0.1\n")
    server.on("leader-a", ["The answer that is paid for."])
    server.set_latency(2, model="judgment")
    child = _start(workspace, TASK)
    try:
        until_true(lambda: "judgment" in server.bill.models and server.bill.models["judgment"].waiting == 1, child)
        with _held(workspace / "mixseek.db", child):
            out, err = child.communicate(timeout=SAFETY_SECONDS)
    finally:
        child.kill()
        child.wait()
    assert "The answer that is paid for." in out
    assert child.returncode == 1
    assert "Traceback" not in err
    assert _rows(workspace, "FROM execution_summary") == []


def _held(database: Path, child: subprocess.Popen[str]) -> duckdb.DuckDBPyConnection:
    """The database, open for writing in this process: no other can open it."""
    held: list[duckdb.DuckDBPyConnection] = []

    def took_it() -> bool:
        try:
            held.append(duckdb.connect(database))
        except duckdb.IOException:
            return False
        return True

    until_true(took_it, child)
    return held[0]


# --- nothing is called ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_a_run_whose_streams_are_closed_plays_and_writes_its_answer(
    server: ModelServerProcess, workspace: Path, closed: str
) -> None:
    write_workspace(workspace, teams=1, max_rounds=1, base_url=server.base_url)
    answer = workspace / "answer.md"
    command = shlex.join([sys.executable, "-m", "mixseek", *_command(workspace, TASK, "--output", str(answer))])
    ran = subprocess.run(
        f"{command} {closed}",
        shell=True,
        capture_output=True,
        text=True,
        cwd=workspace.parent,
        env=_environment(),
        timeout=SAFETY_SECONDS,
        check=False,
    )
    assert (ran.returncode, "bug" in ran.stderr) == (0, False), ran.stderr
    [row] = _rows(workspace, "SELECT submission_content FROM leader_board")
    assert answer.read_text() == row["submission_content"] + "\n"


def test_all_that_is_wrong_is_told_before_anything_is_called(server: ModelServerProcess, workspace: Path) -> None:
    write_workspace(workspace, teams=2, base_url=server.base_url)
    _change(workspace / "configs/agents/team-a.toml", "loopback:", "loopbak:")
    _change(workspace / "configs/agents/team-b.toml", "loopback:", "openai:")

    ran = _run(workspace, TASK, "--timeout", "5", OPENAI_API_KEY="", OPENAI_BASE_URL="")

    assert ran.returncode == 2
    assert ran.stdout == ""
    assert ran.stderr.splitlines() == [
        "mixseek: --timeout: 5 is not allowed: must be a whole number from 10 to 3600",
        "mixseek: configs/agents/team-a.toml: team.leader.model: unknown model provider 'loopbak'; "
        "did you mean 'loopback'?",
        "mixseek: configs/agents/team-b.toml: team.leader.model: no key for the models of 'openai': "
        "set OPENAI_API_KEY in the environment or in .env of the workspace",
    ]
    assert server.bill.total.requests == 0
    assert not (workspace / "mixseek.db").exists()


@pytest.mark.parametrize("prompt", ["", " \n", "\udcff"])
def test_a_prompt_that_says_nothing_is_refused_as_json_too(prompt: str, workspace: Path) -> None:
    write_workspace(workspace, base_url="http://127.0.0.1:9/v1")
    ran = _run(workspace, prompt, "-f", "json")
    assert ran.returncode == 2
    assert json.loads(ran.stdout)["error"]["message"].startswith("the prompt is ")


def test_a_dry_run_tells_what_would_run_and_calls_nothing(server: ModelServerProcess, workspace: Path) -> None:
    write_workspace(workspace, teams=2, members=1, max_rounds=3, base_url=server.base_url)

    told = _run(workspace, TASK, "--dry-run")
    planned = json.loads(_run(workspace, TASK, "--dry-run", "-f", "json").stdout)

    assert (told.returncode, told.stderr) == (0, "")
    assert "Team B (b)\n  leader: loopback:leader-b\n  member-1 (plain): loopback:member-1\n" in told.stdout
    assert "Metrics\n  ClarityCoherence: loopback:judge\n" in told.stdout
    # Two teams; in each of three rounds a leader twice, a member and three judges; a judgment after rounds 2 and 3.
    assert planned["calls"] == 2 * (3 * (2 + 1 + 3) + 2)
    assert [team["team_id"] for team in planned["teams"]] == ["a", "b"]
    assert server.bill.total.requests == 0
    assert sorted(path.name for path in workspace.iterdir()) == ["configs"]


def test_a_dry_run_without_a_key_shows_the_plan_and_tells_each_missing_key_once(workspace: Path) -> None:
    write_workspace(workspace, teams=3, members=1, base_url="http://127.0.0.1:9/v1")
    for file in (workspace / "configs" / "agents").iterdir():
        file.write_text(file.read_text().replace("loopback:", "openai:"))
    nothing = {"OPENAI_API_KEY": "", "OPENAI_BASE_URL": ""}

    told = _run(workspace, TASK, "--dry-run", **nothing)
    assert told.returncode == 2
    assert told.stdout.startswith("3 teams, ")
    assert told.stderr == (
        "mixseek: configs/agents/team-a.toml: team.leader.model: no key for the models of 'openai': "
        "set OPENAI_API_KEY in the environment or in .env of the workspace (here and in 5 other places)\n"
    )
    planned = json.loads(_run(workspace, TASK, "--dry-run", "-f", "json", **nothing).stdout)
    assert (planned["dry_run"], len(planned["error"]["problems"])) == (True, 6)


def test_a_dry_run_counts_no_calls_of_metrics_in_code(workspace: Path) -> None:
    write_workspace(workspace, teams=1, members=0, max_rounds=1, base_url="http://127.0.0.1:9/v1")
    metrics = (
        '[[metrics]]\nname = "Short"\ntype = "Length"\noptions = {maximum = 9}\n[[metrics]]\nname = "Readability"\n'
    )
    (workspace / "configs" / "evaluator.toml").write_text(metrics)
    told = _run(workspace, TASK, "--dry-run")
    assert "Metrics\n  Short (Length)\n  Readability\nJudgment" in told.stdout
    # A leader and a judgment.
    assert "\n2 model calls, if every round is played" in told.stdout


def test_a_dry_run_counts_no_calls_of_metrics_of_ones_own_but_tells_of_them(workspace: Path) -> None:
    write_workspace(workspace, teams=1, members=0, max_rounds=1, base_url="http://127.0.0.1:9/v1")
    (workspace / "own.py").write_text(
        "from mixseek.evaluator.metrics import BaseMetric\n"
        "from mixseek.records import MetricScore\n"
        "class Own(BaseMetric):\n"
        "    async def evaluate(self, user_query, submission, **more):\n"
        "        return MetricScore(metric_name='Own', score=1.0)\n"
    )
    metric = '[[metrics]]\nname = "Own"\n[custom_metrics]\nOwn = {path = "own.py", class = "Own"}\n'
    (workspace / "configs" / "evaluator.toml").write_text(metric)
    told = _run(workspace, TASK, "--dry-run")
    assert "\n2 model calls, if every round is played" in told.stdout
    assert "metrics of yours ask a model" in told.stdout


def test_help_tells_the_options_and_loads_no_model_code() -> None:
    code = (
        "import sys\nfrom mixseek.cli import main\ntry:\n    main(['exec', '--help'])\nexcept SystemExit:\n    pass\n"
        "assert not {'pydantic_ai', 'duckdb', 'openai'} & set(sys.modules), sorted(sys.modules)"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    for option in ("--config", "--timeout", "--dry-run", "--format", "--workspace", "--log-level", "--no-log-file"):
        assert option in ran.stdout


def test_a_member_that_fails_is_told_once_with_its_line_and_its_traceback_is_in_the_log(
    server: ModelServerProcess, workspace: Path
) -> None:
    write_workspace(workspace, teams=1, max_rounds=1, base_url=server.base_url)
    (workspace / "raising.py").write_text(
        "from mixseek.agents.member.base import BaseMemberAgent\n"
        "class Raising(BaseMemberAgent):\n"
        "    async def execute(self, task, context=None, **kwargs):\n"
        "        raise RuntimeError('out of order')\n"
    )
    team = workspace / "configs" / "agents" / "team-a.toml"
    plugin = 'plugin = { path = "raising.py", agent_class = "Raising" }'
    member = f'[[team.members]]\nname = "m"\ntype = "custom"\nmodel = "loopback:m"\n{plugin}\n'
    team.write_text(team.read_text() + member)
    ran = _run(workspace, TASK)
    assert ran.returncode == 0
    told = [line for line in ran.stderr.splitlines() if "member" in line]
    assert told == ["a: member m failed: RuntimeError: out of order (raising.py, line 4)"]
    log = (workspace / "logs" / "mixseek.log").read_text(encoding="utf-8")
    assert "member 'm' of team 'a' failed (raising.py, line 4)\n" in log
    assert "raise RuntimeError('out of order')" in log
    assert "a: round 1 finished" in log


# --- attachments ------------------------------------------------------------------------------------------------------


def test_a_file_that_is_attached_reaches_the_leader(workspace: Path, server: ModelServerProcess) -> None:
    write_workspace(workspace, teams=1, max_rounds=1, base_url=server.base_url)
    (workspace.parent / "notes.txt").write_text("from the file", encoding="utf-8")
    assert _run(workspace, TASK, "--attach", "notes.txt").returncode == 0
    [asked] = [request.body["messages"] for request in server.requests if request.model == "leader-a"]
    assert "from the file" in json.dumps(asked)


def test_a_file_that_cannot_be_attached_is_told_before_any_call(workspace: Path, server: ModelServerProcess) -> None:
    write_workspace(workspace, teams=1, max_rounds=1, base_url=server.base_url)
    for arguments in (["--attach", "missing.txt"], ["--attach", ".", "--dry-run"]):
        ran = _run(workspace, TASK, *arguments)
        assert ran.returncode == 2
        assert f"attachment '{arguments[1]}': " in ran.stderr
    assert server.requests == []


def test_a_secret_is_neither_in_the_progress_nor_in_the_result(workspace: Path, server: ModelServerProcess) -> None:
    write_workspace(workspace, teams=1, max_rounds=1, base_url=server.base_url)
    (workspace / ".env").write_text("SHOP_TOKEN=sesame-123456\n")
    (workspace / "shop.py").write_text('def price(item: str) -> str:\n    raise ValueError("no sesame-123456")\n')
    team = workspace / "configs" / "agents" / "team-a.toml"
    member = '[[team.members]]\nname = "m"\ntype = "plain"\nmodel = "loopback:m"\nfunctions = ["shop:price"]\n'
    team.write_text(team.read_text() + member)
    server.on("leader-a", [None, "the key is sesame-123456"])
    for output in ("text", "json"):
        ran = _run(workspace, TASK, "-f", output)
        assert ran.returncode == 0
        assert "tool price of member m failed" in ran.stderr
        assert "sesame" not in ran.stderr + ran.stdout
    assert "[redacted]" in ran.stderr


def test_a_dry_run_finds_what_only_making_the_members_tells(workspace: Path, server: ModelServerProcess) -> None:
    write_workspace(workspace, teams=1, max_rounds=1, base_url=server.base_url)
    team = workspace / "configs" / "agents" / "team-a.toml"
    settings = '[team.members.tool_settings.web_fetch]\nbackend = "provider"\n'
    team.write_text(
        f'{team.read_text()}[[team.members]]\nname = "m"\ntype = "web_fetch"\nmodel = "loopback:m"\n{settings}'
    )
    ran = _run(workspace, TASK, "--dry-run")
    assert (ran.returncode, ran.stdout.startswith("1 team, 1 round each, ")) == (2, True)
    assert (
        "configs/agents/team-a.toml: team.members[0].tool_settings.web_fetch.backend: 'loopback:m' has no" in ran.stderr
    )
    assert not (workspace / "mixseek.db").exists()


@pytest.mark.parametrize("damage", [lambda whole: whole[:-8192], lambda whole: b"no journal" + whole[10:]])
def test_a_dry_run_says_of_a_damaged_journal_what_a_run_says_and_changes_no_file(
    damage: Callable[[bytes], bytes], workspace: Path, server: ModelServerProcess
) -> None:
    write_workspace(workspace, teams=1, max_rounds=1, base_url=server.base_url)
    assert _run(workspace, TASK).returncode == 0
    journal = workspace / "journal.db"
    journal.write_bytes(damage(journal.read_bytes()))
    before, calls = _contents(workspace), len(server.requests)

    planned = _run(workspace, TASK, "--dry-run")
    as_json = json.loads(_run(workspace, TASK, "--dry-run", "-f", "json").stdout)
    assert _contents(workspace) == before
    assert planned.stdout.startswith("1 team, 1 round each, ")

    ran = _run(workspace, TASK)
    assert f"mixseek: journal '{journal}' is damaged (" in planned.stderr
    assert (planned.returncode, planned.stderr) == (ran.returncode, ran.stderr) == (2, planned.stderr)
    assert f"mixseek: {as_json['error']['message']}\n" == planned.stderr
    assert len(server.requests) == calls


def test_a_dry_run_leaves_a_sound_journal_and_one_of_an_older_version_as_they_are(
    workspace: Path, server: ModelServerProcess
) -> None:
    write_workspace(workspace, teams=1, max_rounds=1, base_url=server.base_url)
    assert _run(workspace, TASK).returncode == 0
    before = _contents(workspace)
    assert _run(workspace, TASK, "--dry-run").returncode == 0
    assert _contents(workspace) == before

    with closing(sqlite3.connect(workspace / "journal.db")) as db:
        db.execute("DROP TABLE pruned")
        db.execute("DELETE FROM schema_version WHERE version = 3")
        db.commit()
    before = _contents(workspace)
    assert _run(workspace, TASK, "--dry-run").returncode == 0
    assert _contents(workspace) == before


def _contents(workspace: Path) -> dict[str, bytes]:
    return {str(file.relative_to(workspace)): file.read_bytes() for file in workspace.rglob("*") if file.is_file()}


def test_what_a_model_that_reasons_does_not_take_is_left_out_without_a_word(
    workspace: Path, server: ModelServerProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_workspace(workspace, teams=1, max_rounds=1, base_url=server.base_url)
    (workspace / "configs/judgment.toml").write_text('model = "openai:gpt-5-mini"\n')
    monkeypatch.setenv("OPENAI_BASE_URL", server.base_url)
    monkeypatch.setenv("OPENAI_API_KEY", "no-key-of-anybody")
    ran = _run_apart(workspace, TASK)
    assert ran.returncode == 0, ran.stderr
    assert server.bill.models["gpt-5-mini"].requests == 1
    assert "Warning" not in ran.stderr
    assert "Sampling" not in ran.stderr
