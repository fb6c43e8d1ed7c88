"""What pydantic says of a value, told to the person who wrote the file: the value, what is allowed, the nearest key."""

import json
from collections.abc import Callable, Iterable
from difflib import get_close_matches
from typing import Any

from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from mixseek.config.kinds import KINDS, Kind
from mixseek.config.layers import KeyPath, Place, show_path, show_value
from mixseek.config.masking import is_secret_name, mask
from mixseek.config.schema import (
    OLDER_SPELLINGS,
    EvaluatorSettings,
    JudgmentSettings,
    MemberAgentConfig,
    ProviderSettings,
)
from mixseek.config.shape import allowed_at, field_at, known_part, model_at, needed_key, settable_keys
from mixseek.errors import Problem

__all__ = [
    "faults_of",
    "misplaces_a_model",
    "no_such_file",
    "problem_at",
    "problems_of",
    "words_of_unknown_argument",
    "words_of_unknown_key",
]

_LONGEST_VALUE = 60
_ALMOST_THE_SAME = 0.9
_OF_MODELS = ("model", "default_model")
_TABLE_LESS = {EvaluatorSettings: "evaluator", JudgmentSettings: "judgment"}


def problems_of(error: ValidationError, model: type[BaseModel], place: Callable[[KeyPath], Place]) -> list[Problem]:
    """Every error once, in the order of the fields; ``place`` tells where a path is written."""
    problems = [_problem(one, model, place) for one in error.errors(include_url=False)]
    # A value that fits none of a field's types is reported once for each of them.
    return list(dict.fromkeys(problem for problem in problems if problem))


def faults_of(error: ValidationError, model: type[BaseModel]) -> list[tuple[KeyPath, str]]:
    """Every error once, as the path inside ``model`` and what to say of the value there."""
    paths = [(_path_in(model, one), one) for one in error.errors(include_url=False)]
    return list(dict.fromkeys((path, _message(one, model, path)) for path, one in paths))


def misplaces_a_model(error: ValidationError, model: type[BaseModel]) -> bool:
    """Whether what is refused names a model: the default that stands in for it is nobody's choice."""
    return any(_names_a_model(_path_in(model, one), one, model) for one in error.errors(include_url=False))


def _names_a_model(path: KeyPath, error: ErrorDetails, model: type[BaseModel]) -> bool:
    holds_one = isinstance(error["input"], dict) and any(key in error["input"] for key in _OF_MODELS)
    if error["type"] == "extra_forbidden":
        near = get_close_matches(str(path[-1]), _known_keys(model_at(model, path[:-1])), n=1)
        return holds_one or any(key in _OF_MODELS for key in [path[-1], *near])
    # The input of other errors, as of a key that is missing, is more than what is wrong.
    return holds_one and error["type"].endswith("_type")


def problem_at(place: Place, message: str) -> Problem:
    """A problem of the value that is written at ``place``; a key that was written there by mistake is not repeated."""
    return Problem(mask(message), place.file, show_path(place.key) or None)


def no_such_file(given: str) -> str:
    """What to say of a path in a file that leads nowhere."""
    return f"file {_show(given, ())} does not exist: paths start at the workspace"


def _problem(error: ErrorDetails, model: type[BaseModel], place: Callable[[KeyPath], Place]) -> Problem | None:
    if error["type"] == "default_factory_not_called":
        return None
    path = _path_in(model, error)
    return problem_at(place(path), _message(error, model, path))


def _path_in(model: type[BaseModel], error: ErrorDetails) -> KeyPath:
    """The error's location without the names of types that pydantic adds for a choice of types."""
    unknown = 1 if error["type"] == "extra_forbidden" else 0
    return error["loc"][: known_part(model, error["loc"]) + unknown]


def _message(error: ErrorDetails, model: type[BaseModel], path: KeyPath) -> str:
    kind, value = error["type"], error["input"]
    if kind == "rule":
        return error["msg"]
    if kind == "value_error":
        return str(error["ctx"]["error"])
    if kind == "extra_forbidden":
        return words_of_unknown_key(model, path)
    wanted = allowed_at(model, path)
    if kind == "missing":
        return f"is required: {wanted}{_purpose(field_at(model, path))}"
    if kind == "too_short":
        return "is empty: at least one is needed"
    return f"{_show(value, path)} is not allowed: must be {wanted}{_example(value, wanted, model, path)}"


def _example(value: Any, wanted: str, model: type[BaseModel], path: KeyPath) -> str:
    """What to write where a value stands in place of a list of them, or of a table that has it."""
    if isinstance(value, list | dict):
        return ""
    written = json.dumps(mask(value, str(path[-1])), ensure_ascii=False, default=str)
    if wanted.startswith("a list, each"):
        return f", as in [{_in_table(written, model_at(model, (*path, 0)))}]"
    table = _in_table(written, model_at(model, path)) if wanted == "a table" and isinstance(value, str) else written
    return "" if table == written else f", as in {table}"


def _in_table(written: str, model: type[BaseModel] | None) -> str:
    key = needed_key(model)
    return written if key is None else f"{{{key} = {written}}}"


def _purpose(field: FieldInfo | None) -> str:
    return f" ({field.description.rstrip('.')})" if field and field.description else ""


def words_of_unknown_argument(model: type[BaseModel], name: str, known: Iterable[str]) -> str:
    """What to say of an argument that should be a key of ``model``, beside which Python takes all of ``known``."""
    return _misplaced(model, (name,)) or _nearest(name, sorted({*_known_keys(model), *known}))


def words_of_unknown_key(model: type[BaseModel], path: KeyPath) -> str:
    """What to say of a key that a file has and ``model`` has not."""
    kind = _kind_of(model)
    beside = kind.outside if kind is not None and len(path) == 1 else frozenset()
    known = _known_keys(model_at(model, path[:-1]))
    return _misplaced(model, path) or _nearest(str(path[-1]), [name for name in known if name not in beside])


def _misplaced(model: type[BaseModel], path: KeyPath) -> str | None:
    """What to say of a key that belongs elsewhere, or nowhere; None if it is only unknown."""
    key, owner = str(path[-1]), model_at(model, path[:-1])
    known = _known_keys(owner)
    # One letter off a key that exists is a slip, whatever it sounds like: max_token for max_tokens.
    if is_secret_name(key) and not get_close_matches(key, known, n=1, cutoff=_ALMOST_THE_SAME):
        return _secret_key(owner)
    if path == (_TABLE_LESS.get(model),):
        return "unknown key: the settings of this kind of file stand at the top level, without a table"
    kind = _kind_of(model)
    inside = next((name for name in known if key in _known_keys(model_at(model, [*path[:-1], name]))), None)
    if inside is not None and kind is not None:
        return f"unknown key here: it belongs into [{show_path(kind.key((*path[:-1], inside)))}]"
    return None


def _kind_of(model: type[BaseModel]) -> Kind | None:
    return next((kind for kind in KINDS.values() if kind.model is model), None)


def _nearest(key: str, known: list[str]) -> str:
    near = get_close_matches(key, known, n=1)
    return f'unknown key; did you mean "{near[0]}"?' if near else f"unknown key; known are {', '.join(known)}"


def _secret_key(model: type[BaseModel] | None) -> str:
    instead = 'name the variable that holds it as "api_key_env"' if model is ProviderSettings else "use the environment"
    return f"API keys and passwords never stand in a file: {instead}"


def _known_keys(model: type[BaseModel] | None) -> list[str]:
    if model is None:
        return []
    older: Iterable[str] = OLDER_SPELLINGS if model is MemberAgentConfig else ()
    return sorted([*settable_keys(model), *older])


def _show(value: Any, path: KeyPath) -> str:
    text = show_value(mask(value, str(path[-1]) if path else ""))
    return text if len(text) <= _LONGEST_VALUE else text[: _LONGEST_VALUE - 3] + "..."
