"""Every setting with its limits, default and variable, taken from the models: for ``config list`` and the manual."""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

import mixseek.providers  # noqa: F401  # registers the built-in ones
from mixseek import plugins
from mixseek.config.environment import variable_names
from mixseek.config.kinds import KINDS, PROMPT_BUILDER, TEAM, Kind
from mixseek.config.layers import KeyPath
from mixseek.config.shape import SET_BY_THE_LOADER, allowed, alternatives, key_of, model_of
from mixseek.templating.variables import VARIABLES_BY_TEMPLATE

__all__ = ["FieldReference", "field_references", "markdown", "options_table", "template_references"]

_REQUIRED = "required"
_WHEN_ABSENT = re.compile(r"absent: (.+?)\.?$")
_TEMPLATES = {
    "initial_prompt": "What a team is told in round 1.",
    "continuation_prompt": "What a team is told in later rounds.",
}
_MEMBERS = 'The members: the keys of a member file, or `config = "path"` of one with `tool_name`, `tool_description`.'


@dataclass(frozen=True)
class FieldReference:
    """One setting: where it stands in its file, what it may be, and what it is when nobody sets it."""

    key: str
    allowed: str
    default: str
    variable: str | None
    description: str

    @property
    def is_required(self) -> bool:
        """Whether there is no default."""
        return self.default == _REQUIRED


def field_references(kind: Kind) -> list[FieldReference]:
    """The settings of one kind of file, those of its tables included."""
    variables = variable_names(kind.model, kind.variables) if kind.variables else {}
    return [
        FieldReference(_key(kind, path), allowed(field), _default(kind, field), variables.get(path), _words(field))
        for path, field in _fields(kind.model)
    ]


def template_references() -> list[FieldReference]:
    """The two files of ``configs/prompt_templates`` and the variables of each, in place of what is allowed."""
    return [
        FieldReference(
            f"{name}.jinja2",
            "a Jinja2 template of " + ", ".join(VARIABLES_BY_TEMPLATE[name]),
            "the prompt builder file",
            None,
            words,
        )
        for name, words in _TEMPLATES.items()
    ]


def markdown() -> str:
    """The tables of the manual: each kind of file, members once with the member file, and the model providers."""
    return "\n".join([*(_section(kind) for kind in KINDS.values()), _providers()])


def options_table(model: type[BaseModel]) -> str:
    """The options of a class of metrics, as a page on metrics has them; a table inside them is one line."""
    rows = ["| option | allowed | default | |", "| --- | --- | --- | --- |"]
    for name, field in model.model_fields.items():
        cells = (f"`{key_of(name, field)}`", allowed(field), f"`{_default(None, field)}`", _words(field))
        rows.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return "\n".join(rows) + "\n"


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


def _default(kind: Kind | None, field: FieldInfo) -> str:
    if field.is_required():
        return _REQUIRED
    if field.default is PydanticUndefined:
        computed = _WHEN_ABSENT.search(_words(field))
        assert computed is not None, field  # noqa: S101  # the description of a computed default tells it
        return computed[1]
    if field.default is None:
        return "not set"
    if kind is PROMPT_BUILDER and field.annotation is str:
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


def _providers() -> str:
    rows = ["| prefix | also read as | key in | own server in | extra |", "| --- | --- | --- | --- | --- |"]
    for provider in map(plugins.providers.get, plugins.providers):
        if not provider.factory.startswith("mixseek.llm."):
            continue  # of another package, or for tests
        address = provider.address_variable or provider.required_address
        cells = ([provider.prefix], provider.aliases, provider.key_variables, [address])
        written = (" or ".join(f"`{name}`" for name in names if name) for names in cells)
        rows.append("| " + " | ".join([*written, f"`{provider.extra}`"]) + " |")
    return "### built-in model providers\n\n" + "\n".join(rows) + "\n"
