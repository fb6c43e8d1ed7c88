"""Requests of the OpenAI SDK without its walk through the conversation.

Before it sends a request, the SDK compares every part of every message and tool with every type such a part may have.
In these two APIs that changes nothing, and it costs a quarter of the whole call. What is given as ``extra_body`` is
sent as it is.
"""

from collections.abc import Callable, Coroutine
from functools import wraps
from typing import Any

from pydantic_ai.models import Model

__all__ = ["send_as_given"]

_Create = Callable[..., Coroutine[Any, Any, Any]]


def send_as_given(model: Model) -> None:
    """Let an OpenAI model send messages and tools as it made them; any other model is left alone."""
    client: Any = getattr(model, "client", None)
    if client is not None and type(client).__module__.partition(".")[0] == "openai":
        _bypass(client.chat.completions, "messages", "tools")
        _bypass(client.responses, "input", "tools")


def _bypass(resource: Any, *names: str) -> None:
    resource.create = _as_extra_body(resource.create, names)


def _as_extra_body(create: _Create, names: tuple[str, ...]) -> _Create:
    @wraps(create)
    async def create_as_given(**given: Any) -> Any:
        large = {name: given[name] for name in names if isinstance(given.get(name), list)}
        # The SDK insists on messages; an empty list is replaced by the one in the extra body.
        small = {**given, **{name: [] for name in large}}
        return await create(**{**small, "extra_body": {**large, **(given.get("extra_body") or {})}})

    return create_as_given
