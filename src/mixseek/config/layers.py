"""Where a value comes from: the layers of the configuration, their deep merge, and the trace of who won.

Layers are merged leaf by leaf, so that an environment variable for one key of a table leaves the other keys of that
table as the file has them. A list is one leaf: the higher layer's list replaces the lower one's.
"""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from mixseek.errors import Problem

__all__ = [
    "KeyPath",
    "Layer",
    "Merged",
    "Origin",
    "Place",
    "Provenance",
    "Source",
    "TraceInfo",
    "merge",
    "show_path",
    "show_value",
]

KeyPath = tuple[str | int, ...]
Source = Literal["command line", "environment", ".env", "TOML", "argument", "default"]


def show_path(path: Iterable[str | int]) -> str:
    """A path as it is read aloud.

    >>> show_path(("team", "members", 0, "model"))
    'team.members[0].model'
    >>> show_path(("prices", "openai:gpt-5.1"))
    'prices."openai:gpt-5.1"'
    """
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else f".{_key(part)}" if text else _key(part)
    return text


def show_value(value: Any) -> str:
    """A value as a TOML file may have it, on one line.

    >>> show_value({"judge": True, "names": ["a", 1.5]})
    "{judge = true, names = ['a', 1.5]}"
    """
    match value:
        case bool():
            return "true" if value else "false"
        case Mapping():
            return "{" + ", ".join(f"{_key(str(name))} = {show_value(item)}" for name, item in value.items()) + "}"
        case list() | tuple():
            return "[" + ", ".join(map(show_value, value)) + "]"
    return repr(value)


def _key(part: str) -> str:
    return part if re.fullmatch(r"[\w-]+", part) else json.dumps(part, ensure_ascii=False)


@dataclass(frozen=True)
class Place:
    """Where a value is written: a file and a key in it, or the name of a variable."""

    file: str | None = None
    key: KeyPath = ()

    def inside(self, rest: KeyPath) -> "Place":
        """The place of something within the value that is written here."""
        return Place(self.file, self.key + rest)

    def around(self, rest: KeyPath) -> "Place":
        """The place of the value that has something at ``rest`` written here; a variable of its own stays."""
        ends_with_it = bool(rest) and self.key[-len(rest) :] == rest
        return Place(self.file, self.key[: -len(rest)]) if ends_with_it else self

    def __str__(self) -> str:
        return ": ".join(part for part in (self.file, show_path(self.key)) if part)


@dataclass(frozen=True)
class Origin:
    """A value in one layer, and where it is written."""

    source: Source
    place: Place = Place()
    value: Any = None

    def __str__(self) -> str:
        return _told(self.source, str(self.place))


@dataclass(frozen=True)
class TraceInfo:
    """The value of a setting, the place that decided it, and the places it overrode, the strongest first."""

    field: str
    value: Any
    source: Source
    where: str = ""
    overrode: tuple[Origin, ...] = ()

    def __str__(self) -> str:
        return _told(self.source, self.where)


def _told(source: Source, where: str) -> str:
    """A source and a place in it; that of a ``.env`` file says so itself."""
    return where if source == ".env" and where else f"{source} {where}".rstrip()


@dataclass(frozen=True)
class Layer:
    """One layer: nested values, the place of every leaf, and what is wrong with it."""

    source: Source
    values: Mapping[str, Any] = field(default_factory=dict)
    places: Mapping[KeyPath, Place] = field(default_factory=dict)
    problems: tuple[Problem, ...] = ()


@dataclass(frozen=True)
class Merged:
    """All layers as one: the values that won and, for every leaf, all origins, the winner first."""

    values: Mapping[str, Any]
    origins: Mapping[KeyPath, tuple[Origin, ...]]

    def place(self, path: KeyPath) -> Place | None:
        """Where the value at ``path``, or the leaf it is part of, is written; None for a table of several places."""
        for end in range(len(path), 0, -1):
            if path[:end] in self.origins:
                return self.origins[path[:end]][0].place.inside(path[end:])
        within = [leaf for leaf in self.origins if leaf[: len(path)] == path]
        places = {self.origins[leaf][0].place.around(leaf[len(path) :]) for leaf in within}
        return places.pop() if len(places) == 1 else None


@dataclass(eq=False)
class Provenance:
    """Origins of the leaves of a settings model; two models with equal values are equal wherever they came from."""

    origins: Mapping[KeyPath, tuple[Origin, ...]] = field(default_factory=dict)
    known: bool = False
    """Whether a reader recorded them; a model made directly has only its arguments and defaults."""
    file: str | None = None
    """The file that was read, as messages name it."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Provenance)

    def __hash__(self) -> int:
        return 0


def merge(layers: Sequence[Layer]) -> Merged:
    """Merge layers, the strongest first.

    >>> merge([Layer(".env", {"a": {"x": 1}}), Layer("TOML", {"a": {"x": 2, "y": 3}})]).values
    {'a': {'x': 1, 'y': 3}}
    """
    values: dict[str, Any] = {}
    for layer in reversed(layers):
        values = _deep(values, layer.values)
    return Merged(values, {path: _origins(path, layers) for path in _leaves(values)})


def _deep(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(below)
    for key, value in above.items():
        known = merged.get(key)
        merged[key] = _deep(known, value) if isinstance(known, Mapping) and isinstance(value, Mapping) else value
    return merged


def _leaves(values: Mapping[str, Any], above: KeyPath = ()) -> Iterable[KeyPath]:
    for key, value in values.items():
        if isinstance(value, Mapping) and value:
            yield from _leaves(value, (*above, key))
        else:
            yield (*above, key)


def _origins(path: KeyPath, layers: Sequence[Layer]) -> tuple[Origin, ...]:
    found = ((layer, *_look(layer.values, path)) for layer in layers)
    return tuple(Origin(layer.source, _place(layer, path), value) for layer, there, value in found if there)


def _place(layer: Layer, path: KeyPath) -> Place:
    for end in range(len(path), -1, -1):
        if path[:end] in layer.places:
            return layer.places[path[:end]].inside(path[end:])
    return Place()


def _look(values: Any, path: KeyPath) -> tuple[bool, Any]:
    for part in path:
        if not isinstance(values, Mapping) or part not in values:
            return False, None
        values = values[part]
    return True, values
