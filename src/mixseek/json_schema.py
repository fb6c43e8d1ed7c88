"""JSON that has to meet a schema: read strictly, checked within bounds, told in words a model can act on.

A schema is written by the user, what is checked by a model: so a schema has to be right before anything is spent, and
no answer may keep the process busy, whatever patterns the schema has. Nothing is ever fetched: a reference leads to a
place in the schema itself, or to one of the drafts.
"""

import json
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from copy import deepcopy
from functools import lru_cache
from itertools import islice
from typing import Any, cast

import jsonschema
import referencing.exceptions
import regex
from jsonschema import validators
from jsonschema.exceptions import ValidationError, best_match
from jsonschema.protocols import Validator
from jsonschema_specifications import REGISTRY as _REGISTRY  # type: ignore[import-untyped]
from referencing.jsonschema import SchemaResource, specification_with

__all__ = ["JsonSchema", "SchemaError", "bare_json", "read_json"]

MAX_CHARACTERS = 1_000_000
MAX_DEPTH = 100
MAX_SECONDS = 1.0
MAX_SCHEMA_CHARACTERS = 200_000
_FAULTS_TOLD = 5
_FAULT_LENGTH = 300
_DEFAULT_DRAFT = "https://json-schema.org/draft/2020-12/schema"
_CODE_FENCE = re.compile(r"\A```[ \t]*(?:json|JSON)?[ \t]*\r?\n(.*?)\r?\n?[ \t]*```\Z", re.DOTALL)
_REFERENCES = ("$ref", "$dynamicRef", "$recursiveRef")

Keyword = Callable[[Validator, Any, Any, Mapping[str, Any]], Iterator[ValidationError] | None]


class SchemaError(ValueError):
    """A schema that cannot be used, and why."""


class _TooMuchError(Exception):
    """Checking went beyond its bounds."""


class JsonSchema:
    """A schema that was found to be right; the draft is the one it names, else 2020-12.

    >>> JsonSchema({"type": "object", "required": ["city"]}).faults({"town": "Kyoto"})
    ["'city' is a required property"]
    """

    def __init__(self, schema: Mapping[str, Any]) -> None:
        self.source = _sized(schema)
        """The schema as JSON, as a model is told it."""
        draft = schema.get("$schema", _DEFAULT_DRAFT)
        self._made = _bounded(_class_of(draft))(_checked(schema, draft), registry=_REGISTRY)
        _try_it(self)

    def faults(self, value: Any) -> list[str]:
        """What keeps ``value`` from meeting the schema, one line each, the first few; empty: nothing does."""
        try:
            with _in_time():
                told = (_told(error) for error in islice(self._made.iter_errors(value), _FAULTS_TOLD))
                return list(dict.fromkeys(told))
        except _TooMuchError:
            return [f"it could not be checked within {MAX_SECONDS:g} s: make it simpler"]
        except RecursionError:
            return ["it is nested too deeply to be checked: make it flatter"]
        except (ArithmeticError, ValueError) as error:
            return [f"it could not be checked: {_short(str(error))}"]


def bare_json(text: str) -> str:
    """The text without the one Markdown code fence that may stand around all of it.

    >>> bare_json('```json\\n{"a": 1}\\n```')
    '{"a": 1}'
    """
    text = text.strip()
    fenced = _CODE_FENCE.match(text)
    return fenced[1].strip() if fenced else text


def read_json(text: str) -> Any:
    """The value a JSON text stands for; what is no JSON, or could be read in two ways, is a ``ValueError`` in words."""
    if len(text) > MAX_CHARACTERS:
        raise ValueError(f"is longer than {MAX_CHARACTERS:,} characters")
    try:
        value = json.loads(text, parse_constant=_no_constant, object_pairs_hook=_once_each)
    except RecursionError:
        raise ValueError(f"is nested more than {MAX_DEPTH} levels deep") from None
    except json.JSONDecodeError as error:
        raise ValueError(f"is not JSON: {error}") from None
    if _depth(value) > MAX_DEPTH:
        raise ValueError(f"is nested more than {MAX_DEPTH} levels deep")
    return value


def _no_constant(name: str) -> Any:
    raise ValueError(f"is not JSON: {name} is no number there")


def _once_each(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"has the key {_short(repr(twice))} more than once in one object")
    return made


def _depth(value: Any) -> int:
    depth, level = 0, [value]
    while level and depth <= MAX_DEPTH:
        inside = [each for each in level if isinstance(each, dict | list)]
        level = [item for each in inside for item in (each.values() if isinstance(each, dict) else each)]
        depth += 1 if inside else 0
    return depth


# --- a schema is right, or refused -----------------------------------------------------------------------------------


def _sized(schema: Mapping[str, Any]) -> str:
    try:
        source = json.dumps(schema, ensure_ascii=False, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise SchemaError(f"holds what JSON cannot say: {error}") from None
    if len(source) > MAX_SCHEMA_CHARACTERS:
        raise SchemaError(f"is longer than {MAX_SCHEMA_CHARACTERS:,} characters")
    if _depth(schema) > MAX_DEPTH:
        raise SchemaError(f"is nested more than {MAX_DEPTH} levels deep")
    return source


def _class_of(draft: Any) -> type[Validator]:
    found: type[Validator] | None = None
    if isinstance(draft, str):
        found = cast("Any", validators.validator_for)({"$schema": draft}, default=None)
    if found is None:
        raise SchemaError(f'"$schema" names no draft that is known: {draft!r}')
    return found


def _checked(schema: Mapping[str, Any], draft: str) -> dict[str, Any]:
    """The schema, right by its draft and with every reference leading somewhere."""
    made = _class_of(draft)
    wrong = best_match(made(made.META_SCHEMA, registry=_REGISTRY, format_checker=_FORMATS).iter_errors(schema))
    if wrong is not None:
        raise SchemaError(f"is no JSON schema: {_told(wrong)}")
    copy = deepcopy(dict(schema))
    try:
        _check_parts(specification_with(draft).create_resource(copy), draft)
    except (referencing.exceptions.Unresolvable, referencing.exceptions.NoSuchAnchor) as error:
        told = f'"$ref" leads nowhere in the schema: {error.ref!r}; nothing is fetched'
        raise SchemaError(told) from None
    return copy


def _check_parts(root: SchemaResource, draft: str) -> None:
    registry = root @ _REGISTRY if root.id() else _REGISTRY.with_resource("", root)
    parts = [(root, registry.resolver(root.id() or ""))]
    keywords: set[str] = set()
    while parts:
        part, resolver = parts.pop()
        if not isinstance(part.contents, dict):
            continue
        keywords |= part.contents.keys()
        # A part that names its draft would be checked by the draft's own class, without bounds.
        if part.contents.pop("$schema", draft) != draft:
            raise SchemaError('names two drafts: keep one "$schema", at its top')
        for name in _REFERENCES:
            if isinstance(part.contents.get(name), str):
                resolver.lookup(part.contents[name])
        parts += [(inside, resolver.in_subresource(inside)) for inside in part.subresources()]
    if {"unevaluatedProperties", "patternProperties"} <= keywords:
        # The one place where names are matched by the library itself, which no time limit reaches.
        raise SchemaError('has both "unevaluatedProperties" and "patternProperties": use "additionalProperties"')


def _try_it(schema: JsonSchema) -> None:
    """Find a schema that refers to itself without end: no answer could ever be checked."""
    samples: list[Any] = [{}, [], "", 0, True, None]
    for value in samples:
        try:
            with _in_time():
                for _ in schema._made.iter_errors(value):
                    pass
        except (RecursionError, _TooMuchError):
            raise SchemaError('refers to itself without end: look at its "$ref"s') from None
        except referencing.exceptions.Unresolvable as error:
            raise SchemaError(f'"$ref" leads nowhere in the schema: {error.ref!r}; nothing is fetched') from None
        except Exception as error:  # noqa: BLE001  # the library was not made for every schema it takes
            raise SchemaError(f"cannot be used: {_short(str(error))}") from None


# --- within bounds ----------------------------------------------------------------------------------------------------

_deadline: ContextVar[float] = ContextVar("deadline", default=float("inf"))


@contextmanager
def _in_time() -> Iterator[None]:
    token = _deadline.set(time.monotonic() + MAX_SECONDS)
    try:
        yield
    finally:
        _deadline.reset(token)


def _seconds_left() -> float:
    left = _deadline.get() - time.monotonic()
    if left <= 0:
        raise _TooMuchError
    return left


@lru_cache(maxsize=8)
def _bounded(draft: type[Validator]) -> type[Validator]:
    """A draft's validator that looks at the clock at every step, and matches patterns within its time."""
    own = {name: keyword for name, keyword in _OWN_KEYWORDS.items() if name in draft.VALIDATORS}
    keywords = {name: _timed(keyword) for name, keyword in {**draft.VALIDATORS, **own}.items()}
    return cast("type[Validator]", cast("Any", validators.extend)(draft, keywords))


def _timed(keyword: Keyword) -> Keyword:
    def timed(validator: Validator, value: Any, instance: Any, schema: Mapping[str, Any]) -> Iterator[ValidationError]:
        _seconds_left()
        yield from keyword(validator, value, instance, schema) or ()

    return timed


def _found(pattern: str, text: str) -> bool:
    try:
        return regex.search(pattern, text, timeout=min(_seconds_left(), MAX_SECONDS), concurrent=True) is not None
    except TimeoutError:
        raise _TooMuchError from None


def _pattern(validator: Validator, pattern: str, instance: Any, _: Mapping[str, Any]) -> Iterator[ValidationError]:
    if validator.is_type(instance, "string") and not _found(pattern, instance):
        yield ValidationError(f"{instance!r} does not match {pattern!r}")


def _pattern_properties(
    validator: Validator, patterns: Mapping[str, Any], instance: Any, _: Mapping[str, Any]
) -> Iterator[ValidationError]:
    if validator.is_type(instance, "object"):
        for pattern, inside in patterns.items():
            for name in (name for name in instance if _found(pattern, name)):
                yield from cast("Any", validator).descend(instance[name], inside, path=name, schema_path=pattern)


def _additional_properties(
    validator: Validator, allowed: Any, instance: Any, schema: Mapping[str, Any]
) -> Iterator[ValidationError]:
    if not validator.is_type(instance, "object"):
        return
    known, patterns = schema.get("properties", {}), schema.get("patternProperties", {})
    for name in instance:
        if name in known or any(_found(pattern, name) for pattern in patterns):
            continue
        if allowed is False:
            yield ValidationError(f"the key {name!r} is not allowed")
        else:
            yield from cast("Any", validator).descend(instance[name], allowed, path=name)


def _unique_items(validator: Validator, wanted: bool, instance: Any, _: Mapping[str, Any]) -> Iterator[ValidationError]:
    """By what they look like: comparing each with each would take for ever in a long list."""
    if wanted and validator.is_type(instance, "array"):
        seen = {json.dumps(_same_numbers(item), sort_keys=True) for item in instance}
        if len(seen) < len(instance):
            yield ValidationError("the list holds the same item twice")


def _same_numbers(value: Any) -> Any:
    """1.0 is 1 in JSON."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, list):
        return [_same_numbers(item) for item in value]
    return {name: _same_numbers(item) for name, item in value.items()} if isinstance(value, dict) else value


_OWN_KEYWORDS: Mapping[str, Keyword] = {
    "pattern": _pattern,
    "patternProperties": _pattern_properties,
    "additionalProperties": _additional_properties,
    "uniqueItems": _unique_items,
}

_FORMATS = jsonschema.FormatChecker(formats=())


@_FORMATS.checks("regex", raises=regex.error)
def _is_pattern(pattern: object) -> bool:
    return not isinstance(pattern, str) or regex.compile(pattern) is not None


# --- words ------------------------------------------------------------------------------------------------------------


def _told(error: ValidationError) -> str:
    """Where it is and what is wrong there; of several ways that all fail, the one that came nearest."""
    nearest = best_match([error]) or error
    return f"{_place(nearest.absolute_path)}{_short(nearest.message)}"


def _place(path: Sequence[str | int] | Any) -> str:
    parts = [f"[{part}]" if isinstance(part, int) else f".{_short(part)}" for part in path]
    return "".join(parts).lstrip(".") + ": " if parts else ""


def _short(text: str) -> str:
    return text if len(text) <= _FAULT_LENGTH else f"{text[:_FAULT_LENGTH]}…"
