"""Which models a file names, which of them a run would ask, and whether their providers and keys are there."""

import contextlib
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any

from pydantic import BaseModel

from mixseek import embedded, plugins
from mixseek.config.layers import KeyPath
from mixseek.config.reading import referred_file
from mixseek.config.schema import (
    EvaluatorSettings,
    JudgmentSettings,
    LeaderSettings,
    MemberAgentConfig,
    OrchestratorSettings,
    TeamSettings,
)
from mixseek.errors import ConfigurationError, PluginError
from mixseek.metrics import JUDGES, metric_type
from mixseek.providers import (
    OwnServer,
    check_model,
    find_provider,
    key_fault,
    missing_address,
    missing_package,
    split_model_id,
)
from mixseek.records import AgentType
from mixseek.workspace import Workspace

__all__ = [
    "KnownProviders",
    "NamedModel",
    "Server",
    "all_models",
    "asked_models",
    "models_not_ready",
    "unknown_models",
    "unused_prices",
]

Fault = tuple[KeyPath, str]
_Named = tuple[KeyPath, str]

_NAMING = (TeamSettings, EvaluatorSettings, JudgmentSettings)
"""The settings of a run that name models."""
_BUILT_IN_MEMBERS = frozenset(AgentType) - {AgentType.CUSTOM}


@dataclass(frozen=True)
class Server:
    """What has to be known of a server in ``configs/providers.toml``, whatever else is wrong with its table."""

    api_key_env: str | None = None


@dataclass(frozen=True)
class KnownProviders:
    """The workspace's own servers beside the registered providers, and the variables that may hold keys."""

    servers: Mapping[str, OwnServer]
    environ: Mapping[str, str] = field(repr=False)


@dataclass(frozen=True)
class NamedModel:
    """A model and the place in a file, or the default, that names it."""

    model: str
    file: str
    key: str


def all_models(model: type[BaseModel], values: Mapping[str, Any], workspace: Workspace) -> Iterator[_Named]:
    """Every model a file names or a run by it would ask, defaults included, each place once."""
    if model is OrchestratorSettings:
        return  # it has prices of models, but asks none
    found = [*_named_models(model, values), *_asked_models(model, values, workspace)]
    yield from ((path, name) for path, name in dict.fromkeys(found) if _prefix(name) is not None)


def asked_models(settings: BaseModel, workspace: Workspace) -> Iterator[_Named]:
    """Every model that a run by these settings would ask for sure, and where it is named."""
    return _asked_models(type(settings), settings.model_dump(exclude_none=True), workspace)


def unused_prices(prices: Iterable[str], parts: Iterable[BaseModel]) -> dict[str, str | None]:
    """Models that have a price and are named by none of these settings, each with the one that may be meant.

    That is one without a price here: a model that has one needs no other.
    """
    priced = set(prices)
    dumped = ((type(part), part.model_dump(exclude_none=True)) for part in parts if type(part) in _NAMING)
    named = {name for model, values in dumped for _, name in _named_models(model, values)}
    without = sorted(named - priced)
    return {
        name: next(iter(get_close_matches(name, without, n=1, cutoff=0.8)), None) for name in sorted(priced - named)
    }


def unknown_models(
    model: type[BaseModel], values: Mapping[str, Any], known: KnownProviders, workspace: Workspace
) -> Iterator[Fault]:
    """Every model a file names whose provider nobody knows, or whose weights should be on this machine and are not."""
    with contextlib.redirect_stdout(sys.stderr):
        plugins.load_entry_points()
    for path, model_id in _named_models(model, values):
        prefix = _prefix(model_id)
        if prefix is not None and prefix not in known.servers and find_provider(prefix) is None:
            yield path, check_model(model_id, known.servers, known.environ)[0].message
        elif prefix == embedded.PREFIX and prefix not in known.servers:
            fault = embedded.fault_in(split_model_id(model_id)[1], workspace.root)
            if fault:
                yield path, fault


def models_not_ready(
    model: type[BaseModel],
    values: Mapping[str, Any],
    known: KnownProviders,
    workspace: Workspace,
    *,
    defaults: bool = True,
) -> Iterator[Fault]:
    """Every model a run would ask, ``defaults`` included, whose provider's key, address or package is not there."""
    named = set(_named_models(model, values))
    for path, model_id in _asked_models(model, values, workspace):
        if not defaults and (path, model_id) not in named:
            continue
        prefix = _prefix(model_id)
        if prefix is not None:
            at = prefix, known.servers, known.environ
            needed = key_fault(*at), missing_address(*at), missing_package(prefix, known.servers)
            yield from ((path, missing) for missing in needed if missing)


def _prefix(model_id: str) -> str | None:
    """None for what names no model, which the settings complain about themselves."""
    try:
        return split_model_id(model_id)[0]
    except ConfigurationError:
        return None


# --- all that are named -----------------------------------------------------------------------------------------------


def _named_models(model: type[BaseModel], values: Mapping[str, Any]) -> Iterator[_Named]:
    if model is TeamSettings:
        yield from _below(("leader",), _of_agent(_table(values, "leader")))
        for number, member in _tables(values, "members"):
            yield from _below(("members", number), _of_agent(member))
    elif model is MemberAgentConfig:
        yield from _of_agent(values)
    elif model is EvaluatorSettings:
        yield from _of_evaluator(values)
    elif model is JudgmentSettings:
        yield from ((path, name) for path, name in _of_key(values, "model") if name != "none")
    elif model is OrchestratorSettings:
        yield from ((("prices", name), name) for name in _table(values, "prices"))


def _of_agent(agent: Mapping[str, Any]) -> Iterator[_Named]:
    yield from _of_key(agent, "model")
    fallbacks = agent.get("fallback_models")
    for number, name in enumerate(fallbacks if isinstance(fallbacks, list) else []):
        if isinstance(name, str):
            yield ("fallback_models", number), name


def _of_evaluator(values: Mapping[str, Any]) -> Iterator[_Named]:
    yield from _of_key(values, "default_model")
    yield from _below(("llm_default",), _of_key(_table(values, "llm_default"), "model"))
    for number, metric in _tables(values, "metrics"):
        yield from _below(("metrics", number), _of_key(metric, "model"))


# --- those that a run would ask ---------------------------------------------------------------------------------------


def _asked_models(model: type[BaseModel], values: Mapping[str, Any], workspace: Workspace) -> Iterator[_Named]:
    if model is TeamSettings:
        leader = {"model": _default(LeaderSettings, "model"), **_table(values, "leader")}
        yield from _below(("leader",), _of_agent(leader))
        for number, member in _tables(values, "members"):
            yield from _below(("members", number), _asked_by_member(member))
    elif model is MemberAgentConfig:
        yield from _asked_by_member(values)
    elif model is EvaluatorSettings:
        yield from _asked_by_evaluator(values, workspace)
    elif model is JudgmentSettings:
        yield from _named_models(model, {"model": _default(JudgmentSettings, "model"), **values})


def _asked_by_member(member: Mapping[str, Any]) -> Iterator[_Named]:
    """A member of somebody else's class may do without the model it has to name, so nothing is asked for there."""
    kind = member.get("type", member.get("agent_type"))
    if isinstance(kind, str) and kind in _BUILT_IN_MEMBERS and "plugin" not in member:
        yield from _of_agent(member)


def _asked_by_evaluator(values: Mapping[str, Any], workspace: Workspace) -> Iterator[_Named]:
    top = {"default_model": _default(EvaluatorSettings, "default_model"), **values}
    shared = [
        *_below(("llm_default",), _of_key(_table(values, "llm_default"), "model")),
        *_of_key(top, "default_model"),
    ]
    metrics = _tables(values, "metrics") or [(0, {"name": JUDGES[0]})]
    custom = _table(values, "custom_metrics")
    asked: list[_Named] = []
    for number, metric in metrics:
        if _is_judge(metric, custom, workspace):
            # None of them where what is given is no text, which the settings complain about themselves.
            asked += [*_below(("metrics", number), _of_key(metric, "model")), *shared][:1]
    yield from dict.fromkeys(asked)


def _is_judge(metric: Mapping[str, Any], custom: Mapping[str, Any], workspace: Workspace) -> bool:
    """Whether a metric asks a model: the built-in judges do, of any other class those that have an instruction."""
    name, given, instruction = (_of(metric, key) for key in ("name", "type", "system_instruction"))
    kind = metric_type(name or "", given, instructed=bool(instruction), custom=custom)
    if kind in custom:
        return _has_instruction(lambda: _custom_class(custom[kind], workspace))
    if kind in JUDGES:
        return True
    # A name that nobody knows is told as such; which model it would ask, if any, is not known.
    return kind in plugins.metrics and _has_instruction(lambda: plugins.metrics.get(kind))


def _has_instruction(load: Callable[[], type | None]) -> bool:
    try:
        with contextlib.redirect_stdout(sys.stderr):
            return hasattr(load(), "get_instruction")
    except (PluginError, SystemExit):
        return False  # told as what it is where classes are checked


def _custom_class(named: Any, workspace: Workspace) -> type | None:
    given = {key: value for key, value in named.items() if isinstance(value, str)} if isinstance(named, Mapping) else {}
    path = referred_file(workspace, given["path"]) if "path" in given else None
    if "class" not in given or (path is None and "module" not in given):
        return None
    return plugins.metrics.load_class(given["class"], module=given.get("module"), path=path)


# --- values of unknown types ------------------------------------------------------------------------------------------


def _default(model: type[BaseModel], name: str) -> Any:
    return model.model_fields[name].default


def _of_key(values: Mapping[str, Any], name: str) -> Iterator[_Named]:
    if isinstance(values.get(name), str):
        yield (name,), values[name]


def _of(values: Mapping[str, Any], name: str) -> str | None:
    return value if isinstance(value := values.get(name), str) else None


def _table(values: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    table = values.get(name)
    return table if isinstance(table, Mapping) else {}


def _tables(values: Mapping[str, Any], name: str) -> list[tuple[int, Mapping[str, Any]]]:
    items = values.get(name)
    return [(n, item) for n, item in enumerate(items) if isinstance(item, Mapping)] if isinstance(items, list) else []


def _below(above: KeyPath, named: Iterator[_Named]) -> Iterator[_Named]:
    for path, name in named:
        yield (*above, *path), name
