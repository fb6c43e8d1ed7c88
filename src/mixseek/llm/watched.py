"""The one wrapper around every model: retries, limits, complete answers only, the journal and the meter.

Agents and direct requests alike go through it, so there is one retry layer and one place that counts. A call is one
request of its caller; behind it may stand several attempts. The settings of a request say how often and how long:
``max_retries`` further attempts, ``timeout`` seconds for one attempt however slowly its answer drips, and twice that
for all attempts and the waits between them. Waiting for one's turn at the provider's gate does not count, and neither
does an attempt that a rate limit refused: the call goes back to the gate, up to 20 times and for as long again.
"""

import asyncio
import copy
import types
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Generator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import cached_property, partial
from typing import Any, Final

from pydantic_ai import ModelMessage, ModelResponse, ModelSettings, RunContext
from pydantic_ai import models as pydantic_ai_models
from pydantic_ai.messages import ModelResponseStreamEvent
from pydantic_ai.models import CompletedStreamedResponse, Model, ModelRequestParameters, StreamedResponse
from pydantic_ai.models.wrapper import WrapperModel

from mixseek.crash_points import reach
from mixseek.errors import (
    BudgetExhaustedError,
    ConfigurationError,
    MixSeekError,
    ModelError,
    ModelRateLimitError,
    ModelRefusedError,
)
from mixseek.llm.backoff import Backoff
from mixseek.llm.bounds import most_input_tokens
from mixseek.llm.breaker import says_down
from mixseek.llm.calls import (
    CallJournal,
    FinishedCall,
    Meter,
    Scope,
    answer_came,
    current_meter,
    current_scope,
    on_its_way,
)
from mixseek.llm.convert import (
    answer_from_json,
    answer_to_json,
    messages_to_json,
    parameters_text,
    plain_request,
    settings_text,
    truly_counted,
    usage_record,
    whole_answer,
)
from mixseek.llm.faults import costs_nothing, fault_of, is_remote, refuse_incomplete
from mixseek.llm.lanes import Passage, TooLongAPause
from mixseek.llm.limits import Gate
from mixseek.llm.numbering import NumberedRequest
from mixseek.llm.prices import PriceList, no_price
from mixseek.llm.providers_tools import most_found_tokens
from mixseek.llm.purse import NOTHING, Purses, Reservation, SetAsideError, Spend
from mixseek.llm.transport import ONLY_LOOPBACK, only_loopback
from mixseek.records import Usage, utc_now
from mixseek.redaction import MadeJson
from mixseek.storage.journal_records import Attempt, CallFailure, ModelCall, StartedCall, new_call_id
from mixseek.strangers import text_of
from mixseek.surrogates import whole_value

__all__ = ["DEFAULT_MAX_RETRIES", "DEFAULT_TIMEOUT_SECONDS", "WatchedModel"]

DEFAULT_MAX_RETRIES = 3
DEFAULT_TIMEOUT_SECONDS = 300.0
# Room for one attempt that hangs and one that answers.
_TOTAL_TO_ATTEMPT: Final = 2
_MOST_REFUSALS: Final = 20

# Of an attempt that nothing limits it is only known that it is one.
_UNBOUND: Final = Reservation((), "", Spend(requests=1))

Asking = Callable[[ModelSettings], Coroutine[Any, Any, ModelResponse]]


@dataclass(frozen=True)
class _Limits:
    max_retries: int
    timeout: float

    @property
    def in_all(self) -> float:
        """Seconds for all attempts, and as many again for what rate limits refuse."""
        return _TOTAL_TO_ATTEMPT * self.timeout


@dataclass
class _Course:
    """What a call has come to so far."""

    started: float
    """On the clock of the back-off; the deadline too."""
    passage: Passage
    started_at: datetime = field(default_factory=utc_now)
    deadline: float | None = None
    attempts: int = 0
    failures: int = 0
    """Attempts that failed; what a rate limit refused is not among them."""
    refusals: int = 0
    refused_since: float | None = None
    tries: list[Attempt] = field(default_factory=list)
    usage: Usage = field(default_factory=Usage)
    cost: float | None = 0.0
    payment: "_Payment | None" = None
    """None: the call may cost what it costs."""
    counted: Spend | None = None
    """What the latest attempt is known to have cost; None: nothing is known of it."""
    is_priced: bool = False
    """Whether money is counted there too."""
    lost: Spend = NOTHING
    has_mark: bool = False
    """Whether the journal has a mark of an attempt that cost nothing, and so stands for the next one."""


@dataclass(frozen=True)
class _Entry:
    """A call on its way into the journal."""

    journal: CallJournal
    asked: NumberedRequest
    scope: Scope
    call_id: str = field(default_factory=new_call_id)


@dataclass(frozen=True)
class _Payment:
    """From which purses the attempts of a call are paid, and the most that one of them can cost."""

    purses: Purses
    team_id: str
    bound: Spend
    knows_price: bool
    why: str
    """What makes it so much, in words."""


class WatchedModel(WrapperModel):
    """A model whose calls are bounded, retried, checked, recorded and counted."""

    def __init__(
        self,
        wrapped: Model,
        model: str,
        *,
        prices: PriceList,
        gate: Gate | None = None,
        backoff: Backoff | None = None,
        over_our_transport: bool = False,
    ) -> None:
        super().__init__(wrapped)
        self._named = model
        self._prices = prices
        self._backoff = backoff or Backoff()
        self._gate = gate or Gate(model, self._backoff.clock)
        self._breaker = self._gate.breaker(model)
        self._has_alternative = False
        self._over_our_transport = over_our_transport

    @cached_property
    def _is_remote(self) -> bool:
        """Whether somebody elsewhere is asked; that stays, and an SDK takes its time to tell its address."""
        return is_remote(self.wrapped)

    def with_alternative(self) -> "WatchedModel":
        """The same model for a caller that has another one to turn to: it is given up sooner."""
        same = copy.copy(self)
        same._has_alternative = True
        return same

    async def request(
        self,
        messages: list[ModelMessage],
        model_settings: ModelSettings | None,
        model_request_parameters: ModelRequestParameters,
    ) -> ModelResponse:
        """Ask once, as the caller sees it."""

        def asking(settings: ModelSettings) -> Coroutine[Any, Any, ModelResponse]:
            return self.wrapped.request(messages, settings, model_request_parameters)

        return await self._call(asking, messages, model_settings, model_request_parameters)

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
        received: ModelResponse | None = None

        async def asking(settings: ModelSettings) -> ModelResponse:
            nonlocal received
            events.clear()
            streaming = self.wrapped.request_stream(messages, settings, model_request_parameters, run_context)
            async with streaming as stream:
                events.extend([event async for event in stream])
                received = stream.get()
                return received

        answer = await self._call(asking, messages, model_settings, model_request_parameters)
        # Of an answer that came otherwise, or was mended, the events are made anew.
        replayed = list(events) if answer is received else []
        yield CompletedStreamedResponse(
            answer, model_request_parameters=model_request_parameters, replay_events=replayed or True
        )

    # --- one call -----------------------------------------------------------------------------------------------------

    async def _call(
        self,
        asking: Asking,
        messages: list[ModelMessage],
        settings: ModelSettings | None,
        parameters: ModelRequestParameters,
    ) -> ModelResponse:
        meter, scope = current_meter(), current_scope()
        entry = self._entry(meter, scope, messages, settings, parameters)
        known = await self._known(meter, entry)
        if known is not None:
            return known
        if meter is not None and meter.on_unanswered is not None and entry is not None:
            await meter.on_unanswered(entry.scope, self._named, entry.asked.request.key, entry.asked.occurrence)
        limits, settings = _limits(settings)
        course = _Course(self._backoff.clock(), Passage(_team(scope), self._named, limits.in_all))
        if meter is not None and meter.purses is not None and scope is not None and meter.purses.counts(scope.team_id):
            course.payment = self._payment(meter.purses, scope.team_id, messages, settings, parameters)
        if self._over_our_transport:
            # Between two pieces of an answer no more time may pass than for all of it; SDKs would give up after less.
            settings["timeout"] = limits.timeout
        if self.system == "cohere":
            # The one SDK that learns only from each request not to try again by itself.
            settings["max_retries"] = 0
        try:
            answer = await self._answer(asking, settings, limits, course, entry)
        except (ModelError, asyncio.CancelledError, BudgetExhaustedError) as error:
            if course.attempts or not isinstance(error, BudgetExhaustedError):
                await self._record(meter, scope, entry, course, failure=error)
            raise
        await self._record(meter, scope, entry, course, answer=answer)
        return answer

    async def _answer(
        self, asking: Asking, settings: ModelSettings, limits: _Limits, course: _Course, entry: _Entry | None
    ) -> ModelResponse:
        while True:
            try:
                return await self._attempt(asking, settings, limits, course, entry)
            except ModelRateLimitError as refusal:
                refusal.attempts = course.attempts
                if not self._worth_another_turn(refusal, limits, course):
                    raise
                continue  # to the gate, which makes it wait, and everybody else with it
            except ModelError as fault:
                fault.attempts = course.attempts
                course.failures += 1
                wait = self._backoff.seconds(course.failures, fault.retry_after)
                if not self._worth_another(fault, wait, limits, course):
                    raise
            await self._backoff.sleep(wait)

    async def _attempt(
        self, asking: Asking, settings: ModelSettings, limits: _Limits, course: _Course, entry: _Entry | None
    ) -> ModelResponse:
        while True:
            try:
                return await self._attempt_in_turn(asking, settings, limits, course, entry)
            except SetAsideError as refusal:
                # Outside of its turn, which those may need for whom it waits.
                came = self._backoff.clock()
                await refusal.wait()
                if course.deadline is not None:
                    course.deadline += self._backoff.clock() - came

    async def _attempt_in_turn(
        self, asking: Asking, settings: ModelSettings, limits: _Limits, course: _Course, entry: _Entry | None
    ) -> ModelResponse:
        async with self._turn(course), self._paid(entry, course):
            seconds = max(0.0, min(limits.timeout, self._seconds_left(limits, course)))
            with self._tried(course), on_its_way():
                reach("call.before_request")
                answer = await self._asked(asking(settings), seconds)
                reach("call.after_answer")
                self._count(answer, course)
                if self._is_remote:  # what is computed in this process cannot be cut off on its way
                    refuse_incomplete(answer, self.wrapped, self._named)
                answer_came()
                return answer

    # --- its price ----------------------------------------------------------------------------------------------------

    def _payment(
        self,
        purses: Purses,
        team_id: str,
        messages: list[ModelMessage],
        settings: ModelSettings,
        parameters: ModelRequestParameters,
    ) -> _Payment:
        """The most an attempt can cost; the provider is told of the longest answer it may give."""
        longest = settings.get("max_tokens") or purses.max_output_tokens(team_id)
        if purses.bounds_answers(team_id) and self._is_remote:
            settings["max_tokens"] = longest
        found = most_found_tokens(self.wrapped, parameters)
        read = most_input_tokens(messages, parameters) + found
        price = self._prices.most(self._named, self.wrapped, read, longest)
        if price is None and purses.counts_money(team_id):
            raise ConfigurationError(no_price(self._named))
        why = f"{longest:,} tokens for an answer of {self._named}"
        if found:
            why += f" and {found:,} for what the provider's own tools read"
        return _Payment(purses, team_id, Spend(price or 0.0, read + longest, 1), price is not None, why)

    @asynccontextmanager
    async def _paid(self, entry: _Entry | None, course: _Course) -> AsyncGenerator[None]:
        """Reserve what an attempt can cost before it leaves, mark that it does, and settle what came of it."""
        reservation = await self._reserved(entry, course)
        course.counted = None
        try:
            yield
        except ModelError as fault:
            if costs_nothing(fault):
                reservation.release()
                course.has_mark = True
            else:
                self._lose(reservation, course)
            raise
        except BaseException:
            self._lose(reservation, course)
            raise
        if course.counted is None or course.counted.tokens == 0:
            self._lose(reservation, course)
        elif course.payment is not None and course.payment.knows_price and not course.is_priced:
            self._lose(reservation, course, Spend(course.payment.bound.usd))
        else:
            reservation.settle(course.counted)

    async def _reserved(self, entry: _Entry | None, course: _Course) -> Reservation:
        came, payment = self._backoff.clock(), course.payment
        reservation = _UNBOUND
        if payment is not None:
            reservation = await payment.purses.reserve(payment.team_id, payment.bound, payment.why)
        try:
            if not course.has_mark:
                # Where nothing is limited, one that dies with its process a moment later need not leave a trace.
                await self._note_start(entry, course, durable=payment is not None)
        except BaseException:
            reservation.release()
            raise
        course.has_mark = False
        if course.deadline is not None:
            course.deadline += self._backoff.clock() - came
        return reservation

    def _lose(self, reservation: Reservation, course: _Course, lost: Spend | None = None) -> None:
        """What the attempt cost beyond what is known of it stays spent at its bound; without one it is only counted."""
        payment = course.payment
        if payment is None and not self._is_remote:
            return  # nobody bills what is computed in this process
        known = course.counted or NOTHING
        lost = reservation.bound.less(known) if lost is None else lost
        reservation.settle(known, lost)
        course.lost += replace(lost, requests=1)
        told = {
            "lost_tokens": lost.tokens if payment else None,
            "lost_usd": lost.usd if payment and payment.knows_price else None,
            "lost_requests": lost.requests,
        }
        course.tries[-1] = course.tries[-1].model_copy(update=told)

    @asynccontextmanager
    async def _turn(self, course: _Course) -> AsyncGenerator[None]:
        """One's turn at the gate, which learns from what comes of it."""
        try:
            await self._wait_for_turn(course)
            try:
                yield
                self._gate.borne(course.passage)
                self._breaker.replied(course)
            except ModelError as fault:
                self._learn_from(fault, course)
                raise
            finally:
                self._gate.leave()
        finally:
            self._breaker.gave_up(course)

    async def _wait_for_turn(self, course: _Course) -> None:
        came = self._backoff.clock()
        await self._breaker.enter(course, self._backoff.sleep, has_alternative=self._has_alternative)
        try:
            await self._gate.enter(course.passage, self._backoff.sleep)
        except TooLongAPause as pause:
            raise ModelRateLimitError(
                str(pause), model=self._named, retry_after=pause.seconds, retryable=False
            ) from pause
        if course.deadline is not None:
            course.deadline += self._backoff.clock() - came

    def _learn_from(self, fault: ModelError, course: _Course) -> None:
        if says_down(fault):
            self._breaker.failed(course, fault)
            return
        self._breaker.replied(course)
        if isinstance(fault, ModelRateLimitError):
            self._gate.refused(course.passage, fault)
        else:
            self._gate.borne(course.passage)

    async def _asked(self, request: Coroutine[Any, Any, ModelResponse], seconds: float) -> ModelResponse:
        try:
            async with asyncio.timeout(seconds):
                return truly_counted(whole_answer(await self._allowed(request)))
        except MixSeekError as error:
            # A model of one's own may raise one of ours, with words that nothing could keep.
            error.args = tuple(whole_value([*error.args]))
            raise
        except TimeoutError as error:
            raise fault_of(TimeoutError(f"no complete answer within {seconds:g} seconds"), self._named) from error
        except Exception as error:  # the SDKs of all providers meet here, and may raise anything
            raise fault_of(error, self._named) from error

    def _seconds_left(self, limits: _Limits, course: _Course) -> float:
        now = self._backoff.clock()
        if course.deadline is None:
            course.deadline = now + limits.in_all
        return course.deadline - now

    def _worth_another(self, fault: ModelError, wait: float, limits: _Limits, course: _Course) -> bool:
        in_time = self._seconds_left(limits, course) > wait
        return fault.retryable and course.failures <= limits.max_retries and in_time

    def _worth_another_turn(self, refusal: ModelRateLimitError, limits: _Limits, course: _Course) -> bool:
        """Whether a refused call goes back to the gate; one with an alternative turns to it after its retries."""
        now = self._backoff.clock()
        course.refusals += 1
        course.refused_since = now if course.refused_since is None else course.refused_since
        in_time = now - course.refused_since + (refusal.retry_after or 0) <= limits.in_all
        most = min(limits.max_retries, _MOST_REFUSALS) if self._has_alternative else _MOST_REFUSALS
        return refusal.retryable and course.refusals <= most and in_time

    def _allowed(self, request: Coroutine[Any, Any, ModelResponse]) -> Awaitable[ModelResponse]:
        """While only this machine may be spoken to, what goes over our transport is guarded there; the rest may not."""
        if not only_loopback() or not self._is_remote:
            return request
        if self._over_our_transport:
            return _past_the_flag(request)
        request.close()
        raise ModelRefusedError(f"{ONLY_LOOPBACK} is set, and this provider's SDK is not held to it", model=self._named)

    # --- its record ---------------------------------------------------------------------------------------------------

    @contextmanager
    def _tried(self, course: _Course) -> Iterator[None]:
        """Take note of an attempt and of what came of it."""
        course.attempts += 1
        at, began = utc_now(), self._backoff.clock()
        outcome, status = "cancelled", None
        try:
            yield
            outcome = "answered"
        except ModelError as fault:
            outcome, status = f"{type(fault).__name__}: {fault.args[0]}", fault.status
            raise
        finally:
            seconds = max(0.0, self._backoff.clock() - began)
            course.tries.append(Attempt(at=at, outcome=outcome, status=status, seconds=seconds))

    def _count(self, answer: ModelResponse, course: _Course) -> None:
        usage = usage_record(answer.usage)
        cost = self._prices.cost(self._named, answer)
        course.usage += usage
        course.cost = None if cost is None or course.cost is None else course.cost + cost
        course.counted, course.is_priced = Spend(cost or 0.0, usage.total_tokens, 1), cost is not None

    def _entry(
        self,
        meter: Meter | None,
        scope: Scope | None,
        messages: list[ModelMessage],
        settings: ModelSettings | None,
        parameters: ModelRequestParameters,
        *,
        counted: bool = True,
    ) -> _Entry | None:
        """None where nobody keeps calls: making JSON of them is not free."""
        if meter is None or meter.journal is None or scope is None:
            return None
        # How long is waited and how often tried is ours alone: whoever is asked is asked the same.
        around = settings_text(_limits(settings)[1]), parameters_text(parameters)
        as_kept = partial(
            meter.journal.request,
            scope,
            model=self._named,
            settings=around[0],
            tools=around[1],
            attempt=scope.attempt,
            within=scope.within,
        )
        plain = plain_request(messages) if all(isinstance(one, MadeJson) for one in around) else None
        if counted and plain is not None and not meter.reuse_answers:
            # Nothing of it could not be kept, and nobody wants its key now: it is made in the journal's thread.
            return _Entry(meter.journal, meter.requests.announce(lambda: as_kept(messages=plain.text())), scope)
        request = as_kept(messages=messages_to_json(messages) if plain is None else plain.text())
        numbered = meter.requests.announce(lambda: request) if counted else meter.requests.foresee(request)
        return _Entry(meter.journal, numbered, scope)

    async def was_answered(
        self, messages: list[ModelMessage], settings: ModelSettings | None, parameters: ModelRequestParameters
    ) -> bool:
        """Whether the journal has the answer that the next such call would be given."""
        meter = current_meter()
        entry = self._entry(meter, current_scope(), messages, settings, parameters, counted=False)
        return await self._known(meter, entry) is not None

    def pass_over(
        self, messages: list[ModelMessage], settings: ModelSettings | None, parameters: ModelRequestParameters
    ) -> None:
        """Count a call that had failed when it was made, and is not made again."""
        self._entry(current_meter(), current_scope(), messages, settings, parameters)

    async def _known(self, meter: Meter | None, entry: _Entry | None) -> ModelResponse | None:
        """The answer the journal has, when the run is to use what it has."""
        if meter is None or entry is None or not meter.reuse_answers:
            return None
        with on_its_way():  # what is looked up was on its way when it was asked
            known = await entry.journal.find_call(entry.asked.request.key, entry.asked.occurrence)
        if known is None:
            return None
        answer_came()
        return answer_from_json(known.answer)

    async def _note_start(self, entry: _Entry | None, course: _Course, *, durable: bool) -> None:
        if entry is not None:
            payment = course.payment
            # What is computed in this process is billed by nobody, and so not lost with it.
            unbound = None if self._is_remote else 0
            started = partial(
                _started,
                entry,
                f"{entry.call_id}#{course.attempts + 1}" if course.attempts else entry.call_id,
                model=self._named,
                started_at=course.started_at,
                reserved_tokens=payment.bound.tokens if payment else unbound,
                reserved_usd=payment.bound.usd if payment and payment.knows_price else None,
            )
            await entry.journal.call_starts_by(entry.scope, started, durable=durable)

    async def _record(
        self,
        meter: Meter | None,
        scope: Scope | None,
        entry: _Entry | None,
        course: _Course,
        *,
        answer: ModelResponse | None = None,
        failure: BaseException | None = None,
    ) -> None:
        # On the bill first: what was consumed counts even if the journal cannot be written.
        told = None if meter is None else meter.record(self._finished(scope, course, failure))
        if entry is not None:
            call = partial(self._journalled, entry, course, answer, failure, utc_now())
            await entry.journal.record_call_by(entry.scope, call, told)

    def _finished(self, scope: Scope | None, course: _Course, failure: BaseException | None) -> FinishedCall:
        faults = tuple(one.outcome for one in course.tries if one.outcome != "answered")
        error = None if failure is None else _told(failure)
        seconds = self._backoff.clock() - course.started
        return FinishedCall(
            scope,
            self._named,
            course.usage,
            course.cost,
            course.attempts,
            seconds,
            faults=faults,
            error=error,
            lost=course.lost,
            is_loss_bounded=course.payment is not None,
            is_loss_priced=course.payment is not None and course.payment.knows_price,
        )

    def _journalled(
        self,
        entry: _Entry,
        course: _Course,
        answer: ModelResponse | None,
        failure: BaseException | None,
        ended_at: datetime,
    ) -> ModelCall:
        return ModelCall(
            call_id=entry.call_id,
            scope=entry.scope,
            key=entry.asked.request.key,
            occurrence=entry.asked.occurrence,
            model=self._named,
            request=entry.asked.request.text,
            answer=None if answer is None else answer_to_json(answer),
            failure=None if failure is None else _failure(failure),
            usage=course.usage,
            cost_usd=course.cost,
            attempts=tuple(course.tries),
            started_at=course.started_at,
            ended_at=ended_at,
        )


def _team(scope: Scope | None) -> tuple[str, str] | None:
    return None if scope is None else (scope.execution_id, scope.team_id)


def _started(entry: _Entry, call_id: str, **values: Any) -> StartedCall:
    asked = entry.asked
    return StartedCall(call_id=call_id, scope=entry.scope, key=asked.request.key, occurrence=asked.occurrence, **values)


def _failure(error: BaseException) -> CallFailure:
    if not isinstance(error, ModelError):
        return CallFailure(error=type(error).__name__, message=_told(error))
    return CallFailure(error=type(error).__name__, message=_told(error), status=error.status, retryable=error.retryable)


def _told(error: BaseException) -> str:
    # Whoever cancels may leave words that only tell of the inside of the event loop.
    return "cancelled" if isinstance(error, asyncio.CancelledError) else text_of(error)


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
