"""Requests of the OpenAI SDK without its walk through them.

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
# What the SDK needs to know itself, and what is no part of the body.
_FOR_THE_SDK = frozenset({"model", "stream", "extra_headers", "extra_query", "extra_body", "timeout"})


def send_as_given(model: Model) -> None:
    """Let an OpenAI model send its requests as it made them; any other model is left alone."""
    client: Any = getattr(model, "client", None)
    if client is None or type(client).__module__.partition(".")[0] != "openai":
        return
    from pydantic_ai.models.openai import OpenAIResponsesModel  # such a model has imported it

    # Only the API it speaks: the SDK imports each when it is first asked for, and Responses takes it 65 ms and 4 MB.
    if isinstance(model, OpenAIResponsesModel):
        _bypass(client.responses)
    else:
        # The SDK insists on messages; these are replaced by the ones in the extra body.
        _bypass(client.chat.completions, messages=[])


def _bypass(resource: Any, **required: Any) -> None:
    resource.create = _with_all_in_extra_body(resource.create, required)


def _with_all_in_extra_body(create: _Create, required: dict[str, Any]) -> _Create:
    from openai import NotGiven, Omit

    @wraps(create)
    async def create_as_given(**given: Any) -> Any:
        kept = {name: value for name, value in given.items() if name in _FOR_THE_SDK}
        body = {
            name: value
            for name, value in given.items()
            if name not in _FOR_THE_SDK and not isinstance(value, Omit | NotGiven)
        }
        return await create(**required, **{**kept, "extra_body": {**body, **(given.get("extra_body") or {})}})

    return create_as_given
