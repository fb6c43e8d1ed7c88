"""One call of a model as a script sees it, read from a request of the chat completions or the responses API."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from hashlib import blake2b
from typing import Any, Literal, TypeAlias

from mixseek.testing.answers import ToolCall

__all__ = [
    "Api",
    "Message",
    "ModelCall",
    "OfferedTool",
    "OutputSchema",
    "Role",
    "count_tokens",
    "read_call",
    "without_volatile",
]

Api: TypeAlias = Literal["chat", "responses"]
Role: TypeAlias = Literal["leader", "member", "evaluator", "judgment"]

# What differs between two runs of the same competition: ids, nonces and clocks. An answer must not depend on them.
# Three patterns that each begin with one literal or one set are found many times faster than one that has to try all.
_VOLATILE = (
    re.compile(r"[0-9a-f][0-9a-f]{7}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"),
    re.compile(r'data id="[^"]*"'),
    re.compile(r"[12]\d\d\d-\d\d-\d\d[T ]\d\d:\d\d[\d:.]*(?:Z|[+-]\d\d:?\d\d)?"),
)
_ROUND = re.compile(r"(?:ラウンド|[Rr]ound)\s*[#:：]?\s*(\d+)")


@dataclass(frozen=True, slots=True)
class Message:
    """One message of the conversation so far; ``role`` is system, user, assistant or tool."""

    role: str
    text: str
    tool_calls: tuple[ToolCall, ...] = ()
    tool_call_id: str | None = None


@dataclass(frozen=True, slots=True)
class OfferedTool:
    """A tool the model may call."""

    name: str
    description: str
    schema: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class OutputSchema:
    """The structured output a request asks for, as a tool to call or as JSON text."""

    name: str
    schema: Mapping[str, Any]
    is_tool: bool


@dataclass(frozen=True)
class ModelCall:
    """What a model was asked: the conversation, the tools on offer and the output that is wanted."""

    model: str
    messages: tuple[Message, ...]
    tools: tuple[OfferedTool, ...] = ()
    output: OutputSchema | None = None
    number: int = 1
    """The how-many-eth call of this model it is, from 1."""
    api: Api = "chat"
    stream: bool = False
    parallel_tool_calls: bool = True
    states_usage: bool = True
    """False for a chat stream that did not ask for its usage."""
    body: Mapping[str, Any] = field(default_factory=dict, repr=False)

    @property
    def role(self) -> Role:
        """Who seems to ask, by what is on offer: tools a leader, a schema a judge, neither a member."""
        if self.output is not None and not self.tools:
            return "judgment" if "should_continue" in self.output.schema.get("properties", ()) else "evaluator"
        return "leader" if self.tools else "member"

    @property
    def system(self) -> str:
        """All system messages, one after the other."""
        return "\n".join(message.text for message in self.messages if message.role == "system")

    @property
    def prompt(self) -> str:
        """The last thing the user said."""
        return next((message.text for message in reversed(self.messages) if message.role == "user"), "")

    @cached_property
    def text(self) -> str:
        """Everything said so far."""
        return "\n".join(message.text for message in self.messages)

    @property
    def round_number(self) -> int | None:
        """The last round the prompt speaks of, if it speaks of any."""
        found = _ROUND.findall(self.prompt)
        return int(found[-1]) if found else None

    @property
    def tool_results(self) -> tuple[str, ...]:
        """What tools gave since the user last spoke."""
        return tuple(message.text for message in self._since_the_user_spoke if message.role == "tool")

    @property
    def uncalled_tools(self) -> tuple[OfferedTool, ...]:
        """The tools on offer that were not called since the user last spoke."""
        called = {call.name for message in self._since_the_user_spoke for call in message.tool_calls}
        return tuple(tool for tool in self.tools if tool.name not in called)

    @property
    def _since_the_user_spoke(self) -> tuple[Message, ...]:
        last = max((at for at, message in enumerate(self.messages) if message.role == "user"), default=-1)
        return self.messages[last + 1 :]

    @cached_property
    def input_tokens(self) -> int:
        """The tokens this call is billed for."""
        said = sum(4 + count_tokens(message.text) + _tokens_of_calls(message) for message in self.messages)
        return said + sum(8 + count_tokens(tool.name + tool.description) for tool in self.tools)

    def digest(self, seed: int = 0) -> str:
        """A fingerprint of the conversation; ids, nonces and clocks leave no trace in it."""
        calls = (f"{call.name}{call.arguments_json}" for message in self.messages for call in message.tool_calls)
        said = without_volatile("\x1f".join((str(seed), self.model, self.text, *calls)))
        return blake2b(said.encode(errors="surrogatepass"), digest_size=8).hexdigest()


def count_tokens(text: str) -> int:
    """A token for every four bytes of UTF-8, begun ones included: cheap, repeatable, and close enough for a bill.

    >>> count_tokens("Tokyo"), count_tokens("")
    (2, 0)
    """
    return (len(text.encode(errors="surrogatepass")) + 3) // 4


def without_volatile(text: str) -> str:
    """``text`` without its ids, nonces and clocks."""
    for pattern in _VOLATILE:
        text = pattern.sub("", text)
    return text


def read_call(api: Api, body: Mapping[str, Any], number: int) -> ModelCall:
    """The call that a request body makes; a body that makes none raises ``ValueError``."""
    if not isinstance(body, dict) or not isinstance(body.get("model"), str):
        raise ValueError("the body must be a JSON object with a 'model'")
    try:
        return _read_chat(body, number) if api == "chat" else _read_responses(body, number)
    except (TypeError, KeyError, AttributeError) as error:
        raise ValueError(f"the body is not a {api} request: {type(error).__name__}: {error}") from error


def _read_chat(body: Mapping[str, Any], number: int) -> ModelCall:
    offered = [_tool(tool["function"]) for tool in body.get("tools") or () if tool.get("type") == "function"]
    wanted = body.get("response_format") or {}
    tools, output = _split(offered, body.get("tool_choice"), wanted.get("type"), wanted.get("json_schema"))
    stream = bool(body.get("stream"))
    return ModelCall(
        model=body["model"],
        messages=tuple(_chat_message(message) for message in body["messages"]),
        tools=tools,
        output=output,
        number=number,
        stream=stream,
        parallel_tool_calls=body.get("parallel_tool_calls") is not False,
        states_usage=not stream or bool((body.get("stream_options") or {}).get("include_usage")),
        body=body,
    )


def _read_responses(body: Mapping[str, Any], number: int) -> ModelCall:
    offered = [_tool(tool) for tool in body.get("tools") or () if tool.get("type") == "function"]
    wanted = (body.get("text") or {}).get("format") or {}
    tools, output = _split(offered, body.get("tool_choice"), wanted.get("type"), wanted)
    return ModelCall(
        model=body["model"],
        messages=_joined(_responses_messages(body)),
        tools=tools,
        output=output,
        number=number,
        api="responses",
        stream=bool(body.get("stream")),
        parallel_tool_calls=body.get("parallel_tool_calls") is not False,
        body=body,
    )


def _tool(given: Mapping[str, Any]) -> OfferedTool:
    return OfferedTool(given["name"], given.get("description") or "", given.get("parameters") or {"type": "object"})


def _split(
    offered: list[OfferedTool], choice: Any, wanted_type: str | None, wanted: Mapping[str, Any] | None
) -> tuple[tuple[OfferedTool, ...], OutputSchema | None]:
    """Tell the tools that do work from the one whose arguments are the answer."""
    if wanted_type in ("json_schema", "json_object"):
        wanted = wanted if wanted and "schema" in wanted else {"name": "json_object", "schema": {"type": "object"}}
        output = OutputSchema(wanted.get("name", "output"), wanted["schema"], is_tool=False)
        return tuple(offered) if choice != "none" else (), output
    if choice == "none":
        return (), None
    answers = _output_tools(offered, choice)
    if not answers:
        return tuple(offered), None
    work = tuple(tool for tool in offered if tool not in answers)
    return work, OutputSchema(answers[0].name, answers[0].schema, is_tool=True)


def _output_tools(offered: list[OfferedTool], choice: Any) -> list[OfferedTool]:
    """The output tools: those named as pydantic-ai names them, else what a forced choice leaves beside members."""
    if named := [tool for tool in offered if tool.name.startswith("final_result")]:
        return named
    forced = _forced_tools(choice, offered)
    return [tool for tool in forced if "task" not in tool.schema.get("properties", ())]


def _forced_tools(choice: Any, offered: list[OfferedTool]) -> list[OfferedTool]:
    if choice == "required":
        return offered
    if not isinstance(choice, dict):
        return []
    allowed = choice.get("allowed_tools", choice)
    if allowed.get("mode") == "auto":
        return []
    names = {_chosen_name(given) for given in allowed.get("tools") or [choice]}
    return [tool for tool in offered if tool.name in names]


def _chosen_name(given: Mapping[str, Any]) -> str | None:
    name = given.get("name") or (given.get("function") or {}).get("name")
    return name if isinstance(name, str) else None


def _chat_message(message: Mapping[str, Any]) -> Message:
    calls = (call["function"] for call in message.get("tool_calls") or ())
    return Message(
        role=_role(message["role"]),
        text=_text(message.get("content")),
        tool_calls=tuple(ToolCall(call["name"], call.get("arguments") or "") for call in calls),
        tool_call_id=message.get("tool_call_id"),
    )


def _responses_messages(body: Mapping[str, Any]) -> Iterable[Message]:
    if body.get("instructions"):
        yield Message("system", body["instructions"])
    given = body["input"]
    for item in [{"role": "user", "content": given}] if isinstance(given, str) else given:
        match item.get("type", "message"):
            case "message":
                yield Message(_role(item["role"]), _text(item.get("content")))
            case "function_call":
                call = ToolCall(item["name"], item.get("arguments") or "", item.get("call_id"))
                yield Message("assistant", "", (call,))
            case "function_call_output":
                yield Message("tool", _text(item.get("output")), tool_call_id=item.get("call_id"))


def _joined(messages: Iterable[Message]) -> tuple[Message, ...]:
    """The messages with what the assistant said in one go as one, as the chat API has it."""
    joined: list[Message] = []
    for message in messages:
        if joined and message.role == joined[-1].role == "assistant":
            last = joined.pop()
            message = Message("assistant", last.text + message.text, last.tool_calls + message.tool_calls)
        joined.append(message)
    return tuple(joined)


def _role(name: str) -> str:
    return "system" if name == "developer" else name


def _text(content: Any) -> str:
    if isinstance(content, str):
        return content
    return "\n".join(part.get("text") or "" for part in content or ())


def _tokens_of_calls(message: Message) -> int:
    return sum(4 + count_tokens(call.name + call.arguments_json) for call in message.tool_calls)
