"""A value that is valid by a JSON schema, the same one for the same seed.

Covered is what pydantic and people write: types, enums, constants, unions, references (recursive ones too), bounds,
formats and simple patterns. A score differs from seed to seed, a boolean is true: so a judgment that is asked whether
to go on plays on.
"""

import math
import re
from collections.abc import Mapping
from hashlib import blake2b
from typing import Any

__all__ = ["example_value"]

_DEEP = 6
_FORMATS = {
    "date-time": "2026-01-02T03:04:05Z",
    "date": "2026-01-02",
    "time": "03:04:05Z",
    "duration": "PT1M",
    "email": "someone@example.com",
    "idn-email": "someone@example.com",
    "hostname": "example.com",
    "ipv4": "192.0.2.1",
    "ipv6": "2001:db8::1",
    "uri": "https://example.com/",
    "uri-reference": "/example",
    "url": "https://example.com/",
    "uuid": "00000000-0000-4000-8000-000000000000",
    "json-pointer": "/example",
    "regex": "^example$",
    "byte": "ZXhhbXBsZQ==",
    "base64": "ZXhhbXBsZQ==",
}


def example_value(schema: Mapping[str, Any] | bool, seed: str = "", *, optional: bool = True) -> Any:
    """A value ``schema`` accepts; without ``optional`` an object gets only the properties it must have.

    >>> example_value({"type": "object", "properties": {"ok": {"type": "boolean"}}})
    {'ok': True}
    """
    root = schema if isinstance(schema, Mapping) else {}
    return _Maker(root, seed, optional).make(schema, "value", 0)


class _Maker:
    """The walk through one schema; ``path`` names the place, so that two fields of one type differ."""

    def __init__(self, root: Mapping[str, Any], seed: str, optional: bool) -> None:
        self._root = root
        self._seed = seed
        self._optional = optional

    def make(self, schema: Mapping[str, Any] | bool, path: str, depth: int) -> Any:
        schema = self._resolved(schema)
        if "const" in schema:
            return schema["const"]
        if "enum" in schema:
            return self._pick(schema["enum"], path)
        if branches := schema.get("anyOf") or schema.get("oneOf"):
            return self.make(_merged(_without(schema, "anyOf", "oneOf"), self._branch(branches, depth)), path, depth)
        return self._of_type(_type_of(schema), schema, path, depth)

    def _of_type(self, kind: str, schema: Mapping[str, Any], path: str, depth: int) -> Any:
        match kind:
            case "object":
                return self._object(schema, path, depth)
            case "array":
                return self._array(schema, path, depth)
            case "string":
                return self._string(schema, path)
            case "number" | "integer":
                return self._number(schema, path, whole=kind == "integer")
            case "boolean":
                return True
            case _:
                return None

    def _resolved(self, schema: Mapping[str, Any] | bool) -> Mapping[str, Any]:
        """``schema`` with its references followed and its ``allOf`` folded in."""
        if not isinstance(schema, Mapping):
            return {}
        while "$ref" in schema:
            schema = _merged(_without(schema, "$ref"), self._target(schema["$ref"]))
        for part in schema.get("allOf", ()):
            schema = _merged(_without(schema, "allOf"), self._resolved(part))
        return schema

    def _target(self, reference: str) -> Mapping[str, Any]:
        found: Any = self._root
        for step in reference.removeprefix("#").strip("/").split("/"):
            if step:
                found = found[step.replace("~1", "/").replace("~0", "~")]
        return found if isinstance(found, Mapping) else {}

    def _branch(self, branches: list[Mapping[str, Any]], depth: int) -> Mapping[str, Any]:
        """The first branch that says something; deep down the one that ends soonest."""
        resolved = [self._resolved(branch) for branch in branches]
        if depth >= _DEEP:
            return min(resolved, key=lambda branch: _type_of(branch) in ("object", "array"))
        return next((branch for branch in resolved if branch.get("type") != "null"), resolved[0])

    def _object(self, schema: Mapping[str, Any], path: str, depth: int) -> dict[str, Any]:
        properties = schema.get("properties", {})
        required = schema.get("required", [])
        wanted = properties if self._optional and depth < _DEEP else [name for name in properties if name in required]
        made = {name: self.make(properties[name], f"{path}.{name}", depth + 1) for name in wanted}
        others = schema.get("additionalProperties", True)
        for name in [name for name in required if name not in made]:
            made[name] = self.make(others, f"{path}.{name}", depth + 1)
        for number in range(schema.get("minProperties", 0) - len(made)):
            made[f"key_{number}"] = self.make(others, f"{path}.key_{number}", depth + 1)
        return made

    def _array(self, schema: Mapping[str, Any], path: str, depth: int) -> list[Any]:
        firsts = schema.get("prefixItems", [])
        least = schema.get("minItems", 0)
        usual = max(least, len(firsts), 1 if depth < _DEEP and schema.get("items") is not False else 0)
        length = min(usual, schema.get("maxItems", usual))
        made = [self.make(_item_schema(schema, at), f"{path}[{at}]", depth + 1) for at in range(length)]
        return self._distinct(made, schema, path, depth) if schema.get("uniqueItems") else made

    def _distinct(self, made: list[Any], schema: Mapping[str, Any], path: str, depth: int) -> list[Any]:
        distinct: list[Any] = []
        choices = self._resolved(_item_schema(schema, len(made))).get("enum", [])
        spare = [self.make(_item_schema(schema, at), f"{path}[{at}]", depth + 1) for at in range(len(made), 40)]
        for value in [*made, *choices, *spare]:
            if value not in distinct and len(distinct) < max(schema.get("minItems", 0), 1):
                distinct.append(value)
        return distinct

    def _string(self, schema: Mapping[str, Any], path: str) -> str:
        if schema.get("format") in _FORMATS:
            return _FORMATS[schema["format"]]
        if "pattern" in schema:
            return _matching(schema["pattern"])
        text = f"{path.rpartition('.')[2]} {self._hash(path):016x}"
        least = schema.get("minLength", 0)
        return text.ljust(least, ".")[: schema.get("maxLength", max(least, len(text)))]

    def _number(self, schema: Mapping[str, Any], path: str, *, whole: bool) -> float:
        low, high = _bounds(schema, whole)
        share = self._hash(path) / 2**64
        step = schema.get("multipleOf")
        if step:
            first, last = math.ceil(low / step), math.floor(high / step)
            return _tidy((first + int(share * (last - first + 1))) * step, whole)
        if whole:
            return math.ceil(low) + int(share * (math.floor(high) - math.ceil(low) + 1))
        value = low + share * (high - low)
        rounded = round(value, 2)
        return rounded if low <= rounded <= high else value

    def _pick(self, choices: list[Any], path: str) -> Any:
        return choices[self._hash(path) % len(choices)]

    def _hash(self, path: str) -> int:
        return int.from_bytes(blake2b(f"{self._seed}|{path}".encode(), digest_size=8).digest(), "big")


def _type_of(schema: Mapping[str, Any]) -> str:
    kind = schema.get("type")
    if isinstance(kind, list):
        return next((one for one in kind if one != "null"), "null")
    if isinstance(kind, str):
        return kind
    if "properties" in schema or "required" in schema:
        return "object"
    return "array" if "items" in schema or "prefixItems" in schema else "string"


def _item_schema(schema: Mapping[str, Any], at: int) -> Mapping[str, Any]:
    firsts = schema.get("prefixItems", [])
    found = firsts[at] if at < len(firsts) else schema.get("items", {})
    return found if isinstance(found, Mapping) else {}


def _bounds(schema: Mapping[str, Any], whole: bool) -> tuple[float, float]:
    """The least and the greatest number allowed; a side left open is a hundred away from the other."""
    nudge = 1 if whole else 1e-6
    lows = [schema.get("minimum"), _moved(schema.get("exclusiveMinimum"), nudge)]
    highs = [schema.get("maximum"), _moved(schema.get("exclusiveMaximum"), -nudge)]
    low = max((bound for bound in lows if bound is not None), default=None)
    high = min((bound for bound in highs if bound is not None), default=None)
    if low is None:
        low = 0.0 if high is None or high >= 0 else high - 100
    return low, low + 100 if high is None else high


def _moved(bound: float | None, by: float) -> float | None:
    return None if bound is None else bound + by


def _tidy(value: float, whole: bool) -> float:
    return int(value) if whole else round(value, 9)


def _without(schema: Mapping[str, Any], *keys: str) -> dict[str, Any]:
    return {key: value for key, value in schema.items() if key not in keys}


def _merged(first: Mapping[str, Any], second: Mapping[str, Any]) -> dict[str, Any]:
    """Both schemas at once: their properties and requirements are joined, else the first one's word stands."""
    merged = {**second, **first}
    if "properties" in first and "properties" in second:
        merged["properties"] = {**second["properties"], **first["properties"]}
    if "required" in first and "required" in second:
        merged["required"] = [*dict.fromkeys([*first["required"], *second["required"]])]
    return merged


# A pattern is read piece by piece: a class, an escape, a group of alternatives or a plain character, and how often.
_PIECE = re.compile(
    r"(?P<group>\((?:\?:|\?P<\w+>)?(?P<inside>[^()]*)\))|\[(?P<set>\^?\]?(?:\\.|[^\]\\])*)\]|\\(?P<escape>.)|(?P<plain>[^\\])",
    re.DOTALL,
)
_OFTEN = re.compile(r"(?:\{(?P<least>\d+)(?:,\d*)?\}|(?P<sign>[*+?]))\??")
_ESCAPES = {"d": "7", "w": "x", "s": " ", "D": "x", "W": "-", "S": "x", "b": "", "B": "", "A": "", "Z": "", "n": "\n"}


def _matching(pattern: str) -> str:
    """A string that ``pattern`` finds; look-around and nested groups are beyond it and raise ``ValueError``."""
    made = _expand(pattern)
    if not re.search(pattern, made):
        raise ValueError(f"no example could be made for the pattern {pattern!r}: script the answer instead")
    return made


def _expand(pattern: str) -> str:
    made, at = [], 0
    pattern = pattern.split("|")[0] if "(" not in pattern else pattern
    while at < len(pattern):
        piece = _PIECE.match(pattern, at)
        if piece is None:
            break
        often = _OFTEN.match(pattern, piece.end())
        made.append(_one(piece) * _times(often))
        at = often.end() if often else piece.end()
    return "".join(made)


def _one(piece: re.Match[str]) -> str:
    if piece["group"]:
        return _expand(piece["inside"].split("|")[0])
    if piece["set"] is not None:
        return _member_of(piece["set"])
    if piece["escape"]:
        return _ESCAPES.get(piece["escape"], piece["escape"])
    return {"^": "", "$": "", ".": "x"}.get(piece["plain"], piece["plain"])


def _member_of(inside: str) -> str:
    candidates = "xX7-_ .,:/@" + "".join(map(chr, range(33, 127)))
    return next((one for one in candidates if re.match(f"[{inside}]", one)), "")


def _times(often: re.Match[str] | None) -> int:
    if often is None:
        return 1
    return int(often["least"]) if often["least"] else {"*": 0, "+": 1, "?": 0}[often["sign"]]
