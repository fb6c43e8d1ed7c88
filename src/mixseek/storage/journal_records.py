"""What the journal keeps: frozen records of JSON values, and the keys by which a resumed run finds them again.

A key has to come out the same when an unfinished round is played again. So it leaves out what differs between two runs
of one request (when a message was made, the ids of the run, models that were tried in vain), it does not depend on the
order of names in an object, and it is made from the redacted request: an answer that was redacted when it was kept
comes back with marks, and the requests that repeat it must still be found.
"""

import hashlib
import json
import os
from dataclasses import dataclass
from time import time_ns
from typing import Self

from pydantic import AwareDatetime, Field, FiniteFloat, InstanceOf, JsonValue, SkipValidation, model_validator

from mixseek.records import Record, Usage
from mixseek.redaction import MadeJson, RedactedJson, Redactor, sorted_json

__all__ = [
    "Attempt",
    "CallFailure",
    "CallLine",
    "CallScope",
    "CallSpend",
    "JournalEvent",
    "ModelCall",
    "Request",
    "RoundPrompt",
    "StartedCall",
    "StartedRun",
    "ToolResult",
    "derived_id",
    "keyed_request",
    "new_call_id",
    "tool_key",
]

# A walk through every value costs as much as writing it; what is no JSON is refused when it is written.
_Json = SkipValidation[JsonValue]
_JsonOrText = SkipValidation[JsonValue | InstanceOf[MadeJson]]
"""A JSON value, which is what is read, or one that was written as JSON already and is kept as it is."""
DERIVED = "~"
_VOLATILE = frozenset({"timestamp", "run_id", "conversation_id", "failed_attempts", "history_digest"})


class CallScope(Record):
    """Whose call it is: one agent in one role of one team, in one round of one execution."""

    execution_id: str
    team_id: str
    round_number: int = Field(ge=0)
    role: str
    agent_name: str


def derived_id(execution_id: str, name: str) -> str:
    """The id under which calls are kept that were made about an execution later; they are removed with it."""
    return f"{execution_id}{DERIVED}{name}"


def new_call_id() -> str:
    """A name for one call that no other process gives; later ones come later in an index, which so stays small."""
    return f"{time_ns():016x}{os.urandom(8).hex()}"


class StartedCall(Record):
    """A call about to leave; without a :class:`ModelCall` of its id it was in flight when the process died.

    Each attempt leaves its own mark: that of the third has the id of the call with "#3" after it.
    """

    call_id: str = Field(default_factory=new_call_id)
    scope: CallScope
    key: str
    occurrence: int = Field(ge=0)
    model: str
    started_at: AwareDatetime
    reserved_tokens: int | None = None
    reserved_usd: float | None = None
    """The most the attempt can cost; a budget counts it as spent until the call is settled. Without a budget None, or 0
    tokens of a model that is computed in the process."""


class CallSpend(Record):
    """What is known of the costs of one call, and the most it may have cost beyond."""

    scope: CallScope
    model: str
    usage: Usage = Usage()
    cost_usd: float | None = None
    lost_attempts: int = 0
    """Of how many attempts nobody knows all that they cost."""
    lost_requests: int = 0
    """How many of these the usage does not count."""
    lost_tokens: int | None = 0
    """None where nothing was set aside for one of them."""
    lost_usd: float | None = None


class Attempt(Record):
    """One try of a call: what came of it and how long it took."""

    at: AwareDatetime
    outcome: str
    status: int | None = None
    seconds: FiniteFloat = Field(ge=0)
    lost_tokens: int | None = None
    lost_usd: FiniteFloat | None = None
    """The most it may have cost that nobody knows of; None: what it cost is known, or no budget was kept."""
    lost_requests: int | None = None
    """1 where nobody knows what it cost, and 0 where the call's usage counts it all the same; None: that is known."""

    @property
    def is_lost(self) -> bool:
        """Whether it may have cost something that nobody knows of."""
        return self.lost_requests is not None or self.lost_tokens is not None


class CallFailure(Record):
    """Why a call has no answer."""

    error: str
    message: str
    status: int | None = None
    retryable: bool | None = None
    """Whether the team could be tried again after it; None: not kept."""


class ModelCall(Record):
    """A call that came to an end, with an answer or with a failure."""

    call_id: str = Field(default_factory=new_call_id)
    scope: CallScope
    key: str
    occurrence: int = Field(ge=0)
    model: str
    request: _JsonOrText
    answer: _JsonOrText = None
    failure: CallFailure | None = None
    usage: Usage = Usage()
    cost_usd: float | None = None
    """None where the price is not known; never taken for zero."""
    attempts: tuple[Attempt, ...] = ()
    started_at: AwareDatetime
    ended_at: AwareDatetime
    pruned: bool = False
    """Whether request and answer were dropped to save room; what the call cost is still known."""

    @model_validator(mode="after")
    def _answered_or_failed(self) -> Self:
        if (self.answer is None) == (self.failure is None) and not self.pruned:
            raise ValueError("a call that ended has either an answer or a failure")
        return self


class CallLine(Record):
    """A call in a few values, without what was asked and answered."""

    call_id: str
    scope: CallScope
    model: str
    outcome: str
    """``answered``, or the kind of error."""
    message: str | None = None
    """Why it failed."""
    usage: Usage
    cost_usd: float | None
    attempts: int
    lost_attempts: int = 0
    """Those that may have cost something that nobody knows of."""
    started_at: AwareDatetime
    ended_at: AwareDatetime


class ToolResult(Record):
    """What a tool, or a member used as a tool, gave back to the agent in ``scope``."""

    scope: CallScope
    tool: str
    arguments: _Json
    key: str
    occurrence: int = Field(ge=0)
    result: _Json
    started_at: AwareDatetime
    ended_at: AwareDatetime


class RoundPrompt(Record):
    """A prompt as it was sent, with what would make it differ a second time: its clock, its ranking, its nonce."""

    execution_id: str
    team_id: str
    round_number: int = Field(ge=0)
    role: str
    text: str
    clock: str
    ranking: _JsonOrText = None
    nonce: str | None = None
    made_at: AwareDatetime


class JournalEvent(Record):
    """One event of a run; ``sequence`` counts within the team, or within the execution where there is no team."""

    execution_id: str
    team_id: str | None = None
    sequence: int = Field(ge=0)
    kind: str
    at: AwareDatetime
    payload: _JsonOrText
    position: int | None = None
    """Where it stands in the file, for reading on from there; the journal sets it."""


class StartedRun(Record):
    """The beginning of an execution, in a few values."""

    execution_id: str
    position: int
    """Where it stands among all that the journal was told, which no clock has a part in."""
    started_at: AwareDatetime
    user_prompt: str
    total_teams: int
    config_file: str | None = None
    """The orchestrator file; None for a team that was asked alone, and for settings made in Python."""
    was_resumed: bool = False
    has_ended: bool = False
    """Whether it ever came to an end."""


@dataclass(frozen=True, slots=True)
class Request:
    """What a model is asked, as it is kept, and the hash of it."""

    text: RedactedJson
    """JSON with ``messages``, ``parameters`` and ``settings``."""
    key: str
    """Two requests share it when the second may be answered with what the first was answered."""


def keyed_request(
    scope: CallScope,
    *,
    model: str,
    settings: JsonValue | MadeJson,
    tools: JsonValue | MadeJson,
    messages: JsonValue | MadeJson,
    attempt: int = 0,
    within: str = "",
    redactor: Redactor,
) -> Request:
    """A request in the one form that is both kept and hashed: making JSON of it twice would cost twice.

    ``attempt`` and ``within`` tell apart what is asked in another try of the team, or for another call of a member.
    All three may be JSON already, with their names in order; messages then without what differs between two runs.
    """
    lasting = [_lasting_message(message) for message in messages] if isinstance(messages, list) else messages
    kept = redactor.json(_asked(lasting, tools, settings), sort_keys=True)
    return Request(kept, _digest(_names([*_parts(scope), model, attempt, within]), kept))


def _asked(
    messages: JsonValue | MadeJson, tools: JsonValue | MadeJson, settings: JsonValue | MadeJson
) -> JsonValue | MadeJson:
    """The whole of a request, its parts in the order of their names; a value where UTF-8 cannot hold it."""
    try:
        parts = sorted_json(messages), sorted_json(tools), sorted_json(settings)
        return MadeJson(b'{"messages":%b,"parameters":%b,"settings":%b}' % parts)
    except UnicodeEncodeError:
        values = {"messages": messages, "parameters": tools, "settings": settings}
        return {name: json.loads(one) if isinstance(one, MadeJson) else one for name, one in values.items()}


def tool_key(
    scope: CallScope,
    tool: str,
    arguments: JsonValue,
    *,
    attempt: int = 0,
    within: str = "",
    call_id: str = "",
    redactor: Redactor,
) -> str:
    """The hash two uses of a tool share when they ask for the same; ``call_id`` is what the model calls this use."""
    names = _names([*_parts(scope), tool, attempt, within, call_id])
    return _digest(names, redactor.json(arguments, sort_keys=True))


def _names(names: list[JsonValue]) -> bytes:
    """As they are: only their hash is kept, and a key that somebody sets later must not look like a part of them."""
    return _listed(names).encode("utf-8", "surrogatepass")


_listed = json.JSONEncoder(ensure_ascii=False).encode


def _parts(scope: CallScope) -> list[JsonValue]:
    return [scope.execution_id, scope.team_id, scope.round_number, scope.role, scope.agent_name]


def _lasting_message(message: JsonValue) -> JsonValue:
    """A dumped message without its volatile fields; deeper ones are the user's own, an argument ``timestamp`` say."""
    if not isinstance(message, dict):
        return message
    lasting = _without_volatile(message)
    parts = message.get("parts")
    if isinstance(parts, list):
        lasting["parts"] = [_without_volatile(part) if isinstance(part, dict) else part for part in parts]
    return lasting


def _without_volatile(entries: dict[str, JsonValue]) -> dict[str, JsonValue]:
    return {name: value for name, value in entries.items() if name not in _VOLATILE}


def _digest(names: bytes, asked: bytes) -> str:
    digest = hashlib.sha256(names)
    digest.update(b"\n")
    digest.update(asked)
    return digest.hexdigest()
