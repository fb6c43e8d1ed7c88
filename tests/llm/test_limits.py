"""Who waits at the gate, for how long, and who goes first."""

import asyncio
import re
import time
from collections import Counter
from threading import Lock, Thread
from typing import Any

import pytest
from pydantic_ai import ModelMessage, ModelRequest, ModelResponse, UserPromptPart
from pydantic_ai.models import Model, ModelRequestParameters

from mixseek.config.schema import ProvidersSettings
from mixseek.errors import ModelRateLimitError, ModelSpendLimitError
from mixseek.llm import Backoff, Meter, ModelHub, Scope, calling
from mixseek.llm.lanes import Lane, Passage
from mixseek.llm.limits import Account, Gate, gate_of
from mixseek.testing import FakeClock, ModelServer


async def say(model: Model, team: str = "a", **settings: Any) -> ModelResponse:
    messages: list[ModelMessage] = [ModelRequest(parts=[UserPromptPart("hello")])]
    scope = Scope(execution_id="e", team_id=team, round_number=1, role="leader", agent_name="leader")
    with calling(scope, Meter()):
        return await model.request(messages, settings, ModelRequestParameters())  # type: ignore[arg-type]


class _Line(Lane):
    """A lane on a clock that moves only when the one on watch sleeps."""

    def __init__(self, *, per_second: float | None = None, places: int | None = None) -> None:
        self.clock = FakeClock()
        super().__init__(lambda: self.clock.now, Lock())
        self.hold_to(places, per_second)

    async def sleep(self, seconds: float) -> None:
        for _ in range(10):  # whoever is about to line up does so first
            await asyncio.sleep(0)
        await self.clock.sleep(seconds)


# --- whose turn it is -------------------------------------------------------------------------------------------------


async def test_a_team_that_asks_for_much_at_once_does_not_go_before_one_that_asks_for_little() -> None:
    line, order = _Line(per_second=1), list[str]()

    async def call(team: str) -> None:
        await line.enter(Passage(team, "m"), line.sleep)
        order.append(team)

    await asyncio.gather(*(call(team) for team in ["hungry"] * 20 + ["b", "c", "d"]))
    assert set(order[:5]) >= {"b", "c", "d"}
    assert len(order) == 23


async def test_teams_are_served_in_turn_and_one_that_comes_later_is_not_ahead_of_the_others() -> None:
    line, order = _Line(per_second=1), list[str]()

    async def team(name: str, calls: int) -> None:
        for _ in range(calls):
            await line.enter(Passage(name, "m"), line.sleep)
            order.append(name)

    await asyncio.gather(team("a", 15), team("b", 15))
    await asyncio.gather(team("a", 15), team("b", 15), team("late", 10))
    first = order.index("late")
    counted = Counter(order[first : first + 15])
    assert counted == {"a": 5, "b": 5, "late": 5}


async def test_a_call_that_was_refused_comes_next() -> None:
    line, order = _Line(per_second=1), list[str]()
    refused = Passage("a", "m")
    await line.enter(refused, line.sleep)

    async def call(passage: Passage, name: str) -> None:
        await line.enter(passage, line.sleep)
        order.append(name)

    others = [call(Passage(team, "m"), team) for team in "bcd"]
    await asyncio.gather(*others, call(refused, "again"))
    assert order[0] == "again"


async def test_places_are_given_to_no_more_than_there_are() -> None:
    line, here, most = _Line(places=2), 0, 0

    async def call(number: int) -> None:
        nonlocal here, most
        await line.enter(Passage(number % 5, "m"), line.sleep)
        here += 1
        most = max(most, here)
        for _ in range(number % 3 + 1):
            await asyncio.sleep(0)
        here -= 1
        line.leave()

    async with asyncio.timeout(10):
        await asyncio.gather(*(call(number) for number in range(40)))
    assert most == 2


async def test_one_place_and_a_pace_wait_for_each_other_no_longer_than_they_must() -> None:
    line, served = Lane(time.monotonic, Lock()), set[int]()
    line.hold_to(1, 50)

    async def call(number: int) -> None:
        await line.enter(Passage(number % 3, "m"), asyncio.sleep)
        await asyncio.sleep(0.005)
        served.add(number)
        line.leave()

    # Twelve calls take a quarter of a second; whoever misses that there is room looks up after five.
    async with asyncio.timeout(4):
        await asyncio.gather(*(call(number) for number in range(12)))
    assert served == set(range(12))


@pytest.mark.parametrize("watch", [0, 1, 2])
async def test_whoever_is_cancelled_while_waiting_leaves_the_line_in_order(watch: int) -> None:
    line, through = _Line(per_second=1), list[int]()
    await line.enter(Passage("first", "m"), line.sleep)

    async def call(number: int) -> None:
        await line.enter(Passage(number, "m"), line.sleep)
        through.append(number)

    calls = [asyncio.create_task(call(number)) for number in range(3)]
    for _ in range(3):
        await asyncio.sleep(0)
    calls[watch].cancel()
    async with asyncio.timeout(5):
        await asyncio.gather(*calls, return_exceptions=True)
    assert sorted(through) == [number for number in range(3) if number != watch]
    assert not line._line


async def test_a_place_is_free_again_when_its_holder_is_cancelled_just_as_it_is_called() -> None:
    line = _Line(places=1)
    await line.enter(Passage("a", "m"), line.sleep)
    waiting = asyncio.create_task(line.enter(Passage("b", "m"), line.sleep))
    await asyncio.sleep(0)
    line.leave()
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    assert waiting.cancelled()
    async with asyncio.timeout(1):
        await line.enter(Passage("c", "m"), line.sleep)
    assert not line._line


def test_one_line_serves_several_event_loops() -> None:
    line, through, lock = Lane(time.monotonic, Lock()), Counter[str](), Lock()
    line.hold_to(3, 200)

    async def team(name: str) -> None:
        for _ in range(20):
            await line.enter(Passage(name, "m"), asyncio.sleep)
            with lock:
                through[name] += 1
            await asyncio.sleep(0)
            line.leave()

    threads = [Thread(target=lambda name=name: asyncio.run(team(name)), daemon=True) for name in "abc"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert through == {"a": 20, "b": 20, "c": 20}


# --- through the whole wrapper ----------------------------------------------------------------------------------------


async def test_a_refusal_makes_every_call_of_the_account_wait_as_long_as_the_server_asks(
    hub: ModelHub, server: ModelServer, patience: FakeClock
) -> None:
    server.fault(429, model="m", count=1, retry_after=7)
    await say(hub.model("chat:m"))
    assert patience.slept == [7]
    server.fault(429, model="m", count=1, retry_after=30)
    await asyncio.gather(say(hub.model("chat:m"), "a"), say(hub.model("chat:other"), "b"))
    assert patience.now >= 37
    assert server.requests[-1].model in ("m", "other")


async def test_whoever_waits_long_hears_now_and_then_who_refuses_how_slow_it_is_and_what_could_be_set(
    hub: ModelHub, server: ModelServer, patience: FakeClock, caplog: pytest.LogCaptureFixture
) -> None:
    server.fault(429, at=range(3, 200, 3))

    async def team(name: str) -> None:
        for _ in range(20):
            await say(hub.model("chat:m"), name)

    await asyncio.gather(team("a"), team("b"))
    first, *told = [message for message in caplog.messages if message.startswith("chat ")]
    assert first == "chat limits the rate of calls; they wait for their turn from now on"
    assert 2 <= len(told) <= patience.now / 60
    assert len(told) <= 8, "each pause is twice as long as the one before"
    said = (
        r"chat refused \d+ of \d+ calls: they go out at about [\d.]+ calls? a minute now, and one waits for \d+ s; "
        r"fewer teams at once \(max_concurrent_teams\), or requests_per_minute of a server in configs/providers\.toml, "
        r"let fewer be refused"
    )
    assert all(re.fullmatch(said, line) for line in told), told


async def test_a_limit_that_hardly_lets_anyone_wait_is_told_once(
    hub: ModelHub, server: ModelServer, patience: FakeClock, caplog: pytest.LogCaptureFixture
) -> None:
    server.fault(429, at=[3, 60, 110], retry_after=1)
    for _ in range(150):
        await say(hub.model("chat:m"))
        await patience.sleep(1)
    assert [message for message in caplog.messages if message.startswith("chat ")] == [
        "chat limits the rate of calls; they wait for their turn from now on"
    ]


async def test_a_server_that_refuses_although_calls_are_spaced_as_it_was_set_is_told(
    server: ModelServer, caplog: pytest.LogCaptureFixture
) -> None:
    own = {"paced": {"base_url": server.base_url, "requests_per_minute": 30}}
    backoff = FakeClock().backoff()
    async with ModelHub(ProvidersSettings.model_validate({"providers": own}), backoff=backoff) as hub:
        server.fault(429, count=1)
        await say(hub.model("paced:m"))
    assert "paced limits the rate of calls; they wait for their turn from now on" in caplog.messages


async def test_the_time_of_a_call_stands_still_at_the_gate(
    hub: ModelHub, server: ModelServer, patience: FakeClock
) -> None:
    server.fault(429, count=3, retry_after=15)
    server.fault(503, count=1)
    assert (await say(hub.model("chat:m"), timeout=30, max_retries=1)).text
    assert patience.now >= 45


async def test_a_spend_limit_is_not_waited_for(hub: ModelHub, server: ModelServer, patience: FakeClock) -> None:
    server.fault("spend_limit")
    with pytest.raises(ModelSpendLimitError):
        await say(hub.model("chat:m"))
    assert (server.bill.total.requests, patience.slept) == (1, [])


async def test_a_model_that_is_always_refused_does_not_slow_the_others_down(
    hub: ModelHub, server: ModelServer, patience: FakeClock
) -> None:
    server.fault(429, model="closed", retry_after=1)

    async def served() -> None:
        for _ in range(100):
            await say(hub.model("chat:open"), "b")

    refused, _ = await asyncio.gather(say(hub.model("chat:closed")), served(), return_exceptions=True)
    assert isinstance(refused, ModelRateLimitError)
    began = patience.now
    await served()
    assert patience.now - began < 30


async def test_nobody_waits_for_a_quota_of_tomorrow(hub: ModelHub, server: ModelServer, patience: FakeClock) -> None:
    server.fault(429, model="m", retry_after=86_400)
    for _ in range(3):
        with pytest.raises(ModelRateLimitError):
            await say(hub.model("chat:m"))
    # The second and third are told without being asked, and the other models are still served.
    assert server.bill.total.requests == 1
    assert (await say(hub.model("chat:other"))).text
    assert patience.now < 60


async def test_a_call_with_a_fallback_turns_to_it_when_its_retries_are_refused(
    hub: ModelHub, server: ModelServer
) -> None:
    server.fault(429, model="first")
    model = hub.model("chat:first", fallback_models=["responses:second"])
    assert (await say(model, max_retries=2)).model_name == "second"
    assert server.bill.models["first"].requests == 3


async def test_two_hubs_of_one_account_share_its_gate(server: ModelServer, providers: ProvidersSettings) -> None:
    clock = FakeClock()
    backoff = clock.backoff()
    async with ModelHub(providers, backoff=backoff) as one, ModelHub(providers, backoff=backoff) as other:
        server.fault(429, count=1, retry_after=9)
        asked = asyncio.create_task(say(one.model("chat:m")))
        await asked
        server.fault(429, count=1, retry_after=50)
        await asyncio.gather(say(one.model("chat:m"), "a"), say(other.model("chat:n"), "b"))
    assert clock.slept[:1] == [9]
    assert one.model("chat:m")._gate is other.model("chat:n")._gate  # type: ignore[attr-defined]


def test_an_account_is_an_address_and_a_key() -> None:
    def gate(*account: Any) -> Gate:
        return gate_of(Account.of(*account))

    assert gate("http://a/v1/", "k") is gate("http://a/v1", "k")
    assert gate("http://a/v1", "k") is not gate("http://a/v1", "other")
    assert gate("http://a/v1", "k") is not gate("http://b/v1", "k")
    assert "secret-key" not in repr(Account.of("http://a/v1", "secret-key"))


async def test_requests_per_minute_are_held_from_the_first_call(server: ModelServer) -> None:
    clock = FakeClock()
    own = {"paced": {"base_url": server.base_url, "requests_per_minute": 30}}
    async with ModelHub(ProvidersSettings.model_validate({"providers": own}), backoff=clock.backoff()) as hub:
        await asyncio.gather(*(say(hub.model("paced:m"), str(number)) for number in range(11)))
    assert clock.now == pytest.approx(20, abs=0.2)


@pytest.mark.parametrize(
    ("headers", "wait"),
    [
        ({"x-ratelimit-remaining-requests": "0", "x-ratelimit-reset-requests": "2s"}, 2),
        ({"ratelimit-remaining": "0", "ratelimit-reset": "11"}, 11),
        ({"x-ratelimit-remaining-tokens": "5000", "x-ratelimit-reset-tokens": "40s"}, None),
        ({"x-ratelimit-reset-requests": "6m0s"}, 60),
        ({"x-ratelimit-reset": "soon"}, None),
    ],
)
def test_without_retry_after_the_headers_of_the_limit_say_how_long(headers: dict[str, str], wait: float | None) -> None:
    from pydantic_ai import exceptions as theirs

    from mixseek.llm.faults import fault_of

    error = theirs.ModelHTTPError(429, "m", {}, headers=headers)
    assert fault_of(error, "chat:m").retry_after == wait


async def test_with_real_time_no_team_ends_much_later_than_the_others(
    server: ModelServer, providers: ProvidersSettings
) -> None:
    server.set_rate_limit(50, burst=10)
    ended = list[float]()
    async with ModelHub(providers, backoff=Backoff()) as hub:
        model = hub.model("chat:m")

        async def team(number: int) -> None:
            # One team in three asks for four things at once; all ask for twelve.
            at_once = 4 if number % 3 == 0 else 1
            for _ in range(12 // at_once):
                await asyncio.gather(*(say(model, str(number)) for _ in range(at_once)))
            ended.append(time.monotonic() - began)

        began = time.monotonic()
        async with asyncio.timeout(60):
            await asyncio.gather(*(team(number) for number in range(15)))
    ended.sort()
    assert ended[-1] <= 1.5 * ended[len(ended) // 2]
    assert server.bill.total.answered == 180
