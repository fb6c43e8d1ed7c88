"""Values on their way into a column: kept bit by bit, or refused by the column's name before anything is written."""

import json
import math
import re
from collections.abc import Collection
from datetime import UTC, datetime
from typing import Any, NoReturn

from pydantic import BaseModel
from pydantic_core import PydanticSerializationError

from mixseek.errors import UnstorableValueError

__all__ = ["finite", "integer", "json_text", "moment", "one_of", "text"]

# Readers of JSON give up at some depth (pydantic's at 200); nothing is stored that could not be read back.
_MAX_JSON_DEPTH = 150
_STRING_OR_BRACKET = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"|[\[\]{}]')


def text(column: str, value: object) -> str:
    """A text that UTF-8 can hold."""
    if not isinstance(value, str):
        _refuse(column, f"expected text, got {type(value).__name__}")
    try:
        value.encode("utf-8")
    except UnicodeEncodeError as error:
        _refuse(column, f"character {error.start} is a lone surrogate, which UTF-8 cannot hold")
    # A subclass (an enum's member, say) is stored as the plain text it is.
    return str.__str__(value)


def one_of(column: str, value: object, words: Collection[str]) -> str:
    """One of a fixed set of words."""
    if value not in words:
        _refuse(column, f"{value!r} is not one of {', '.join(sorted(words))}")
    return text(column, value)


def integer(column: str, value: object, *, least: int = 0, bits: int = 64) -> int:
    """A whole number within the column's width."""
    most = 2 ** (bits - 1) - 1
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
        _refuse(column, f"expected a whole number from {least} to {most}")
    return int(value)


def finite(column: str, value: object) -> float | None:
    """A number, or None for what is no score: NaN would win every ``max()``, and infinity every ranking."""
    if value is None:
        return None
    if not isinstance(value, int | float) or isinstance(value, bool):
        _refuse(column, f"expected a number, got {type(value).__name__}")
    try:
        number = float(value)
    except OverflowError:
        _refuse(column, "the number is too large for a double")
    return number if math.isfinite(number) else None


def moment(column: str, value: object) -> datetime:
    """A moment as naive UTC, from a datetime or an ISO string; one without a zone is taken for UTC."""
    try:
        given = datetime.fromisoformat(value) if isinstance(value, str) else value
    except ValueError:
        _refuse(column, f"{value!r} is not an ISO 8601 time")
    if not isinstance(given, datetime):
        _refuse(column, f"expected a datetime or an ISO string, got {type(value).__name__}")
    try:
        return given if given.tzinfo is None else given.astimezone(UTC).replace(tzinfo=None)
    except OverflowError:
        _refuse(column, f"{value!r} has no UTC time between the years 1 and 9999")


def json_text(column: str, value: Any) -> str:
    """A JSON value or a record as JSON text that reads back as the same value."""
    try:
        dumped = value.model_dump_json() if isinstance(value, BaseModel) else _dump(value)
        dumped.encode("utf-8")
    except UnicodeEncodeError:
        _refuse(column, "it holds a lone surrogate, which UTF-8 cannot hold")
    except RecursionError:
        _refuse(column, f"it is nested deeper than {_MAX_JSON_DEPTH} levels")
    except (TypeError, ValueError, PydanticSerializationError) as error:
        _refuse(column, f"it is not JSON: {error}")
    if _may_be_deep(dumped) and _depth(dumped) > _MAX_JSON_DEPTH:
        _refuse(column, f"it is nested deeper than {_MAX_JSON_DEPTH} levels")
    return dumped


def _dump(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def _may_be_deep(dumped: str) -> bool:
    return dumped.count("[") + dumped.count("{") > _MAX_JSON_DEPTH


def _depth(dumped: str) -> int:
    depth = deepest = 0
    for token in _STRING_OR_BRACKET.finditer(dumped):
        first = dumped[token.start()]
        depth += (first in "[{") - (first in "]}")
        deepest = max(deepest, depth)
    return deepest


def _refuse(column: str, reason: str) -> NoReturn:
    raise UnstorableValueError(f"{column}: {reason}; nothing was written")
