"""Between pydantic-ai's values and ours: settings, usage, and messages as JSON."""

from collections.abc import Sequence
from dataclasses import astuple
from hashlib import sha256
from typing import Any, cast

from pydantic import JsonValue, TypeAdapter
from pydantic_ai import ModelMessage, ModelMessagesTypeAdapter, ModelResponse, ModelSettings, RunUsage
from pydantic_ai.models import ModelRequestParameters
from pydantic_ai.usage import RequestUsage
from pydantic_core import to_json

from mixseek.config.schema import ModelParams
from mixseek.llm.calls import Scope
from mixseek.records import Usage

__all__ = [
    "answer_from_json",
    "answer_to_json",
    "call_key",
    "json_text",
    "messages_from_json",
    "messages_to_json",
    "model_settings",
    "request_to_json",
    "usage_record",
]

_ANSWER: TypeAdapter[ModelResponse] = TypeAdapter(ModelResponse)
_PARAMETERS: TypeAdapter[ModelRequestParameters] = TypeAdapter(ModelRequestParameters)
# These differ each time the same thing is asked, so they have no part in the key of a request.
_VOLATILE = frozenset({"timestamp", "run_id", "conversation_id"})
_COUNTS = tuple(name for name in Usage.model_fields if name not in ("requests", "tool_calls", "details"))


def model_settings(params: ModelParams) -> ModelSettings:
    """How a model is asked, as pydantic-ai names it; what is not set is left out.

    >>> model_settings(ModelParams(temperature=0.5, timeout_seconds=60))
    {'temperature': 0.5, 'timeout': 60}
    """
    named: dict[str, Any] = {
        "temperature": params.temperature,
        "max_tokens": params.max_tokens,
        "timeout": params.timeout_seconds,
        "max_retries": params.max_retries,
        "stop_sequences": params.stop_sequences,
        "top_p": params.top_p,
        "seed": params.seed,
    }
    return cast("ModelSettings", {name: value for name, value in named.items() if value is not None})


def usage_record(usage: RunUsage | RequestUsage) -> Usage:
    """Usage as a record; a single request counts as one."""
    counts: dict[str, Any] = {name: getattr(usage, name) or 0 for name in _COUNTS}
    if isinstance(usage, RunUsage):
        counts |= {"requests": usage.requests, "tool_calls": usage.tool_calls}
    else:
        counts["requests"] = 1
    return Usage(**counts, details=dict(usage.details))


def messages_to_json(messages: Sequence[ModelMessage]) -> list[JsonValue]:
    """Messages as JSON values, for stores and records."""
    values: list[JsonValue] = ModelMessagesTypeAdapter.dump_python(list(messages), mode="json")
    return values


def messages_from_json(values: Sequence[JsonValue]) -> list[ModelMessage]:
    """The messages that were made JSON by :func:`messages_to_json`."""
    return ModelMessagesTypeAdapter.validate_python(list(values))


def answer_to_json(answer: ModelResponse) -> str:
    """One answer as JSON."""
    return _ANSWER.dump_json(answer).decode()


def answer_from_json(text: str) -> ModelResponse:
    """The answer that was made JSON by :func:`answer_to_json`."""
    return _ANSWER.validate_json(text)


def request_to_json(
    messages: Sequence[ModelMessage], settings: ModelSettings | None, parameters: ModelRequestParameters
) -> dict[str, JsonValue]:
    """All that is asked, as JSON values."""
    return {
        "messages": messages_to_json(messages),
        "settings": cast("dict[str, JsonValue]", dict(settings or {})),
        "parameters": _PARAMETERS.dump_python(parameters, mode="json", exclude_defaults=True),
    }


def json_text(value: JsonValue | dict[str, JsonValue]) -> str:
    """Compact JSON; what has no JSON form is told by its repr, so that a record is never lost to it."""
    return to_json(value, fallback=repr).decode()


def call_key(scope: Scope, model: str, request: dict[str, JsonValue]) -> str:
    """The same for the same request of the same agent, also in another run of the program."""
    place = cast("list[JsonValue]", list(astuple(scope)))
    return sha256(json_text([*place, model, _lasting(request)]).encode()).hexdigest()


def _lasting(value: JsonValue) -> JsonValue:
    """The value without what differs each time, at any depth, in an order that does not depend on how it was built."""
    if isinstance(value, dict):
        return {name: _lasting(value[name]) for name in sorted(value) if name not in _VOLATILE}
    if isinstance(value, list):
        return [_lasting(item) for item in value]
    return value
