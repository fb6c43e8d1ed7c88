from datetime import datetime
from enum import Enum
from typing import Annotated, Any, Literal
from uuid import UUID

import pytest
from pydantic import BaseModel, Field, TypeAdapter

from mixseek.testing import example_value


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


class Node(BaseModel):
    name: str
    children: list["Node"]
    parent: "Node | None" = None


class Chain(BaseModel):
    following: "Chain | int"


class Cat(BaseModel):
    kind: Literal["cat"]
    lives: int = Field(ge=1, le=9)


class Dog(BaseModel):
    kind: Literal["dog"]
    tricks: set[Colour] = Field(min_length=2)


TYPES: list[Any] = [
    str,
    int,
    float,
    bool,
    None,
    Any,
    datetime,
    UUID,
    Colour,
    Node,
    Chain,
    Literal["a", 3],
    Annotated[float, Field(gt=0, lt=0.001)],
    Annotated[float, Field(ge=0, le=100)],
    Annotated[float, Field(lt=-5)],
    Annotated[int, Field(gt=3, lt=5)],
    Annotated[int, Field(ge=10, multiple_of=7)],
    Annotated[float, Field(multiple_of=0.5, le=3)],
    Annotated[str, Field(min_length=40, max_length=41)],
    Annotated[str, Field(max_length=3)],
    Annotated[str, Field(pattern=r"^[A-Z]{3}-\d+(?:x|y)?$")],
    Annotated[str, Field(pattern=r"^(yes|no)$")],
    list[int],
    Annotated[list[str], Field(min_length=3, max_length=3)],
    Annotated[set[int], Field(min_length=4)],
    tuple[int, str, bool],
    dict[str, float],
    Annotated[dict[str, int], Field(min_length=2)],
    Annotated[Cat | Dog, Field(discriminator="kind")],
    Dog,
    list[Cat | Dog],
    str | None,
]


@pytest.mark.parametrize("kind", TYPES, ids=str)
@pytest.mark.parametrize("optional", [True, False])
def test_a_value_is_valid_by_the_schema_it_was_made_for(kind: Any, optional: bool) -> None:
    adapter = TypeAdapter(kind)
    for seed in range(20):
        adapter.validate_json(
            TypeAdapter(Any).dump_json(example_value(adapter.json_schema(), str(seed), optional=optional))
        )


def test_one_seed_gives_one_value_and_others_give_others() -> None:
    schema = {"type": "number", "minimum": 0, "maximum": 100}
    scores = [example_value(schema, str(seed)) for seed in range(50)]
    assert scores == [example_value(schema, str(seed)) for seed in range(50)]
    assert len(set(scores)) > 40
    assert min(scores) < 20
    assert max(scores) > 80


def test_fields_of_one_type_differ() -> None:
    value = example_value({"type": "object", "properties": {"a": {"type": "number"}, "b": {"type": "number"}}})
    assert value["a"] != value["b"]


def test_only_required_properties_are_made_when_asked_so() -> None:
    schema = {"properties": {"task": {"type": "string"}, "hint": {"type": "string"}}, "required": ["task"]}
    assert list(example_value(schema, optional=False)) == ["task"]
    assert list(example_value(schema)) == ["task", "hint"]


def test_all_of_joins_its_parts() -> None:
    part = {"properties": {"a": {"const": 1}}, "required": ["a"]}
    assert example_value({"allOf": [part, {"properties": {"b": {"const": 2}}}]}) == {"a": 1, "b": 2}


def test_a_pattern_beyond_it_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match="script the answer"):
        example_value({"type": "string", "pattern": r"^(?=.*\d{20})z$"})
