"""Between pydantic-ai's values and ours."""

from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from hashlib import sha256
from math import inf, nan
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic_ai import (
    BinaryContent,
    FilePart,
    ModelMessage,
    ModelMessagesTypeAdapter,
    ModelRequest,
    ModelResponse,
    RunUsage,
    SystemPromptPart,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    UserPromptPart,
)
from pydantic_ai.usage import RequestUsage

from mixseek.config.schema import LeaderSettings, ModelParams
from mixseek.llm import messages_from_json, messages_to_json, model_settings, usage_record
from mixseek.llm.convert import answer_from_json, answer_to_json, plain_request, settings_text, settings_to_json
from mixseek.records import Usage
from mixseek.redaction import MadeJson, Redactor
from mixseek.storage.journal import CallScope, Request, keyed_request


def test_every_parameter_has_its_setting() -> None:
    params = ModelParams(
        temperature=0.0, max_tokens=9, timeout_seconds=8, max_retries=0, stop_sequences=["x"], top_p=0.5, seed=7
    )
    assert model_settings(params) == {
        "temperature": 0.0,
        "max_tokens": 9,
        "timeout": 8,
        "max_retries": 0,
        "stop_sequences": ["x"],
        "top_p": 0.5,
        "seed": 7,
    }
    assert len(model_settings(params)) == len(ModelParams.model_fields)


def test_what_is_not_set_is_left_to_the_provider() -> None:
    assert model_settings(ModelParams()) == {}
    assert model_settings(LeaderSettings()) == {"timeout": 300, "max_retries": 3}


def test_usage_of_a_run_and_of_a_request_are_records() -> None:
    run = RunUsage(requests=3, tool_calls=2, input_tokens=10, output_tokens=5, cache_read_tokens=4, details={"x": 1})
    assert usage_record(run) == Usage(
        requests=3, tool_calls=2, input_tokens=10, output_tokens=5, cache_read_tokens=4, details={"x": 1}
    )
    assert usage_record(RequestUsage(input_tokens=1)) == Usage(requests=1, input_tokens=1)


def test_messages_come_back_from_json_as_they_were_with_files_told_by_their_hashes() -> None:
    messages: list[ModelMessage] = [
        ModelRequest(parts=[UserPromptPart(["look", BinaryContent(b"\x00\xff", media_type="image/png")])]),
        ModelResponse(parts=[TextPart("hm"), ToolCallPart("see", {"at": "10:00"})], usage=RequestUsage(input_tokens=3)),
    ]
    kept = messages_to_json(messages)
    again = messages_from_json(kept)
    assert messages_to_json(again) == kept
    assert again[1] == messages[1]
    part: Any = again[0].parts[0]
    assert part.content == ["look", f"[image/png, 2 bytes, sha256:{sha256(bytes([0, 255])).hexdigest()}]"]


def _request(messages: Any, tools: Any = (), settings: Any = None) -> Request:
    scope = CallScope(execution_id="e", team_id="t", round_number=1, role="leader", agent_name="a")
    redactor = Redactor(["the-secret-value"])
    return keyed_request(
        scope, messages=messages, tools=list(tools), model="m", settings=settings or {}, redactor=redactor
    )


texts = st.text(max_size=30) | st.sampled_from(["the-secret-value", '"\\\n\u2028', "日本"])


@settings(max_examples=100)
@given(st.lists(texts, max_size=3), st.none() | texts)
def test_a_message_of_texts_alone_is_made_json_quickly_and_is_the_same_request(
    said: list[str], instructions: str | None
) -> None:
    message = ModelRequest([UserPromptPart(text) for text in said], instructions=instructions, run_id="r")
    plain = plain_request([message])
    assert plain is not None
    quick = plain.text()
    assert _request(quick) == _request(messages_to_json([message]))
    assert _request(quick, ["\ud800"]) == _request(messages_to_json([message]), ["\ud800"])


@pytest.mark.parametrize(
    "messages",
    [
        [],
        [ModelRequest([UserPromptPart("a")]), ModelResponse([TextPart("b")])],
        [ModelRequest([UserPromptPart("a")]), ModelRequest([UserPromptPart("b")])],
        [ModelRequest([SystemPromptPart("a"), UserPromptPart("b")])],
        [ModelRequest([UserPromptPart(["a", "b"])])],
        [ModelRequest([UserPromptPart("a")], metadata={"x": 1})],
        [ModelRequest([UserPromptPart("a")], state="interrupted")],
        [ModelRequest([UserPromptPart("\ud800")])],
        [ModelRequest([UserPromptPart("a")], instructions="\ud800")],
    ],
)
def test_messages_of_more_than_texts_are_not_made_json_by_the_quick_way(messages: list[ModelMessage]) -> None:
    assert plain_request(messages) is None


@dataclass
class _Response(ModelResponse):
    """What an adapter of a stranger may give."""

    extra: int = 3


_MOMENT = datetime(2026, 1, 1, 9, tzinfo=timezone(timedelta(hours=9)))


@pytest.mark.parametrize(
    "answer",
    [
        ModelResponse([]),
        ModelResponse(
            [TextPart("日本\u2028\n"), ToolCallPart("final_result", '{"score": 1}', "id")], timestamp=_MOMENT
        ),
        ModelResponse([ToolCallPart("t", {"a": [None, {"b": nan}]})], usage=RequestUsage(details={"x": 1})),
        ModelResponse([TextPart("a", id="1")], provider_details={"at": _MOMENT, "raw": b"\xff", "p": inf}),
        ModelResponse([TextPart("a")], metadata={"x": 1}, finish_reason="stop", run_id="r", state="interrupted"),
        ModelResponse([ThinkingPart("hm", signature="s"), TextPart("a")]),
        ModelResponse([FilePart(BinaryContent(b"\x00\xff", media_type="image/png"))]),
        _Response([TextPart("a")]),
    ],
)
def test_an_answer_is_the_same_json_by_its_quick_way_as_among_other_messages(answer: ModelResponse) -> None:
    kept = answer_to_json(answer)
    assert kept == ModelMessagesTypeAdapter.dump_json([answer])[1:-1]
    assert answer_to_json(answer_from_json(kept)) == kept


def test_an_answer_that_utf_8_cannot_hold_is_kept_as_a_value() -> None:
    kept: Any = answer_to_json(ModelResponse([TextPart("\ud800")]))
    assert kept["parts"][0]["content"] == "\ud800"


def test_settings_are_text_with_their_names_in_order_or_a_value_that_utf_8_cannot_hold() -> None:
    assert settings_text({"temperature": 0.5, "seed": 1}) == MadeJson(b'{"seed":1,"temperature":0.5}')
    assert settings_text({"stop_sequences": ["\ud800"]}) == {"stop_sequences": ["\ud800"]}
    assert _request(["a"], settings=settings_text({"seed": 1})) == _request(["a"], settings={"seed": 1})


def test_a_setting_without_a_json_form_does_not_break_the_record() -> None:
    assert "object" in str(settings_to_json({"extra_body": {"x": object()}}))
