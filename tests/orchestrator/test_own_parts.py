"""Members and metrics of one's own, and what a run makes of those that misbehave."""

import asyncio
import logging
import re
from pathlib import Path
from typing import Any

import pytest

import mixseek
from mixseek import strangers
from mixseek.agents.member import readiness
from mixseek.errors import ConfigurationError
from mixseek.testing import Match, ModelCall, ModelServer, scripted
from soak.arena import Arena, Played, Team

MEMBERS = r"""
import asyncio
from contextlib import suppress
from pathlib import Path

import anyio

from mixseek.agents.member import BaseMemberAgent
from mixseek.core.auth import create_authenticated_model
from mixseek.llm.patience import let_time_run_out
from mixseek.models.member_agent import MemberAgentResult

NOTES = Path(__file__).with_name("notes.txt")


def note(text):
    with NOTES.open("a") as notes:
        notes.write(text + "\n")


class Good(BaseMemberAgent):
    async def initialize(self):
        note("initialize")

    async def cleanup(self):
        note("cleanup")

    async def execute(self, task, context=None, **kwargs):
        note(f"execute {sorted(context)} {context['team_id']} {context['round_number']}")
        return MemberAgentResult.success("help for you", self.agent_name, self.agent_type)


class Asking(BaseMemberAgent):
    async def execute(self, task, context=None, **kwargs):
        from pydantic_ai import Agent

        result = await Agent(create_authenticated_model("loop:own-model")).run(task)
        return MemberAgentResult.success(
            "help for " + result.output,
            self.agent_name,
            self.agent_type,
            usage_info=result.usage,
            all_messages=result.all_messages(),
        )


class Raising(BaseMemberAgent):
    async def execute(self, task, context=None, **kwargs):
        raise ValueError("the member's own trouble")


class Slow(BaseMemberAgent):
    async def execute(self, task, context=None, **kwargs):
        await asyncio.sleep(60)


class NotesItsEnd(BaseMemberAgent):
    async def execute(self, task, context=None, **kwargs):
        note("execute")
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            note("cancelled")
            raise


class OwnTimeout(BaseMemberAgent):
    async def execute(self, task, context=None, **kwargs):
        raise TimeoutError("its database did not answer")


class GivesNothing(BaseMemberAgent):
    async def execute(self, task, context=None, **kwargs):
        return None


class CancelsItself(BaseMemberAgent):
    async def execute(self, task, context=None, **kwargs):
        raise asyncio.CancelledError


class Panic(BaseException):
    pass


class Panics(BaseMemberAgent):
    async def execute(self, task, context=None, **kwargs):
        raise Panic("called `unwrap()` on a `None` value")


class CancelsItsOwnTask(BaseMemberAgent):
    async def execute(self, task, context=None, **kwargs):
        asyncio.current_task().cancel()
        await asyncio.sleep(60)


class CancelsItsOwnTaskAndFails(BaseMemberAgent):
    async def execute(self, task, context=None, **kwargs):
        asyncio.current_task().cancel()
        raise ValueError("the member's own trouble")


class CancelsItsOwnTaskAndAnswers(BaseMemberAgent):
    async def execute(self, task, context=None, **kwargs):
        asyncio.current_task().cancel()
        return MemberAgentResult.success("help for you", self.agent_name, self.agent_type)


class FailsInAGroup(BaseMemberAgent):
    async def execute(self, task, context=None, **kwargs):
        async with asyncio.TaskGroup() as group:
            group.create_task(fail())


class Closes(BaseMemberAgent):
    async def execute(self, task, context=None, **kwargs):
        raise GeneratorExit


class HasNoWords(Exception):
    def __str__(self):
        raise RuntimeError("no words")

    __repr__ = __str__


class RaisesWithoutWords(BaseMemberAgent):
    async def execute(self, task, context=None, **kwargs):
        raise HasNoWords


class Stubborn(BaseMemberAgent):
    async def execute(self, task, context=None, **kwargs):
        for _ in range(3):
            with suppress(asyncio.CancelledError):
                await asyncio.sleep(20)


class RaisesAGroup(BaseMemberAgent):
    async def execute(self, task, context=None, **kwargs):
        raise BaseExceptionGroup("both", [Panic("one"), SystemExit(2)])


class ErrorResult(BaseMemberAgent):
    async def execute(self, task, context=None, **kwargs):
        return MemberAgentResult.error("no such page", self.agent_name, self.agent_type)


def nested(levels):
    return [nested(levels - 1)] if levels else []


def ring():
    made = []
    made.append(made)
    return made


class GivesOddMessages(BaseMemberAgent):
    messages = None

    async def execute(self, task, context=None, **kwargs):
        return MemberAgentResult.success("help", self.agent_name, self.agent_type, all_messages=self.messages)


class GivesBytes(GivesOddMessages):
    messages = [b"\xff"]


class GivesARing(GivesOddMessages):
    messages = ring()


class GivesDepth(GivesOddMessages):
    messages = nested(120)


class GivesHalves(BaseMemberAgent):
    async def execute(self, task, context=None, **kwargs):
        return MemberAgentResult.success(
            "help for you \ud83d",
            self.agent_name,
            self.agent_type,
            warning_message="cut \ud83d",
            execution_time_ms=float("nan"),
            all_messages=[{"said": ["cut \ud83d", float("nan")]}],
        )


class NotReady(Good):
    async def initialize(self):
        raise ConnectionError("nothing listens there")


async def let_go_of_a_task():
    task = asyncio.create_task(asyncio.sleep(60))
    task.cancel()
    await task


class NotReadyForItself(Good):
    async def initialize(self):
        await let_go_of_a_task()


class NotReadyInWords(Good):
    async def initialize(self):
        raise HasNoWords


class NotReadyAndCloses(Good):
    async def initialize(self):
        raise GeneratorExit


class NotReadyToStay(Good):
    async def initialize(self):
        raise SystemExit(2)


async def fail():
    await asyncio.sleep(0)
    raise ConnectionError("nothing listens there")


class NotReadyInAGroup(Good):
    async def initialize(self):
        async with asyncio.TaskGroup() as group:
            group.create_task(fail())


class CancelsWhoeverMakesItReady(Good):
    async def initialize(self):
        asyncio.current_task().cancel()
        await asyncio.sleep(60)


class HoldsAScope(Good):
    async def initialize(self):
        self.held = anyio.create_task_group()
        await self.held.__aenter__()
        self.held.start_soon(anyio.sleep, 60)

    async def cleanup(self):
        self.held.cancel_scope.cancel()
        await self.held.__aexit__(None, None, None)
        note("cleanup")


class NeverClean(Good):
    async def cleanup(self):
        raise OSError("cannot let go")


class ClosesWhenItCleansUp(Good):
    async def cleanup(self):
        raise GeneratorExit


class NeverCleanWithoutWords(Good):
    async def cleanup(self):
        raise HasNoWords


class CleansUpItsTask(Good):
    async def cleanup(self):
        await let_go_of_a_task()


class NeverLetsGo(Good):
    async def cleanup(self):
        let_time_run_out(0)
        await asyncio.sleep(60)


class NeverLetsGoEvenIfCancelled(Good):
    async def cleanup(self):
        for _ in range(3):
            with suppress(asyncio.CancelledError):
                await asyncio.sleep(20)


class LeavesWithTheProgram(Good):
    async def cleanup(self):
        raise SystemExit("all out")


class NeedsAnIndex(Good):
    def __init__(self, config):
        super().__init__(config)
        self.index = config.metadata["index"]


class Exits(Good):
    def __init__(self, config):
        raise SystemExit("no licence")


class ExitsWithoutWords(Good):
    def __init__(self, config):
        raise HasNoWords


class ForgetsItsSettings(Good):
    def __init__(self, config):
        self.settings = config
"""

METRICS = r"""
import asyncio

from mixseek.evaluator.metrics import BaseMetric
from mixseek.evaluator.metrics.base import CodeMetric, Measured, MetricOptions
from mixseek.models.evaluation_result import MetricScore


class Length(BaseMetric):
    async def evaluate(self, user_query, submission, execution_id=None, team_id=None, round_number=None, **kwargs):
        assert execution_id and team_id and round_number
        return MetricScore(metric_name="whatever", score=len(submission) * 10, evaluator_comment="long")


class NotANumber(BaseMetric):
    async def evaluate(self, user_query, submission, round_number=None, **kwargs):
        score = float("nan") if round_number == 2 else 50
        return MetricScore(metric_name="NotANumber", score=score, evaluator_comment="hard to say")


class NeverANumber(BaseMetric):
    async def evaluate(self, user_query, submission, **kwargs):
        return MetricScore(metric_name="NeverANumber", score=float("inf"), evaluator_comment="hard to say")


class Raising(BaseMetric):
    async def evaluate(self, user_query, submission, round_number=None, **kwargs):
        if round_number == 2:
            raise KeyError("the metric's own trouble")
        return MetricScore(metric_name="Raising", score=50)


class Panics(BaseMetric):
    async def evaluate(self, user_query, submission, **kwargs):
        class Panic(BaseException):
            pass

        raise Panic("index out of bounds")


class CancelsTheTeam(BaseMetric):
    async def evaluate(self, user_query, submission, **kwargs):
        for task in asyncio.all_tasks():
            if "_play_team" in repr(task.get_coro()) and "_play_teams" not in repr(task.get_coro()):
                task.cancel()
        await asyncio.sleep(60)


class CancelsItself(BaseMetric):
    async def evaluate(self, user_query, submission, **kwargs):
        raise asyncio.CancelledError


class CancelsItsOwnTask(BaseMetric):
    async def evaluate(self, user_query, submission, **kwargs):
        asyncio.current_task().cancel()
        await asyncio.sleep(60)


class Closes(BaseMetric):
    async def evaluate(self, user_query, submission, **kwargs):
        raise GeneratorExit


class RaisesWithoutWords(BaseMetric):
    async def evaluate(self, user_query, submission, **kwargs):
        class HasNoWords(Exception):
            def __str__(self):
                raise RuntimeError("no words")

        raise HasNoWords


class HalfAComment(BaseMetric):
    async def evaluate(self, user_query, submission, **kwargs):
        return MetricScore(metric_name="HalfAComment", score=50, evaluator_comment="cut \ud83d")


class GivesNothing(BaseMetric):
    async def evaluate(self, user_query, submission, **kwargs):
        return 50


class NeedsAFile(GivesNothing):
    def __init__(self):
        raise RuntimeError("no model file")


class PanicsAtOnce(GivesNothing):
    def __init__(self):
        raise type("Panic", (BaseException,), {})("index out of bounds")


class Exits(GivesNothing):
    def __init__(self):
        raise SystemExit("no licence")


class Slips(CodeMetric):
    Options = MetricOptions

    def measure(self, submission, reference):
        return Measured(50, commment)


class MeasuresANumber(CodeMetric):
    Options = MetricOptions

    def measure(self, submission, reference):
        return 50


class CannotRead(CodeMetric):
    Options = MetricOptions

    def measure(self, submission, reference):
        raise FileNotFoundError("words.txt")


class ForgetsItsOptions(CodeMetric):
    Options = MetricOptions

    def __init__(self, options):
        self.most = 3

    def measure(self, submission, reference):
        return Measured(50, "fine")
"""


@pytest.fixture(autouse=True)
def _only_loopback(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MIXSEEK_ONLY_LOOPBACK", "1")


async def with_member(
    tmp_path: Path, server: ModelServer, name: str, more: str = "", **options: Any
) -> tuple[Arena, Played]:
    own = (
        '[[team.members]]\nname = "own"\ntype = "custom"\nmodel = "loop:own-model"\n'
        f'plugin = {{ path = "own.py", agent_class = "{name}" }}\n{more}'
    )
    (tmp_path / "own.py").write_text(MEMBERS)
    teams = [Team("alpha", members=0, extra=own), Team("beta", scores=(60, 65), members=0)]
    arena = Arena(tmp_path, server.base_url, teams, orchestrator="max_rounds = 2\nmax_retries_per_team = 0")
    arena.script(server)
    return arena, await arena.play(**options)


def given(arena: Arena) -> list[dict[str, Any]]:
    kept = arena.rows("round_history", "team_id = 'alpha'")
    return [each for row in kept for each in row["member_submissions_record"]["submissions"]]


def both_teams_are_well(played: Played) -> bool:
    results = [(each.team_id, each.score, each.exit_reason) for each in played.summary.team_results]
    return results == [("alpha", 80, "max_rounds_reached"), ("beta", 65, "max_rounds_reached")]


async def test_a_custom_member_is_made_ready_used_and_let_go(tmp_path: Path, server: ModelServer) -> None:
    arena, played = await with_member(tmp_path, server, "Good")
    assert both_teams_are_well(played)
    assert [each["status"] for each in given(arena)] == ["SUCCESS", "SUCCESS"]
    assert (tmp_path / "notes.txt").read_text().splitlines() == [
        "initialize",
        "execute ['execution_id', 'round_number', 'team_id'] alpha 1",
        "execute ['execution_id', 'round_number', 'team_id'] alpha 2",
        "cleanup",
    ]


async def test_a_scope_that_a_member_enters_can_be_left_when_it_cleans_up(
    tmp_path: Path, server: ModelServer, caplog: pytest.LogCaptureFixture
) -> None:
    _, played = await with_member(tmp_path, server, "HoldsAScope")
    assert both_teams_are_well(played)
    assert (tmp_path / "notes.txt").read_text().splitlines()[-1] == "cleanup"
    assert "could not clean up" not in caplog.text


async def test_a_custom_members_own_calls_are_on_the_bill_and_its_messages_kept(
    tmp_path: Path, server: ModelServer
) -> None:
    arena, played = await with_member(tmp_path, server, "Asking")
    assert both_teams_are_well(played)
    lines = [row for row in arena.rows("model_usage") if row["model"] == "loop:own-model"]
    assert [(row["role"], row["agent_name"], row["requests"]) for row in lines] == [("member", "own", 1)] * 2
    assert played.summary.usage.input_tokens == server.bill.total.input_tokens
    assert [(each["usage"]["requests"], len(each["all_messages"])) for each in given(arena)] == [(1, 2), (1, 2)]


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("Raising", "ValueError: the member's own trouble"),
        ("Slow", "no answer within 1 s"),
        ("OwnTimeout", "TimeoutError: its database did not answer"),
        ("GivesNothing", "it gave no MemberAgentResult but NoneType"),
        ("CancelsItself", "it gave up its own work"),
        ("Panics", "Panic: called `unwrap()` on a `None` value"),
        ("CancelsItsOwnTask", "it gave up its own work"),
        ("CancelsItsOwnTaskAndFails", "ValueError: the member's own trouble"),
        ("FailsInAGroup", "ExceptionGroup: unhandled errors in a TaskGroup (1 sub-exception)"),
        ("Closes", "GeneratorExit"),
        ("RaisesWithoutWords", "HasNoWords"),
        ("RaisesAGroup", "BaseExceptionGroup: both (2 sub-exceptions)"),
        ("ErrorResult", "no such page"),
        (
            "GivesBytes",
            "it gave what cannot be kept: "
            "UnicodeDecodeError: 'utf-8' codec can't decode byte 0xff in position 0: invalid utf-8",
        ),
        ("GivesARing", "it gave what cannot be kept: ValueError: Circular reference detected (id repeated)"),
        ("GivesDepth", "it gave what cannot be kept: ValueError: all_messages is nested deeper than 100 levels"),
        ("NotReady", "it could not get ready: ConnectionError: nothing listens there"),
        ("NotReadyForItself", "it could not get ready: it gave up its own work"),
        (
            "NotReadyInAGroup",
            "it could not get ready: ExceptionGroup: unhandled errors in a TaskGroup (1 sub-exception)",
        ),
        ("CancelsWhoeverMakesItReady", "it could not get ready: it gave up its own work"),
        ("NotReadyToStay", "it could not get ready: SystemExit: 2"),
        ("NotReadyInWords", "it could not get ready: HasNoWords"),
        ("NotReadyAndCloses", "it could not get ready: GeneratorExit"),
    ],
)
async def test_a_members_failure_is_told_to_the_leader_and_recorded(
    tmp_path: Path, server: ModelServer, name: str, words: str
) -> None:
    limit = "timeout_seconds = 1" if name == "Slow" else ""
    arena, played = await with_member(tmp_path, server, name, limit)
    assert both_teams_are_well(played)
    # Where a member's own code was reached, its line is told too.
    told = re.compile(rf"{re.escape(words)}(?: \(own\.py, line \d+\))?")
    assert [each["status"] for each in given(arena)] == ["ERROR"] * 2
    assert all(told.fullmatch(each["error_message"]) for each in given(arena))
    last = [request.body["messages"][-1] for request in server.requests if request.model == "leader-alpha"]
    messages = [message["content"] for message in last if message["role"] == "tool"]
    assert len(messages) == 2
    for message in messages:
        assert message.startswith("Member 'own' failed:\n")
        assert re.search(rf'<data id="(\w+)">\n{told.pattern}\n</data id="\1">\Z', message)
    finished = played.told("MemberFinished", "alpha")
    assert [event.submission.error_message for event in finished] == [each["error_message"] for each in given(arena)]


async def test_a_member_that_cancels_its_own_task_and_answers_all_the_same_has_answered(
    tmp_path: Path, server: ModelServer
) -> None:
    arena, played = await with_member(tmp_path, server, "CancelsItsOwnTaskAndAnswers")
    assert both_teams_are_well(played)
    assert [each["status"] for each in given(arena)] == ["SUCCESS", "SUCCESS"]


async def test_a_member_that_lets_nothing_cancel_it_is_left_when_its_time_is_up(
    tmp_path: Path, server: ModelServer, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(strangers, "LET_GO_SECONDS", 0.1)
    async with asyncio.timeout(15):
        arena, played = await with_member(tmp_path, server, "Stubborn", "timeout_seconds = 1")
    assert both_teams_are_well(played)
    assert [each["error_message"] for each in given(arena)] == ["no answer within 1 s"] * 2
    assert "member 'own' does not end although it was cancelled, and is left as it is" in caplog.text


async def test_a_run_that_is_cancelled_while_a_member_works_is_cancelled_and_so_is_the_member(
    tmp_path: Path, server: ModelServer
) -> None:
    playing = asyncio.create_task(with_member(tmp_path, server, "NotesItsEnd"))
    notes = tmp_path / "notes.txt"
    async with asyncio.timeout(15):
        while not notes.exists():  # noqa: ASYNC110  # a file says it
            await asyncio.sleep(0.01)
    playing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await playing
    assert notes.read_text().splitlines() == ["execute", "cancelled"]


async def test_what_a_member_gives_is_kept_without_halves_of_characters_and_numbers_that_are_none(
    tmp_path: Path, server: ModelServer
) -> None:
    arena, played = await with_member(tmp_path, server, "GivesHalves")
    assert both_teams_are_well(played)
    for each in given(arena):
        assert (each["status"], each["content"], each["error_message"]) == (
            "SUCCESS",
            "help for you \ufffd",
            "cut \ufffd",
        )
        assert each["all_messages"] == [{"said": ["cut \ufffd", None]}]
        assert each["execution_time_ms"] >= 0


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("NeverClean", "cannot let go"),
        ("NeverCleanWithoutWords", "HasNoWords"),
        ("CleansUpItsTask", "CancelledError"),
        ("ClosesWhenItCleansUp", "GeneratorExit"),
        ("LeavesWithTheProgram", "all out"),
    ],
)
async def test_a_member_that_cannot_clean_up_costs_nobody_a_result(
    tmp_path: Path, server: ModelServer, caplog: pytest.LogCaptureFixture, name: str, words: str
) -> None:
    with caplog.at_level(logging.ERROR):
        _, played = await with_member(tmp_path, server, name)
    assert both_teams_are_well(played)
    assert "member 'own' could not clean up" in caplog.text
    assert words in caplog.text


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("NeedsAnIndex", "class 'NeedsAnIndex' cannot be made: KeyError: 'index'"),
        ("Exits", "class 'Exits' cannot be made: SystemExit: no licence"),
        ("ExitsWithoutWords", "class 'ExitsWithoutWords' cannot be made: HasNoWords"),
        (
            "ForgetsItsSettings",
            "class 'ForgetsItsSettings' does not keep its settings: call super().__init__(config) first",
        ),
    ],
)
async def test_a_member_that_cannot_be_made_is_told_with_its_file_before_a_call(
    tmp_path: Path, server: ModelServer, name: str, words: str
) -> None:
    with pytest.raises(ConfigurationError) as told:
        await with_member(tmp_path, server, name)
    assert str(told.value) == f"configs/agents/0.toml: team.members[0].plugin: {words}"
    assert not server.requests


@pytest.mark.parametrize("name", ["NeverLetsGo", "NeverLetsGoEvenIfCancelled"])
async def test_a_member_that_never_lets_go_is_left_and_a_team_that_has_played_keeps_its_result(
    tmp_path: Path,
    server: ModelServer,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    name: str,
) -> None:
    monkeypatch.setattr(readiness, "CLEAN_UP_SECONDS", 0.2)
    monkeypatch.setattr(readiness, "_LAST_SECONDS", 0.1)
    async with asyncio.timeout(15):
        _, played = await with_member(tmp_path, server, name)
    assert both_teams_are_well(played)
    assert "member 'own' did not clean up within 0.2 s and is left as it is" in caplog.text


async def test_a_team_whose_time_is_up_does_not_wait_for_a_member_that_never_lets_go(
    tmp_path: Path, server: ModelServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(readiness, "CLEAN_UP_SECONDS", 0.2)
    server.fault("hang_before_headers", model="leader-alpha")
    async with asyncio.timeout(15):
        _, played = await with_member(tmp_path, server, "NeverLetsGo", timeout_seconds=2)
    assert played.failure("alpha") == "all rounds together took longer than 2 s"


# --- metrics ----------------------------------------------------------------------------------------------------------


def _line(words: str, *, after: bool = False) -> str:
    """Where these words stand in the file of the metrics, as a failure tells it."""
    return f"metrics.py, line {METRICS[: METRICS.index(words)].count(chr(10)) + 1 + after}"


async def with_metric(tmp_path: Path, server: ModelServer, name: str) -> tuple[Arena, Played]:
    (tmp_path / "metrics.py").write_text(METRICS)
    arena = Arena(
        tmp_path,
        server.base_url,
        [Team("alpha", members=0)],
        orchestrator="max_rounds = 3\nmin_rounds = 1\nmax_retries_per_team = 1",
        evaluator=(
            '[[metrics]]\nname = "Quality"\nweight = 0.5\nsystem_instruction = "How good is it?"\n'
            '[[metrics]]\nname = "My own"\ntype = "any key"\nweight = 0.5\n'
            f'[custom_metrics]\n"any key" = {{ path = "metrics.py", class = "{name}" }}\n'
        ),
    )
    arena.script(server)
    return arena, await arena.play()


async def test_a_custom_metric_is_weighed_with_the_others(tmp_path: Path, server: ModelServer) -> None:
    arena, _ = await with_metric(tmp_path, server, "Length")
    row, *_ = arena.rows("leader_board")
    long = len(row["submission_content"]) * 10
    assert row["score"] == 0.5 * 70 + 0.5 * long
    assert [(metric["metric_name"], metric["score"]) for metric in row["score_details"]["metrics"]] == [
        ("Quality", 70),
        ("My own", long),
    ]


async def test_a_team_that_never_has_a_score_fails_with_the_reason(tmp_path: Path, server: ModelServer) -> None:
    _, played = await with_metric(tmp_path, server, "NeverANumber")
    assert played.failure("alpha") == (
        "no round of team 'alpha' has a scored submission; "
        "the last one: metric 'My own' gave no finite number: hard to say"
    )


async def test_a_score_that_is_no_number_leaves_the_round_unscored_and_the_team_goes_on(
    tmp_path: Path, server: ModelServer
) -> None:
    arena, played = await with_metric(tmp_path, server, "NotANumber")
    rows = arena.rows("leader_board")
    assert [row["score"] for row in rows] == [60, None, 62.5]
    assert rows[1]["submission_content"] == "alpha answer of round 2, worth 80"
    reason = "metric 'My own' gave no finite number: hard to say"
    judged, own = rows[1]["score_details"]["metrics"]
    assert rows[1]["score_details"]["reason"] == reason
    assert (judged["metric_name"], judged["score"], own["metric_name"], own["score"]) == ("Quality", 80, "My own", None)
    assert (played.summary.failed_teams_info, played.summary.best_score) == ([], 62.5)
    last = next(r.body["messages"][-1]["content"] for r in reversed(server.requests) if r.model == "leader-alpha")
    assert f"## ラウンド 2\nスコア: 評価なし\n理由: {reason}\nスコア詳細:" in last
    assert f'"evaluator_comment": "{judged["evaluator_comment"]}"' in last
    # No judgment is asked about a round that has no score.
    assert sum(request.model == "judgment" for request in server.requests) == 2
    async with arena.journal() as journal:
        events = await journal.events(played.summary.execution_id)
    assert sum(event.kind == "RoundFinished" for event in events) == 3


async def test_a_metric_that_raises_ends_the_team_and_the_submission_is_kept_unscored(
    tmp_path: Path, server: ModelServer
) -> None:
    arena, played = await with_metric(tmp_path, server, "Raising")
    words = f"metric 'My own' failed at {_line('raise KeyError')}: KeyError: \"the metric's own trouble\""
    assert played.failure("alpha") == words
    result = played.result("alpha")
    assert result is not None
    assert (result.round_number, result.exit_reason) == (1, "partial_failure")
    kept = arena.rows("leader_board")[1]
    assert (kept["score"], kept["submission_content"]) == (None, "alpha answer of round 2, worth 80")
    assert kept["score_details"] == {"reason": words}
    assert [event.attempt for event in played.told("TeamStarted")] == [1, 2]
    assert sum(request.model == "leader-alpha" for request in server.requests) == 2


@pytest.mark.parametrize(("name", "tries"), [("Slips", [1]), ("MeasuresANumber", [1]), ("CannotRead", [1, 2])])
async def test_a_mistake_in_code_that_asks_nobody_is_not_tried_again_at_the_cost_of_the_judges(
    tmp_path: Path, server: ModelServer, name: str, tries: list[int]
) -> None:
    _, played = await with_metric(tmp_path, server, name)

    assert (played.failure("alpha") or "").startswith("metric 'My own' ")
    assert [event.attempt for event in played.told("TeamStarted")] == tries


async def test_a_metric_that_gives_no_score_ends_the_team(tmp_path: Path, server: ModelServer) -> None:
    arena, played = await with_metric(tmp_path, server, "GivesNothing")
    assert played.failure("alpha") == "metric 'My own' gave no MetricScore but int"
    assert [row["score"] for row in arena.rows("leader_board")] == [None]


@pytest.mark.parametrize(
    ("name", "line", "words"),
    [
        ("Panics", 'raise Panic("index', "Panic: index out of bounds"),
        ("CancelsItself", "raise asyncio.CancelledError", "it gave up its own work"),
        ("CancelsItsOwnTask", "current_task().cancel()", "it gave up its own work"),
        ("Closes", "raise GeneratorExit", "GeneratorExit"),
        ("RaisesWithoutWords", "raise HasNoWords", "HasNoWords"),
    ],
)
async def test_a_metric_that_ends_in_any_way_at_all_is_named_with_its_line_and_its_submission_kept(
    tmp_path: Path, server: ModelServer, name: str, line: str, words: str
) -> None:
    arena, played = await with_metric(tmp_path, server, name)
    # Whoever cancels its task is told so at the next line that waits.
    place = _line(line, after=name == "CancelsItsOwnTask")
    assert played.failure("alpha") == f"metric 'My own' failed at {place}: {words}"
    [kept] = arena.rows("leader_board")
    assert (kept["score"], kept["submission_content"]) == (None, "alpha answer of round 1, worth 70")


async def test_half_a_character_in_the_comment_of_a_metric_costs_no_score(tmp_path: Path, server: ModelServer) -> None:
    arena, played = await with_metric(tmp_path, server, "HalfAComment")
    assert played.failure("alpha") is None
    comments = [row["score_details"]["metrics"][1]["evaluator_comment"] for row in arena.rows("leader_board")]
    assert comments == ["cut \ufffd"] * 3


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("NeedsAFile", "class 'NeedsAFile' cannot be made: RuntimeError: no model file"),
        ("PanicsAtOnce", "class 'PanicsAtOnce' cannot be made: Panic: index out of bounds"),
        ("Exits", "class 'Exits' cannot be made: SystemExit: no licence"),
        (
            "ForgetsItsOptions",
            "class 'ForgetsItsOptions' does not keep its options: call super().__init__(options) first",
        ),
    ],
)
async def test_a_metric_that_cannot_be_made_is_told_with_its_file_before_a_call(
    tmp_path: Path, server: ModelServer, name: str, words: str
) -> None:
    with pytest.raises(ConfigurationError) as told:
        await with_metric(tmp_path, server, name)
    assert str(told.value) == f"configs/evaluator.toml: metrics[1]: {words}"
    assert not server.requests


async def test_a_team_whose_task_is_cancelled_from_inside_does_not_vanish(tmp_path: Path, server: ModelServer) -> None:
    _, played = await with_metric(tmp_path, server, "CancelsTheTeam")
    assert played.failure("alpha") == "something the team called cancelled the team's own task"


class Panic(BaseException):
    pass


class HasNoWordsError(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no words")


@pytest.mark.parametrize(
    ("raised", "words"),
    [(Panic("poisoned lock"), "Panic: poisoned lock"), (HasNoWordsError(), "scripted:beta: HasNoWordsError")],
    ids=["a panic", "without words"],
)
async def test_what_a_provider_of_ones_own_raises_ends_one_team_and_no_other(raised: BaseException, words: str) -> None:
    def fails(call: ModelCall) -> str:
        raise raised

    teams = [
        {"team_id": name, "team_name": name, "leader": {"model": f"scripted:{name}"}} for name in ("alpha", "beta")
    ]
    with scripted() as script:
        script.on(Match("beta"), fails)
        summary = await mixseek.arun(
            "a task",
            teams,
            max_rounds=1,
            judgment={"model": "none"},
            evaluator={"metrics": [{"name": "Length", "options": {"minimum": 1}}]},
        )
    assert [result.team_id for result in summary.team_results] == ["alpha"]
    assert [(failed.team_id, failed.error_message) for failed in summary.failed_teams_info] == [("beta", words)]
