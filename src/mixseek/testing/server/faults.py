"""What can go wrong with a model, on demand.

A fault has a kind and says which calls it strikes. The kinds come in three families: an *answer* fault changes what the
model says, a *body* fault sends something else in its place, a *wire* fault breaks the connection that carries it.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from typing import Any, Literal, TypeAlias, get_args

from mixseek.testing.answers import ToolCall
from mixseek.testing.calls import ModelCall
from mixseek.testing.script import Match
from mixseek.testing.server.wire import Payload, Reply, error_payload, json_payload

__all__ = [
    "FAULT_KINDS",
    "AnswerFault",
    "BodyFault",
    "Fault",
    "FaultKind",
    "FaultPlan",
    "WireFault",
    "body_of_fault",
    "broken_reply",
]

WireFault: TypeAlias = Literal[
    "reset_before_headers",
    "reset_after_headers",
    "reset_in_body",
    "hang_before_headers",
    "hang_in_body",
    "drip",
    "cut_json",
    "empty_body",
    "wrong_content_type",
]
BodyFault: TypeAlias = Literal[
    "400", "401", "402", "403", "404", "408", "409", "413", "422", "429", "500", "502", "503", "504", "529",
    "spend_limit", "empty_object", "error_in_200", "no_choices", "html",
]  # fmt: skip
AnswerFault: TypeAlias = Literal[
    "early_end",
    "null_content",
    "empty_answer",
    "huge_answer",
    "missing_usage",
    "length",
    "content_filter",
    "wrong_tool",
    "malformed_arguments",
    "score_150",
    "wrong_types",
]
FaultKind: TypeAlias = WireFault | BodyFault | AnswerFault

_BODY_FAULTS = frozenset(get_args(BodyFault))
_ANSWER_FAULTS = frozenset(get_args(AnswerFault))
FAULT_KINDS: tuple[FaultKind, ...] = (*get_args(WireFault), *get_args(BodyFault), *get_args(AnswerFault))
"""Every kind there is."""


@dataclass(frozen=True, slots=True)
class Fault:
    """One kind of failure and the calls it strikes; by default every call that ``match`` means."""

    kind: FaultKind
    match: Match = field(default_factory=Match)
    at: tuple[int, ...] = ()
    """Which of the meant calls, counted from 1, are struck; empty: all."""
    after: int = 0
    """How many of the meant calls are let through first."""
    count: int | None = None
    """How many calls are struck at most."""
    share: float = 1.0
    """The share of the meant calls that is struck, chosen by the seed."""
    retry_after: float | None = None
    """Seconds for the header Retry-After; a 429 without one says 1."""
    size: int = 50 * 1024 * 1024
    """Characters of a huge answer."""

    def __post_init__(self) -> None:
        if self.kind not in FAULT_KINDS:
            raise ValueError(f"unknown fault {self.kind!r}: known are {', '.join(FAULT_KINDS)}")
        if not 0 <= self.share <= 1:
            raise ValueError(f"share must be from 0 to 1, not {self.share!r}")
        if any(number < 1 for number in self.at):
            raise ValueError(f"at counts calls from 1, and {min(self.at)!r} is none of them")

    @property
    def changes_the_answer(self) -> bool:
        """Whether the call is still answered, with something wrong in the answer."""
        return self.kind in _ANSWER_FAULTS

    @property
    def is_body(self) -> bool:
        """Whether something else is sent in place of the answer."""
        return self.kind in _BODY_FAULTS


@dataclass
class _Armed:
    fault: Fault
    number: int
    seen: int = 0
    struck: int = 0


@dataclass
class FaultPlan:
    """The faults in force, oldest first; the first that strikes a call wins, and later ones do not count that call."""

    seed: int = 0
    _armed: list[_Armed] = field(default_factory=list)

    def add(self, fault: Fault) -> None:
        """Put ``fault`` in force."""
        self._armed.append(_Armed(fault, len(self._armed)))

    def clear(self) -> None:
        """Lift all faults."""
        self._armed.clear()

    def strike(self, call: ModelCall, reply: Reply | None = None) -> Fault | None:
        """The fault that befalls ``call``; one that changes answers wants the reply, and something in it to break."""
        for armed in self._armed:
            fault = armed.fault
            if fault.changes_the_answer is (reply is not None) and fault.match(call) and _can_break(fault, reply):
                armed.seen += 1
                if self._is_due(armed):
                    armed.struck += 1
                    return fault
        return None

    def _is_due(self, armed: _Armed) -> bool:
        fault = armed.fault
        return (
            armed.seen > fault.after
            and (fault.count is None or armed.struck < fault.count)
            and (not fault.at or armed.seen in fault.at)
            and (fault.share >= 1 or self._chance(armed) < fault.share)
        )

    def _chance(self, armed: _Armed) -> float:
        drawn = blake2b(f"{self.seed}|{armed.number}|{armed.seen}".encode(), digest_size=8).digest()
        return int.from_bytes(drawn, "big") / 2**64


# --- something else in place of the answer ----------------------------------------------------------------------------

_ERRORS = {
    400: ("invalid_request_error", "invalid_request"),
    401: ("invalid_request_error", "invalid_api_key"),
    402: ("billing_error", "payment_required"),
    403: ("permission_error", "permission_denied"),
    404: ("invalid_request_error", "model_not_found"),
    408: ("timeout_error", "request_timeout"),
    409: ("conflict_error", "conflict"),
    413: ("invalid_request_error", "request_too_large"),
    422: ("invalid_request_error", "unprocessable"),
    429: ("rate_limit_error", "rate_limit_exceeded"),
    529: ("overloaded_error", "overloaded"),
}
_PAGE = b"<!DOCTYPE html><html><head><title>Gateway</title></head><body><h1>Please sign in</h1></body></html>\n"


def body_of_fault(fault: Fault, call: ModelCall) -> Payload:
    """What is sent in place of the answer."""
    match fault.kind:
        case "spend_limit":
            return _spend_limit(fault)
        case "empty_object":
            return json_payload(call, {})
        case "error_in_200":
            error = {"message": "The model is overloaded.", "type": "server_error", "param": None, "code": 502}
            return json_payload(call, {"error": error})
        case "no_choices":
            return json_payload(call, _without_choices(call))
        case "html":
            return Payload((_PAGE,), "text/html", is_answer=False)
        case status:
            return status_payload(int(status), retry_after=fault.retry_after)


def status_payload(status: int, *, retry_after: float | None = None) -> Payload:
    """An error status with the body a provider would send."""
    kind, code = _ERRORS.get(status, ("server_error", "server_error"))
    if status == 429 and retry_after is None:
        retry_after = 1
    return error_payload(status, f"Made to fail with {status}.", kind=kind, code=code, headers=_wait(retry_after))


def _spend_limit(fault: Fault) -> Payload:
    message = "You exceeded your current quota, please check your plan and billing details."
    quota = "insufficient_quota"
    return error_payload(429, message, kind=quota, code=quota, headers=_wait(fault.retry_after))


def _wait(seconds: float | None) -> dict[str, str]:
    return {} if seconds is None else {"Retry-After": f"{seconds:g}"}


def _without_choices(call: ModelCall) -> dict[str, Any]:
    if call.api == "chat":
        kind = "chat.completion.chunk" if call.stream else "chat.completion"
        return {"id": "chatcmpl-none", "object": kind, "created": 0, "model": call.model, "choices": []}
    response = {"id": "resp_none", "object": "response", "created_at": 0, "status": "completed", "model": call.model}
    response |= {"output": [], "tools": [], "tool_choice": "auto", "parallel_tool_calls": True}
    return {"type": "response.completed", "sequence_number": 0, "response": response} if call.stream else response


# --- an answer with something wrong in it -----------------------------------------------------------------------------


def broken_reply(fault: Fault, reply: Reply) -> Reply:
    """``reply`` with what the fault does to it."""
    match fault.kind:
        case "early_end":
            return replace(reply, finish_reason=None)
        case "null_content":
            return replace(reply, text=None, tool_calls=(), finish_reason="stop")
        case "empty_answer":
            return replace(reply, text="", tool_calls=(), finish_reason="stop")
        case "huge_answer":
            return replace(reply, text="x" * fault.size, tool_calls=(), finish_reason="stop")
        case "missing_usage":
            return replace(reply, usage=None)
        case "length" | "content_filter":
            return _cut_off(reply, fault.kind)
        case "wrong_tool":
            return _with_wrong_tool(reply)
        case "malformed_arguments":
            return _with_values(reply, lambda text: text[: max(1, len(text) - 2)] + ",,")
        case "score_150":
            return _with_values(reply, _in_json(_score_150))
        case _:
            return _with_values(reply, _in_json(_wrong_types))


def _cut_off(reply: Reply, reason: Literal["length", "content_filter"]) -> Reply:
    """Half the answer, as a model leaves it that ran out of room or was stopped."""
    text = reply.text[: len(reply.text) // 2] if reply.text else reply.text
    calls = tuple(replace(one, arguments=_half(one.arguments_json)) for one in reply.tool_calls)
    return replace(reply, text=text, tool_calls=calls, finish_reason=reason)


def _half(text: str) -> str:
    return text[: len(text) // 2]


def _with_wrong_tool(reply: Reply) -> Reply:
    calls = reply.tool_calls or (ToolCall("", {}, f"call_{reply.id}_x"),)
    wrong = tuple(replace(one, name="no_such_tool") for one in calls)
    return replace(reply, text=None, tool_calls=wrong, finish_reason="tool_calls")


def _with_values(reply: Reply, change: Callable[[str], str]) -> Reply:
    """``reply`` with its structured part changed: the arguments of its tool calls, or else its JSON text."""
    if reply.tool_calls:
        calls = tuple(replace(one, arguments=change(one.arguments_json)) for one in reply.tool_calls)
        return replace(reply, tool_calls=calls)
    return replace(reply, text=change(reply.text or ""))


def _can_break(fault: Fault, reply: Reply | None) -> bool:
    if reply is None or fault.kind not in ("malformed_arguments", "score_150", "wrong_types"):
        return True
    values = [one.arguments_json for one in reply.tool_calls] or [reply.text or ""]
    if fault.kind == "score_150":
        return any(_score_150(found) != found for value in values if (found := _object(value)))
    return any(_object(value) for value in values)


def _object(text: str) -> dict[str, Any] | None:
    try:
        value = json.loads(text)
    except ValueError:
        return None
    return value if isinstance(value, dict) else None


def _in_json(change: Callable[[Any], Any]) -> Callable[[str], str]:
    return lambda text: json.dumps(change(_object(text) or {}), ensure_ascii=False)


def _score_150(value: Any) -> Any:
    """``value`` with every number in it beyond any scale."""
    if isinstance(value, Mapping):
        return {key: _score_150(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_score_150(inner) for inner in value]
    return 150 if isinstance(value, int | float) and not isinstance(value, bool) else value


def _wrong_types(value: Any) -> Any:
    """``value`` with texts where numbers belong and numbers where texts belong."""
    if isinstance(value, Mapping):
        return {key: _wrong_types(inner) for key, inner in value.items()}
    return 17 if isinstance(value, str) else "not of this type"
