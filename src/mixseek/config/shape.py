"""What a settings model looks like from outside: the type behind a field, the field at a path, the allowed values."""

import types
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import annotated_types
from pydantic import BaseModel
from pydantic.fields import FieldInfo

__all__ = [
    "SET_BY_THE_LOADER",
    "Words",
    "allowed",
    "allowed_at",
    "alternatives",
    "field_at",
    "key_of",
    "known_part",
    "model_at",
    "model_of",
    "needed_key",
    "settable_keys",
    "takes_text",
]

SET_BY_THE_LOADER = "set by the loader"
"""Marks a field that stands in no file and no variable."""


@dataclass(frozen=True)
class Words:
    """Says in an annotation what kind of text a field takes."""

    text: str


_TYPE_WORDS: Mapping[object, str] = {
    str: "text",
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    Any: "anything",
}


def alternatives(annotation: Any) -> list[Any]:
    """The types a field may have, without ``None`` and without what only annotates.

    >>> alternatives(int | str | None)
    [<class 'int'>, <class 'str'>]
    """
    origin = get_origin(annotation)
    if origin is Annotated:
        return alternatives(get_args(annotation)[0])
    if origin in (Union, types.UnionType):
        return [found for part in get_args(annotation) if part is not type(None) for found in alternatives(part)]
    return [annotation]


def model_of(annotation: Any) -> type[BaseModel] | None:
    """The settings model a field holds directly, if it holds one."""
    models = (a for a in alternatives(annotation) if isinstance(a, type) and issubclass(a, BaseModel))
    return next(models, None)


def takes_text(annotation: Any) -> bool:
    """Whether any text is a possible value."""
    return str in alternatives(annotation)


def field_at(model: type[BaseModel], path: Sequence[str | int]) -> FieldInfo | None:
    """The field a path of keys and list positions leads to; None where it leads nowhere or into free tables."""
    *above, last = path
    owner = model_at(model, above)
    return _named_fields(owner).get(str(last)) if owner else None


def known_part(model: type[BaseModel], path: Sequence[str | int]) -> int:
    """How many parts of a path lead somewhere."""
    here: Any = model
    for number, part in enumerate(path):
        here = _step(here, part)
        if here is None:
            return number
    return len(path)


def settable_keys(model: type[BaseModel]) -> list[str]:
    """The keys a file may have."""
    fields = model.model_fields.items()
    return sorted(key_of(name, field) for name, field in fields if SET_BY_THE_LOADER not in field.metadata)


def model_at(model: type[BaseModel], path: Sequence[str | int]) -> type[BaseModel] | None:
    """The settings model a path leads to."""
    here: Any = model
    for part in path:
        here = _step(here, part)
        if here is None:
            return None
    return model_of(here)


def key_of(name: str, field: FieldInfo) -> str:
    """The key a field is written as in a file."""
    return field.alias or name


def needed_key(model: type[BaseModel] | None) -> str | None:
    """The first key that a table of this kind must have."""
    fields = {} if model is None else model.model_fields
    return next((key_of(name, field) for name, field in fields.items() if field.is_required()), None)


def allowed(field: FieldInfo) -> str:
    """What may stand in a field, in words.

    >>> from pydantic import Field
    >>> allowed(FieldInfo.from_annotated_attribute(int, Field(default=5, ge=1, le=10)))
    'a whole number from 1 to 10'
    """
    special = next((limit.text for limit in _limits(field) if isinstance(limit, Words)), "text")
    words = " or ".join(dict.fromkeys(_word(kind, special) for kind in alternatives(field.annotation)))
    bounds = _bounds(field)
    return f"{words} {bounds}" if bounds else words


def allowed_at(model: type[BaseModel], path: Sequence[str | int]) -> str:
    """What may stand at a path, in words, also inside lists and tables."""
    field = field_at(model, path) if path else None
    if field is not None:
        return allowed(field)
    here: Any = model
    for part in path:
        here = _step(here, part)
    return _item_word(here)


def _step(annotation: Any, part: str | int) -> Any:
    model = model_of(annotation)
    if model is not None and isinstance(part, str):
        field = _named_fields(model).get(part)
        free = dict[str, Any] if model.model_config.get("extra") == "allow" else None
        return field.annotation if field else free
    for kind in alternatives(annotation):
        if get_origin(kind) is list and isinstance(part, int):
            return get_args(kind)[0]
        if get_origin(kind) is dict and isinstance(part, str):
            return get_args(kind)[1]
    return None


def _named_fields(model: type[BaseModel]) -> dict[str, FieldInfo]:
    return {key_of(name, field): field for name, field in model.model_fields.items()}


def _word(kind: Any, text: str = "text") -> str:
    origin = get_origin(kind)
    if kind is str:
        return text
    if origin is Literal:
        return " or ".join(f'"{value}"' for value in get_args(kind))
    if origin is list:
        return f"a list, each {_item_word(get_args(kind)[0])}"
    if origin is dict or (isinstance(kind, type) and issubclass(kind, BaseModel)):
        return "a table"
    return _TYPE_WORDS.get(kind, "text")


def _item_word(kind: Any) -> str:
    special = next((extra.text for extra in _annotations(kind) if isinstance(extra, Words)), "text")
    return _word(alternatives(kind)[0], special)


def _bounds(field: FieldInfo) -> str:
    low = high = ""
    for limit in _limits(field):
        match limit:
            case annotated_types.Ge(ge=value):
                low = f"from {value}"
            case annotated_types.Gt(gt=value):
                low = f"above {value}"
            case annotated_types.Le(le=value):
                high = f"to {value}" if low.startswith("from") else f"up to {value}"
            case annotated_types.Lt(lt=value):
                high = f"below {value}"
    if low.startswith("from") and not high:
        return low + " up"
    return f"{low} {high}".strip()


def _limits(field: FieldInfo) -> list[Any]:
    metadata: list[Any] = list(field.metadata)
    for part in (field.annotation, *get_args(field.annotation)):
        metadata.extend(_annotations(part))
    return metadata


def _annotations(annotation: Any) -> list[Any]:
    if get_origin(annotation) is not Annotated:
        return []
    found: list[Any] = []
    for extra in annotation.__metadata__:
        found.extend(extra.metadata if isinstance(extra, FieldInfo) else [extra])
    return found
