"""Every setting with its limits, default and variable, taken from the models: for ``config list`` and the manual.

``python -m mixseek.config.reference`` prints the tables of ``docs/configuration.md``.
"""

import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from mixseek.config.environment import variable_names
from mixseek.config.kinds import KINDS, PROMPT_BUILDER, TEAM, Kind
from mixseek.config.layers import KeyPath
from mixseek.config.shape import SET_BY_THE_LOADER, allowed, alternatives, key_of, model_of

__all__ = ["FieldReference", "field_references", "markdown"]

_MEMBERS = 'The members: the keys of a member file, or `config = "path"` of one with `tool_name`, `tool_description`.'


@dataclass(frozen=True)
class FieldReference:
    """One setting: where it stands in its file, what it may be, and what it is when nobody sets it."""

    key: str
    allowed: str
    default: str
    variable: str | None
    description: str


def field_references(kind: Kind) -> list[FieldReference]:
    """The settings of one kind of file, those of its tables included."""
    variables = variable_names(kind.model, kind.variables) if kind.variables else {}
    return [
        FieldReference(_key(kind, path), allowed(field), _default(kind, field), variables.get(path), _words(field))
        for path, field in _fields(kind.model)
    ]


def markdown() -> str:
    """The tables of the manual, one for each kind of file; members are described once, with the member file."""
    return "\n".join(_section(kind) for kind in KINDS.values())


def _fields(model: type[BaseModel], above: KeyPath = ()) -> Iterator[tuple[KeyPath, FieldInfo]]:
    for name, field in model.model_fields.items():
        if SET_BY_THE_LOADER in field.metadata:
            continue
        path = (*above, key_of(name, field))
        inner, step = _inner(field.annotation)
        if inner is None:
            yield path, field
        else:
            yield from _fields(inner, (*path, *step))


def _inner(annotation: Any) -> tuple[type[BaseModel] | None, KeyPath]:
    """The model in a field, in its list or in its table, and how a path shows that step."""
    for kind in alternatives(annotation):
        if get_origin(kind) is list:
            return model_of(get_args(kind)[0]), ("[]",)
        if get_origin(kind) is dict:
            return model_of(get_args(kind)[1]), ("NAME",)
    return model_of(annotation), ()


def _key(kind: Kind, path: KeyPath) -> str:
    return ".".join(str(part) for part in kind.key(path)).replace(".[]", "[]")


def _default(kind: Kind, field: FieldInfo) -> str:
    if field.is_required():
        return "required"
    if field.default is PydanticUndefined:
        return "see description"
    if field.default is None:
        return "not set"
    if kind is PROMPT_BUILDER and isinstance(field.default, str):
        return "the built-in template"
    return json.dumps(field.default, ensure_ascii=False)


def _words(field: FieldInfo) -> str:
    return field.description or ""


def _section(kind: Kind) -> str:
    rows = ["| key | allowed | default | variable | |", "| --- | --- | --- | --- | --- |"]
    for one in field_references(kind):
        if one.key.startswith("team.members[]"):
            continue
        variable = f"`{one.variable}`" if one.variable else ""
        cells = (f"`{one.key}`", one.allowed, f"`{one.default}`", variable, one.description)
        rows.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    if kind is TEAM:
        rows.append("| `team.members[]` | a list, each a table | `[]` |  | " + _MEMBERS + " |")
    return f"### {kind.name}: `configs/{kind.file}`\n\n" + "\n".join(rows) + "\n"


if __name__ == "__main__":
    sys.stdout.write(markdown())
