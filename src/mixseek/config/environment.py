"""Settings from variables: ``PREFIX_FIELD`` and, for a key inside a table, ``PREFIX_TABLE__KEY``.

Text is taken as it is where a field takes text, numbers and booleans are read as such, lists and tables are JSON.
Where a field takes a text or a table, what starts with a brace is a table.
"""

import json
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from functools import cache
from typing import Any, get_args, get_origin

from pydantic import BaseModel, TypeAdapter, ValidationError
from pydantic.fields import FieldInfo

from mixseek.config.layers import KeyPath, Layer, Place, Source
from mixseek.config.masking import mask
from mixseek.config.shape import (
    SET_BY_THE_LOADER,
    allowed,
    alternatives,
    field_at,
    key_of,
    model_of,
    needed_key,
    takes_text,
)
from mixseek.errors import Problem

__all__ = ["Variables", "environment_layer", "unclaimed", "variable_names"]


class Variables(BaseModel, frozen=True):
    """Which variables belong to a settings model."""

    prefix: str
    aliases: Mapping[str, str] = {}
    """Whole names that set a field too; the prefixed name is stronger."""
    foreign: tuple[str, ...] = ()
    """Longer prefixes, and whole names, that start alike but belong to others."""
    strict: bool = True
    """Whether every variable with the prefix has to be a field."""


def environment_layer(
    model: type[BaseModel], variables: Variables, environ: Mapping[str, str], source: Source, file: str | None = None
) -> Layer:
    """The values that ``environ`` has for ``model``, and what is wrong with them."""
    values: dict[str, Any] = {}
    places: dict[KeyPath, Place] = {}
    problems: list[Problem] = []
    for name, path in _paths(variables, environ):
        field = field_at(model, path)
        if field is None or SET_BY_THE_LOADER in field.metadata:
            problems += _unknown(model, variables, name, file)
            continue
        try:
            value = _parse(field, environ[name])
        except (ValueError, RecursionError):
            problems.append(Problem(_not_allowed(field, name, environ[name]), file, name))
            continue
        _put(values, path, value)
        places[path] = Place(file, (name,))
    return Layer(source, values, places, tuple(problems))


def variable_names(model: type[BaseModel], variables: Variables) -> dict[KeyPath, str]:
    """The variable of every field and of every field of its tables."""
    return {path: variables.prefix + "__".join(path).upper() for path in _field_paths(model)}


def _paths(variables: Variables, environ: Mapping[str, str]) -> Iterable[tuple[str, tuple[str, ...]]]:
    """Aliases first, so that the prefixed names overwrite them."""
    for alias, field in variables.aliases.items():
        if alias in environ:
            yield alias, (field,)
    # Shorter names first: a table given whole as JSON lies beneath the variables of its single keys.
    for name in sorted(environ, key=lambda name: (len(name), name)):
        if name.startswith(variables.prefix) and not name.startswith(variables.foreign):
            yield name, tuple(name.removeprefix(variables.prefix).lower().split("__"))


@cache
def _field_paths(model: type[BaseModel]) -> tuple[tuple[str, ...], ...]:
    paths: list[tuple[str, ...]] = []
    for name, field in model.model_fields.items():
        if SET_BY_THE_LOADER in field.metadata:
            continue
        key, inner = key_of(name, field), model_of(field.annotation)
        paths += [(key,)] if inner is None else [(key, *path) for path in _field_paths(inner)]
    return tuple(paths)


def _parse(field: FieldInfo, text: str) -> Any:
    holds_json = any(_is_container(kind) for kind in alternatives(field.annotation))
    if takes_text(field.annotation) and not (holds_json and text.lstrip().startswith("{")):
        return text
    if holds_json:
        return json.loads(text)
    try:
        return TypeAdapter[Any](Any if field.annotation is None else field.annotation).validate_python(text)
    except ValidationError as error:
        raise ValueError(text) from error


def _is_container(kind: Any) -> bool:
    return get_origin(kind) in (list, dict) or model_of(kind) is not None


def _put(values: dict[str, Any], path: tuple[str, ...], value: Any) -> None:
    *above, last = path
    for part in above:
        inner = values.get(part)
        values[part] = dict(inner) if isinstance(inner, Mapping) else {}
        values = values[part]
    values[last] = value


def _not_allowed(field: FieldInfo, name: str, text: str) -> str:
    shown = mask(text, name)
    lists = [kind for kind in alternatives(field.annotation) if get_origin(kind) is list]
    if not lists or text[:1] in ("[", "{"):
        return f"{shown!r} is not {allowed(field)}"
    example = json.dumps([_as_item(get_args(lists[0])[0], shown)], ensure_ascii=False)
    return f"{shown!r} is not {allowed(field)}: write JSON, as in {example}"


def _as_item(kind: Any, text: str) -> Any:
    """A text as an item of a list: where tables are wanted, one that has it under the key that each must have."""
    key = needed_key(model_of(kind))
    return text if key is None else {key: text}


def _unknown(model: type[BaseModel], variables: Variables, name: str, file: str | None) -> list[Problem]:
    """Of a model whose variables have a prefix of their own; all others are looked through by ``unclaimed``."""
    if not variables.strict:
        return []
    known = sorted(variable_names(model, variables).values())
    near = get_close_matches(name, known, n=1)
    if near:
        return [Problem(f"unknown variable; did you mean {near[0]}?", file, name)]
    return [Problem(f"unknown variable; known with this prefix are {', '.join(known)}", file, name)]


def unclaimed(
    models: Mapping[type[BaseModel], Variables], environ: Mapping[str, str], file: str | None = None
) -> Iterable[Problem]:
    """Variables that no model claims but that can only be meant for one.

    That is every one with two underscores behind the common prefix, which is how keys of tables are written, and a
    plain one that is nearly the name of a variable. Any other may be somebody else's.
    """
    known = {name for model, variables in models.items() for name in variable_names(model, variables).values()}
    claimed = tuple(variables.prefix for variables in models.values() if variables.strict)
    whole = known.union(*(variables.aliases for variables in models.values()))
    containers = {name.rpartition("__")[0] for name in known}
    for name in sorted(environ):
        if name.startswith(_OURS) and name not in whole | containers and not name.startswith(claimed):
            yield from _meant_for(name, known, claimed, file)


_OURS = "MIXSEEK_"
_OFTEN_GUESSED = "ORCHESTRATOR_"


def _meant_for(name: str, known: set[str], claimed: tuple[str, ...], file: str | None) -> Iterable[Problem]:
    by_words = {_words(one): one for one in sorted(known)}
    in_a_table = "__" in name
    near = get_close_matches(_words(name), by_words, n=1, cutoff=0.75 if in_a_table else 0.9)
    if near:
        yield Problem(f"unknown variable; did you mean {by_words[near[0]]}?", file, name)
    elif in_a_table:
        yield Problem(f"unknown variable; those of MixSeek start with {_OURS}, {', '.join(claimed)}", file, name)


def _words(name: str) -> str:
    """A variable without what people get wrong: the number of underscores, and a prefix that is not there."""
    return name.removeprefix(_OURS).replace("__", "_").removeprefix(_OFTEN_GUESSED)
