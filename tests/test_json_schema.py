"""JSON that has to meet a schema."""

import json
import time
from typing import Any

import pytest

from mixseek.json_schema import JsonSchema, SchemaError, bare_json, read_json


@pytest.mark.parametrize(
    ("text", "bare"),
    [
        (' {"a": 1}\n', '{"a": 1}'),
        ('```json\n{"a": 1}\n```', '{"a": 1}'),
        ("```\n[1]\n```\n", "[1]"),
        ('``` JSON\r\n"x"\r\n```', '"x"'),
        ('Here it is:\n```json\n{"a": 1}\n```', 'Here it is:\n```json\n{"a": 1}\n```'),
    ],
)
def test_one_code_fence_around_all_of_it_is_taken_off(text: str, bare: str) -> None:
    assert bare_json(text) == bare


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "not JSON"),
        ("It is Kyoto.", "not JSON"),
        ('{"a": 1} and more', "Extra data"),
        ('{"score": NaN}', "NaN is no number"),
        ("-Infinity", "Infinity is no number"),
        ('{"a": 1, "a": 2}', "'a' more than once"),
        ("[" * 101 + "]" * 101, "nested more than 100 levels"),
        ("[" * 500_000, "nested more than 100 levels"),
        ("9" * 5000, "digits"),
        ('"' + "x" * 1_000_000 + '"', "longer than 1,000,000 characters"),
    ],
)
def test_what_is_no_json_is_told_in_words(text: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        read_json(text)


def test_json_of_the_deepest_form_that_is_read_can_be_checked() -> None:
    value = read_json("[" * 100 + "]" * 100)
    assert JsonSchema({"$defs": {"list": {"items": {"$ref": "#/$defs/list"}}}, "$ref": "#/$defs/list"}).faults(
        value
    ) in (
        [],
        ["it is nested too deeply to be checked: make it flatter"],
    )


def test_faults_name_the_place_and_what_is_wrong_there() -> None:
    schema = JsonSchema(
        {
            "type": "object",
            "properties": {"steps": {"type": "array", "items": {"type": "string", "minLength": 2}}},
            "required": ["steps", "cost"],
            "additionalProperties": False,
        }
    )
    assert schema.faults({"steps": ["ok", "x", 3], "price": 4}) == [
        "steps[1]: 'x' is too short",
        "steps[2]: 3 is not of type 'string'",
        "'cost' is a required property",
        "the key 'price' is not allowed",
    ]
    assert schema.faults({"steps": ["ok"], "cost": 1}) == ["the key 'cost' is not allowed"]


def test_of_several_ways_the_one_that_came_nearest_is_told() -> None:
    city = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
    [fault] = JsonSchema({"anyOf": [{"type": "null"}, city]}).faults({"name": 3})
    assert fault == "name: 3 is not of type 'string'"


def test_a_long_list_of_faults_and_long_values_are_cut() -> None:
    faults = JsonSchema({"items": {"type": "integer"}}).faults(["x" * 10_000] * 100)
    assert len(faults) == 5
    assert max(map(len, faults)) < 400


@pytest.mark.parametrize(
    ("draft", "fits"),
    [
        ("http://json-schema.org/draft-04/schema#", True),
        ("http://json-schema.org/draft-07/schema#", False),
        ("https://json-schema.org/draft/2020-12/schema", False),
    ],
)
def test_the_schema_chooses_its_draft(draft: str, fits: bool) -> None:
    # In draft 4 the limit itself is left out by a flag, which later drafts do not have.
    limits = {"minimum": 1, "exclusiveMinimum": False} if fits else {"exclusiveMinimum": 1}
    assert (JsonSchema({"$schema": draft, **limits}).faults(1) == []) is fits


@pytest.mark.parametrize(
    ("schema", "why"),
    [
        ({"type": "strin"}, "is no JSON schema: type"),
        ({"required": "name"}, "is no JSON schema: required"),
        ({"pattern": "("}, "is no JSON schema: pattern"),
        ({"patternProperties": {"[": True}}, "is no JSON schema"),
        ({"$schema": "https://example.com/own"}, "names no draft that is known"),
        ({"$schema": 7}, "names no draft that is known"),
        ({"$ref": "https://example.com/schema.json"}, "leads nowhere in the schema"),
        ({"properties": {"a": {"$ref": "#/$defs/missing"}}}, "leads nowhere in the schema"),
        ({"properties": {"a": {"$ref": "#missing"}}}, "leads nowhere in the schema"),
        ({"$id": "http://127.0.0.1:9/s", "items": {"$ref": "other.json"}}, "leads nowhere in the schema"),
        ({"$ref": "#"}, "refers to itself without end"),
        ({"$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}, "$ref": "#/$defs/a"}, "without end"),
        ({"items": {"$schema": "http://json-schema.org/draft-07/schema#"}}, "names two drafts"),
        ({"unevaluatedProperties": False, "patternProperties": {"a": True}}, "additionalProperties"),
        ({"const": float("nan")}, "holds what JSON cannot say"),
        ({"const": "x" * 200_001}, "is longer than"),
    ],
)
def test_a_schema_that_cannot_be_used_is_refused(schema: dict[str, Any], why: str) -> None:
    with pytest.raises(SchemaError, match=why.replace("$", r"\$")):
        JsonSchema(schema)


def test_references_within_the_schema_and_to_a_draft_are_followed() -> None:
    schema = JsonSchema(
        {
            "$id": "https://example.com/tree",
            "$schema": "https://json-schema.org/draft/2020-12/schema",
            "properties": {"children": {"items": {"$ref": "#"}}, "meta": {"$ref": "tree#/$defs/meta"}},
            "$defs": {"meta": {"$anchor": "meta", "type": "string"}},
            "additionalProperties": False,
        }
    )
    assert schema.faults({"children": [{"children": [{"meta": "x"}]}]}) == []
    assert schema.faults({"children": [{"children": [{"meta": 1}]}]}) == [
        "children[0].children[0].meta: 1 is not of type 'string'"
    ]
    assert JsonSchema({"$ref": "https://json-schema.org/draft/2020-12/schema"}).faults({"type": "strin"})


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ({"pattern": "^(a|aa)+$"}, "a" * 100 + "!"),
        ({"patternProperties": {"^(a|aa)+$": True}}, {"a" * 100 + "!": 1}),
        ({"patternProperties": {"^(a|aa)+$": True}, "additionalProperties": False}, {"a" * 100 + "!": 1}),
        # A reference to the root must not lead out of the bounds.
        (
            {
                "$schema": "https://json-schema.org/draft/2020-12/schema",
                "pattern": "^(a|aa)+$",
                "items": {"$ref": "#"},
            },
            ["a" * 100 + "!"],
        ),
        # Each level is looked at twice: 2^40 steps.
        (
            {
                "$defs": {
                    str(n): {"allOf": [{"$ref": f"#/$defs/{n + 1}"}, {"$ref": f"#/$defs/{n + 1}"}]} for n in range(40)
                }
                | {"40": {"type": "string"}},
                "items": {"$ref": "#/$defs/0"},
            },
            ["x"],
        ),
    ],
)
def test_no_answer_keeps_the_process_busy(schema: dict[str, Any], value: Any) -> None:
    made = JsonSchema(schema)
    began = time.monotonic()
    assert made.faults(value) == ["it could not be checked within 1 s: make it simpler"]
    assert time.monotonic() - began < 10


def test_a_long_list_of_different_objects_is_found_to_be_unique() -> None:
    schema = JsonSchema({"uniqueItems": True})
    items: list[Any] = [{"n": n, "t": [n, str(n)]} for n in range(20_000)]
    assert schema.faults(items) == []
    assert schema.faults([*items, {"t": [5.0, "5"], "n": 5}]) == ["the list holds the same item twice"]
    assert schema.faults([True, 1, "1", None]) == []


def test_numbers_beyond_any_size_are_told_and_do_not_raise() -> None:
    assert JsonSchema({"multipleOf": 0.5}).faults(10**400)
    assert JsonSchema({"multipleOf": 0.5}).faults(1e308) == []


def test_the_source_is_what_was_given() -> None:
    schema = {"type": "object", "$schema": "https://json-schema.org/draft/2020-12/schema", "title": "都市"}
    assert json.loads(JsonSchema(schema).source) == schema
    assert "都市" in JsonSchema(schema).source
