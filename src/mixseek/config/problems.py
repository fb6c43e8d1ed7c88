"""What pydantic says of a value, told to the person who wrote the file: the value, what is allowed, the nearest key."""

from collections.abc import Callable, Iterable
from difflib import get_close_matches
from typing import Any

from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from mixseek.config.layers import KeyPath, Place, show_path
from mixseek.config.masking import is_secret_name, mask
from mixseek.config.schema import OLDER_SPELLINGS, MemberAgentConfig
from mixseek.config.shape import allowed, field_at, key_of, model_at
from mixseek.errors import Problem

__all__ = ["problem_at", "problems_of"]

_LONGEST_VALUE = 60


def problems_of(error: ValidationError, model: type[BaseModel], place: Callable[[KeyPath], Place]) -> list[Problem]:
    """Every error once, in the order of the fields; ``place`` tells where a path is written."""
    problems = [_problem(one, model, place) for one in error.errors(include_url=False)]
    # A value that fits none of a field's types is reported once for each of them.
    return list(dict.fromkeys(problem for problem in problems if problem))


def problem_at(place: Place, message: str) -> Problem:
    """A problem of the value that is written at ``place``."""
    return Problem(message, place.file, show_path(place.key) or None)


def _problem(error: ErrorDetails, model: type[BaseModel], place: Callable[[KeyPath], Place]) -> Problem | None:
    if error["type"] == "default_factory_not_called":
        return None
    path = _path_in(model, error)
    return problem_at(place(path), _message(error, model, path))


def _path_in(model: type[BaseModel], error: ErrorDetails) -> KeyPath:
    """The error's location without the names of types that pydantic adds for a choice of types."""
    path = error["loc"]
    end = len(path)
    while end and model_at(model, path[: end - 1]) is None and not isinstance(path[end - 1], int):
        end -= 1
    return path[:end]


def _message(error: ErrorDetails, model: type[BaseModel], path: KeyPath) -> str:
    kind, value = error["type"], error["input"]
    if kind == "rule":
        return error["msg"]
    if kind == "value_error":
        return str(error["ctx"]["error"])
    if kind == "extra_forbidden":
        return _unknown_key(model, path)
    field = field_at(model, path) if path else None
    wanted = allowed(field) if field else ""
    if kind == "missing":
        return f"is required: {wanted}{_purpose(field)}"
    if kind == "too_short":
        return "is empty: at least one is needed"
    said = error["msg"].replace("Input should be ", "must be ")
    return f"{_show(value, path)} is not allowed: {f'must be {wanted}' if wanted else said}"


def _purpose(field: FieldInfo | None) -> str:
    return f" ({field.description.rstrip('.')})" if field and field.description else ""


def _unknown_key(model: type[BaseModel], path: KeyPath) -> str:
    key = str(path[-1])
    known = _known_keys(model_at(model, path[:-1]))
    near = get_close_matches(key, known, n=1)
    if is_secret_name(key) and not near:
        return "API keys and passwords never stand in a file: set the provider's environment variable instead"
    if near:
        return f'unknown key; did you mean "{near[0]}"?'
    return f"unknown key; known are {', '.join(known)}"


def _known_keys(model: type[BaseModel] | None) -> list[str]:
    if model is None:
        return []
    older: Iterable[str] = OLDER_SPELLINGS if model is MemberAgentConfig else ()
    return sorted([*(key_of(name, field) for name, field in model.model_fields.items()), *older])


def _show(value: Any, path: KeyPath) -> str:
    text = repr(mask(value, str(path[-1]) if path else ""))
    return text if len(text) <= _LONGEST_VALUE else text[: _LONGEST_VALUE - 3] + "..."
