"""Rules, and the default answers that play a competition."""

from typing import Any

import pytest

from mixseek.testing import Answer, Match, Message, ModelCall, Script, ToolCall, default_answer
from mixseek.testing.calls import read_call

TASK = {"type": "object", "properties": {"task": {"type": "string"}}, "required": ["task"]}


def call(prompt: str = "Do it.", model: str = "m", **more: Any) -> ModelCall:
    return ModelCall(model=model, messages=(Message("user", prompt),), **more)


async def text(script: Script, asked: ModelCall) -> str | None:
    return (await script.answer(asked)).text


async def test_a_newer_rule_wins_and_an_older_one_takes_over_after_its_last_answer() -> None:
    script = Script()
    script.on(Match("*"), lambda asked: "old")
    script.on(Match("m"), ["new"])
    assert [await text(script, call()) for _ in "12"] == ["new", "old"]
    assert await text(script, call(model="other")) == "old"


async def test_none_is_the_default_answer() -> None:
    script = Script(seed=3)
    script.on(Match(), [None, "x"])
    script.on(Match("f"), lambda asked: None)
    assert await script.answer(call(model="f")) == default_answer(call(model="f"), 3)
    assert await text(script, call()) == "x"


async def test_a_function_may_be_asynchronous_and_may_answer_in_any_short_form() -> None:
    async def later(asked: ModelCall) -> list[ToolCall]:
        return [ToolCall("t", {"task": asked.prompt})]

    script = Script()
    script.on(Match("a"), later)
    script.on(Match("b"), lambda asked: {"score": 1})
    assert (await script.answer(call(model="a"))).tool_calls == (ToolCall("t", {"task": "Do it."}),)
    assert await script.answer(call(model="b")) == Answer(value={"score": 1})


@pytest.mark.parametrize("wrong", ["text", [[]], [42], [["text"]]])
def test_what_is_no_script_is_refused_when_it_is_given(wrong: Any) -> None:
    with pytest.raises(TypeError):
        Script().on(Match(), wrong)


def test_the_default_answer_follows_from_the_conversation_and_the_seed() -> None:
    assert default_answer(call()) == default_answer(call())
    others = [call("Do that."), call(model="n"), call("Do it.\n")]
    assert len({default_answer(each).text for each in [call(), *others]}) == 4
    assert default_answer(call(), 1) != default_answer(call(), 2)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ('<data id="c0ffee0012345678">x</data id="c0ffee0012345678">', '<data id="0123">x</data id="0123">'),
        ("now 2026-11-15T10:00:00.123456+09:00 go", "now 2027-01-02T03:04:05Z go"),
        ("run 7f0c2c3e-7d3b-4a50-9a8e-0f7f3f1f2a11", "run 00000000-0000-4000-8000-000000000000"),
    ],
)
def test_nonces_clocks_and_ids_change_no_answer(one: str, other: str) -> None:
    assert default_answer(call(one)) == default_answer(call(other))


def test_tool_calls_count_as_part_of_the_conversation() -> None:
    said = [
        ModelCall(model="m", messages=(Message("assistant", "", (ToolCall("t", {"task": task}),)),)) for task in "ab"
    ]
    assert default_answer(said[0]) != default_answer(said[1])


def test_tools_called_in_an_earlier_turn_are_called_again_in_a_new_one() -> None:
    earlier = {"role": "assistant", "tool_calls": [{"id": "1", "function": {"name": "t", "arguments": "{}"}}]}
    done = [{"role": "user", "content": "a"}, earlier, {"role": "tool", "tool_call_id": "1", "content": "r"}]
    offer = {"model": "m", "tools": [{"type": "function", "function": {"name": "t", "parameters": TASK}}]}
    assert default_answer(read_call("chat", {**offer, "messages": done}, 1)).text
    again = [*done, {"role": "user", "content": "b"}]
    assert [each.name for each in default_answer(read_call("chat", {**offer, "messages": again}, 2)).tool_calls] == [
        "t"
    ]


@pytest.mark.parametrize(
    ("choice", "tools", "output"),
    [
        (None, ["delegate", "verdict"], None),
        ("none", [], None),
        ("required", ["delegate"], "verdict"),
        ({"type": "function", "function": {"name": "verdict"}}, ["delegate"], "verdict"),
        ({"type": "function", "name": "verdict"}, ["delegate"], "verdict"),
        (
            {"type": "allowed_tools", "mode": "required", "tools": [{"type": "function", "name": "verdict"}]},
            ["delegate"],
            "verdict",
        ),
        ({"type": "allowed_tools", "mode": "auto", "tools": []}, ["delegate", "verdict"], None),
    ],
)
def test_output_tools_are_told_from_members(choice: Any, tools: list[str], output: str | None) -> None:
    offered = [
        {"type": "function", "function": {"name": "delegate", "parameters": TASK}},
        {"type": "function", "function": {"name": "verdict", "parameters": {"properties": {"score": {}}}}},
    ]
    body = {"model": "m", "messages": [], "tools": offered, "tool_choice": choice}
    read = read_call("chat", body, 1)
    assert [tool.name for tool in read.tools] == tools
    assert (read.output.name if read.output else None) == output


def test_both_apis_are_read_alike() -> None:
    chat = {
        "model": "m",
        "messages": [
            {"role": "developer", "content": "You lead."},
            {"role": "user", "content": [{"type": "text", "text": "Go."}]},
            {"role": "assistant", "tool_calls": [{"id": "1", "function": {"name": "t", "arguments": "{}"}}]},
            {"role": "tool", "tool_call_id": "1", "content": "done"},
        ],
    }
    responses = {
        "model": "m",
        "instructions": "You lead.",
        "input": [
            {"role": "user", "content": [{"type": "input_text", "text": "Go."}]},
            {"type": "function_call", "call_id": "1", "name": "t", "arguments": "{}"},
            {"type": "function_call_output", "call_id": "1", "output": "done"},
        ],
    }
    one, other = read_call("chat", chat, 1), read_call("responses", responses, 1)
    assert (one.system, one.prompt, one.tool_results) == ("You lead.", "Go.", ("done",))
    assert (other.system, other.prompt, other.tool_results) == ("You lead.", "Go.", ("done",))
    assert one.digest() == other.digest()
    assert one.input_tokens == other.input_tokens


@pytest.mark.parametrize(
    "body", [[], {}, {"model": 3}, {"model": "m"}, {"model": "m", "messages": [{}]}, {"model": "m", "messages": ["x"]}]
)
def test_a_body_that_is_no_request_is_refused(body: Any) -> None:
    with pytest.raises(ValueError, match="the body"):
        read_call("chat", body, 1)
