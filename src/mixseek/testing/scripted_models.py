"""Models that answer from a script, in the process that asks: a whole competition in milliseconds, without a server.

    with scripted() as script:
        script.on(Match("leader-a"), ["the first answer", "a better one"])
        summary = await Orchestrator(settings).execute("task")        # with models "scripted:leader-a", ...

Calls go through everything a real model's calls go through (retries, meter, journal); only the provider is another.
"""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from pydantic_ai import (
    ModelMessage,
    ModelRequest,
    ModelResponse,
    ModelResponsePart,
    RetryPromptPart,
    SystemPromptPart,
    TextPart,
    ToolCallPart,
    ToolDefinition,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.models import Model
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.profiles import ModelProfile
from pydantic_ai.usage import RequestUsage

from mixseek.llm import Connection
from mixseek.plugins import Provider, providers
from mixseek.testing.answers import Answer, ToolCall
from mixseek.testing.calls import Message, ModelCall, OfferedTool, OutputSchema, count_tokens
from mixseek.testing.script import Script

__all__ = ["SCRIPTED", "make_model", "scripted"]

SCRIPTED = "scripted"
"""The prefix of scripted models, as in ``"scripted:leader-a"``."""

providers.register(SCRIPTED, Provider(SCRIPTED, "mixseek.testing.scripted_models:make_model"))

_script: ContextVar[Script | None] = ContextVar("script", default=None)


@contextmanager
def scripted(script: Script | None = None) -> Iterator[Script]:
    """Let all scripted models inside answer from this script; without rules it plays a whole competition by itself."""
    script = script or Script()
    before = _script.set(script)
    try:
        yield script
    finally:
        _script.reset(before)


def make_model(name: str, connection: Connection) -> Model:
    """The scripted model of this name; the provider's factory."""
    del connection
    calls: Counter[str] = Counter()

    async def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        calls[name] += 1
        script = _script.get() or Script()
        call = _read(name, messages, info, calls[name])
        return _respond(call, await script.answer(call))

    # A script has no tools of a provider's own: members that bring tools bring their local ones. It takes messages of
    # the system as they stand, so that pydantic-ai adds no explanation of how it would mark them.
    profile = ModelProfile(supported_native_tools=frozenset(), supports_inline_system_prompts=True)
    return FunctionModel(answer, model_name=name, profile=profile)


# --- from pydantic-ai's request to a call ---------------------------------------------------------------------------


def _read(name: str, messages: list[ModelMessage], info: AgentInfo, number: int) -> ModelCall:
    said = [Message("system", info.instructions)] if info.instructions else []
    for message in messages:
        said += _asked(message) if isinstance(message, ModelRequest) else [_answered(message)]
    output = info.output_tools[0] if info.output_tools else None
    return ModelCall(
        model=name,
        messages=tuple(said),
        tools=tuple(_offered(tool) for tool in info.function_tools),
        output=None if output is None else OutputSchema(output.name, output.parameters_json_schema, is_tool=True),
        number=number,
    )


def _offered(tool: ToolDefinition) -> OfferedTool:
    return OfferedTool(tool.name, tool.description or "", tool.parameters_json_schema)


def _asked(request: ModelRequest) -> Iterator[Message]:
    for part in request.parts:
        if isinstance(part, SystemPromptPart):
            yield Message("system", part.content)
        elif isinstance(part, UserPromptPart):
            yield Message("user", part.content if isinstance(part.content, str) else str(part.content))
        elif isinstance(part, ToolReturnPart):
            yield Message("tool", part.model_response_str(), tool_call_id=part.tool_call_id)
        elif isinstance(part, RetryPromptPart):
            role = "user" if part.tool_name is None else "tool"
            yield Message(role, part.model_response(), tool_call_id=part.tool_call_id)


def _answered(response: ModelResponse) -> Message:
    calls = [
        ToolCall(part.tool_name, part.args_as_dict(), part.tool_call_id)
        for part in response.parts
        if isinstance(part, ToolCallPart)
    ]
    return Message("assistant", response.text or "", tuple(calls))


# --- from the script's answer to pydantic-ai's ------------------------------------------------------------------------


def _respond(call: ModelCall, answer: Answer) -> ModelResponse:
    parts: list[ModelResponsePart] = [ToolCallPart(tool.name, tool.arguments_json) for tool in answer.tool_calls]
    if answer.value is not None and call.output is not None:
        parts.append(ToolCallPart(call.output.name, answer.value))
    if answer.text is not None:
        parts.append(TextPart(answer.text))
    said = "".join(str(part) for part in parts)
    usage = RequestUsage(
        input_tokens=count_tokens(call.text) if answer.input_tokens is None else answer.input_tokens,
        output_tokens=count_tokens(said) if answer.output_tokens is None else answer.output_tokens,
    )
    reason = answer.finish_reason or ("tool_calls" if answer.tool_calls else "stop")
    return ModelResponse(
        parts=parts,
        usage=usage,
        model_name=call.model,
        finish_reason="tool_call" if reason == "tool_calls" else reason,
    )
