"""How a record becomes a line of text or of JSON, and what of a run is logged.

Above DEBUG no line holds a word of a prompt, an answer, a comment or a tool's arguments: a log is kept, copied and sent
to others more freely than the results are. Which team and round a line is about comes with its context, since whatever
a team calls runs in the context of the team's task, where the listener of events leaves a note.
"""

import json
import logging
import re
from contextvars import ContextVar
from datetime import UTC, datetime

from mixseek.amounts import counted, tokens_words
from mixseek.cli.output import clean
from mixseek.events import (
    BudgetLow,
    Event,
    MemberCalled,
    MemberFinished,
    ModelCalled,
    RoundFailed,
    RoundFinished,
    RoundJudged,
    RoundStarted,
    RunFinished,
    RunResumed,
    RunStarted,
    SubmissionEvaluated,
    SubmissionMade,
    TeamFailed,
    TeamFinished,
    TeamStarted,
    ToolCalled,
    ToolFinished,
)

__all__ = ["EVENT_LOGGER", "JsonLines", "Lines", "add_where", "leave_out_values", "log_event"]

EVENT_LOGGER = "mixseek.run"
_QUOTED_VALUE = re.compile(r"input_value=.*?, input_type=", re.DOTALL)
_OWN_ERROR = re.compile(r"mixseek\.errors\.\w+: ")
_WHERE = ("execution_id", "team_id", "round_number")

_logger = logging.getLogger(EVENT_LOGGER)
_where: ContextVar[dict[str, str | int]] = ContextVar("where", default={})  # noqa: B039  # replaced, never changed


# --- lines ------------------------------------------------------------------------------------------------------------


class Lines(logging.Formatter):
    """A harmless line for a record, and, where wanted, its traceback below it."""

    def __init__(self, pattern: str, *, tracebacks: bool) -> None:
        super().__init__(pattern)
        self._tracebacks = tracebacks
        self._last_reason: str | None = None

    def format(self, record: logging.LogRecord) -> str:
        """The line, or lines."""
        text, trace = self._parts(record)
        if not trace:
            return text
        lines = trace.splitlines()
        if not self._tracebacks:
            return f"{text}: {clean(self._reason(lines[-1]))}"
        return "\n".join([text, *(f"  {clean(line)}" for line in lines)])

    def _reason(self, words: str) -> str:
        """The last line of a traceback; an error of our own needs no name, and its words not be told twice in a row."""
        own = _OWN_ERROR.match(words)
        if own is None:
            return words
        if self._last_reason == (reason := words[own.end() :]):
            return "for the same reason"
        self._last_reason = reason
        return reason

    def _parts(self, record: logging.LogRecord) -> tuple[str, str]:
        trace = record.exc_text or (self.formatException(record.exc_info) if record.exc_info else "")
        record.message = record.getMessage()
        if self.usesTime():
            record.asctime = self.formatTime(record, self.datefmt)
        return clean(self.formatMessage(record)), trace


class JsonLines(logging.Formatter):
    """A record as one JSON object on one line; time in UTC."""

    def format(self, record: logging.LogRecord) -> str:
        """The line."""
        trace = record.exc_text or (self.formatException(record.exc_info) if record.exc_info else None)
        told = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
            **{name: vars(record)[name] for name in _WHERE if vars(record).get(name) is not None},
            **({"traceback": trace} if trace else {}),
        }
        # ASCII alone, so that nothing in it can steer a terminal.
        return json.dumps(told).replace("\x7f", "\\u007f")


def add_where(record: logging.LogRecord) -> bool:
    """Let every record through, with the execution, the team and the round it is about."""
    for name, value in _where.get().items():
        vars(record).setdefault(name, value)
    return True


def leave_out_values(record: logging.LogRecord) -> bool:
    """Let every record through; above DEBUG without the values that pydantic quotes, which may be a model's words."""
    if record.levelno > logging.DEBUG:
        if record.exc_info:
            record.exc_text, record.exc_info = logging.Formatter().formatException(record.exc_info), None
        record.msg, record.args = _unquoted(record.getMessage()), None
        record.exc_text = record.exc_text and _unquoted(record.exc_text)
    return True


def _unquoted(text: str) -> str:
    return _QUOTED_VALUE.sub("input_value=…, input_type=", text)


# --- events -----------------------------------------------------------------------------------------------------------


def log_event(event: Event) -> None:
    """A line about an event, without a word of what was asked or answered, and one at DEBUG with the words."""
    _where.set(_place(event))
    words = _words(event)
    if words is None:
        return
    line = words if event.team_id is None else f"{event.team_id}: {words}"
    detail = _detail(event)
    # That a team failed is the orchestrator's warning, with the reason.
    level = logging.WARNING if isinstance(event, RoundFailed | BudgetLow) else logging.INFO
    # The line that tells the end of a team is still about it.
    whose = {} if event.team_id is None else {"team_id": event.team_id}
    _logger.log(logging.DEBUG if _is_small(event) else level, "%s", line, extra=whose)
    if detail and _logger.isEnabledFor(logging.DEBUG):
        _logger.debug("%s: %s", line, detail, extra=whose)


def _place(event: Event) -> dict[str, str | int]:
    """Where what is logged next belongs; after the end of a round or a team it belongs to what is around it."""
    place: dict[str, str | int] = {"execution_id": event.execution_id}
    if event.team_id is not None and not isinstance(event, TeamFinished | TeamFailed):
        place["team_id"] = event.team_id
        number = _round(event)
        if number is not None:
            place["round_number"] = number
    return place


def _round(event: Event) -> int | None:
    if isinstance(event, RoundFinished | RoundFailed):
        return event.entry.round_number
    return getattr(event, "round_number", None)


def _is_small(event: Event) -> bool:
    """Whether there are too many of a kind for a log that is read by people."""
    return isinstance(event, ToolCalled | MemberCalled | ModelCalled) or (
        isinstance(event, ToolFinished) and event.error is None
    )


def _words(event: Event) -> str | None:  # noqa: C901  # a table, one line for each kind
    match event:
        case RunStarted():
            begun = "is resumed" if isinstance(event, RunResumed) else "begins"
            teams = f"{counted(len(event.team_names), 'team')}, at most {counted(event.max_rounds, 'round')}"
            return f"execution {event.execution_id} {begun}: {teams}"
        case TeamStarted():
            return f"started, retry {event.retry}" if event.retry else "started"
        case RoundStarted():
            return f"round {event.round_number} started"
        case MemberCalled():
            return f"member {event.agent_name} called in round {event.round_number}"
        case MemberFinished(submission=submission):
            return f"member {submission.agent_name} finished in round {event.round_number}, {submission.status}"
        case ToolCalled():
            return f"tool {event.tool} of member {event.agent_name} called"
        case ToolFinished():
            outcome = "finished" if event.error is None else "failed"
            return f"tool {event.tool} of member {event.agent_name} {outcome} after {event.seconds:.1f} s"
        case ModelCalled():
            return _words_of_call(event)
        case SubmissionMade():
            return f"round {event.round_number} submitted, {len(event.submission_content)} characters"
        case SubmissionEvaluated():
            return f"round {event.round_number} evaluated, {_score(event.score)}"
        case RoundFinished():
            return f"round {event.entry.round_number} finished, {_score(event.entry.score)}"
        case RoundFailed():
            return f"round {event.entry.round_number} failed"
        case RoundJudged() | BudgetLow():
            return event.words
        case TeamFailed():
            return "failed" if event.best is None else f"failed; its best round counts, {_score(event.best.score)}"
        case TeamFinished(best=best):
            return f"finished, {_score(best.score)} in round {best.round_number}, {event.words}"
        case RunFinished(summary=summary):
            told = f"{summary.completed_teams} of {counted(summary.total_teams, 'team')} finished"
            return f"execution {event.execution_id}: {told} in {summary.total_execution_time_seconds:.1f} s"
    return None


def _words_of_call(event: ModelCalled) -> str:
    outcome = "answered" if event.error is None else "failed"
    spent = f"{tokens_words(event)}, {counted(event.attempts, 'attempt')}"
    return f"{event.model} {outcome} for {event.agent_name} after {event.seconds:.1f} s, {spent}"


def _detail(event: Event) -> str | None:  # a table as above
    """What was asked, answered or said."""
    match event:
        case RunStarted():
            return event.user_prompt
        case RoundStarted():
            return event.prompt
        case MemberCalled():
            return event.task
        case MemberFinished(submission=submission):
            return submission.error_message or submission.content
        case ToolCalled():
            return json.dumps(event.arguments, ensure_ascii=False)
        case ToolFinished() | ModelCalled():
            return event.error
        case SubmissionMade():
            return event.submission_content
        case SubmissionEvaluated():
            return "; ".join(f"{one.metric_name}: {one.evaluator_comment}" for one in event.metrics)
        case RoundJudged() | RoundFailed() | TeamFailed():
            return event.reason
    return None


def _score(score: float | None) -> str:
    return "unscored" if score is None else f"score {score:.2f}"
