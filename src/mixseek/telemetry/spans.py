"""Spans made of the events of a run.

A listener is called in the task that tells of an event. So it can leave the span it opened as the current one of that
task: whatever the task does next, and the tasks it begins, belong to that span, be it a model call or an HTTP request.
Names follow OpenTelemetry's conventions for generative AI where there are any, else they begin with ``mixseek.``.

Without content a span holds numbers, names from the configuration and kinds of errors: no words of a prompt, an answer,
a comment or an argument, and none of an error either, since a provider may quote a prompt in it.
"""

import asyncio
import json
import re
import time
from collections.abc import AsyncGenerator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from contextvars import ContextVar
from itertools import count
from typing import Any
from urllib.parse import urlsplit

from opentelemetry import context as otel_context
from opentelemetry.trace import Span, SpanKind, Status, StatusCode, Tracer, set_span_in_context
from pydantic_ai import ModelMessage, ModelResponse, ModelSettings, RunContext
from pydantic_ai.models import Model, ModelRequestParameters, StreamedResponse
from pydantic_ai.models.instrumented import InstrumentationSettings
from pydantic_ai.models.wrapper import WrapperModel

from mixseek.errors import ModelError
from mixseek.events import (
    Event,
    MemberCalled,
    MemberFinished,
    ModelCalled,
    RoundFailed,
    RoundFinished,
    RoundJudged,
    RoundStarted,
    RunFinished,
    RunStarted,
    SubmissionEvaluated,
    SubmissionMade,
    TeamFailed,
    TeamFinished,
    TeamStarted,
    ToolCalled,
    ToolFinished,
)
from mixseek.llm import CallTracing
from mixseek.llm.tracing import Answered
from mixseek.redaction import Redactor

__all__ = ["Spans"]

_LONGEST_TEXT = 64 * 1024
_OTHER = "_OTHER"
"""The conventions' word for an error of a kind that has no name."""
_HTTP_STATUS = re.compile(r"\bHTTP (\d{3})\b")
_EVALUATION, _JUDGMENT, _MEMBER, _TOOL = "evaluation", "judgment", "member", "tool"

Key = tuple[str | int, ...]
"""Where a span is: the execution, then the team, the round, and the call; what is inside begins with the same."""
Attributes = Mapping[str, str | int | float | bool | None]
Facts = dict[str, str | int | float | bool | None]

_current: ContextVar[Key] = ContextVar("current_span", default=())
_call: ContextVar[Span | None] = ContextVar("current_call", default=None)


class Spans:
    """A listener that opens, fills and ends the spans of a run; with ``content`` they hold what was said as well."""

    def __init__(self, tracer: Tracer, redactor: Redactor, *, content: bool) -> None:
        self._tracer = tracer
        self._redactor = redactor
        self._content = content
        self._open: dict[Key, Span] = {}
        self._numbers = count()

    def __call__(self, event: Event) -> None:
        """Take in one event."""
        match event:
            case RunStarted() | RunFinished():
                self._run(event)
            case TeamStarted() | TeamFinished() | TeamFailed():
                self._team(event)
            case RoundStarted() | RoundFinished() | RoundFailed() | RoundJudged():
                self._round(event)
            case SubmissionMade() | SubmissionEvaluated():
                self._evaluation(event)
            case MemberCalled() | MemberFinished():
                self._member(event)
            case ToolCalled() | ToolFinished():
                self._tool(event)
            case ModelCalled():
                self._model_called(event)

    def close(self) -> None:
        """End what is still open: the run was interrupted."""
        for key in sorted(self._open, key=len, reverse=True):
            self._end(key, error="interrupted", error_type="interrupted")

    # --- run and teams ------------------------------------------------------------------------------------------------

    def _run(self, event: RunStarted | RunFinished) -> None:
        key = (event.execution_id,)
        if isinstance(event, RunStarted):
            facts = {"mixseek.teams": len(event.team_names), "mixseek.max_rounds": event.max_rounds}
            self._begin(key, "mixseek run", facts, {"mixseek.user_prompt": event.user_prompt})
            return
        summary = event.summary
        self._put(
            self._span(key),
            {
                "mixseek.best_team_id": summary.best_team_id,
                "mixseek.best_score": summary.best_score,
                "mixseek.failed_teams": summary.failed_teams,
                "gen_ai.aggregated_usage.input_tokens": summary.usage.input_tokens,
                "gen_ai.aggregated_usage.output_tokens": summary.usage.output_tokens,
                "mixseek.requests": summary.usage.requests,
                "mixseek.cost_usd": summary.cost_usd,
            },
        )
        self._end(key, error=None if summary.team_results else "no team has a result", error_type="no_result")

    def _team(self, event: TeamStarted | TeamFinished | TeamFailed) -> None:
        key = (event.execution_id, str(event.team_id))
        if isinstance(event, TeamStarted):
            # A further try goes on in the span of the first; what the failed one left open ends here.
            self._end_inside(key, "the team tries again", "retried")
            facts = {"mixseek.team_name": event.team_name}
            self._put(self._begin(key, f"team {event.team_id}", facts), {"mixseek.attempts": event.attempt})
            return
        best = event.best
        if best is not None:
            facts_of_best = {"mixseek.score": best.score, "mixseek.best_round": best.round_number}
            self._put(self._span(key), {**facts_of_best, "mixseek.exit_reason": best.exit_reason})
        reason = event.reason if isinstance(event, TeamFailed) else None
        self._end(key, error=reason)

    # --- rounds -------------------------------------------------------------------------------------------------------

    def _round(self, event: RoundStarted | RoundFinished | RoundFailed | RoundJudged) -> None:
        match event:
            case RoundStarted():
                key = _round_key(event, event.round_number)
                self._begin(key, f"round {event.round_number}", {}, {"mixseek.prompt": event.prompt})
            case RoundFinished() | RoundFailed():
                key = _round_key(event, event.entry.round_number)
                reason = event.reason if isinstance(event, RoundFailed) else None
                self._end_inside(key, reason, None)
                self._put(self._span(key), {"mixseek.score": event.entry.score})
                self._fail(self._span(key), reason)
                self._begin((*key, _JUDGMENT), "judgment", {})
            case RoundJudged():
                self._judged(_round_key(event, event.round_number), event)

    def _judged(self, key: Key, event: RoundJudged) -> None:
        facts = {
            "mixseek.should_continue": event.judgment.should_continue,
            "mixseek.confidence_score": event.judgment.confidence_score,
            "mixseek.exit_reason": event.exit_reason,
        }
        judgment = (*key, _JUDGMENT)
        self._put(self._span(judgment), facts, {"mixseek.reasoning": event.judgment.reasoning})
        self._end(judgment)
        self._end(key)

    def _evaluation(self, event: SubmissionMade | SubmissionEvaluated) -> None:
        above = _round_key(event, event.round_number)
        key = (*above, _EVALUATION)
        if isinstance(event, SubmissionMade):
            said = {"mixseek.submission": event.submission_content}
            self._put(self._span(above), {"mixseek.submission_length": len(event.submission_content)}, said)
            self._begin(key, "evaluation", {})
            return
        span = self._span(key)
        for metric in event.metrics:
            facts: Facts = {"gen_ai.evaluation.name": metric.metric_name, "gen_ai.evaluation.score.value": metric.score}
            said = {"gen_ai.evaluation.explanation": metric.evaluator_comment}
            span.add_event("gen_ai.evaluation.result", self._shown(facts, said))
        self._put(span, {"mixseek.score": event.score, "mixseek.flags": len(event.flags)})
        self._end(key)

    # --- calls --------------------------------------------------------------------------------------------------------

    def _member(self, event: MemberCalled | MemberFinished) -> None:
        above = _round_key(event, event.round_number)
        if isinstance(event, MemberCalled):
            facts = {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": event.agent_name}
            key = (*above, _MEMBER, event.agent_name, next(self._numbers))
            self._begin(key, f"invoke_agent {event.agent_name}", facts, {"mixseek.task": event.task})
            return
        submission = event.submission
        found = self._member_key((*above, _MEMBER, submission.agent_name))
        if found is not None:
            usage = submission.usage
            facts_of_usage = {
                "gen_ai.aggregated_usage.input_tokens": usage.input_tokens,
                "gen_ai.aggregated_usage.output_tokens": usage.output_tokens,
            }
            self._put(self._span(found), facts_of_usage, {"mixseek.answer": submission.content})
            failed = submission.status == "ERROR"
            self._end(found, error=(submission.error_message or "no reason given") if failed else None)

    def _member_key(self, prefix: Key) -> Key | None:
        """The call this task made, else the oldest of this member."""
        current = _current.get()
        if current[: len(prefix)] == prefix and current in self._open:
            return current
        return next((key for key in self._open if key[: len(prefix)] == prefix), None)

    def _tool(self, event: ToolCalled | ToolFinished) -> None:
        around = self._around(event, event.round_number)
        key = (*_round_key(event, event.round_number), _TOOL, event.agent_name, event.call_id)
        if isinstance(event, ToolCalled):
            facts = {
                "gen_ai.operation.name": "execute_tool",
                "gen_ai.tool.name": event.tool,
                "gen_ai.tool.call.id": event.call_id,
                "gen_ai.agent.name": event.agent_name,
            }
            said = {"gen_ai.tool.call.arguments": json.dumps(event.arguments, ensure_ascii=False, default=str)}
            # Several tools may be used at once by one task, so none of them becomes what is current.
            self._open[key] = self._start(around, f"execute_tool {event.tool}", _place(key) | facts, said)
        elif key in self._open:
            self._fail(self._open[key], event.error)
            self._open.pop(key).end()

    def _model_called(self, event: ModelCalled) -> None:
        facts: Facts = {
            "mixseek.role": event.role,
            "gen_ai.agent.name": event.agent_name,
            "mixseek.attempts": event.attempts,
            "gen_ai.usage.input_tokens": event.input_tokens,
            "gen_ai.usage.output_tokens": event.output_tokens,
            "operation.cost": event.cost_usd,
        }
        place = _place(_round_key(event, event.round_number))
        call = _call.get()
        if call is not None:
            self._put(call, place | facts)
            return
        # A model that was not made by a hub is heard of when all is over.
        now = time.time_ns()
        span = self._tracer.start_span(
            f"chat {event.model.partition(':')[2]}",
            set_span_in_context(self._span(self._around(event, event.round_number))),
            SpanKind.CLIENT,
            start_time=now - int(event.seconds * 1e9),
        )
        self._put(span, place | facts | _facts_of_model(event.model))
        self._fail(span, event.error)
        span.end(now)

    # --- what is open -------------------------------------------------------------------------------------------------

    def _begin(self, key: Key, name: str, facts: Attributes, said: Attributes | None = None) -> Span:
        """Open a span, unless it is open, and make it the current one of this task."""
        span = self._open.get(key)
        if span is None:
            span = self._open[key] = self._start(_above(key), name, _place(key) | dict(facts), said)
        self._make_current(key)
        return span

    def _start(self, above: Key, name: str, facts: Attributes, said: Attributes | None = None) -> Span:
        parent = set_span_in_context(self._span(above)) if above else None
        span = self._tracer.start_span(name, parent)
        self._put(span, facts, said)
        return span

    def _span(self, key: Key) -> Span:
        """The open span of this place; one is opened where none is, as after a failed try that left its submission."""
        if key not in self._open:
            self._open[key] = self._start(_above(key), _name(key), _place(key))
        return self._open[key]

    def _around(self, event: Event, number: int) -> Key:
        """What a call of this round is part of: what its task is in, or the round."""
        around = _round_key(event, number)
        current = _current.get()
        return current if current[:3] == around and current in self._open else around

    def _end(self, key: Key, *, error: str | None = None, error_type: str | None = None) -> None:
        self._end_inside(key, error, error_type)
        span = self._open.pop(key, None)
        if span is not None:
            self._fail(span, error, error_type)
            span.end()
        self._make_current(_above(key))

    def _end_inside(self, key: Key, error: str | None, error_type: str | None) -> None:
        inside = [other for other in self._open if len(other) > len(key) and other[: len(key)] == key]
        for other in sorted(inside, key=len, reverse=True):
            span = self._open.pop(other)
            self._fail(span, error, error_type)
            span.end()

    def _make_current(self, key: Key) -> None:
        _current.set(key)
        span = self._open.get(key)
        otel_context.attach(otel_context.Context() if span is None else set_span_in_context(span))

    # --- what is in a span --------------------------------------------------------------------------------------------

    def _put(self, span: Span, facts: Attributes, said: Attributes | None = None) -> None:
        span.set_attributes(self._shown(facts, said))

    def _shown(self, facts: Attributes, said: Attributes | None = None) -> dict[str, str | int | float | bool]:
        """Facts, and, where content is sent, what was said; without secrets either way."""
        every = {**facts, **(said or {})} if self._content else facts
        return {
            name: self._text(value) if isinstance(value, str) else value
            for name, value in every.items()
            if value is not None
        }

    def _text(self, text: str) -> str:
        text = self._redactor.text(text)
        return text if len(text) <= _LONGEST_TEXT else f"{text[:_LONGEST_TEXT]}…"

    def _fail(self, span: Span, error: str | None, error_type: str | None = None) -> None:
        if error is None:
            return
        span.set_status(Status(StatusCode.ERROR, self._text(error) if self._content else None))
        span.set_attribute("error.type", error_type or _kind_of(error))

    # --- calls as they happen -----------------------------------------------------------------------------------------

    def tracing(self, *, http: bool) -> CallTracing:
        """How models are wrapped and requests are watched."""
        return CallTracing(lambda model, name: _TracedModel(model, name, self), self._request if http else None)

    @contextmanager
    def call(self, model: str) -> Iterator[Span]:
        """A span around one call of a model."""
        span = self._tracer.start_span(f"chat {model.partition(':')[2]}", kind=SpanKind.CLIENT)
        self._put(span, _facts_of_model(model))
        before, token = _call.set(span), otel_context.attach(set_span_in_context(span))
        try:
            yield span
        except (Exception, asyncio.CancelledError) as error:
            self._fail(span, str(error) or type(error).__name__, _type_of(error))
            raise
        finally:
            otel_context.detach(token)
            _call.reset(before)
            span.end()

    def said(self, span: Span, messages: list[ModelMessage], answer: ModelResponse) -> None:
        """Fill the span of a call with what was asked and answered."""
        self._put(
            span,
            {
                "gen_ai.response.model": answer.model_name,
                "gen_ai.usage.input_tokens": answer.usage.input_tokens,
                "gen_ai.usage.output_tokens": answer.usage.output_tokens,
            },
        )
        if self._content:
            conversation = _otel_messages(messages), _otel_messages([answer])
            names = "gen_ai.input.messages", "gen_ai.output.messages"
            self._put(span, {}, dict(zip(names, conversation, strict=True)))

    @contextmanager
    def _request(self, method: str, url: str) -> Iterator[Answered]:
        """A span around one HTTP request; neither its body nor what follows a question mark is told."""
        parts = urlsplit(url)
        span = self._tracer.start_span(method, kind=SpanKind.CLIENT)
        facts = {
            "http.request.method": method,
            "server.address": parts.hostname,
            "server.port": parts.port,
            "url.full": f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}",
        }
        self._put(span, facts)

        def answered(status: int) -> None:
            span.set_attribute("http.response.status_code", status)
            if status >= 400:
                self._fail(span, f"HTTP {status}", str(status))

        try:
            yield answered
        except (Exception, asyncio.CancelledError) as error:
            self._fail(span, str(error) or type(error).__name__, _type_of(error))
            raise
        finally:
            span.end()


class _TracedModel(WrapperModel):
    """A model with a span around each call."""

    def __init__(self, wrapped: Model, model: str, spans: Spans) -> None:
        super().__init__(wrapped)
        self._named = model
        self._spans = spans

    async def request(
        self,
        messages: list[ModelMessage],
        model_settings: ModelSettings | None,
        model_request_parameters: ModelRequestParameters,
    ) -> ModelResponse:
        """Ask, and tell of it."""
        with self._spans.call(self._named) as span:
            answer = await self.wrapped.request(messages, model_settings, model_request_parameters)
            self._spans.said(span, messages, answer)
            return answer

    @asynccontextmanager
    async def request_stream(
        self,
        messages: list[ModelMessage],
        model_settings: ModelSettings | None,
        model_request_parameters: ModelRequestParameters,
        run_context: RunContext[Any] | None = None,
    ) -> AsyncGenerator[StreamedResponse]:
        """Ask, and tell of it; what stands behind has the whole answer before the first part of it is given."""
        streaming = self.wrapped.request_stream(messages, model_settings, model_request_parameters, run_context)
        with self._spans.call(self._named) as span:
            stream = await streaming.__aenter__()
            self._spans.said(span, messages, stream.get())
        try:
            yield stream
        finally:
            await streaming.__aexit__(None, None, None)


def _round_key(event: Event, number: int) -> Key:
    return (event.execution_id, str(event.team_id), number)


def _above(key: Key) -> Key:
    """What a span is in: calls are in their round, a round in its team."""
    return key[:3] if len(key) > 3 else key[:-1]


def _name(key: Key) -> str:
    """What a span is called that is opened late."""
    match key:
        case (_,):
            return "mixseek run"
        case (_, team):
            return f"team {team}"
        case (_, _, number):
            return f"round {number}"
        case _:
            return str(key[3])


def _place(key: Key) -> Facts:
    names = "mixseek.execution_id", "mixseek.team_id", "mixseek.round_number"
    return dict(zip(names, key, strict=False))


def _facts_of_model(model: str) -> Facts:
    provider, _, name = model.partition(":")
    return {"gen_ai.operation.name": "chat", "gen_ai.provider.name": provider, "gen_ai.request.model": name}


def _otel_messages(messages: list[ModelMessage]) -> str:
    return json.dumps(_CONVERSION.messages_to_otel_messages(messages), ensure_ascii=False, default=str)


# The conventions' form of messages; files that came with a task are only named.
_CONVERSION = InstrumentationSettings(include_binary_content=False)


def _kind_of(error: str) -> str:
    """The kind of an error of which only the words are known.

    >>> _kind_of("openai:gpt-5: HTTP 401: no"), _kind_of("cancelled"), _kind_of("anything")
    ('401', 'cancelled', '_OTHER')
    """
    status = _HTTP_STATUS.search(error)
    if status:
        return status[1]
    return error if error in ("cancelled", "interrupted") else _OTHER


def _type_of(error: BaseException) -> str:
    if isinstance(error, asyncio.CancelledError):
        return "cancelled"
    status = error.status if isinstance(error, ModelError) else None
    return str(status) if status else type(error).__name__
