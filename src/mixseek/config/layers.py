"""Where a value comes from: the layers of the configuration, their deep merge, and the trace of who won.

Layers are merged leaf by leaf, so that an environment variable for one key of a table leaves the other keys of that
table as the file has them. A list is one leaf: the higher layer's list replaces the lower one's.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from mixseek.errors import Problem

__all__ = ["KeyPath", "Layer", "Merged", "Origin", "Source", "TraceInfo", "merge", "show_path"]

KeyPath = tuple[str | int, ...]
Source = Literal["command line", "environment", ".env", "TOML", "argument", "default"]


@dataclass(frozen=True)
class Origin:
    """One place a value stands in: which layer, and where in it (a variable, or a file and a key)."""

    source: Source
    where: str = ""
    value: Any = None

    def __str__(self) -> str:
        return f"{self.source} {self.where}".rstrip()


@dataclass(frozen=True)
class TraceInfo:
    """The value of a setting, the place that decided it, and the places it overrode, the strongest first."""

    field: str
    value: Any
    source: Source
    where: str = ""
    overrode: tuple[Origin, ...] = ()

    def __str__(self) -> str:
        return f"{self.source} {self.where}".rstrip()


@dataclass(frozen=True)
class Layer:
    """One layer: nested values, the place of every leaf, and what is wrong with it."""

    source: Source
    values: Mapping[str, Any] = field(default_factory=dict)
    places: Mapping[KeyPath, str] = field(default_factory=dict)
    problems: tuple[Problem, ...] = ()

    def where(self, path: KeyPath) -> str:
        """The place of the value at ``path``, or of the leaf it is part of."""
        for end in range(len(path), 0, -1):
            if path[:end] in self.places:
                return self.places[path[:end]]
        return ""


@dataclass(frozen=True)
class Merged:
    """All layers as one: the values that won and, for every leaf, all origins, the winner first."""

    values: Mapping[str, Any]
    origins: Mapping[KeyPath, tuple[Origin, ...]]

    def at(self, path: KeyPath) -> tuple[Origin, ...]:
        """The origins of the value at ``path``, or of the leaf it is part of."""
        for end in range(len(path), 0, -1):
            if path[:end] in self.origins:
                return self.origins[path[:end]]
        return ()


def merge(layers: Sequence[Layer]) -> Merged:
    """Merge layers, the strongest first.

    >>> merge([Layer(".env", {"a": {"x": 1}}), Layer("TOML", {"a": {"x": 2, "y": 3}})]).values
    {'a': {'x': 1, 'y': 3}}
    """
    values: dict[str, Any] = {}
    for layer in reversed(layers):
        values = _deep(values, layer.values)
    return Merged(values, {path: _origins(path, layers) for path in _leaves(values)})


def show_path(path: Iterable[str | int]) -> str:
    """A path as it is read aloud.

    >>> show_path(("team", "members", 0, "model"))
    'team.members[0].model'
    """
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
    return text


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
    return tuple(Origin(layer.source, layer.where(path), value) for layer, there, value in found if there)


def _look(values: Any, path: KeyPath) -> tuple[bool, Any]:
    for part in path:
        if not isinstance(values, Mapping) or part not in values:
            return False, None
        values = values[part]
    return True, values
