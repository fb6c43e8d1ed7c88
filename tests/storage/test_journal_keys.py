import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import JsonValue

from mixseek.redaction import Redactor, sorted_json
from mixseek.storage.journal import CallScope, keyed_request, tool_key

SCOPE = CallScope(execution_id="e", team_id="t", round_number=1, role="leader", agent_name="a")
REDACTOR = Redactor(["the-secret-value"])
VOLATILE = ("timestamp", "run_id", "conversation_id")

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=10),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=10), inner, max_size=3),
    max_leaves=8,
)
lasting_names = st.text(max_size=10).filter(lambda name: name not in (*VOLATILE, "parts"))
parts = st.dictionaries(lasting_names, json_values, max_size=3)
message = st.builds(lambda own, inside: {**own, "parts": inside}, parts, st.lists(parts, max_size=3))
messages = st.lists(message, max_size=3)


def key_of(sent: Any, *, scope: CallScope = SCOPE, **other: Any) -> str:
    request: dict[str, Any] = {"model": "m", "settings": {"temperature": 0}, "tools": [], "attempt": 0, **other}
    return keyed_request(scope, messages=sent, redactor=REDACTOR, **request).key


def reversed_names(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: reversed_names(value[name]) for name in reversed(value)}
    return [reversed_names(item) for item in value] if isinstance(value, list) else value


@settings(max_examples=50)
@given(messages)
def test_the_order_of_names_does_not_matter(sent: list[Any]) -> None:
    assert key_of(reversed_names(sent)) == key_of(sent)


@settings(max_examples=50)
@given(messages, json_values)
def test_what_differs_between_two_runs_of_one_request_does_not_matter(sent: list[Any], value: Any) -> None:
    volatile = dict.fromkeys(VOLATILE, value)
    again = [{**message, **volatile, "parts": [{**part, **volatile} for part in message["parts"]]} for message in sent]
    assert key_of(again) == key_of(sent)


@settings(max_examples=50)
@given(messages)
def test_a_request_read_back_from_json_has_the_same_key(sent: list[Any]) -> None:
    assert key_of(json.loads(json.dumps(sent))) == key_of(sent)


@settings(max_examples=50)
@given(messages, json_values)
def test_tools_that_are_json_already_make_the_same_request(sent: list[Any], tools: Any) -> None:
    given: dict[str, Any] = {"model": "m", "settings": {"seed": 1}, "redactor": REDACTOR}
    by_value = keyed_request(SCOPE, messages=sent, tools=tools, **given)
    assert keyed_request(SCOPE, messages=sent, tools=sorted_json(tools), **given) == by_value
    assert json.loads(by_value.text)["parameters"] == REDACTOR.value(tools)


@pytest.mark.parametrize("where", ["messages", "tools"])
def test_half_a_surrogate_pair_in_a_request_is_kept(where: str) -> None:
    asked: dict[str, Any] = {"messages": [{"parts": []}], "tools": {"name": "t"}, where: [{"content": "\ud800"}]}
    request = keyed_request(SCOPE, model="m", settings={}, redactor=REDACTOR, **asked)
    assert request.text.has_surrogates
    assert request.key == keyed_request(SCOPE, model="m", settings={}, redactor=REDACTOR, **asked).key


@settings(max_examples=50)
@given(json_values, json_values)
def test_different_contents_have_different_keys(one: Any, other: Any) -> None:
    same = json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)
    assert (key_of([{"parts": [{"content": one}]}]) == key_of([{"parts": [{"content": other}]}])) == same


def test_everything_else_of_a_request_matters() -> None:
    scopes = [
        SCOPE.model_copy(update=change)
        for change in (
            {"execution_id": "e2"},
            {"team_id": "t2"},
            {"round_number": 2},
            {"role": "member"},
            {"agent_name": "b"},
        )
    ]
    changes: list[dict[str, Any]] = [{"model": "n"}, {"settings": {}}, {"tools": [{"name": "x"}]}, {"attempt": 1}]
    keys = [key_of([]), *(key_of([], scope=scope) for scope in scopes), *(key_of([], **change) for change in changes)]
    assert len(set(keys)) == len(keys)


def test_a_value_cannot_move_from_one_place_to_the_next() -> None:
    one = SCOPE.model_copy(update={"team_id": "ab", "execution_id": "c"})
    other = SCOPE.model_copy(update={"team_id": "a", "execution_id": "bc"})
    assert key_of([], scope=one) != key_of([], scope=other)


@pytest.mark.parametrize("name", VOLATILE)
def test_an_argument_that_has_a_volatile_name_matters(name: str) -> None:
    keys = {key_of([{"parts": [{"args": {name: value}}]}]) for value in (1, 2)}
    assert len(keys) == 2


def test_a_request_that_repeats_a_redacted_answer_is_found_again() -> None:
    first: JsonValue = [{"parts": [{"content": "it is the-secret-value"}]}]
    resumed = REDACTOR.value(first)
    assert resumed != first
    assert key_of(resumed) == key_of(first)


def test_odd_texts_have_keys() -> None:
    assert len({key_of([text]) for text in ("\0", "\ud800", "\ud83d\ude00", "😀", "")}) == 5


def test_messages_may_be_any_json_value() -> None:
    assert (
        len({key_of(sent) for sent in (None, "text", {"a": 1}, ["text"], [{"parts": None}], [{"parts": ["x"]}])}) == 6
    )


@settings(max_examples=50)
@given(st.dictionaries(st.text(max_size=10), json_values))
def test_a_tool_key_depends_on_scope_tool_and_arguments_but_not_on_their_order(arguments: dict[str, Any]) -> None:
    key = tool_key(SCOPE, "tool", arguments, redactor=REDACTOR)
    assert tool_key(SCOPE, "tool", reversed_names(arguments), redactor=REDACTOR) == key
    assert tool_key(SCOPE, "other", arguments, redactor=REDACTOR) != key
    assert tool_key(SCOPE, "tool", arguments, attempt=1, redactor=REDACTOR) != key
    assert tool_key(SCOPE, "tool", arguments, within="a call of the member", redactor=REDACTOR) != key
    assert tool_key(SCOPE, "tool", arguments, call_id="a", redactor=REDACTOR) != key
    assert tool_key(SCOPE, "tool", {**arguments, "one more name": 1}, redactor=REDACTOR) != key
