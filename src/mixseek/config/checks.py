"""What a settings model alone cannot know: files that are named, templates, classes that have to load, the clock."""

import contextlib
import json
import os
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from mixseek import plugins
from mixseek.clock import timezone_from_environment
from mixseek.config.layers import KeyPath
from mixseek.config.problems import no_such_file
from mixseek.config.reading import read_text, referred_file
from mixseek.config.schema import (
    BUILT_IN_METRICS,
    PROMPTS,
    EvaluatorSettings,
    MemberAgentConfig,
    OrchestratorSettings,
    PromptBuilderSettings,
    TeamSettings,
)
from mixseek.errors import ConfigurationError, PluginError, Problem
from mixseek.records import AgentType
from mixseek.templating import TemplateFault, check_template
from mixseek.workspace import Workspace

__all__ = ["Fault", "Surroundings", "check", "check_clock", "check_prompt_templates", "later_fields"]

Fault = tuple[KeyPath, str]

_PROMPT_TEMPLATES = ("initial_prompt.jinja2", "continuation_prompt.jinja2")
_PATH_OF_A_TEXT = re.compile(r"\S+\.(?:md|txt|json|toml|html?|csv|rst)", re.IGNORECASE)

# Accepted and checked, but read only by parts that are still to come.
_LATER: Mapping[type[BaseModel], frozenset[str]] = {
    OrchestratorSettings: frozenset({"budget", "answer_schema", "reference"}),
    TeamSettings: frozenset({"budget", "answer_schema"}),
    MemberAgentConfig: frozenset({"mcp_servers", "functions"}),
}


@dataclass(frozen=True)
class Surroundings:
    """What a check may look at."""

    workspace: Workspace
    no_plugins: bool = False
    """Load no code of others: what only it could tell is taken on trust."""


def check(model: type[BaseModel], values: Mapping[str, Any], around: Surroundings) -> Iterator[Fault]:
    """What is wrong beyond types and limits; looks at plain values, so that one wrong field hides no other fault."""
    if model is PromptBuilderSettings:
        yield from _template_faults(values)
    elif model is MemberAgentConfig:
        yield from _member_faults(values, around)
    elif model is TeamSettings:
        yield from _answer_schema_faults(values.get("answer_schema"), around)
        for number, member in _tables(values, "members"):
            yield from _below(("members", number), _member_faults(member, around))
    elif model is EvaluatorSettings:
        yield from _evaluator_faults(values, around)
    elif model is OrchestratorSettings:
        yield from _answer_schema_faults(values.get("answer_schema"), around)
        yield from _reference_faults(_text(values, "reference"), around)


def check_clock(environ: Mapping[str, str]) -> Iterator[Problem]:
    """A time zone that does not exist would otherwise be found in the middle of a run."""
    try:
        timezone_from_environment(environ)
    except ValueError as error:
        yield Problem(str(error), key="TZ")


def check_prompt_templates(workspace: Workspace, shown: str) -> Iterator[Problem]:
    """The two templates a workspace may keep as files: both or none, readable and well-formed."""
    files = [workspace.prompt_templates / name for name in _PROMPT_TEMPLATES]
    there = [file for file in files if os.path.lexists(file)]
    if len(there) == 1:
        missing = next(file.name for file in files if file not in there)
        yield Problem(f"{there[0].name} is there but {missing} is not: add it, or take the other away", shown)
    for file in there:
        yield from _template_file_problems(file, f"{shown}/{file.name}")


def _template_file_problems(file: Path, shown: str) -> Iterator[Problem]:
    try:
        source = read_text(file, shown)
    except ConfigurationError as error:
        yield from error.problems
        return
    for fault in check_template(source, file.stem):
        yield Problem(_template_fault(fault), shown)


def later_fields(settings: BaseModel, above: KeyPath = ()) -> Iterator[KeyPath]:
    """Fields that are set but not yet in effect, at any depth."""
    for name in settings.model_fields_set:
        value = getattr(settings, name)
        if name in _LATER.get(type(settings), ()):
            yield (*above, name)
        elif isinstance(value, BaseModel):
            yield from later_fields(value, (*above, name))
        elif isinstance(value, list):
            for number, item in enumerate(value):
                if isinstance(item, BaseModel):
                    yield from later_fields(item, (*above, name, number))


# --- values of unknown types ----------------------------------------------------------------------------------------


def _text(values: Any, *names: str) -> str | None:
    found = (values.get(name) for name in names) if isinstance(values, Mapping) else ()
    return next((value for value in found if isinstance(value, str)), None)


def _tables(values: Mapping[str, Any], name: str) -> list[tuple[int, Mapping[str, Any]]]:
    items = values.get(name)
    return [(n, item) for n, item in enumerate(items) if isinstance(item, Mapping)] if isinstance(items, list) else []


def _below(above: KeyPath, faults: Iterable[Fault]) -> Iterator[Fault]:
    for path, text in faults:
        yield (*above, *path), text


# --- templates ------------------------------------------------------------------------------------------------------


def _template_faults(values: Mapping[str, Any]) -> Iterator[Fault]:
    for name in PROMPTS:
        for fault in check_template(_text(values, name) or "", name):
            yield (name,), _template_fault(fault)


def _template_fault(fault: TemplateFault) -> str:
    told = fault.lineno is None or f"line {fault.lineno}" in fault.message
    return fault.message if told else f"line {fault.lineno} of the template: {fault.message}"


# --- classes of others ----------------------------------------------------------------------------------------------


def _member_faults(member: Mapping[str, Any], around: Surroundings) -> Iterator[Fault]:
    kinds = [kind.value for kind in AgentType]
    kind = _text(member, "type", "agent_type")
    if kind and kind not in kinds and not around.no_plugins and kind not in plugins.members:
        yield ("type",), _unknown("member type", kind, [*kinds, *plugins.members])
    plugin = member.get("plugin")
    yield from _below(("plugin",), _class_faults(plugins.members, plugin, "agent_module", "agent_class", around))


def _evaluator_faults(values: Mapping[str, Any], around: Surroundings) -> Iterator[Fault]:
    custom = values.get("custom_metrics")
    custom = custom if isinstance(custom, Mapping) else {}
    for key, named in custom.items():
        yield from _below(("custom_metrics", key), _class_faults(plugins.metrics, named, "module", "class", around))
    for number, metric in _tables(values, "metrics"):
        yield from _below(("metrics", number), _metric_faults(metric, custom, around))


def _metric_faults(metric: Mapping[str, Any], custom: Mapping[str, Any], around: Surroundings) -> Iterator[Fault]:
    name, kind = _text(metric, "name"), _text(metric, "type", "name")
    asks = bool((_text(metric, "system_instruction") or "").strip())
    if kind == "LLMPlain" and not asks:
        yield ("system_instruction",), "is required for LLMPlain: say what the judge has to look for"
    by_instruction = asks and kind == name
    if not kind or by_instruction or kind in BUILT_IN_METRICS or kind in custom:
        return
    if not around.no_plugins and kind not in plugins.metrics:
        known = [*BUILT_IN_METRICS, *custom, *plugins.metrics]
        if "type" in metric:
            yield ("type",), _unknown("metric", kind, known)
        else:
            yield ("name",), _unknown("metric", kind, known) + ' (or give it a "system_instruction")'


def _class_faults(
    registry: plugins.Registry[type], named: Any, module_key: str, class_key: str, around: Surroundings
) -> Iterator[Fault]:
    """A class that cannot be loaded; a table that does not say which class is the model's to complain about."""
    module, file, class_name = _text(named, module_key), _text(named, "path"), _text(named, class_key)
    if class_name and (module or file):
        yield from _loads(registry, class_name, module, file, around)


def _loads(
    registry: plugins.Registry[type], class_name: str, module: str | None, file: str | None, around: Surroundings
) -> Iterator[Fault]:
    where = referred_file(around.workspace, file) if file else None
    if file and where is None:
        yield ("path",), no_such_file(file)
    if around.no_plugins or (file and where is None):
        return
    try:
        # What a stranger's module prints while it loads must not end up in our own output.
        with contextlib.redirect_stdout(sys.stderr):
            registry.load_class(class_name, module=module, path=where)
    except PluginError as error:
        yield (), str(error)
    except SystemExit:
        yield (), f"{file or module!r} ends the program while it is loaded"


def _unknown(what: str, name: str, known: Iterable[str]) -> str:
    names = sorted(set(known))
    near = get_close_matches(name, names, n=1)
    hint = f"did you mean {near[0]!r}?" if near else f"known are {', '.join(names)}"
    return f"unknown {what} {name!r}; {hint}"


# --- files that are named -------------------------------------------------------------------------------------------


def _answer_schema_faults(schema: Any, around: Surroundings) -> Iterator[Fault]:
    if not isinstance(schema, str):
        return
    file = referred_file(around.workspace, schema)
    if file is None:
        yield ("answer_schema",), no_such_file(schema)
        return
    try:
        parsed = json.loads(read_text(file, schema))
    except ConfigurationError as error:
        yield ("answer_schema",), f"file {error}"
    except (ValueError, RecursionError) as error:
        yield ("answer_schema",), f"file {schema!r} is not JSON: {error}"
    else:
        if not isinstance(parsed, dict):
            yield ("answer_schema",), f"file {schema!r} holds no JSON object, which a schema is"


def _reference_faults(reference: str | None, around: Surroundings) -> Iterator[Fault]:
    """A reference may be any text; one that can only be meant as a path has to exist."""
    if reference and _PATH_OF_A_TEXT.fullmatch(reference) and referred_file(around.workspace, reference) is None:
        yield ("reference",), no_such_file(reference)
