"""The kinds of files a workspace has, and how to tell which kind a file is."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from mixseek.config.environment import Variables
from mixseek.config.layers import KeyPath, Layer, Place
from mixseek.config.schema import (
    EvaluatorSettings,
    JudgmentSettings,
    MemberAgentConfig,
    OrchestratorSettings,
    PromptBuilderSettings,
    ProvidersSettings,
    TeamSettings,
)
from mixseek.config.shape import settable_keys
from mixseek.errors import ConfigurationError, Problem

__all__ = [
    "EVALUATOR",
    "JUDGMENT",
    "KINDS",
    "MEMBER",
    "ORCHESTRATOR",
    "PROMPT_BUILDER",
    "PROVIDERS",
    "TEAM",
    "Kind",
    "as_document",
    "detect_kind",
    "other_kind",
    "toml_layer",
]


@dataclass(frozen=True)
class Kind:
    """A kind of file: the model of its contents, the table they stand in, and where the file is looked for."""

    name: str
    model: type[BaseModel]
    file: str
    """Where ``config init`` writes one, below ``configs``."""
    table: str | None = None
    """None: the keys stand at the top level."""
    outside: frozenset[str] = frozenset()
    """Fields that are top-level tables of their own, beside ``table``."""
    is_default: bool = False
    """Whether ``file`` is read when no other is named."""

    @property
    def words(self) -> str:
        """What to call such a file."""
        return f"{'an' if self.name[0] in 'aeiou' else 'a'} {self.name.replace('_', ' ')} file"

    @property
    def variables(self) -> Variables | None:
        """The environment variables that belong to it, if any."""
        return getattr(self.model, "variables", None)

    @property
    def keys(self) -> frozenset[str]:
        """The keys of its fields, as a file has them."""
        return frozenset(settable_keys(self.model))

    def key(self, path: KeyPath) -> KeyPath:
        """The key a field has in a file."""
        return path if self.table is None or (path and path[0] in self.outside) else (self.table, *path)


ORCHESTRATOR = Kind(
    "orchestrator",
    OrchestratorSettings,
    "orchestrator.toml",
    table="orchestrator",
    outside=frozenset({"budget", "prices", "storage"}),
)
TEAM = Kind("team", TeamSettings, "agents/team.toml", table="team")
MEMBER = Kind("member", MemberAgentConfig, "agents/member.toml", table="agent")
EVALUATOR = Kind("evaluator", EvaluatorSettings, "evaluator.toml", is_default=True)
JUDGMENT = Kind("judgment", JudgmentSettings, "judgment.toml", is_default=True)
PROMPT_BUILDER = Kind(
    "prompt_builder", PromptBuilderSettings, "prompt_builder.toml", table="prompt_builder", is_default=True
)
PROVIDERS = Kind("providers", ProvidersSettings, "providers.toml", is_default=True)

KINDS: Mapping[str, Kind] = {
    kind.name: kind for kind in (ORCHESTRATOR, TEAM, MEMBER, EVALUATOR, JUDGMENT, PROMPT_BUILDER, PROVIDERS)
}


def detect_kind(document: Mapping[str, Any], path: Path, shown: str) -> Kind:
    """The kind of a file: by its tables, else by its name, else by the keys it has."""
    by_table = [kind for kind in KINDS.values() if _main_table(kind) in document]
    if len(by_table) > 1:
        tables = " and ".join(f"[{_main_table(kind)}]" for kind in by_table)
        raise ConfigurationError(Problem(f"has {tables}: keep each in a file of its own", shown))
    found = by_table or _by_name(path) or _by_keys(document)
    if not found:
        raise ConfigurationError(Problem(_unclear(document), shown))
    return found[0]


def other_kind(document: Mapping[str, Any], wanted: Kind) -> Kind | None:
    """The kind a file evidently is, where that is not the one that is wanted and nothing in it speaks for that one."""
    found = [kind for kind in KINDS.values() if _main_table(kind) in document] or _by_keys(document)
    if not found or wanted in found:
        return None
    own = {_main_table(wanted)} if _main_table(wanted) else wanted.keys - found[0].keys
    return None if document.keys() & own else found[0]


def as_document(kind: Kind, given: Mapping[str, Any]) -> tuple[Kind, Mapping[str, Any]]:
    """A table that is given in Python as the document of a file, and the kind whose keys are named as it names them."""
    if kind is PROVIDERS and "providers" not in given:
        return kind, {"providers": given}
    if kind.table is None or isinstance(given.get(kind.table), Mapping):
        return kind, given
    return replace(kind, table=None), given


def toml_layer(kind: Kind, document: Mapping[str, Any], shown: str) -> Layer:
    """A document as a layer of settings of its kind."""
    places: dict[KeyPath, Place] = {(name,): Place(shown, (name,)) for name in kind.outside}
    places[()] = Place(shown, kind.key(()))
    if kind.table is None:
        return Layer("TOML", document, places)
    _refuse_another_kind(kind, document, shown)
    table = document.get(kind.table, {})
    problems = list(_top_level_problems(kind, document, shown))
    values = {name: document[name] for name in kind.outside if name in document}
    if isinstance(table, Mapping):
        # These are fields of the model, but not keys of the table.
        foreign = kind.outside | (kind.model.model_fields.keys() - kind.keys)
        problems += [_misplaced(kind, name, shown) for name in sorted(foreign & table.keys())]
        values |= {name: value for name, value in table.items() if name not in foreign}
    return Layer("TOML", values, places, tuple(problems))


def _refuse_another_kind(kind: Kind, document: Mapping[str, Any], shown: str) -> None:
    """A whole file of another kind is one mistake: somebody named the wrong file."""
    if kind.table in document:
        return
    others = [one for one in KINDS.values() if one is not kind and _main_table(one) in document]
    others += [one for one in _by_keys(document) if document.keys() <= one.keys]
    if others:
        raise ConfigurationError(Problem(f"is {others[0].words}: give {kind.words}", shown))


def _top_level_problems(kind: Kind, document: Mapping[str, Any], shown: str) -> Iterable[Problem]:
    table = kind.table or ""
    if table not in document:
        yield Problem(f"there is no [{table}] table, which holds the settings of this kind of file", shown)
    elif not isinstance(document[table], Mapping):
        yield Problem("has to be a table", shown, table)
    known = {table, *kind.outside}
    for name in document.keys() - known:
        yield Problem(_unknown_table(kind, name, sorted(known)), shown, name)


def _unknown_table(kind: Kind, name: str, known: list[str]) -> str:
    if name in kind.keys:
        return f"unknown key at the top level: it belongs into [{kind.table}]"
    near = get_close_matches(name, known, n=1)
    return f"unknown key; did you mean [{near[0]}]?" if near else f"unknown key; known are {', '.join(known)}"


def _misplaced(kind: Kind, name: str, shown: str) -> Problem:
    beside = f"stands beside [{kind.table}], not inside: write [{name}]"
    message = beside if name in kind.outside else "is not set in a file: take it out"
    return Problem(message, shown, f"{kind.table}.{name}")


def _main_table(kind: Kind) -> str:
    return kind.table or ("providers" if kind is PROVIDERS else "")


def _by_name(path: Path) -> list[Kind]:
    stem = path.stem.lower().replace("-", "_")
    exact = [kind for kind in KINDS.values() if kind.name == stem]
    return exact or [kind for kind in KINDS.values() if kind.name in stem]


def _by_keys(document: Mapping[str, Any]) -> list[Kind]:
    """Evaluator and judgment files have no table of their own; some keys occur in only one of the two."""
    for kind, other in ((EVALUATOR, JUDGMENT), (JUDGMENT, EVALUATOR)):
        if document.keys() & (kind.keys - other.keys):
            return [kind]
    return []


def _unclear(document: Mapping[str, Any]) -> str:
    tops = [_main_table(kind) for kind in KINDS.values() if _main_table(kind)]
    tables = ", ".join(f"[{name}]" for name in tops)
    for name in document:
        near = get_close_matches(name, tops, n=1)
        if near:
            return f"the kind of file is unclear: [{name}] is unknown; did you mean [{near[0]}]?"
    return f"the kind of file is unclear: none of {tables} is in it, nor a key of an evaluator or judgment file"
