"""How an answer travels: bodies and event streams of the chat completions and the responses API."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from mixseek.testing.answers import Answer, FinishReason, ToolCall
from mixseek.testing.calls import ModelCall, count_tokens

__all__ = ["JSON", "Payload", "Reply", "Usage", "error_payload", "json_payload", "payload_of", "reply_of"]

JSON = "application/json"
_EVENTS = "text/event-stream"
_CREATED = 1_767_225_600
# Enough pieces to be a stream, few enough to be cheap; long texts come in pieces of this many characters.
_PIECES = 4
_LONGEST_PIECE = 65_536


@dataclass(frozen=True, slots=True)
class Usage:
    """The tokens an answer says it cost."""

    input_tokens: int
    output_tokens: int


@dataclass(frozen=True, slots=True)
class Reply:
    """An answer made ready for one call: nothing is left to be worked out but its form."""

    id: str
    text: str | None
    tool_calls: tuple[ToolCall, ...]
    finish_reason: FinishReason | None
    """None: the answer ends without saying why, as one that was cut off does."""
    usage: Usage | None


@dataclass(frozen=True, slots=True)
class Payload:
    """The bytes of one HTTP response, in the pieces in which they are written."""

    pieces: tuple[bytes, ...]
    content_type: str = JSON
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    usage: Usage | None = None
    is_answer: bool = True
    """False for errors and whatever else no model would call an answer."""


def reply_of(call: ModelCall, answer: Answer, identity: str) -> Reply:
    """``answer`` as the reply to ``call``: a value in the form asked for, ids, finish reason and usage filled in."""
    text, calls = answer.text, answer.tool_calls
    if answer.value is not None:
        text, calls = _as_asked(call, answer)
    calls = tuple(_identified(one, f"{identity}_{at}") for at, one in enumerate(calls))
    written = count_tokens(text or "") + sum(4 + count_tokens(one.name + one.arguments_json) for one in calls)
    usage = Usage(
        call.input_tokens if answer.input_tokens is None else answer.input_tokens,
        max(1, written) if answer.output_tokens is None else answer.output_tokens,
    )
    return Reply(identity, text, calls, answer.finish_reason or ("tool_calls" if calls else "stop"), usage)


def payload_of(call: ModelCall, reply: Reply) -> Payload:
    """The response that carries ``reply`` in the API and the form, whole or streamed, that ``call`` asked for."""
    if call.stream:
        # The usage comes with the end of a stream, and only to those who asked for it.
        usage = reply.usage if call.states_usage and reply.finish_reason else None
        events = _chat_events(call, reply) if call.api == "chat" else _responses_events(call, reply)
        return Payload(tuple(events), _EVENTS, usage=usage)
    body = _chat_body(call, reply) if call.api == "chat" else _responses_body(call, reply)
    return Payload((_dump(body),), usage=reply.usage)


def json_payload(call: ModelCall, body: Any, *, is_answer: bool = False) -> Payload:
    """A response that carries ``body``, whatever it is, as its whole content."""
    if call.stream:
        return Payload((b"data: " + _dump(body) + b"\n\n",), _EVENTS, is_answer=is_answer)
    return Payload((_dump(body),), is_answer=is_answer)


def error_payload(status: int, message: str, *, kind: str, code: str | None, headers: Mapping[str, str]) -> Payload:
    """An error as OpenAI words it."""
    body = {"error": {"message": message, "type": kind, "param": None, "code": code}}
    return Payload((_dump(body),), status=status, headers=headers, is_answer=False)


def _as_asked(call: ModelCall, answer: Answer) -> tuple[str | None, tuple[ToolCall, ...]]:
    if call.output is not None and call.output.is_tool:
        return answer.text, (*answer.tool_calls, ToolCall(call.output.name, answer.value))
    return json.dumps(answer.value, ensure_ascii=False), answer.tool_calls


def _identified(call: ToolCall, identity: str) -> ToolCall:
    return call if call.id else ToolCall(call.name, call.arguments, f"call_{identity}")


def _dump(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


def _pieces(text: str) -> Sequence[str]:
    length = min(_LONGEST_PIECE, max(1, -(-len(text) // _PIECES)))
    return [text[at : at + length] for at in range(0, len(text), length)]


# --- chat completions -------------------------------------------------------------------------------------------------


def _chat_body(call: ModelCall, reply: Reply) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "content": reply.text, "refusal": None}
    if reply.tool_calls:
        message["tool_calls"] = [_chat_tool_call(one) for one in reply.tool_calls]
    choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": reply.finish_reason}
    body = {**_chat_head(call, reply, "chat.completion"), "choices": [choice]}
    return body if reply.usage is None else {**body, "usage": _chat_usage(reply.usage)}


def _chat_events(call: ModelCall, reply: Reply) -> Iterator[bytes]:
    head = _chat_head(call, reply, "chat.completion.chunk")
    for delta in _chat_deltas(reply):
        yield _chat_event(head, [{"index": 0, "delta": delta, "logprobs": None, "finish_reason": None}])
    if reply.finish_reason is None:
        return
    yield _chat_event(head, [{"index": 0, "delta": {}, "logprobs": None, "finish_reason": reply.finish_reason}])
    if call.states_usage and reply.usage is not None:
        yield _chat_event(head, [], usage=_chat_usage(reply.usage))
    yield b"data: [DONE]\n\n"


def _chat_deltas(reply: Reply) -> Iterator[dict[str, Any]]:
    yield {"role": "assistant", "content": None if reply.text is None else ""}
    for piece in _pieces(reply.text or ""):
        yield {"content": piece}
    for index, one in enumerate(reply.tool_calls):
        yield {"tool_calls": [{"index": index, **_chat_tool_call(ToolCall(one.name, "", one.id))}]}
        for piece in _pieces(one.arguments_json):
            yield {"tool_calls": [{"index": index, "function": {"arguments": piece}}]}


def _chat_event(head: dict[str, Any], choices: list[dict[str, Any]], **more: Any) -> bytes:
    return b"data: " + _dump({**head, "choices": choices, **more}) + b"\n\n"


def _chat_head(call: ModelCall, reply: Reply, kind: str) -> dict[str, Any]:
    return {"id": f"chatcmpl-{reply.id}", "object": kind, "created": _CREATED, "model": call.model}


def _chat_tool_call(call: ToolCall) -> dict[str, Any]:
    return {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments_json}}


def _chat_usage(usage: Usage) -> dict[str, Any]:
    return {
        "prompt_tokens": usage.input_tokens,
        "completion_tokens": usage.output_tokens,
        "total_tokens": usage.input_tokens + usage.output_tokens,
        "prompt_tokens_details": {"cached_tokens": 0, "audio_tokens": 0},
        "completion_tokens_details": {"reasoning_tokens": 0, "audio_tokens": 0},
    }


# --- responses --------------------------------------------------------------------------------------------------------


def _responses_body(call: ModelCall, reply: Reply) -> dict[str, Any]:
    return _response(call, reply, _responses_status(reply), _responses_items(reply), reply.usage)


def _responses_events(call: ModelCall, reply: Reply) -> Iterator[bytes]:
    story = list(_responses_story(call, reply))
    if reply.finish_reason is None:
        # Cut off after the last word: nothing that was begun is ever said to be done.
        said = max((at for at, event in enumerate(story) if event["type"].endswith(".delta")), default=1)
        story = story[: said + 1]
    for number, event in enumerate(story):
        yield f"event: {event['type']}\ndata: ".encode() + _dump({**event, "sequence_number": number}) + b"\n\n"


def _responses_story(call: ModelCall, reply: Reply) -> Iterator[dict[str, Any]]:
    begun = _response(call, reply, "in_progress", [], None)
    yield {"type": "response.created", "response": begun}
    yield {"type": "response.in_progress", "response": begun}
    for index, item in enumerate(_responses_items(reply)):
        inside = _message_story(item, index) if item["type"] == "message" else _call_story(item, index)
        yield from inside
        yield {"type": "response.output_item.done", "output_index": index, "item": item}
    whole = _responses_body(call, reply)
    yield {"type": f"response.{whole['status']}", "response": whole}


def _message_story(item: dict[str, Any], index: int) -> Iterator[dict[str, Any]]:
    place = {"item_id": item["id"], "output_index": index, "content_index": 0}
    begun = {**item, "status": "in_progress", "content": []}
    yield {"type": "response.output_item.added", "output_index": index, "item": begun}
    for part in item["content"]:
        yield {"type": "response.content_part.added", **place, "part": {**part, "text": ""}}
        for piece in _pieces(part["text"] or ""):
            yield {"type": "response.output_text.delta", **place, "delta": piece, "logprobs": []}
        yield {"type": "response.output_text.done", **place, "text": part["text"], "logprobs": []}
        yield {"type": "response.content_part.done", **place, "part": part}


def _call_story(item: dict[str, Any], index: int) -> Iterator[dict[str, Any]]:
    place = {"item_id": item["id"], "output_index": index}
    begun = {**item, "status": "in_progress", "arguments": ""}
    yield {"type": "response.output_item.added", "output_index": index, "item": begun}
    for piece in _pieces(item["arguments"]):
        yield {"type": "response.function_call_arguments.delta", **place, "delta": piece}
    done = {"name": item["name"], "arguments": item["arguments"]}
    yield {"type": "response.function_call_arguments.done", **place, **done}


def _responses_items(reply: Reply) -> list[dict[str, Any]]:
    calls = [_responses_tool_call(one) for one in reply.tool_calls]
    if reply.text is None and calls:
        return calls
    part: dict[str, Any] = {"type": "output_text", "text": reply.text, "annotations": [], "logprobs": []}
    message = {"type": "message", "id": f"msg_{reply.id}", "status": "completed", "role": "assistant"}
    return [{**message, "content": [part]}, *calls]


def _responses_tool_call(call: ToolCall) -> dict[str, Any]:
    return {
        "type": "function_call",
        "id": f"fc_{call.id}",
        "call_id": call.id,
        "name": call.name,
        "arguments": call.arguments_json,
        "status": "completed",
    }


def _responses_status(reply: Reply) -> str:
    if reply.finish_reason is None:
        return "in_progress"
    return "incomplete" if reply.finish_reason in ("length", "content_filter") else "completed"


def _response(
    call: ModelCall, reply: Reply, status: str, output: list[dict[str, Any]], usage: Usage | None
) -> dict[str, Any]:
    reasons = {"length": "max_output_tokens", "content_filter": "content_filter"}
    incomplete = {"reason": reasons[reply.finish_reason or ""]} if status == "incomplete" else None
    return {
        "id": f"resp_{reply.id}",
        "object": "response",
        "created_at": _CREATED,
        "status": status,
        "error": None,
        "incomplete_details": incomplete,
        "instructions": None,
        "metadata": {},
        "model": call.model,
        "output": output,
        "parallel_tool_calls": call.parallel_tool_calls,
        "temperature": 1.0,
        "tool_choice": "auto",
        "tools": [],
        "top_p": 1.0,
        "usage": None if usage is None else _responses_usage(usage),
    }


def _responses_usage(usage: Usage) -> dict[str, Any]:
    return {
        "input_tokens": usage.input_tokens,
        "input_tokens_details": {"cached_tokens": 0},
        "output_tokens": usage.output_tokens,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": usage.input_tokens + usage.output_tokens,
    }
