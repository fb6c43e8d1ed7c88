"""The one wrapper around every model: retries, limits, complete answers only, the journal and the meter.

Agents and direct requests alike go through it, so there is one retry layer and one place that counts. A call is one
request of its caller; behind it may stand several attempts. The settings of a request say how often and how long:
``max_retries`` further attempts, ``timeout`` seconds for one attempt however slowly its answer drips, and twice that
for all attempts and the waits between them. Waiting for a free place at the provider before the first one is free.
"""

import asyncio
import types
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Generator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Final

from pydantic_ai import ModelMessage, ModelResponse, ModelSettings, RunContext
from pydantic_ai import models as pydantic_ai_models
from pydantic_ai.messages import ModelResponseStreamEvent
from pydantic_ai.models import CompletedStreamedResponse, Model, ModelRequestParameters, StreamedResponse
from pydantic_ai.models.wrapper import WrapperModel

from mixseek.errors import MixSeekError, ModelError, ModelRefusedError
from mixseek.llm.backoff import Backoff
from mixseek.llm.calls import FinishedCall, Meter, StartedCall, current_meter, current_scope
from mixseek.llm.convert import answer_from_json, answer_to_json, call_key, json_text, request_to_json, usage_record
from mixseek.llm.faults import fault_of, refuse_incomplete
from mixseek.llm.per_loop import PerLoop
from mixseek.llm.prices import PriceList
from mixseek.llm.transport import ONLY_LOOPBACK, only_loopback
from mixseek.records import Usage, utc_now

__all__ = ["DEFAULT_MAX_RETRIES", "DEFAULT_TIMEOUT_SECONDS", "Places", "WatchedModel"]

DEFAULT_MAX_RETRIES = 3
DEFAULT_TIMEOUT_SECONDS = 300.0
# Room for one attempt that hangs and one that answers.
_TOTAL_TO_ATTEMPT: Final = 2

Attempt = Callable[[ModelSettings], Coroutine[Any, Any, ModelResponse]]


class Places:
    """At most so many attempts at once, first come, first served; None: any number."""

    def __init__(self, most: int | None = None) -> None:
        self._most = most
        self._free: PerLoop[asyncio.Semaphore] = PerLoop(lambda: asyncio.Semaphore(most or 1))

    @asynccontextmanager
    async def one(self) -> AsyncGenerator[None]:
        """A place, for as long as the block lasts."""
        if self._most is None:
            yield
            return
        async with self._free.get():
            yield


@dataclass(frozen=True)
class _Limits:
    max_retries: int
    timeout: float


@dataclass
class _Course:
    """What a call has come to so far."""

    started: float
    deadline: float | None = None
    attempts: int = 0
    usage: Usage = field(default_factory=Usage)
    cost: float | None = 0.0
    faults: list[str] = field(default_factory=list)


class WatchedModel(WrapperModel):
    """A model whose calls are bounded, retried, checked, recorded and counted."""

    def __init__(
        self,
        wrapped: Model,
        model: str,
        *,
        prices: PriceList,
        places: Places | None = None,
        backoff: Backoff | None = None,
        over_our_transport: bool = False,
    ) -> None:
        super().__init__(wrapped)
        self._named = model
        self._prices = prices
        self._places = places or Places()
        self._backoff = backoff or Backoff()
        self._over_our_transport = over_our_transport

    async def request(
        self,
        messages: list[ModelMessage],
        model_settings: ModelSettings | None,
        model_request_parameters: ModelRequestParameters,
    ) -> ModelResponse:
        """Ask once, as the caller sees it."""

        def attempt(settings: ModelSettings) -> Coroutine[Any, Any, ModelResponse]:
            return self.wrapped.request(messages, settings, model_request_parameters)

        return await self._call(attempt, messages, model_settings, model_request_parameters)

    @asynccontextmanager
    async def request_stream(
        self,
        messages: list[ModelMessage],
        model_settings: ModelSettings | None,
        model_request_parameters: ModelRequestParameters,
        run_context: RunContext[Any] | None = None,
    ) -> AsyncGenerator[StreamedResponse]:
        """Ask once and play the events of the answer, when it is known to be whole: a part could not be taken back."""
        events: list[ModelResponseStreamEvent] = []

        async def attempt(settings: ModelSettings) -> ModelResponse:
            events.clear()
            streaming = self.wrapped.request_stream(messages, settings, model_request_parameters, run_context)
            async with streaming as stream:
                events.extend([event async for event in stream])
                return stream.get()

        answer = await self._call(attempt, messages, model_settings, model_request_parameters)
        yield CompletedStreamedResponse(
            answer, model_request_parameters=model_request_parameters, replay_events=list(events) or True
        )

    # --- one call -----------------------------------------------------------------------------------------------------

    async def _call(
        self,
        attempt: Attempt,
        messages: list[ModelMessage],
        settings: ModelSettings | None,
        parameters: ModelRequestParameters,
    ) -> ModelResponse:
        meter = current_meter()
        call = self._started(meter, messages, settings, parameters)
        known = await meter.journal.call_started(call) if call and meter and meter.journal else None
        if known is not None:
            return self._reused(known, meter)
        course = _Course(self._backoff.clock())
        limits, settings = _limits(settings)
        try:
            answer = await self._answer(attempt, settings, limits, course)
        except (ModelError, asyncio.CancelledError) as error:
            await self._record(meter, call, self._finished(course, str(error) or "cancelled"), None)
            raise
        await self._record(meter, call, self._finished(course), answer)
        return answer

    async def _answer(
        self, attempt: Attempt, settings: ModelSettings, limits: _Limits, course: _Course
    ) -> ModelResponse:
        while True:
            try:
                return await self._attempt(attempt, settings, limits, course)
            except ModelError as fault:
                fault.attempts = course.attempts
                course.faults.append(f"{type(fault).__name__}: {fault.args[0]}")
                wait = self._backoff.seconds(course.attempts, fault.retry_after)
                if not self._worth_another(fault, wait, limits, course):
                    raise
            await self._backoff.sleep(wait)

    async def _attempt(
        self, attempt: Attempt, settings: ModelSettings, limits: _Limits, course: _Course
    ) -> ModelResponse:
        async with self._places.one():
            left = self._seconds_left(limits, course)
            course.attempts += 1
            try:
                async with asyncio.timeout(min(limits.timeout, left)):
                    answer = await self._allowed(attempt(settings))
            except MixSeekError:
                raise
            except TimeoutError as error:
                raise fault_of(TimeoutError(f"no answer within {limits.timeout:g} seconds"), self._named) from error
            except Exception as error:  # SDKs of all providers meet here, and may raise anything
                raise fault_of(error, self._named) from error
        self._count(answer, course)
        refuse_incomplete(answer, self.wrapped, self._named)
        return answer

    def _seconds_left(self, limits: _Limits, course: _Course) -> float:
        now = self._backoff.clock()
        if course.deadline is None:
            course.deadline = now + _TOTAL_TO_ATTEMPT * limits.timeout
        return course.deadline - now

    def _worth_another(self, fault: ModelError, wait: float, limits: _Limits, course: _Course) -> bool:
        in_time = self._seconds_left(limits, course) > wait
        return fault.retryable and course.attempts <= limits.max_retries and in_time

    def _allowed(self, request: Coroutine[Any, Any, ModelResponse]) -> Awaitable[ModelResponse]:
        """While only this machine may be spoken to, what goes over our transport is guarded there; the rest may not."""
        if not only_loopback() or self.wrapped.base_url is None:
            return request
        if self._over_our_transport:
            return _past_the_flag(request)
        request.close()
        raise ModelRefusedError(f"{ONLY_LOOPBACK} is set, and this provider's SDK is not held to it", model=self._named)

    # --- its record ---------------------------------------------------------------------------------------------------

    def _started(
        self,
        meter: Meter | None,
        messages: list[ModelMessage],
        settings: ModelSettings | None,
        parameters: ModelRequestParameters,
    ) -> StartedCall | None:
        """None where nobody keeps calls: making JSON of them is not free."""
        scope = current_scope()
        if meter is None or meter.journal is None or scope is None:
            return None
        request = request_to_json(messages, settings, parameters)
        key = call_key(scope, self._named, request)
        return StartedCall(key, meter.occurrence(key), scope, self._named, json_text(request), utc_now())

    def _reused(self, known: str, meter: Meter | None) -> ModelResponse:
        answer = answer_from_json(known)
        if meter is not None:
            usage, cost = usage_record(answer.usage), self._prices.cost(self._named, answer)
            meter.record(FinishedCall(current_scope(), self._named, usage, cost, 0, 0.0, reused=True))
        return answer

    def _count(self, answer: ModelResponse, course: _Course) -> None:
        course.usage += usage_record(answer.usage)
        cost = self._prices.cost(self._named, answer)
        course.cost = None if cost is None or course.cost is None else course.cost + cost

    def _finished(self, course: _Course, error: str | None = None) -> FinishedCall:
        seconds = self._backoff.clock() - course.started
        faults = tuple(course.faults)
        return FinishedCall(
            current_scope(), self._named, course.usage, course.cost, course.attempts, seconds, faults, error
        )

    async def _record(
        self, meter: Meter | None, call: StartedCall | None, finished: FinishedCall, answer: ModelResponse | None
    ) -> None:
        if meter is None:
            return
        # On the bill first: what was consumed counts even if the journal cannot be written.
        meter.record(finished)
        if call is None or meter.journal is None:
            return
        if answer is None:
            await meter.journal.call_failed(call, finished)
        else:
            await meter.journal.call_answered(call, answer_to_json(answer), finished)


def _limits(settings: ModelSettings | None) -> tuple[_Limits, ModelSettings]:
    """What the settings say to this layer, and what is left of them for the provider."""
    rest = dict(settings or {})
    retries, timeout = rest.pop("max_retries", None), rest.pop("timeout", None)
    limits = _Limits(
        DEFAULT_MAX_RETRIES if retries is None else int(str(retries)),
        float(timeout) if isinstance(timeout, int | float) else DEFAULT_TIMEOUT_SECONDS,
    )
    return limits, ModelSettings(**rest)  # type: ignore[typeddict-item]


@types.coroutine
def _past_the_flag(request: Coroutine[Any, Any, ModelResponse]) -> Generator[Any, Any, ModelResponse]:
    """Run a request although ``ALLOW_MODEL_REQUESTS`` is off, which adapters look at before they first wait.

    The flag is one for the whole process, so it is lifted for that first step only: any other request stays refused.
    """
    try:
        with pydantic_ai_models.override_allow_model_requests(True):
            waiting_for = request.send(None)
        while True:
            try:
                sent = yield waiting_for
            except BaseException as error:  # noqa: BLE001  # handed on, as ``yield from`` does
                waiting_for = request.throw(error)
            else:
                waiting_for = request.send(sent)
    except StopIteration as done:
        answer: ModelResponse = done.value
        return answer
