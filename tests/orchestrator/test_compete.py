"""A competition from Python: ``mixseek.run`` and ``mixseek.arun``, with nothing but what is given."""

import asyncio
import inspect
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, get_type_hints

import duckdb
import pytest

import mixseek
from mixseek import plugins
from mixseek.agents.member import BaseMemberAgent
from mixseek.config.schema import (
    EvaluatorSettings,
    JudgmentSettings,
    MemberAgentConfig,
    MetricSettings,
    OrchestratorSettings,
    PriceSettings,
    PromptBuilderSettings,
    ProviderSettings,
    ProvidersSettings,
    TeamSettings,
)
from mixseek.errors import (
    ConfigurationError,
    MixSeekError,
    NotResumableError,
    RunChangedError,
    WorkspaceNotFoundError,
)
from mixseek.evaluator.metrics import BaseMetric, CodeMetric, LLMJudgeMetric, Measured, MetricOptions
from mixseek.events import Event
from mixseek.orchestrator import Orchestrator
from mixseek.orchestrator.compete import Limits, Options
from mixseek.records import (
    EvaluationResult,
    ExecutionSummary,
    MemberAgentResult,
    MemberSubmission,
    MetricScore,
    RoundState,
)
from mixseek.testing import ModelServer, ToolCall, write_workspace

JUDGED: dict[str, Any] = {"default_model": "loop:judge"}
RULES: dict[str, Any] = {"model": "none"}


@pytest.fixture(autouse=True)
def _elsewhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("MIXSEEK_ONLY_LOOPBACK", "1")
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")


@pytest.fixture
def server() -> Iterator[ModelServer]:
    with ModelServer() as running:
        yield running


def team(team_id: str, **more: Any) -> dict[str, Any]:
    return {"team_id": team_id, "team_name": f"Team {team_id}", "leader": {"model": f"loop:leader-{team_id}"}, **more}


def parts(server: ModelServer, **more: Any) -> dict[str, Any]:
    given = {"evaluator": JUDGED, "judgment": RULES, "providers": {"loop": {"base_url": server.base_url}}}
    return {**given, "max_rounds": 1, **more}


def metric_names(summary: ExecutionSummary) -> list[str]:
    result = EvaluationResult.from_score_details(summary.team_results[0].score_details, summary.best_score)
    return [metric.metric_name for metric in result.metrics]


def written() -> list[str]:
    return sorted(str(path) for path in Path.cwd().rglob("*"))


async def test_teams_of_plain_tables_compete_and_nothing_is_written(server: ModelServer) -> None:
    server.on("leader-a", ["the better answer"])
    server.on("judge", lambda call: {"evaluator_comment": "", "score": 90 if "better" in call.prompt else 10})
    summary = await mixseek.arun("task", [team("a"), {"team": team("b")}], **parts(server))
    assert [entry.team_id for entry in summary.team_results] == ["a", "b"]
    assert summary.team_results[0].submission_content == "the better answer"
    assert written() == []


async def test_a_price_of_a_model_that_nobody_names_is_a_warning_with_the_model_that_may_be_meant(
    server: ModelServer, caplog: pytest.LogCaptureFixture
) -> None:
    price = {"input_usd_per_million": 1, "output_usd_per_million": 2}
    prices = {"loop:leader-a": price, "loop:judgge": price}
    await mixseek.arun("task", [team("a")], **parts(server, prices=prices))
    assert [record.message for record in caplog.records if record.levelname == "WARNING"] == [
        "arguments: prices.\"loop:judgge\": has a price, but nobody here names this model; did you mean 'loop:judge'?"
    ]


async def test_such_a_price_is_named_also_where_settings_were_made_in_python(
    server: ModelServer, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    write_workspace(tmp_path, teams=1, max_rounds=1, base_url=server.base_url)
    price = PriceSettings(input_usd_per_million=1, output_usd_per_million=2)
    settings = OrchestratorSettings(
        workspace_path=tmp_path,
        teams=[{"config": "configs/agents/team-a.toml"}],  # type: ignore[list-item]  # as a file has it
        max_rounds=1,
        prices={"loopback:judgge": price},
    )
    await Orchestrator(settings, save_db=False).execute("task")
    assert 'prices."loopback:judgge": has a price, but nobody here names this model; did you mean' in caplog.text


def test_the_synchronous_form_works_without_a_loop(server: ModelServer) -> None:
    assert mixseek.run("task", [team("a")], **parts(server)).completed_teams == 1


async def test_the_synchronous_form_works_where_a_loop_runs_as_in_a_notebook(server: ModelServer) -> None:
    here, threads = threading.get_ident(), set[int]()
    before = set(threading.enumerate())

    def listen(_: Event) -> None:
        threads.add(threading.get_ident())

    for _ in range(2):
        summary = mixseek.run("task", [team("a")], **parts(server, listeners=[listen]))
        assert summary.completed_teams == 1
    assert here not in threads
    # Others of this process may end meanwhile; none may be left of ours.
    assert set(threading.enumerate()) <= before


async def test_a_mistake_reaches_the_caller_from_the_other_thread_too(server: ModelServer) -> None:
    with pytest.raises(ConfigurationError, match="the prompt is empty"):
        mixseek.run(" ", [team("a")], **parts(server))


def test_settings_that_are_made_already_do_as_well(server: ModelServer) -> None:
    summary = mixseek.run(
        "task",
        [TeamSettings.model_validate(team("a"))],
        evaluator=EvaluatorSettings(
            default_model="loop:judge", metrics=[MetricSettings(name="Fit", system_instruction="Does it fit?")]
        ),
        judgment=JudgmentSettings(model="none"),
        prompt_builder=PromptBuilderSettings(team_user_prompt="SAY: {{ user_prompt }}"),
        providers=ProvidersSettings(providers={"loop": ProviderSettings(base_url=server.base_url)}),
        max_rounds=1,
    )
    assert metric_names(summary) == ["Fit"]
    [leader] = [request for request in server.requests if request.model == "leader-a"]
    assert leader.body["messages"][-1]["content"] == "SAY: task"


def test_a_team_may_be_a_file(server: ModelServer, tmp_path: Path) -> None:
    (tmp_path / "here" / "own.toml").write_text(
        '[team]\nteam_id = "f"\nteam_name = "F"\n[team.leader]\nmodel = "loop:leader-f"\n'
    )
    summary = mixseek.run("task", ["own.toml", team("a")], **parts(server))
    assert {entry.team_id for entry in summary.team_results} == {"a", "f"}


def test_with_a_workspace_its_files_hold_for_the_rest_and_results_are_stored_there(
    server: ModelServer, tmp_path: Path
) -> None:
    root = tmp_path / "workspace"
    root.mkdir()
    write_workspace(root, base_url=server.base_url)
    summary = mixseek.run(
        "task",
        [{**team("x"), "leader": {"model": "loopback:leader-x"}}, "configs/agents/team-a.toml"],
        workspace=root,
        max_rounds=1,
        execution_id="mine",
    )
    assert summary.execution_id == "mine"
    with duckdb.connect(str(root / "mixseek.db"), read_only=True) as db:
        rows = db.sql("SELECT execution_id, team_id, final_submission FROM leader_board ORDER BY 2").fetchall()
    assert rows == [("mine", "a", True), ("mine", "x", True)]
    assert (root / "journal.db").exists()
    assert written() == []


def test_the_same_call_goes_on_with_an_execution_and_pays_for_nothing_twice(
    server: ModelServer, tmp_path: Path
) -> None:
    root = tmp_path / "workspace"
    root.mkdir()
    given: dict[str, Any] = {**parts(server), "workspace": root, "max_rounds": 2}
    server.fault(400, model="leader-a", after=1)
    begun = mixseek.run("task", [team("a")], **given, execution_id="mine")
    assert [failed.team_id for failed in begun.failed_teams_info] == ["a"]
    server.reset()
    summary = mixseek.run("task", [team("a")], **given, resume="mine")
    assert (summary.execution_id, summary.failed_teams_info, summary.completed_teams) == ("mine", [], 1)
    assert [request.model for request in server.requests].count("leader-a") == 1


def test_what_does_not_go_with_resume_is_refused_before_a_call(server: ModelServer, tmp_path: Path) -> None:
    root = tmp_path / "workspace"
    root.mkdir()
    given: dict[str, Any] = {**parts(server), "max_rounds": 1}
    mixseek.run("task", [team("a")], **given, workspace=root, execution_id="mine")
    asked = len(server.requests)
    for wrong, words in (
        ({"resume": "mine"}, "resume: goes with the workspace"),
        ({"resume": "mine", "workspace": root, "execution_id": "mine"}, "and without execution_id and attachments"),
        ({"resume": "other", "workspace": root}, "the journal knows no execution 'other'"),
        ({"accept_changes": True, "workspace": root}, "accept_changes: goes with resume=ID"),
    ):
        with pytest.raises(MixSeekError, match=words):
            mixseek.run("task", [team("a")], **given, **wrong)
    with pytest.raises(ConfigurationError, match="was begun with another task, 'task': give that one"):
        mixseek.run("another task", [team("a")], **given, workspace=root, resume="mine")
    assert len(server.requests) == asked


def test_an_execution_is_gone_on_with_by_the_beginning_of_its_id_or_as_the_last_one(
    server: ModelServer, tmp_path: Path
) -> None:
    given: dict[str, Any] = {**parts(server), "workspace": tmp_path}
    server.fault(400, model="leader-a")
    for each in ("abc-1", "abc-21", "last-but-one"):
        mixseek.run("task", [team("a")], **given, execution_id=each)
    server.reset()
    with pytest.raises(NotResumableError, match=r"'abc' may be any of 2 executions: .* \(abc-21, abc-1\)$"):
        mixseek.run("task", [team("a")], **given, resume="abc")
    assert mixseek.run("task", [team("a")], **given, resume="last").execution_id == "last-but-one"
    assert mixseek.run("task", [team("a")], **given, resume="abc-1").execution_id == "abc-1"
    assert mixseek.run("task", [team("a")], **given, resume="abc-2").execution_id == "abc-21"


def test_an_execution_that_met_its_budget_goes_on_with_a_larger_one_where_the_change_is_accepted(
    server: ModelServer, tmp_path: Path
) -> None:
    given: dict[str, Any] = {**parts(server), "workspace": tmp_path, "max_rounds": 2}
    begun = mixseek.run("task", [team("a")], **given, budget={"max_requests": 4}, execution_id="mine")
    assert [entry.exit_reason for entry in begun.team_results] == ["budget_exhausted"]
    with pytest.raises(NotResumableError, match=r"raise the limit .*, then resume it with accept_changes=True$"):
        mixseek.run("task", [team("a")], **given, budget={"max_requests": 4}, resume="mine")
    with pytest.raises(RunChangedError, match=r"go on all the same with accept_changes=True$"):
        mixseek.run("task", [team("a")], **given, budget={"max_requests": 20}, resume="mine")
    changed: dict[str, Any] = {"budget": {"max_requests": 20}, "resume": "mine", "accept_changes": True}
    summary = mixseek.run("task", [team("a")], **given, **changed)
    assert [entry.exit_reason for entry in summary.team_results] == ["max_rounds_reached"]


def test_without_a_workspace_no_file_is_looked_for(
    server: ModelServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MIXSEEK_WORKSPACE", str(tmp_path))
    here = tmp_path / "here"
    write_workspace(here, base_url="http://127.0.0.1:9")
    (here / "configs" / "evaluator.toml").write_text("this is not TOML")
    (here / "configs" / "prompt_templates").mkdir()
    (here / ".env").write_text("not a variable\n")
    before = written()
    assert mixseek.run("task", [team("a")], **parts(server)).completed_teams == 1
    assert written() == before
    assert not (tmp_path / "mixseek.db").exists()


def test_what_is_given_wins_over_the_environment_which_fills_in_the_rest(
    server: ModelServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MIXSEEK_TEAM__LEADER__MODEL", "loop:other")
    monkeypatch.setenv("MIXSEEK_TEAM__LEADER__TEMPERATURE", "0.25")
    monkeypatch.setenv("MIXSEEK_MAX_ROUNDS", "3")
    mixseek.run("task", [team("a")], **parts(server))
    [leader] = [request for request in server.requests if request.model == "leader-a"]
    assert leader.body["temperature"] == 0.25


@pytest.mark.parametrize(
    ("teams", "more", "told"),
    [
        ([], {}, "arguments: teams: is empty: at least one is needed"),
        ([team("a"), team("a")], {}, "teams[1]: team_id 'a' is also that of teams[0]"),
        ([{"team_id": "a", "leader": {"modle": "loop:x"}}], {}, "teams[0]: leader.modle: unknown key; did you mean"),
        ([{"team_id": "a"}], {}, "teams[0]: team_name: is required"),
        ([{"team": {"team_id": "a"}}], {}, "teams[0]: team.team_name: is required"),
        ([3], {}, "teams[0]: must be TeamSettings or a table of the same settings, not int"),
        (["missing.toml"], {}, "missing.toml: does not exist in the current directory or the workspace"),
        ([team("a", leader={"model": "nobody:x"})], {}, "teams[0]: leader.model: "),
        ([team("a", leader={"model": "anthropic:claude-haiku-4-5"})], {}, "ANTHROPIC_API_KEY"),
        ([team("a", answer_schema={"type": "objekt"})], {}, "teams[0]: answer_schema: is no JSON schema"),
        ([team("a")], {"max_round": 2}, 'arguments: max_round: unknown key; did you mean "max_rounds"?'),
        ([team("a")], {"budgett": {}}, 'arguments: budgett: unknown key; did you mean "budget"?'),
        ([team("a")], {"evalutor": {}}, 'arguments: evalutor: unknown key; did you mean "evaluator"?'),
        ([team("a")], {"max_requests": 3}, "arguments: max_requests: unknown key here: it belongs into [budget]"),
        ([team("a")], {"max_rounds": 11}, "arguments: max_rounds: "),
        ([team("a")], {"evaluator": {"default_modle": "x"}}, "evaluator: default_modle: unknown key"),
        ([team("a")], {"judgment": {"model": "judge"}}, "judgment: model: 'judge' does not name a model"),
        ([team("a")], {"prompt_builder": {"team_user_prompt": "{{ x"}}, "prompt_builder: team_user_prompt: "),
        (
            [team("a")],
            {"providers": {"loop": {"base_url": "x"}}},
            "providers: providers.loop.base_url: 'x' is not a web",
        ),
        ([team("a")], {"evaluator": 5}, "evaluator: must be EvaluatorSettings or a table"),
    ],
)
def test_mistakes_are_told_as_those_of_files_before_anything_is_asked(
    server: ModelServer, monkeypatch: pytest.MonkeyPatch, teams: list[Any], more: dict[str, Any], told: str
) -> None:
    monkeypatch.delenv("ANTHROPIC_API_KEY", raising=False)
    with pytest.raises(ConfigurationError) as caught:
        mixseek.run("task", teams, **parts(server, **more))
    assert told in str(caught.value)
    assert server.requests == []
    assert written() == []


@pytest.mark.parametrize(
    ("leader", "more", "told"),
    [
        ({"modle": "loop:x"}, {}, 'teams[0]: leader.modle: unknown key; did you mean "model"?'),
        (
            {},
            {"evaluator": {"default_modle": "loop:x"}},
            'evaluator: default_modle: unknown key; did you mean "default_model"?',
        ),
        (
            {},
            {"evaluator": {"llm_default": {"modell": "loop:x"}}},
            'evaluator: llm_default.modell: unknown key; did you mean "model"?',
        ),
        (
            {},
            {"evaluator": {"metrics": [{"name": "Coverage", "mdoel": "loop:x"}]}},
            'evaluator: metrics[0].mdoel: unknown key; did you mean "model"?',
        ),
        ({}, {"judgment": {"modle": "loop:x"}}, 'judgment: modle: unknown key; did you mean "model"?'),
        (
            {},
            {"evaluator": {"model": "loop:x"}},
            "evaluator: model: unknown key here: it belongs into [llm_default]",
        ),
        (
            {},
            {"evaluator": {"evaluator": {"default_model": "loop:x"}}},
            "evaluator: evaluator: unknown key: "
            "the settings of this kind of file stand at the top level, without a table",
        ),
        (
            {},
            {"evaluator": {"metrics": {"name": "Coverage", "model": "loop:x"}}},
            "evaluator: metrics: {name = 'Coverage', model = 'loop:x'} is not allowed: must be a list, each a table",
        ),
    ],
)
def test_of_a_model_that_was_misspelt_away_nothing_is_said_about_the_default_in_its_place(
    server: ModelServer, monkeypatch: pytest.MonkeyPatch, leader: dict[str, Any], more: dict[str, Any], told: str
) -> None:
    for name in ("GOOGLE_API_KEY", "GEMINI_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(ConfigurationError) as caught:
        mixseek.run("task", [team("a", **({"leader": leader} if leader else {}))], **parts(server, **more))
    assert str(caught.value) == told


def test_of_models_whose_providers_are_no_table_nothing_is_said_but_that(server: ModelServer) -> None:
    with pytest.raises(ConfigurationError) as caught:
        mixseek.run("task", [team("a")], **parts(server, providers=server.base_url))
    assert str(caught.value) == "providers: must be ProvidersSettings or a table of the same settings, not str"


def test_the_remedy_for_a_missing_price_is_the_argument_where_there_is_no_file(server: ModelServer) -> None:
    with pytest.raises(ConfigurationError) as caught:
        mixseek.run("task", [team("a")], **parts(server, budget={"max_cost_usd": 3}))
    assert str(caught.value.problems[0]) == (
        "teams[0]: leader.model: model 'loop:leader-a' has no known price, and the budget counts money: "
        'give it one by prices={"loop:leader-a": {...}} of mixseek.run, or in the orchestrator file, '
        '[prices."loop:leader-a"], with input_usd_per_million and output_usd_per_million'
    )


def test_beside_another_mistake_the_key_of_the_default_model_is_told_too(
    server: ModelServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("GOOGLE_API_KEY", "GEMINI_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(ConfigurationError, match="default_model: no key for the models of 'google-gla'"):
        mixseek.run(
            "task", [team("a")], **parts(server, evaluator={"metrics": [{"model": "loop:x"}, {"name": "Coverage"}]})
        )


def test_all_mistakes_are_told_at_once(server: ModelServer) -> None:
    with pytest.raises(ConfigurationError) as caught:
        mixseek.run("task", [team("a", max_concurrent_members=0), team("b", zzz=1)], **parts(server, max_rounds=0))
    assert len(caught.value.problems) == 3


def test_a_workspace_that_does_not_exist_is_not_made(server: ModelServer, tmp_path: Path) -> None:
    with pytest.raises(WorkspaceNotFoundError):
        mixseek.run("task", [team("a")], **parts(server, workspace=tmp_path / "nowhere"))
    assert not (tmp_path / "nowhere").exists()


def test_hooks_and_listeners_are_those_of_the_orchestrator(server: ModelServer) -> None:
    rounds: list[int] = []
    kinds: list[str] = []

    async def hook(state: RoundState, _: list[MemberSubmission]) -> None:
        rounds.append(state.round_number)

    mixseek.run(
        "task",
        [team("a")],
        **parts(server, max_rounds=2, on_round_complete=hook, listeners=[lambda e: kinds.append(e.kind)]),
    )
    assert rounds == [1, 2]
    assert (kinds[0], kinds[-1]) == ("RunStarted", "RunFinished")


# --- members and metrics of one's own -------------------------------------------------------------------------------


class Dice(BaseMemberAgent):
    """A member that counts what is done to it."""

    def __init__(self, config: MemberAgentConfig) -> None:
        super().__init__(config)
        self.done: list[str] = []

    async def initialize(self) -> None:
        self.done.append("initialize")

    async def cleanup(self) -> None:
        self.done.append("cleanup")

    async def execute(self, task: str, context: dict[str, Any] | None = None, **kwargs: Any) -> MemberAgentResult:
        self.done.append("execute")
        return MemberAgentResult.success("a six", self.agent_name, self.agent_type)


def asks_first(server: ModelServer, *names: str) -> None:
    for name in names:
        server.on(name, lambda call: "done" if call.tool_results else [ToolCall(call.tools[0].name, {"task": "roll"})])


def submissions(events: list[Event]) -> list[tuple[str, str, str]]:
    finished = [event.submission for event in events if event.kind == "MemberFinished"]  # type: ignore[attr-defined]
    return [(each.agent_type, each.status, each.content) for each in finished]


def test_a_member_may_be_a_class(server: ModelServer) -> None:
    events: list[Event] = []
    asks_first(server, "leader-a", "leader-b")
    member = {"name": "dice", "type": Dice, "model": "loop:unused"}
    mixseek.run(
        "task",
        [team("a", members=[member]), {"team": team("b", members=[member])}],
        **parts(server, listeners=[events.append]),
    )
    assert submissions(events) == [("Dice", "SUCCESS", "a six")] * 2
    assert "Dice" not in plugins.members


def test_two_classes_of_one_name_are_two(server: ModelServer) -> None:
    first = Dice

    class Another(Dice):
        async def execute(self, task: str, context: dict[str, Any] | None = None, **kwargs: Any) -> MemberAgentResult:
            return MemberAgentResult.success("a one", self.agent_name, self.agent_type)

    Another.__name__ = "Dice"
    events: list[Event] = []
    asks_first(server, "leader-a", "leader-b")
    mixseek.run(
        "task",
        [
            team(name, members=[{"name": "dice", "type": kind, "model": "loop:x"}])
            for name, kind in (("a", first), ("b", Another))
        ],
        **parts(server, listeners=[events.append]),
    )
    assert sorted(submissions(events)) == [("Dice", "SUCCESS", "a six"), ("Dice 2", "SUCCESS", "a one")]


def test_a_member_may_be_an_object(server: ModelServer) -> None:
    dice = Dice(MemberAgentConfig(name="dice", type="plain", model="loop:unused"))
    asks_first(server, "leader-a")
    mixseek.run("task", [team("a", members=[dice])], **parts(server))
    assert dice.done == ["initialize", "execute", "cleanup"]


def test_one_object_cannot_play_for_two_teams(server: ModelServer) -> None:
    dice = Dice(MemberAgentConfig(name="dice", type="dice", model="loop:unused"))
    with pytest.raises(ConfigurationError, match=r"teams\[1\]: members\[0\]: is the same object as teams\[0\]"):
        mixseek.run("task", [team("a", members=[dice]), team("b", members=[dice])], **parts(server))


@pytest.mark.parametrize("wrong", [int, BaseMemberAgent])
def test_a_class_that_is_no_member_is_refused(server: ModelServer, wrong: type) -> None:
    with pytest.raises(ConfigurationError, match=f"class '{wrong.__name__}'"):
        mixseek.run("task", [team("a", members=[{"name": "x", "type": wrong, "model": "l:x"}])], **parts(server))
    assert server.requests == []


class Length(BaseMetric):
    """As many points as characters."""

    def __init__(self, most: int = 1000) -> None:
        self.most = most

    async def evaluate(self, user_query: str, submission: str, *args: Any, **kwargs: Any) -> MetricScore:
        return MetricScore(metric_name="x", score=min(len(submission), self.most))


class Kind(LLMJudgeMetric):
    """A judge of one's own."""

    def get_instruction(self) -> str:
        return "Is it kind?"


@pytest.mark.parametrize(
    ("metric", "name", "score"),
    [
        (Length(3), "Length", 3),
        ({"name": "Long", "type": Length(4)}, "Long", 4),
        ({"name": "Long", "type": Length, "options": {"most": 2}}, "Long", 2),
        (Kind(), "Kind", 77),
    ],
)
def test_a_metric_may_be_a_class_or_an_object(server: ModelServer, metric: Any, name: str, score: float) -> None:
    server.on("leader-a", ["12345"])
    server.on("judge", lambda call: {"evaluator_comment": call.system, "score": 77})
    summary = mixseek.run("task", [team("a")], **parts(server, evaluator={**JUDGED, "metrics": [metric]}))
    [entry] = summary.team_results
    assert entry.score == score
    assert metric_names(summary) == [name]


class Vowels(CodeMetric[MetricOptions]):
    """A metric in code that has no options of its own."""

    def measure(self, submission: str, reference: str | None) -> Measured:
        return Measured(sum(letter in "aeiou" for letter in submission), "vowels")


def test_a_metric_in_code_needs_no_options_of_its_own(server: ModelServer) -> None:
    server.on("leader-a", ["a pear"])
    given = parts(server, evaluator={"metrics": [{"name": "Vowels", "type": Vowels}]})
    assert mixseek.run("task", [team("a")], **given).best_score == 3


@pytest.mark.parametrize("metric", [Length(3), {"name": "Long", "type": Length}])
@pytest.mark.parametrize("budget", [{"max_tokens": 5_000}, {"max_cost_usd": 0.001}])
def test_a_small_budget_is_not_asked_to_pay_for_a_judge_where_a_class_of_ones_own_asks_no_model(
    server: ModelServer, metric: Any, budget: dict[str, Any]
) -> None:
    price = {"input_usd_per_million": 0.01, "output_usd_per_million": 0.01}
    asked = team("a", leader={"model": "loop:leader-a", "max_tokens": 100})
    given = parts(server, evaluator={"metrics": [metric]}, budget=budget, prices={"loop:leader-a": price})
    assert mixseek.run("task", [asked], **given).team_results[0].score is not None


def test_a_small_budget_is_refused_for_a_judge_of_ones_own(server: ModelServer) -> None:
    given = parts(server, evaluator={**JUDGED, "metrics": [Kind()]}, budget={"max_tokens": 5_000})
    with pytest.raises(ConfigurationError, match="5,000 tokens cannot pay for one answer of 'loop:judge'"):
        mixseek.run("task", [team("a")], **given)
    assert server.requests == []


def test_an_object_stays_as_it_was_given(server: ModelServer) -> None:
    metric = Kind()
    mixseek.run("task", [team("a"), team("b")], **parts(server, evaluator={**JUDGED, "metrics": [metric]}))
    assert metric.judge is None


def test_options_a_class_does_not_take_are_told(server: ModelServer) -> None:
    metric = {"name": "Long", "type": Length, "options": {"least": 2}}
    with pytest.raises(ConfigurationError, match=r"evaluator: metrics\[0\].options: .*least"):
        mixseek.run("task", [team("a")], **parts(server, evaluator={**JUDGED, "metrics": [metric]}))


# --- the end --------------------------------------------------------------------------------------------------------


async def test_a_run_that_is_cancelled_leaves_nothing_running(server: ModelServer) -> None:
    server.set_latency(60)
    asked = asyncio.Event()

    def listen(event: Event) -> None:
        if event.kind == "RoundStarted" and event.team_id == "b":
            asked.set()

    given = parts(server, listeners=[listen])
    running = asyncio.create_task(mixseek.arun("task", [team("a"), team("b")], **given))
    await asked.wait()
    await asyncio.sleep(0.2)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert asyncio.all_tasks() == {asyncio.current_task()}


INTERRUPTED = """
import asyncio, os, signal, threading, mixseek

# Whoever started this in the background may have told it to ignore Ctrl-C.
signal.signal(signal.SIGINT, signal.default_int_handler)

def play():
    def listen(event):
        if event.kind == "RoundStarted":
            threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
    team = {"team_id": "a", "team_name": "A", "leader": {"model": "loop:leader-a"}}
    mixseek.run("task", [team], judgment={"model": "none"}, evaluator={"default_model": "loop:judge"},
                providers={"loop": {"base_url": os.environ["SERVER"]}}, listeners=[listen])

async def in_a_notebook():
    try:
        play()
    except KeyboardInterrupt:
        names = [thread.name for thread in threading.enumerate()]
        print("interrupted", "mixseek.run" in names)

"""


@pytest.fixture
def interrupted(server: ModelServer) -> Callable[[str], subprocess.CompletedProcess[str]]:
    """A program that is interrupted while ``mixseek.run`` plays in it."""

    def run(call: str) -> subprocess.CompletedProcess[str]:
        server.set_latency(60)
        return subprocess.run(
            [sys.executable, "-c", INTERRUPTED + call],
            env={**os.environ, "SERVER": server.base_url},
            capture_output=True,
            text=True,
            timeout=50,
            check=False,
        )

    return run


def test_ctrl_c_in_a_notebook_ends_the_run_and_its_thread(
    interrupted: Callable[[str], subprocess.CompletedProcess[str]],
) -> None:
    ran = interrupted("asyncio.new_event_loop().run_until_complete(in_a_notebook())")
    assert (ran.stdout, ran.returncode) == ("interrupted False\n", 0), ran.stderr


def test_ctrl_c_in_a_program_tells_of_the_program_and_not_of_what_runs_inside(
    interrupted: Callable[[str], subprocess.CompletedProcess[str]],
) -> None:
    ran = interrupted("play()")
    assert ran.returncode == -signal.SIGINT
    assert ran.stderr.splitlines()[-1] == "KeyboardInterrupt"
    assert "CancelledError" not in ran.stderr
    assert ran.stderr.count("  File ") <= 4


STUBBORN = """
import asyncio, os, sys, mixseek
from mixseek import strangers
from mixseek.agents.member import BaseMemberAgent, readiness
from mixseek.models.member_agent import MemberAgentResult

strangers.LET_GO_SECONDS = readiness.CLEAN_UP_SECONDS = readiness._LAST_SECONDS = 0.1

class Stubborn(BaseMemberAgent):
    async def execute(self, task, context=None, **kwargs):
        return MemberAgentResult.success("help", self.agent_name, self.agent_type)

    async def cleanup(self):
        while True:
            try:
                await asyncio.sleep(1000)
            except BaseException:
                pass

def play():
    members = [{"name": "own", "type": Stubborn, "model": "loop:own"}]
    team = {"team_id": "a", "team_name": "A", "leader": {"model": "loop:leader-a"}, "members": members}
    summary = mixseek.run("task", [team], judgment={"model": "none"}, evaluator={"default_model": "loop:judge"},
                          providers={"loop": {"base_url": os.environ["SERVER"]}}, max_rounds=1)
    print(summary.completed_teams)

async def in_a_notebook():
    play()

asyncio.run(in_a_notebook()) if sys.argv[1:] else play()
"""


@pytest.mark.parametrize("arguments", [[], ["in a notebook"]], ids=["without a loop", "where a loop runs"])
def test_a_program_ends_whatever_a_member_does_that_lets_nothing_end_it(
    server: ModelServer, arguments: list[str]
) -> None:
    ran = subprocess.run(
        [sys.executable, "-c", STUBBORN, *arguments],
        env={**os.environ, "SERVER": server.base_url},
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )
    assert (ran.stdout, ran.returncode) == ("1\n", 0), ran.stderr
    assert ran.stderr.splitlines()[-1] == "member 'own' does not end although it was cancelled, and is left as it is"


def test_importing_the_package_loads_nothing_else() -> None:
    code = (
        "import sys, mixseek; print(sorted(name for name in sys.modules if name.startswith(('mixseek.', 'pydantic'))))"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout == "[]\n"
    with pytest.raises(AttributeError):
        mixseek.nothing  # noqa: B018


def test_run_takes_what_arun_takes_and_every_setting_of_an_orchestrator_file() -> None:
    takes = {
        name for name, each in inspect.signature(mixseek.arun).parameters.items() if each.kind == each.KEYWORD_ONLY
    }
    assert set(get_type_hints(Options)) - set(get_type_hints(Limits)) == takes
    elsewhere = {"workspace_path", "teams", "evaluator_config", "judgment_config", "prompt_builder_config"}
    assert set(get_type_hints(Limits)) == set(OrchestratorSettings.model_fields) - elsewhere


def test_the_remedy_for_a_missing_variable_names_no_file_that_nobody_reads(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL"):
        monkeypatch.delenv(name, raising=False)
    servers = {"tools": {"command": sys.executable, "env": {"A": "${NOT_SET_HERE}"}}}
    member = {"name": "m", "type": "plain", "description": "m", "model": "ollama:x", "mcp_servers": servers}
    team = {"team_id": "a", "team_name": "A", "leader": {"model": "openai:gpt-5-mini"}, "members": [member]}

    def told(workspace: Path | None) -> list[str]:
        with pytest.raises(ConfigurationError) as error:
            mixseek.run("a task", [team], evaluator={"default_model": "ollama:x"}, judgment=RULES, workspace=workspace)
        return [problem.message for problem in error.value.problems]

    key = "no key for the models of 'openai': set OPENAI_API_KEY in the environment"
    variable = "the variable NOT_SET_HERE is not set: set it"
    assert told(None) == [key, variable]
    assert told(tmp_path) == [f"{key} or in .env of the workspace", f"{variable}, or write it into .env"]
