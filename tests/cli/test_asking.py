"""``mixseek team``, ``member`` and ``evaluate``: one question, one answer, what it took, and what went wrong."""

import csv
import io
import json
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import duckdb
import pytest

from mixseek.cli import logs, main
from mixseek.testing import ModelServer, write_workspace
from soak import forked
from tests.waiting import until_true

TEAM = "configs/agents/team-a.toml"
PRICES = """
[prices."loopback:member-1"]
input_usd_per_million = 1000
output_usd_per_million = 2000
"""
LENGTH = '[[metrics]]\nname = "Length"\noptions = {maximum = 1000}\n'
NOT_A_NUMBER = """
from mixseek.evaluator.metrics.base import BaseMetric
from mixseek.models.evaluation_result import MetricScore

class Odd(BaseMetric):
    async def evaluate(self, user_query, submission, **context):
        print("printed while it scores")
        return MetricScore(metric_name="Odd", score=float("nan"), evaluator_comment="no number")
"""
SAFETY_SECONDS = 60


class Ran(NamedTuple):
    """The end of a command."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


Run = Callable[..., Ran]


@pytest.fixture
def workspace(tmp_path: Path, server: ModelServer, monkeypatch: pytest.MonkeyPatch) -> Path:
    root = tmp_path / "workspace"
    file = write_workspace(root, teams=1, members=2, max_rounds=4, base_url=server.base_url)
    file.write_text(file.read_text() + PRICES)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MIXSEEK_WORKSPACE", str(root))
    for name in ("GOOGLE_API_KEY", "GEMINI_API_KEY", "MIXSEEK_MEMBER_MODEL"):
        monkeypatch.delenv(name, raising=False)
    return root


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Iterator[Run]:
    def ran(*arguments: str) -> Ran:
        with pytest.raises(SystemExit) as ended:
            main([*arguments, "--no-log-file"])
        printed = capsys.readouterr()
        assert isinstance(ended.value.code, int)
        return Ran(ended.value.code, printed.out, printed.err)

    yield ran
    logs._exchange([])


# --- team -------------------------------------------------------------------------------------------------------------


def test_a_team_answers_once_and_its_members_and_bill_are_told(run: Run, workspace: Path, server: ModelServer) -> None:
    server.on("leader-a", [None, "The answer\x1b[2J."])
    ran = run("team", "the task", "-c", TEAM)
    assert ran.code == 0, ran.err
    head, _, answer = ran.out.partition("\nAnswer\n\n")
    assert answer == "The answer\\x1b[2J.\n"
    lines = head.splitlines()
    assert lines[:3] == ["Team A (a): answered", "", "Members"]
    assert [line.partition(" s")[0][:-4] for line in lines[3:5]] == [
        "  member-1 (plain): answered in",
        "  member-2 (plain): answered in",
    ]
    bill = server.bill.total
    assert f"4 model calls, {bill.input_tokens} tokens in, {bill.output_tokens} out, cost not known" in head
    assert "judge" not in server.bill.models
    assert not (workspace / "mixseek.db").exists()


def test_a_team_alone_keeps_its_own_budget(run: Run, workspace: Path, server: ModelServer) -> None:
    file = workspace / TEAM
    file.write_text(f"{file.read_text()}\n[team.budget]\nmax_requests = 2\n")
    ran = run("team", "the task", "-c", TEAM)
    assert ran.code == 2
    assert "the team's budget cannot pay for the next call: 2 of 2 calls are used" in ran.out + ran.err
    assert server.bill.total.requests == 2


def test_prices_of_the_competitions_other_models_are_no_warning_of_a_team_alone(run: Run, workspace: Path) -> None:
    file = workspace / "configs" / "orchestrator.toml"
    prices = [PRICES.replace("member-1", name) for name in ("leader-a", "judge", "judgment", "member-l")]
    file.write_text(file.read_text() + "".join(prices))
    ran = run("team", "the task", "-c", TEAM)
    assert (ran.code, "WARNING" in ran.err, "nobody here names" in ran.err) == (0, False, False)


def test_a_team_alone_is_told_to_give_a_missing_price_in_the_orchestrator_file(
    run: Run, workspace: Path, server: ModelServer
) -> None:
    file = workspace / TEAM
    file.write_text(f"{file.read_text()}\n[team.budget]\nmax_cost_usd = 1\n")
    ran = run("team", "the task", "-c", TEAM)
    assert (ran.code, server.bill.total.requests) == (2, 0)
    assert (
        f"{TEAM}: team.leader.model: model 'loopback:leader-a' has no known price, and the budget counts money: "
        'give it one in the orchestrator file, [prices."loopback:leader-a"] with input_usd_per_million and '
    ) in ran.err
    assert "mixseek.run" not in ran.err


def test_a_score_is_asked_for_and_all_of_it_is_in_the_json(run: Run, workspace: Path, server: ModelServer) -> None:
    (workspace / "mine.toml").write_text(LENGTH)
    assert len(run("team", "task", "-c", TEAM, "--evaluate", "-f", "json").json["metrics"]) == 3
    told = run("team", "task", "-c", TEAM, "--evaluate-config", "mine.toml", "-f", "json").json
    assert (told["score"], [metric["metric_name"] for metric in told["metrics"]]) == (100, ["Length"])
    assert [(member["agent_name"], member["status"]) for member in told["members"]] == [
        ("member-1", "SUCCESS"),
        ("member-2", "SUCCESS"),
    ]
    assert [line["agent_name"] for line in told["bill"]] == ["leader", "member-1", "member-2"]
    assert told["error"] is None
    assert (
        "Team A (a): answered, score 100.00\n  Length 100.00: "
        in run("team", "task", "-c", TEAM, "--evaluate-config", "mine.toml").out
    )


def test_what_is_kept_is_an_execution_with_its_answer_scored_or_not(
    run: Run, workspace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (workspace / "configs" / "evaluator.toml").write_text(LENGTH)
    told = [run("team", "task", "-c", TEAM, "--save-db", "-f", "json", *more).json for more in ([], ["--evaluate"])]
    with duckdb.connect(workspace / "mixseek.db", read_only=True) as database:
        rows = database.execute(
            "SELECT execution_id, submission_content, score, final_submission FROM leader_board ORDER BY created_at"
        ).fetchall()
        statuses = database.execute("SELECT status, best_team_id FROM execution_summary").fetchall()
    assert rows == [
        (told[0]["execution_id"], told[0]["answer"], None, True),
        (told[1]["execution_id"], told[1]["answer"], 100.0, True),
    ]
    assert statuses == [("completed", "a")] * 2
    for one in told:
        with pytest.raises(SystemExit):
            main(["show", one["execution_id"], "-w", str(workspace)])
        assert capsys.readouterr().out.endswith(f"Best answer: Team A (a), round 1\n\n{one['answer']}\n")


def test_a_kept_team_that_failed_is_offered_to_nobody_for_resuming(
    run: Run, workspace: Path, server: ModelServer
) -> None:
    server.fault("400", model="leader-a")
    assert run("team", "task", "-c", TEAM, "--save-db").code == 2
    ran = run("resume")
    assert (ran.code, "is unfinished: mixseek history lists all there are" in ran.err) == (2, True), ran.err


def test_a_member_that_failed_is_told_and_the_team_has_answered(run: Run, workspace: Path, server: ModelServer) -> None:
    server.fault(401, model="member-2")
    ran = run("team", "task", "-c", TEAM)
    assert ran.code == 0
    assert "member-2 (plain): failed after" in ran.out
    assert "loopback:member-2: HTTP 401" in ran.out


def test_an_answer_that_cannot_be_scored_is_printed_and_exits_with_1(
    run: Run, workspace: Path, server: ModelServer
) -> None:
    server.fault(401, model="judge")
    server.on("leader-a", [None, "The answer."])
    ran = run("team", "task", "-c", TEAM, "--evaluate", "--output", "answer.md")
    assert ran.code == 1
    assert "answered, but not scored: metric " in ran.out
    assert ran.out.endswith("\nAnswer\n\nThe answer.\n")
    assert Path("answer.md").read_text() == "The answer.\n"


def test_a_team_without_an_answer_says_why_and_exits_with_2(run: Run, workspace: Path, server: ModelServer) -> None:
    server.fault(401, model="leader-a")
    assert "Team A (a): no answer: loopback:leader-a: HTTP 401" in run("team", "task", "-c", TEAM).out
    ran = run("team", "task", "-c", TEAM, "-f", "json", "-o", "answer.md")
    assert (ran.code, ran.json["answer"]) == (2, None)
    assert "HTTP 401" in ran.json["error"]
    assert not Path("answer.md").exists()


def test_a_team_is_scored_by_a_reference_answer(run: Run, workspace: Path, server: ModelServer) -> None:
    (workspace / "configs" / "evaluator.toml").write_text('[[metrics]]\nname = "NumericAnswer"\n')
    server.on("leader-a", [None, "It is 42."])
    told = run("team", "task", "-c", TEAM, "--evaluate").err
    assert "'NumericAnswer' needs a reference answer: give it with --reference\n" in told
    assert run("team", "task", "-c", TEAM, "--evaluate", "--reference", "42", "-f", "json").json["score"] == 100


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["-c", "configs/orchestrator.toml"], "configs/orchestrator.toml: is an orchestrator file: give a team file"),
        (["-c", "missing.toml"], "missing.toml: does not exist"),
        ([], "no -c FILE is given, and the workspace has no configs/agents/team.toml"),
        (["-c", TEAM, "--timeout", "1"], "--timeout: 1 is not allowed: must be a whole number from 10 to 3600"),
        (["-c", TEAM, "--evaluate-config", "no.toml"], "--evaluate-config 'no.toml': does not exist"),
        (["-c", TEAM, "--evaluate-config", TEAM], "--evaluate-config: configs/agents/team-a.toml is a team file, but"),
        (["-c", TEAM, "--output", "."], "--output '.': cannot be written: it is a directory"),
    ],
)
def test_what_is_wrong_is_told_before_the_team_is_asked(
    arguments: list[str], told: str, run: Run, workspace: Path, server: ModelServer
) -> None:
    ran = run("team", "task", *arguments)
    assert (ran.code, ran.out) == (2, "")
    [line] = ran.err.splitlines()
    assert told in line
    assert server.requests == []


def test_all_members_that_cannot_work_are_told_with_file_and_key(
    run: Run, workspace: Path, server: ModelServer
) -> None:
    team, settings = workspace / TEAM, '[team.members.tool_settings.web_fetch]\nbackend = "provider"\n'
    team.write_text(
        team.read_text()
        + f'[[team.members]]\nname = "one"\ntype = "web_fetch"\nmodel = "loopback:m"\n{settings}'
        + '[[team.members]]\nconfig = "configs/agents/two.toml"\n'
    )
    (workspace / "configs" / "agents" / "two.toml").write_text(
        '[agent]\nname = "two"\ntype = "web_fetch"\nmodel = "loopback:m"\n'
        '[agent.tool_settings.web_fetch]\nbackend = "provider"\n'
    )
    for command in (["team", "task", "-c", TEAM], ["exec", "task", "--dry-run"]):
        ran = run(*command)
        assert (ran.code, ran.out.startswith("1 team, ")) == (2, command[0] == "exec")
        first, second = ran.err.splitlines()
        assert first.startswith(f"mixseek: {TEAM}: team.members[2].tool_settings.web_fetch.backend: ")
        assert second.startswith("mixseek: configs/agents/two.toml: agent.tool_settings.web_fetch.backend: ")
    assert server.requests == []


# --- member -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def member(workspace: Path) -> str:
    (workspace / "configs" / "agents" / "m.toml").write_text(
        '[agent]\nname = "m"\ntype = "plain"\nmodel = "loopback:member-1"\nsystem_instruction = "You are m."\n'
    )
    return "configs/agents/m.toml"


def test_a_member_is_asked_and_told_in_every_format(run: Run, member: str, server: ModelServer) -> None:
    server.on("member-1", lambda _call: '=HYPERLINK("http://x")\nsecond line')
    structured = run("member", "task", "-c", member)
    assert structured.code == 0, structured.err
    assert structured.out.startswith("m (plain): answered in ")
    assert structured.out.endswith('\nAnswer\n\n=HYPERLINK("http://x")\nsecond line\n')
    assert run("member", "task", "-c", member, "-f", "text").out == '=HYPERLINK("http://x")\nsecond line\n'
    told = run("member", "task", "-c", member, "-f", "json").json
    assert (told["agent_name"], told["status"], told["content"][:10]) == ("m", "SUCCESS", "=HYPERLINK")
    tokens = told["usage"]["input_tokens"], told["usage"]["output_tokens"]
    assert told["cost_usd"] == pytest.approx((tokens[0] * 1000 + tokens[1] * 2000) / 1e6)
    header, row = csv.reader(io.StringIO(run("member", "task", "-c", member, "-f", "csv").out))
    assert dict(zip(header, row, strict=True))["content"].startswith("'=HYPERLINK")


def test_a_member_alone_is_asked_whatever_the_budget_of_runs_is(run: Run, member: str, workspace: Path) -> None:
    file = workspace / "configs" / "orchestrator.toml"
    file.write_text(f"{file.read_text()}\n[budget]\nmax_tokens = 1\n")
    assert run("member", "the task", "-c", member).code == 0


def test_the_command_line_wins_over_the_file(run: Run, member: str, server: ModelServer) -> None:
    more = ["--model", "loopback:other", "--temperature", "0.5", "--max-tokens", "7"]
    assert run("member", "task", "-c", member, *more).code == 0
    [request] = server.requests
    assert (request.model, request.body["temperature"], request.body["max_completion_tokens"]) == ("other", 0.5, 7)
    assert "You are m." in json.dumps(request.body)


def test_a_member_of_a_team_file_is_asked_by_its_name(run: Run, workspace: Path, server: ModelServer) -> None:
    # The leader's key is not needed: it is not asked.
    team = workspace / TEAM
    team.write_text(team.read_text().replace("loopback:leader-a", "google:gemini"))
    assert run("member", "task", "-c", TEAM, "--name", "member-2").code == 0
    assert [request.model for request in server.requests] == ["member-2"]
    assert (
        f"{TEAM}: has 2 members: choose one with --name ('member-1', 'member-2')"
        in run("member", "task", "-c", TEAM).err
    )
    team.write_text(team.read_text().replace("loopback:member-2", "google:gemini"))
    ran = run("member", "task", "-c", TEAM, "--name", "member-2")
    assert ran.err.startswith(f"mixseek: {TEAM}: team.members[1].model: no key for the models of 'google'")


def test_a_built_in_kind_needs_no_file_and_no_workspace(
    run: Run, workspace: Path, server: ModelServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run("member", "task", "--agent", "code-exec", "--model", "loopback:coder").code == 0
    assert server.requests[0].body["tools"][0]["function"]["name"] == "run_python"
    (workspace / ".env").write_text("MIXSEEK_MEMBER_MODEL=loopback:from-env\n")
    assert run("member", "task", "--agent", "plain").code == 0
    assert server.requests[-1].model == "from-env"
    monkeypatch.delenv("MIXSEEK_WORKSPACE")
    monkeypatch.setenv("OPENAI_BASE_URL", server.base_url)
    assert run("member", "task", "--agent", "plain", "--model", "openai:gpt").code == 0
    assert not Path("logs").exists()


def test_without_a_key_the_remedies_are_named(run: Run, workspace: Path) -> None:
    ran = run("member", "task", "--agent", "plain")
    assert ran.code == 2
    assert [line for line in ran.err.splitlines() if "need a package" not in line] == [
        "mixseek: --agent plain: model: no key for the models of 'google-gla': "
        "set GOOGLE_API_KEY or GEMINI_API_KEY in the environment or in .env of the workspace",
        "mixseek: --agent plain: or name another model with --model PROVIDER:NAME or MIXSEEK_MEMBER_MODEL",
    ]
    ran = run("member", "task", "--agent", "plain", "--model", "google:gemini", "-f", "json")
    assert ran.json["error"]["problems"][0]["key"] == "--model"


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ([], "give either -c FILE or --agent plain|web-search|web-fetch|code-exec"),
        (["--agent", "plain", "-c", TEAM], "give either -c FILE or --agent"),
        (["--agent", "plain", "--name", "x"], "--name chooses a member of a team file"),
        (["-c", TEAM, "--name", "x"], "has no member 'x': its members are 'member-1', 'member-2'"),
        (["-c", "configs/judgment.toml"], "configs/judgment.toml: is a judgment file: give a member or a team file"),
        (["-c", "configs/agents/m.toml", "--name", "x"], "configs/agents/m.toml: is the file of member 'm'"),
        (["-c", "configs/agents/m.toml", "--timeout", "0"], "--timeout: 0 is not allowed"),
        (["-c", "configs/agents/m.toml", "--temperature", "3"], "--temperature: 3.0 is not allowed"),
        (["--agent", "plain", "--model", "nonsense"], "--model: 'nonsense' does not name a model"),
        (
            ["--agent", "plain", "--model", "lopback:x"],
            "--model: unknown model provider 'lopback'; did you mean",
        ),
    ],
)
@pytest.mark.usefixtures("member")
def test_what_is_wrong_is_told_before_the_member_is_asked(
    arguments: list[str], told: str, run: Run, server: ModelServer
) -> None:
    ran = run("member", "task", *arguments)
    assert (ran.code, ran.out) == (2, "")
    [line] = ran.err.splitlines()
    assert told in line
    assert server.requests == []


def test_a_member_that_fails_or_takes_too_long_exits_with_2(run: Run, member: str, server: ModelServer) -> None:
    server.fault(401, model="member-1", count=2)
    ran = run("member", "task", "-c", member, "-f", "json")
    assert (ran.code, ran.json["status"]) == (2, "ERROR")
    assert "HTTP 401" in run("member", "task", "-c", member, "-f", "text").err
    server.fault("hang_before_headers", model="member-1")
    ran = run("member", "task", "-c", member, "--timeout", "1")
    assert ran.code == 2
    assert "m (plain): failed after 1." in ran.out
    assert "no answer within 1 s" in ran.out


def test_a_secret_of_the_workspace_is_not_printed(run: Run, member: str, workspace: Path, server: ModelServer) -> None:
    (workspace / ".env").write_text("SHOP_TOKEN=sesame-123456\n")
    server.on("member-1", lambda _call: "the key is sesame-123456")
    for output in ("structured", "text", "json", "csv"):
        assert "sesame" not in run("member", "task", "-c", member, "-f", output, "-o", "answer.md").out
    assert Path("answer.md").read_text() == "the key is [redacted]\n"


def test_ctrl_c_ends_the_wait(member: str, workspace: Path, server: ModelServer) -> None:
    server.fault("hang_before_headers")
    commands = (
        ["member", "task", "-c", member, "-f", "json"],
        ["team", "task", "-c", TEAM, "-f", "json"],
        ["evaluate", "query", "answer", "-f", "json"],
    )
    for command in commands:
        waiting = server.bill.total.waiting
        child = forked.Popen(
            [sys.executable, "-m", "mixseek", *command],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        try:
            until_true(lambda: server.bill.total.waiting > waiting, child)  # noqa: B023
            child.send_signal(signal.SIGINT)
            out, err = child.communicate(timeout=SAFETY_SECONDS)
        finally:
            child.kill()
            child.wait()
        assert child.returncode == 130, err
        told = json.loads(out)
        assert told["interrupted"] if command[0] == "team" else told["error"]["type"] == "Interrupted"
        assert "Traceback" not in err


# --- evaluate ---------------------------------------------------------------------------------------------------------


def _score_by(workspace: Path, file: str, name: str) -> None:
    """Let a class of a file be the only metric."""
    (workspace / "configs/evaluator.toml").write_text(
        f'[[metrics]]\nname = "{name}"\n[custom_metrics]\n{name} = {{ path = "{file}", class = "{name}" }}\n'
    )


def test_a_metric_that_measures_a_bare_number_is_told_what_to_return(run: Run, workspace: Path) -> None:
    (workspace / "bare.py").write_text(
        "from mixseek.evaluator.metrics import CodeMetric, MetricOptions\n\n\n"
        "class Bare(CodeMetric):\n"
        "    Options = MetricOptions\n\n"
        "    def measure(self, submission, reference):\n"
        "        return 55\n"
    )
    _score_by(workspace, "bare.py", "Bare")
    ran = run("evaluate", "q", "a")
    told = "metric 'Bare' could not score: measure has to return Measured(score, comment), and it returned int"
    assert (ran.code, ran.err) == (2, f"mixseek: {told}\n")


def test_a_metric_of_ones_own_that_fails_is_told_once_with_its_line(run: Run, workspace: Path) -> None:
    (workspace / "failing.py").write_text(
        "from mixseek.evaluator.metrics import BaseMetric\n\n\n"
        "class Failing(BaseMetric):\n"
        "    async def evaluate(self, user_query, submission, **context):\n"
        "        return {}['points']\n"
    )
    _score_by(workspace, "failing.py", "Failing")
    ran = run("evaluate", "q", "a")
    told = "metric 'Failing' failed at failing.py, line 6: KeyError: 'points'"
    assert (ran.code, ran.err) == (2, f"mixseek: {told}\n")
    as_json = run("evaluate", "q", "a", "-f", "json")
    assert (as_json.err, json.loads(as_json.out)["error"]["message"]) == ("", told)
    assert "Traceback" in run("evaluate", "q", "a", "-v").err


def test_every_metric_is_told_with_its_comment_weight_and_cost(run: Run, workspace: Path, server: ModelServer) -> None:
    server.on("judge", lambda _call: {"evaluator_comment": "good\x1b[2J", "score": 80})
    ran = run("evaluate", "the question", "the answer")
    assert ran.code == 0
    assert ran.out.startswith("Overall 80.00\n  ClarityCoherence 80.00 (weight 0.334): good\\x1b[2J\n  Coverage 80.00")
    assert f"3 model calls, {server.bill.total.input_tokens} tokens in" in ran.out
    told = run("evaluate", "the question", "the answer", "-f", "json").json
    assert (told["user_query"], told["submission"], told["overall_score"]) == ("the question", "the answer", 80)
    assert [metric["weight"] for metric in told["metrics"]] == [0.334, 0.333, 0.333]
    assert (told["usage"]["requests"], told["cost_usd"], len(told["bill"])) == (3, None, 3)


def test_a_submission_comes_from_a_file_or_a_stream_and_a_file_names_the_metrics(
    run: Run, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (workspace / "configs" / "mine.toml").write_text('[[metrics]]\nname = "NumericAnswer"\n')
    (workspace / "configs" / "evaluator.toml").write_text(LENGTH)
    Path("answer.md").write_text("It is 42.\n")
    more = ["-c", "configs/mine.toml", "--reference", "42", "-f", "json"]
    told = run("evaluate", "6 times 7?", "--file", "answer.md", *more).json
    assert (told["submission"], told["reference"], told["overall_score"]) == ("It is 42.", "42", 100)
    assert run("evaluate", "6 times 7?", "41", *more).json["overall_score"] == 0
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"from the stream\n")))
    told = run("evaluate", "query", "-", "-c", "configs/orchestrator.toml", "-f", "json").json
    assert (told["submission"], [metric["metric_name"] for metric in told["metrics"]]) == (
        "from the stream",
        ["Length"],
    )
    assert told["cost_usd"] == 0


def test_without_a_finite_number_there_is_no_overall_score(run: Run, workspace: Path) -> None:
    (workspace / "odd.py").write_text(NOT_A_NUMBER)
    (workspace / "configs" / "evaluator.toml").write_text(
        '[[metrics]]\nname = "Odd"\n[custom_metrics]\nOdd = {path = "odd.py", class = "Odd"}\n'
    )
    ran = run("evaluate", "query", "answer", "-f", "json")
    assert (ran.code, ran.json["overall_score"], ran.json["metrics"][0]["score"]) == (1, None, None)
    assert "printed while it scores" in ran.err
    ran = run("evaluate", "query", "answer")
    assert ran.out.startswith("Overall unscored\n  Odd unscored (weight 1): no number\n")


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["", "a"], "the query is empty"),
        (["q", " "], "the submission is empty"),
        (["q", "a", "--file", "a.md"], "the submission is given twice, as an argument and with --submission-file: "),
        (["q", "--file", "missing.md"], "--submission-file 'missing.md': does not exist"),
        (["q", "a", "-c", TEAM], "is a team file: give an evaluator or an orchestrator file"),
        (["q", "a", "-c", "configs/needs.toml"], "give it as reference, on the command line with --reference"),
        (["q", "a", "-c", "configs/keyless.toml"], "configs/keyless.toml: default_model: no key for the models of"),
    ],
)
def test_what_is_wrong_is_told_before_a_judge_is_asked(
    arguments: list[str], told: str, run: Run, workspace: Path, server: ModelServer
) -> None:
    (workspace / "configs" / "needs.toml").write_text('[[metrics]]\nname = "Similarity"\n')
    (workspace / "configs" / "keyless.toml").write_text(
        'default_model = "google:gemini"\n[[metrics]]\nname = "Coverage"\n'
    )
    ran = run("evaluate", *arguments)
    assert (ran.code, ran.out) == (2, "")
    assert told in ran.err
    assert server.requests == []


def test_a_judge_that_fails_is_told_and_exits_with_2(run: Run, workspace: Path, server: ModelServer) -> None:
    server.fault(401, model="judge")
    ran = run("evaluate", "query", "answer", "-f", "json")
    assert (ran.code, ran.json["error"]["type"]) == (2, "EvaluationError")


def test_a_judge_that_fails_costs_no_other_score(run: Run, workspace: Path, server: ModelServer) -> None:
    (workspace / "configs" / "evaluator.toml").write_text(
        '[[metrics]]\nname = "Length"\noptions = {minimum = 1}\n'
        '[[metrics]]\nname = "Relevance"\nmodel = "loopback:judge"\n'
        '[[metrics]]\nname = "Coverage"\nmodel = "loopback:other"\n'
    )
    server.fault(401, model="judge")
    ran = run("evaluate", "query", "answer")
    assert ran.code == 2
    assert ran.out.startswith("Overall unscored\n  Length 100.00")
    assert "\n  Coverage " in ran.out
    assert "1 model call, " in ran.out
    assert ran.err.startswith("mixseek: metric 'Relevance' could not score: ")
    told = run("evaluate", "query", "answer", "-f", "json").json
    assert [metric["metric_name"] for metric in told["metrics"]] == ["Length", "Coverage"]
    assert "metric 'Relevance' could not score" in told["error"]["message"]


def test_the_default_judges_need_no_workspace_but_a_key(
    run: Run, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("MIXSEEK_WORKSPACE")
    ran = run("evaluate", "query", "answer")
    assert ran.code == 2
    assert "no key for the models of 'google-gla': set GOOGLE_API_KEY or GEMINI_API_KEY" in ran.err
    assert "no workspace" in run("evaluate", "query", "answer", "-c", "evaluator.toml").err


def test_a_prompt_template_that_fails_is_told_with_its_file_and_key(
    run: Run, workspace: Path, server: ModelServer
) -> None:
    (workspace / "configs" / "prompt_builder.toml").write_text(
        '[prompt_builder]\nlanguage = "en"\n'
        "evaluator_user_prompt = '{{ submission }} {{ 1 // (0 if \"unlucky\" in submission else 1) }}'\n"
    )
    ran = run("evaluate", "a question", "an unlucky answer")
    assert (ran.code, server.requests) == (2, [])
    assert ran.err.startswith(
        "mixseek: configs/prompt_builder.toml: prompt_builder.evaluator_user_prompt: "
        "fails for this submission, correct it: "
    )
