"""Whose call it was, what it cost, and what the journal keeps of it."""

import asyncio
import threading
from math import nan
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel
from pydantic_ai import Agent, ModelMessage, ModelRequest, ModelResponse, UserPromptPart
from pydantic_ai.models import Model, ModelRequestParameters

from mixseek.config.schema import PriceSettings, ProvidersSettings
from mixseek.errors import ModelError, ModelUnavailableError
from mixseek.llm import FinishedCall, Meter, ModelHub, Scope, ask, calling, current_meter, current_scope
from mixseek.records import Usage
from mixseek.storage.journal import Journal, Request
from mixseek.testing import Answer, ModelServer, ToolCall

LEADER = Scope(execution_id="e", team_id="a", round_number=1, role="leader", agent_name="leader")
MEMBER = LEADER.model_copy(update={"role": "member", "agent_name": "researcher"})


async def say(model: Model, text: str = "hello", **settings: Any) -> ModelResponse:
    messages: list[ModelMessage] = [ModelRequest(parts=[UserPromptPart(text)])]
    return await model.request(messages, settings, ModelRequestParameters())  # type: ignore[arg-type]


async def test_a_call_is_told_with_whose_it_is_and_what_it_took(hub: ModelHub, server: ModelServer) -> None:
    told: list[FinishedCall] = []
    server.fault(500, count=2)
    with calling(LEADER, Meter(on_call=told.append)):
        await say(hub.model("chat:m"))
    (call,) = told
    bill = server.bill.total
    assert (call.scope, call.model, call.attempts, call.error) == (LEADER, "chat:m", 3, None)
    assert (call.usage.requests, call.usage.input_tokens) == (1, bill.input_tokens)
    assert call.usage.output_tokens == bill.output_tokens > 0
    assert call.seconds == 3.0
    assert call.faults == ("ModelUnavailableError: HTTP 500: Made to fail with 500.",) * 2


async def test_a_member_called_in_a_leaders_tool_is_counted_as_itself(hub: ModelHub, server: ModelServer) -> None:
    server.on("lead", [ToolCall("delegate", {"task": "look"}), "done"])
    meter = Meter()
    leader, member = Agent(hub.model("chat:lead")), Agent(hub.model("responses:help"))

    @leader.tool_plain
    async def delegate(task: str) -> str:
        with calling(MEMBER):
            return (await member.run(task)).output

    with calling(LEADER, meter):
        await leader.run("win")
    lines = {(line.role, line.agent_name, line.model): line for line in meter.bill()}
    assert set(lines) == {("leader", "leader", "chat:lead"), ("member", "researcher", "responses:help")}
    for line, model in zip(lines.values(), ("lead", "help"), strict=True):
        billed = server.bill.models[model]
        assert (line.requests, line.input_tokens, line.output_tokens) == (
            billed.answered,
            billed.input_tokens,
            billed.output_tokens,
        )


async def test_scopes_of_tasks_side_by_side_do_not_mix(hub: ModelHub) -> None:
    meter = Meter()

    async def team(name: str, calls: int) -> None:
        with calling(LEADER.model_copy(update={"team_id": name}), meter):
            await asyncio.gather(*(say(hub.model("chat:m"), name) for _ in range(calls)))

    await asyncio.gather(team("a", 3), team("b", 5))
    assert {line.team_id: line.requests for line in meter.bill()} == {"a": 3, "b": 5}
    assert [line.requests for line in meter.bill(team_id="b")] == [5]
    assert meter.bill(execution_id="other") == []
    assert meter.usage.requests == 8


def test_a_scope_ends_with_its_block() -> None:
    meter = Meter()
    with calling(LEADER, meter):
        with calling(MEMBER):
            assert (current_scope(), current_meter()) == (MEMBER, meter)
        assert current_scope() == LEADER
    assert (current_scope(), current_meter()) == (None, None)


async def test_an_answer_that_was_thrown_away_is_on_the_bill(hub: ModelHub, server: ModelServer) -> None:
    meter = Meter()
    server.fault("early_end", count=1)
    with calling(LEADER, meter):
        await say(hub.model("chat:m"))
    (line,) = meter.bill()
    assert (line.requests, line.input_tokens) == (2, server.bill.total.input_tokens)
    assert line.output_tokens == server.bill.total.output_tokens


async def test_a_failed_call_is_told_and_costs_what_it_cost(hub: ModelHub, server: ModelServer) -> None:
    told: list[FinishedCall] = []
    server.fault(503)
    with calling(LEADER, Meter(on_call=told.append)), pytest.raises(ModelUnavailableError):
        await say(hub.model("chat:m"), max_retries=1)
    (call,) = told
    assert (call.attempts, call.usage, call.cost_usd) == (2, Usage(), 0.0)
    assert call.error == "chat:m: HTTP 503: Made to fail with 503. (after 2 tries)"


async def test_lines_of_several_tries_of_a_team_are_one_line(hub: ModelHub) -> None:
    meter = Meter()
    for attempt in (1, 2):
        with calling(LEADER.model_copy(update={"attempt": attempt}), meter):
            await say(hub.model("chat:m"))
    assert [line.requests for line in meter.bill()] == [2]


# --- prices -----------------------------------------------------------------------------------------------------------


async def test_prices_of_the_settings_win_and_an_unknown_price_is_none(server: ModelServer) -> None:
    own = PriceSettings(input_usd_per_million=1.0, output_usd_per_million=2.0)
    prices = {"chat:mine": own, "openai-chat:gpt-5": own}
    providers = ProvidersSettings.model_validate({"providers": {"chat": {"base_url": server.base_url}}})
    meter = Meter()
    async with ModelHub(providers, prices, environ=server.environment) as hub:
        with calling(LEADER, meter):
            for name in ("chat:mine", "chat:strange", "openai-chat:gpt-5", "openai-chat:gpt-5-mini"):
                await say(hub.model(name))
    costs = {line.model: line.cost_usd for line in meter.bill()}
    tokens = {name: (bill.input_tokens + 2 * bill.output_tokens) / 1e6 for name, bill in server.bill.models.items()}
    assert costs["chat:strange"] is None
    assert costs["chat:mine"] == pytest.approx(tokens["mine"])
    assert costs["openai-chat:gpt-5"] == pytest.approx(tokens["gpt-5"])
    listed = server.bill.models["gpt-5-mini"]
    # What the price list that is installed says: a quarter of a dollar and two dollars for a million.
    assert costs["openai-chat:gpt-5-mini"] == pytest.approx(
        (0.25 * listed.input_tokens + 2 * listed.output_tokens) / 1e6
    )


async def test_what_an_answer_cost_that_states_no_tokens_is_not_known(
    server: ModelServer, caplog: pytest.LogCaptureFixture
) -> None:
    prices = {
        "chat:dear": PriceSettings(input_usd_per_million=1, output_usd_per_million=1),
        "chat:free": PriceSettings(input_usd_per_million=0, output_usd_per_million=0),
    }
    providers = ProvidersSettings.model_validate({"providers": {"chat": {"base_url": server.base_url}}})
    server.fault("missing_usage")
    costs = []
    async with ModelHub(providers, prices, environ=server.environment) as hub:
        for model in ("chat:dear", "chat:dear", "chat:free"):
            meter = Meter()
            with calling(LEADER, meter):
                await say(hub.model(model))
            costs += [line.cost_usd for line in meter.bill()]
    assert costs == [None, None, 0.0]
    assert caplog.messages == ["chat:dear does not say how many tokens an answer took: what it cost is not known"]


@pytest.mark.parametrize("count", [-1, 2**63, 10**20])
async def test_a_number_of_tokens_that_cannot_be_is_taken_for_one_that_was_not_told(
    count: int, hub: ModelHub, server: ModelServer, tmp_path: Path
) -> None:
    server.on("m", [Answer("whole", output_tokens=count)])
    meter = Meter()
    async with Journal(tmp_path / "journal.db") as journal:
        meter.journal = journal
        with calling(LEADER, meter):
            answer = await say(hub.model("chat:m"))
        (call,) = await journal.calls("e")
    assert answer.text == "whole"
    assert (call.usage, meter.usage) == (Usage(requests=1), Usage(requests=1))


# --- the journal ------------------------------------------------------------------------------------------------------


async def test_the_journal_has_request_answer_usage_attempts_and_times(
    hub: ModelHub, server: ModelServer, tmp_path: Path
) -> None:
    server.fault(502, count=1)
    async with Journal(tmp_path / "journal.db") as journal:
        with calling(LEADER, Meter(journal=journal)):
            answer = await say(hub.model("chat:m"), "what is new?", temperature=0.5)
        (call,) = await journal.calls("e")
        assert await journal.calls_in_flight("e") == []
    request: Any = call.request
    kept: Any = call.answer
    assert request["messages"][0]["parts"][0]["content"] == "what is new?"
    assert request["settings"] == {"temperature": 0.5}
    assert kept["parts"][0]["content"] == answer.text
    assert (call.model, call.failure, call.scope.agent_name) == ("chat:m", None, "leader")
    assert call.usage.output_tokens == server.bill.total.output_tokens
    assert [(one.outcome.partition(":")[0], one.status) for one in call.attempts] == [
        ("ModelUnavailableError", 502),
        ("answered", None),
    ]
    assert call.started_at <= call.ended_at


@pytest.mark.parametrize("kind", [400, 503])
async def test_the_journal_has_failures_with_their_reason(
    kind: int, hub: ModelHub, server: ModelServer, tmp_path: Path
) -> None:
    server.fault(kind)
    async with Journal(tmp_path / "journal.db") as journal:
        with calling(LEADER, Meter(journal=journal)), pytest.raises(ModelError) as raised:
            await say(hub.model("chat:m"), max_retries=1)
        (call,) = await journal.calls("e")
    assert call.failure is not None
    assert (call.failure.error, call.failure.status) == (type(raised.value).__name__, kind)
    assert len(call.attempts) == raised.value.attempts


async def test_a_cancelled_call_is_in_the_journal_as_that(
    hub: ModelHub, server: ModelServer, arrived: Any, tmp_path: Path
) -> None:
    server.fault("hang_before_headers")
    async with Journal(tmp_path / "journal.db") as journal:
        with calling(LEADER, Meter(journal=journal)):
            call = asyncio.create_task(say(hub.model("chat:m")))
        await arrived(1)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        (kept,) = await journal.calls("e")
    assert kept.failure is not None
    assert kept.failure.message == "cancelled"
    assert [one.outcome for one in kept.attempts] == ["cancelled"]


async def test_what_was_answered_before_is_not_asked_again(hub: ModelHub, server: ModelServer, tmp_path: Path) -> None:
    class Verdict(BaseModel):
        score: int

    async def play(meter: Meter) -> list[Any]:
        with calling(LEADER, meter):
            same = [(await say(hub.model("chat:m"), "again")).text for _ in range(2)]
            run = await Agent(hub.model("responses:m"), instructions="Be brief.").run("and now?")
            return [*same, run.output, await ask(hub.model("chat:m"), Verdict, prompt="score it")]

    server.on("m", ["first", "second"], contains="again")
    async with Journal(tmp_path / "journal.db") as journal:
        before = await play(Meter(journal=journal))
        asked = server.bill.total.requests
        told: list[FinishedCall] = []
        meter = Meter(journal=journal, on_call=told.append, reuse_answers=True)
        assert await play(meter) == before
    assert before[:2] == ["first", "second"]
    assert server.bill.total.requests == asked
    # Whoever was answered the first time has it on the bill.
    assert meter.bill() == []
    assert told == []


class _HeldUp(Journal):
    """Makes no request before it may."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.may_go_on = threading.Event()

    def request(self, *args: Any, **values: Any) -> Request:
        assert self.may_go_on.wait(10), "nobody else goes on meanwhile"
        return super().request(*args, **values)


async def test_a_request_of_texts_leaves_before_it_is_made_json_and_is_kept_as_it_left(
    hub: ModelHub, server: ModelServer, arrived: Any, tmp_path: Path
) -> None:
    request = ModelRequest(parts=[UserPromptPart("as it left")])
    async with _HeldUp(tmp_path / "journal.db") as journal:
        with calling(LEADER, Meter(journal=journal)):
            asking = asyncio.create_task(hub.model("chat:m").request([request], None, ModelRequestParameters()))
        async with asyncio.timeout(20):
            await arrived(1)
        request.parts = [UserPromptPart("changed")]
        journal.may_go_on.set()
        await asking
        (call,) = await journal.calls("e")
    kept: Any = call.request
    assert kept["messages"][0]["parts"][0]["content"] == "as it left"


@pytest.mark.parametrize("count", [2, 5])
async def test_the_same_asked_at_once_is_kept_under_a_number_each(count: int, hub: ModelHub, tmp_path: Path) -> None:
    async with Journal(tmp_path / "journal.db") as journal:
        with calling(LEADER, Meter(journal=journal)):
            await asyncio.gather(*(say(hub.model("chat:m"), "again") for _ in range(count)))
        calls = await journal.calls("e")
    assert len({call.key for call in calls}) == 1
    assert sorted(call.occurrence for call in calls) == list(range(count))


async def test_a_request_that_cannot_be_kept_is_not_paid_for(
    hub: ModelHub, server: ModelServer, tmp_path: Path
) -> None:
    async with Journal(tmp_path / "journal.db") as journal:
        with calling(LEADER, Meter(journal=journal)), pytest.raises(ValueError, match="not JSON compliant"):
            await say(hub.model("chat:m"), temperature=nan)
    assert server.bill.total.requests == 0


async def test_another_try_of_a_team_does_not_get_the_answers_of_the_first(
    hub: ModelHub, server: ModelServer, tmp_path: Path
) -> None:
    async with Journal(tmp_path / "journal.db") as journal:
        for attempt in (1, 2):
            with calling(LEADER.model_copy(update={"attempt": attempt}), Meter(journal=journal, reuse_answers=True)):
                await say(hub.model("chat:m"))
    assert server.bill.total.requests == 2


@pytest.mark.parametrize("is_streamed", [False, True])
async def test_an_answer_of_a_fallback_is_used_again_before_the_first_model_is_asked(
    is_streamed: bool, hub: ModelHub, server: ModelServer, tmp_path: Path
) -> None:
    agent = Agent(hub.model("chat:first", fallback_models=["chat:second"]))

    async def play(meter: Meter) -> str:
        with calling(LEADER, meter):
            if not is_streamed:
                return (await agent.run("hello")).output
            async with agent.run_stream("hello") as run:
                return await run.get_output()

    server.on("second", ["from the second"])
    server.fault(400, model="first")
    async with Journal(tmp_path / "journal.db") as journal:
        assert await play(Meter(journal=journal)) == "from the second"
        server.clear_faults()
        asked = server.bill.total.requests
        assert await play(Meter(journal=journal, reuse_answers=True)) == "from the second"
    assert server.bill.total.requests == asked


async def test_without_a_scope_a_call_is_simply_made(hub: ModelHub) -> None:
    assert (await say(hub.model("chat:m"))).text
