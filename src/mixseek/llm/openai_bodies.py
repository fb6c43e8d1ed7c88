"""Requests of the OpenAI SDK without its walk through them, and answers without a usage that makes no sense.

Before it sends a request, the SDK compares every part of every message and tool with every type such a part may have.
In these two APIs that changes nothing, and it costs a quarter of the whole call. What is given as ``extra_body`` is
sent as it is, and so is the body of a request that is posted by its path.

An answer is taken only if all of it is as the API has it, and some servers leave out or break what they tell of its
tokens. The text was paid for all the same, and would come like this again.
"""

from collections.abc import Callable, Coroutine
from functools import wraps
from typing import Any

from pydantic_ai.models import Model

__all__ = ["send_as_given"]

_Create = Callable[..., Coroutine[Any, Any, Any]]
# What is no part of the body, by the SDK's name for it where a request is posted by its path.
_EXTRAS = {"extra_headers": "headers", "extra_query": "params", "extra_body": "extra_json"}
# What the SDK needs to know itself.
_FOR_THE_SDK = frozenset({"model", "stream", "timeout", *_EXTRAS})


def send_as_given(model: Model) -> None:
    """Let an OpenAI model send its requests as it made them; any other model is left alone."""
    client: Any = getattr(model, "client", None)
    if client is None or type(client).__module__.partition(".")[0] != "openai":
        return
    from pydantic_ai.models.openai import OpenAIResponsesModel  # such a model has imported it

    # Only the API it speaks: the SDK imports each when it is first asked for, and Responses takes it 65 ms and 4 MB.
    if isinstance(model, OpenAIResponsesModel):
        client.responses.create = _in_extra_body(client.responses.create)
    else:
        client.chat.completions.create = _posted(client)


def _posted(client: Any) -> _Create:
    """The SDK's own way of asking for a completion, but for the walk."""
    from openai import AsyncStream
    from openai.types.chat import ChatCompletion, ChatCompletionChunk

    @wraps(client.chat.completions.create)
    async def create_as_given(**arguments: Any) -> Any:
        given = _given(arguments)
        extras = {name: extra for each, name in _EXTRAS.items() if (extra := given.pop(each, None)) is not None}
        patience = {"timeout": given.pop("timeout")} if "timeout" in given else {}
        answer = await client.post(
            "/chat/completions",
            body=given,
            # The key for models, and no other that the SDK may know.
            options={**extras, **patience, "security": {"bearer_auth": True}},
            cast_to=ChatCompletion,
            stream=given.get("stream") or False,
            stream_cls=AsyncStream[ChatCompletionChunk],
        )
        if isinstance(answer, ChatCompletion) and not _makes_sense(answer.usage):
            answer.usage = None
        return answer

    return create_as_given


def _makes_sense(usage: Any) -> bool:
    from openai.types import CompletionUsage

    told = usage.model_dump(warnings=False) if isinstance(usage, CompletionUsage) else usage
    try:
        known = CompletionUsage.model_validate(told)
    except ValueError:
        return told is None
    return min(known.prompt_tokens, known.completion_tokens) >= 0


def _in_extra_body(create: _Create) -> _Create:
    @wraps(create)
    async def create_as_given(**arguments: Any) -> Any:
        given = _given(arguments)
        kept = {name: given.pop(name) for name in _FOR_THE_SDK if name in given}
        return await create(**{**kept, "extra_body": {**given, **(kept.get("extra_body") or {})}})

    return create_as_given


def _given(arguments: dict[str, Any]) -> dict[str, Any]:
    from openai import NotGiven, Omit

    return {name: value for name, value in arguments.items() if not isinstance(value, Omit | NotGiven)}
