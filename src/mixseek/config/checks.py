"""What a settings model alone cannot know: files that are named, templates, classes that have to load, the clock."""

import contextlib
import importlib.util
import inspect
import os
import re
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from functools import partial
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError

from mixseek import plugins
from mixseek.clock import timezone_from_environment
from mixseek.config.layers import KeyPath
from mixseek.config.problems import faults_of, no_such_file
from mixseek.config.reading import is_there, read_text, referred_file
from mixseek.config.references import references
from mixseek.config.schema import (
    PROMPTS,
    EvaluatorSettings,
    LLMDefaultSettings,
    MemberAgentConfig,
    MetricOptions,
    MetricSettings,
    OrchestratorSettings,
    PromptBuilderSettings,
    TeamSettings,
    ToolSettings,
)
from mixseek.errors import ConfigurationError, PluginError, Problem
from mixseek.metrics import BUILT_IN_METRICS, CODE_METRICS, JUDGES, metric_type
from mixseek.records import AgentType
from mixseek.sandbox import bubblewrap_is_missing, monty_is_missing
from mixseek.templating import TemplateFault, check_template
from mixseek.workspace import Workspace

__all__ = [
    "Fault",
    "Surroundings",
    "check",
    "check_clock",
    "check_prompt_templates",
    "is_known_judge",
    "metrics_that_need_a_reference",
    "missing_sandboxes",
    "needs_reference",
    "options_model",
    "reference_file",
    "servers_not_ready",
    "type_of_metric",
]

Fault = tuple[KeyPath, str]

_PROMPT_TEMPLATES = ("initial_prompt.jinja2", "continuation_prompt.jinja2")
_PATH_OF_A_TEXT = re.compile(r"\S[^\n]*\.(?:md|txt|json|toml|html?|csv|rst)", re.IGNORECASE)


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


def type_of_metric(metric: MetricSettings, settings: EvaluatorSettings) -> str:
    """The class a metric is of: one that only has an instruction of its own is asked as ``LLMPlain``."""
    given = metric.type if "type" in metric.model_fields_set else None
    instructed = bool(metric.system_instruction)
    return metric_type(metric.name, given, instructed=instructed, custom=settings.custom_metrics)


def is_known_judge(metric: MetricSettings, settings: EvaluatorSettings) -> bool:
    """Whether a metric asks a model; of a class that a file names, which is not loaded for that, it is not known."""
    kind = type_of_metric(metric, settings)
    if kind in settings.custom_metrics:
        return False
    return kind in JUDGES or hasattr(plugins.metrics.get(kind), "get_instruction")


def options_model(metric: type) -> type[MetricOptions] | None:
    """What a class of metrics takes as its ``options``, if it says so; else they are arguments of its constructor."""
    offered = getattr(metric, "Options", None)
    return offered if isinstance(offered, type) and issubclass(offered, MetricOptions) else None


def check_clock(environ: Mapping[str, str]) -> Iterator[Problem]:
    """A time zone that does not exist would otherwise be found in the middle of a run."""
    try:
        timezone_from_environment(environ)
    except ValueError as error:
        yield Problem(str(error), key="TZ")


def check_prompt_templates(workspace: Workspace, shown: str) -> Iterator[Problem]:
    """The two templates a workspace may keep as files: both or none, readable and well-formed."""
    files = [workspace.prompt_templates / name for name in _PROMPT_TEMPLATES]
    there = [file for file in files if is_there(file)]
    if not there and workspace.prompt_templates.is_dir():
        yield Problem(f"holds no template: add {' and '.join(_PROMPT_TEMPLATES)}, or take the directory away", shown)
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


def missing_sandboxes(model: type[BaseModel], values: Mapping[str, Any]) -> Iterator[Fault]:
    """Sandboxes that are chosen by name and that this machine does not have."""
    if model is MemberAgentConfig and _text(values, "type", "agent_type") == AgentType.CODE_EXECUTION:
        path, settings = _code_execution(values)
        why = _MISSING.get(_text(settings, "backend") or "", lambda: None)()
        if why:
            yield (*path, "backend"), why
    elif model is TeamSettings:
        for number, member in _tables(values, "members"):
            yield from _below(("members", number), missing_sandboxes(MemberAgentConfig, member))
    elif model is EvaluatorSettings:
        for number, metric in _tables(values, "metrics"):
            ours = "ExitCode" not in (values.get("custom_metrics") or {})
            if ours and _text(metric, "type", "name") == "ExitCode" and (why := bubblewrap_is_missing()):
                yield ("metrics", number, "type" if "type" in metric else "name"), why


def _code_execution(member: Mapping[str, Any]) -> tuple[KeyPath, Any]:
    """Where a member's table stands and what it holds; its own is stronger than one under ``metadata``."""
    metadata = member.get("metadata")
    tables: list[tuple[KeyPath, Any]] = [((), member), (("metadata",), metadata)]
    for above, holder in tables:
        table = holder.get("tool_settings") if isinstance(holder, Mapping) else None
        if isinstance(table, Mapping) and "code_execution" in table:
            return (*above, "tool_settings", "code_execution"), table["code_execution"]
    return (), None


_MISSING: Mapping[str, Callable[[], str | None]] = {
    "monty": monty_is_missing,
    "bubblewrap": bubblewrap_is_missing,
}


def servers_not_ready(
    model: type[BaseModel], values: Mapping[str, Any], environ: Mapping[str, str], workspace: Workspace
) -> Iterator[Fault]:
    """MCP servers that could not be had here and now: no such program, a variable that is not set, no package."""
    if model is MemberAgentConfig:
        servers = values.get("mcp_servers")
        for name, server in servers.items() if isinstance(servers, Mapping) else ():
            if isinstance(server, Mapping):
                yield from _below(("mcp_servers", name), _server_faults(server, environ, workspace))
        if servers and importlib.util.find_spec("fastmcp") is None:
            yield ("mcp_servers",), 'needs a package: pip install "mixseek[mcp]"'
    elif model is TeamSettings:
        for number, member in _tables(values, "members"):
            yield from _below(("members", number), servers_not_ready(MemberAgentConfig, member, environ, workspace))


def _server_faults(server: Mapping[str, Any], environ: Mapping[str, str], workspace: Workspace) -> Iterator[Fault]:
    # One that has a "url" too is told of that; which of the two is meant is not known.
    command = None if "url" in server else _text(server, "command")
    # A path is taken from the workspace, where the program is started.
    path = workspace.resolve(command) if command and os.sep in command else command
    if path and shutil.which(path, path=environ.get("PATH")) is None:
        yield ("command",), f"there is no program {command!r}: install it, or give its path"
    for key, text in _referring_texts(server):
        for variable in references(text) if isinstance(text, str) else ():
            if variable not in environ:
                remedy = "set it" if workspace.is_bare else "set it, or write it into .env"
                yield key, f"the variable {variable} is not set: {remedy}"


def _referring_texts(server: Mapping[str, Any]) -> Iterator[tuple[KeyPath, Any]]:
    args = server.get("args")
    yield ("url",), server.get("url")
    yield from ((("args", number), each) for number, each in enumerate(args if isinstance(args, list) else []))
    for table in ("env", "headers"):
        values = server.get(table)
        yield from (((table, name), each) for name, each in (values if isinstance(values, Mapping) else {}).items())


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
    found = _find_class(plugins.members, plugin, "agent_module", "agent_class", around)
    yield from _below(("plugin",), found.faults)
    if found.loaded and (why := _cannot_be_made(found.loaded, "its settings")):
        yield ("plugin",), f"class {found.loaded.__name__!r} has to take its settings as its one argument: {why}"
    yield from _below(("functions",), _function_faults(member.get("functions"), around))
    if kind in kinds and kind != AgentType.CUSTOM:
        yield from _below(("tool_settings",), _tool_settings_faults(member.get("tool_settings")))


def _tool_settings_faults(tables: Any) -> Iterator[Fault]:
    """Any table is kept for agents that read their own; a slip in the name of one of ours would lift its limits."""
    known = list(ToolSettings.model_fields)
    for name in tables if isinstance(tables, Mapping) else ():
        near = get_close_matches(str(name), known, n=1, cutoff=0.8)
        if name not in known and near:
            yield (name,), f'unknown table; did you mean "{near[0]}"?'


def _function_faults(functions: Any, around: Surroundings) -> Iterator[Fault]:
    """Functions that are to be tools: each has to load, to be one a model can call, and to have a name of its own."""
    named = [name for name in functions if isinstance(name, str)] if isinstance(functions, list) else []
    tools: dict[str, str] = {}
    broken: set[str] = set()
    for number, name in enumerate(named):
        first = tools.setdefault(plugins.name_of_function(name), name)
        if first != name or named.index(name) != number:
            yield (number,), f"{name!r} and {first!r} would be tools of the same name: rename one, or take it out"
        elif not around.no_plugins and ":" in name:
            faults = [
                fault for fault in _load(partial(_load_tool, name, around), name).faults if fault[1] not in broken
            ]
            # A module that cannot be imported is one mistake, however many of its functions are named.
            broken.update(words for _, words in faults)
            yield from _below((number,), faults)


def _load_tool(name: str, around: Surroundings) -> None:
    """Describe a function as a model is told of it, the way a run does."""
    from pydantic_ai import Tool  # costs half a second, and few members have functions

    function = plugins.load_function(name, root=around.workspace.root)
    try:
        Tool(function, name=plugins.name_of_function(name))
    except Exception as error:  # there is a class of its own for every way in which a type cannot be described
        raise PluginError(f"{name!r} cannot be a tool: {_first_line(error)}") from error


def _first_line(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0] if lines else type(error).__name__


def _evaluator_faults(values: Mapping[str, Any], around: Surroundings) -> Iterator[Fault]:
    custom = values.get("custom_metrics")
    tables = custom if isinstance(custom, Mapping) else {}
    found = {key: _find_class(plugins.metrics, named, "module", "class", around) for key, named in tables.items()}
    for key, one in found.items():
        yield from _below(("custom_metrics", key), one.faults)
    for number, metric in _tables(values, "metrics"):
        yield from _below(("metrics", number), _metric_faults(metric, found, around))


def _metric_faults(metric: Mapping[str, Any], custom: Mapping[str, "_Found"], around: Surroundings) -> Iterator[Fault]:
    name, given = _text(metric, "name"), _text(metric, "type")
    written = given or name
    asks = bool((_text(metric, "system_instruction") or "").strip())
    if written == "LLMPlain" and not asks:
        yield ("system_instruction",), "is required for LLMPlain: say what the judge has to look for"
    if not written:
        return
    known = BUILT_IN_METRICS if around.no_plugins else plugins.metrics
    kind = metric_type(name or "", given, instructed=asks, custom=custom, known=known)
    if kind in custom:
        found = custom[kind]
    elif kind in JUDGES and written in (kind, name):
        # Unseen code may know the name, and take options under it.
        found = _Found(None if around.no_plugins and written not in BUILT_IN_METRICS else _NoOptions)
    elif kind == written and kind in known:
        found = _load(lambda: plugins.metrics.get(kind), kind)
        yield from _below(("type" if "type" in metric else "name",), found.faults)
    else:
        yield from () if around.no_plugins else _unknown_metric(metric, written, custom)
        return
    if kind in CODE_METRICS and kind not in custom:
        yield from _settings_of_a_judge(metric, kind)
    elif metric.get("use_reference") is True and not _may_be_judge(found.loaded):
        yield ("use_reference",), f"{written} is no judge: it is given the reference if its evaluate takes one"
    yield from _option_faults(metric, written, found, around)


def _may_be_judge(found: type | None) -> bool:
    return found is None or found is _NoOptions or hasattr(found, "get_instruction")


def _settings_of_a_judge(metric: Mapping[str, Any], kind: str) -> Iterator[Fault]:
    """What is set for a model that is never asked."""
    for key in sorted(metric.keys() & {*LLMDefaultSettings.model_fields, "system_instruction", "use_reference"}):
        yield (key,), f"{kind} is computed in code and asks no model: take it out"


def _unknown_metric(metric: Mapping[str, Any], kind: str, custom: Iterable[str]) -> Iterator[Fault]:
    told = _unknown("metric", kind, [*BUILT_IN_METRICS, *custom, *plugins.metrics])
    if "type" in metric:
        yield ("type",), told
    else:
        yield ("name",), told + ' (or give it a "system_instruction")'


class _NoOptions:
    """Stands for the metrics that are asked of a model: they have no options."""


def _option_faults(metric: Mapping[str, Any], kind: str, found: "_Found", around: Surroundings) -> Iterator[Fault]:
    options = metric.get("options", {})
    if found.loaded is None or not isinstance(options, Mapping):
        return
    model = options_model(found.loaded)
    if found.loaded is _NoOptions:
        if options:
            yield ("options",), f"{kind} takes none: take them out"
    elif model is not None:
        yield from _below(("options",), _model_faults(model, options, around))
    elif why := _cannot_be_made(found.loaded, **options):
        yield ("options",), f"class {found.loaded.__name__!r} cannot be made with these: {why}"


def _model_faults(model: type[MetricOptions], options: Mapping[str, Any], around: Surroundings) -> list[Fault]:
    try:
        model.model_validate(dict(options), context={"workspace": around.workspace})
    except ValidationError as error:
        return faults_of(error, model)
    return []


def _cannot_be_made(made: type, /, *arguments: Any, **options: Any) -> str | None:
    """Why a class refuses to be called like this, as its signature tells it."""
    try:
        inspect.signature(made).bind(*arguments, **options)
    except TypeError as error:
        return str(error)
    except ValueError:
        return None  # a class without a signature has to be tried
    return None


@dataclass(frozen=True)
class _Found:
    """A class that a file names, or why there is none."""

    loaded: type | None = None
    faults: tuple[Fault, ...] = ()


def _find_class(
    registry: plugins.Registry[type], named: Any, module_key: str, class_key: str, around: Surroundings
) -> _Found:
    """A table that does not say which class is the model's to complain about."""
    module, file, class_name = _text(named, module_key), _text(named, "path"), _text(named, class_key)
    where = referred_file(around.workspace, file) if file else None
    if not class_name or not (module or file):
        return _Found()
    if file and where is None:
        return _Found(faults=((("path",), no_such_file(file)),))
    if around.no_plugins:
        return _Found()
    return _load(lambda: registry.load_class(class_name, module=module, path=where), file or module)


def _load(load: Callable[[], type | None], shown: str | None) -> _Found:
    try:
        # What a stranger's module prints while it loads must not end up in our own output.
        with contextlib.redirect_stdout(sys.stderr):
            return _Found(load())
    except PluginError as error:
        return _Found(faults=(((), str(error)),))
    except SystemExit:
        return _Found(faults=(((), f"{shown!r} ends the program while it is loaded"),))


def _unknown(what: str, name: str, known: Iterable[str]) -> str:
    names = sorted(set(known))
    near = get_close_matches(name, names, n=1)
    hint = f"did you mean {near[0]!r}?" if near else f"known are {', '.join(names)}"
    return f"unknown {what} {name!r}; {hint}"


# --- files that are named -------------------------------------------------------------------------------------------


def _answer_schema_faults(schema: Any, around: Surroundings) -> Iterator[Fault]:
    if not isinstance(schema, str | Mapping):
        return
    # Loaded for files that have one alone: every other check would pay for it.
    from mixseek.config.answer_schema import load_answer_schema

    try:
        load_answer_schema(schema, around.workspace)
    except ConfigurationError as error:
        yield ("answer_schema",), str(error)


def reference_file(reference: str, workspace: Workspace) -> Path | None:
    """The file a reference names; None if it is the answer itself, or names a file that does not exist."""
    return referred_file(workspace, reference) if _PATH_OF_A_TEXT.fullmatch(reference) else None


def _reference_faults(reference: str | None, around: Surroundings) -> Iterator[Fault]:
    """A reference may be any text; one that can only be meant as a path has to exist, and to hold a text."""
    if not reference or not _PATH_OF_A_TEXT.fullmatch(reference):
        return
    file = reference_file(reference, around.workspace)
    if file is None:
        if not any(character.isspace() for character in reference):
            yield ("reference",), no_such_file(reference)
        return
    try:
        text = read_text(file, reference)
    except ConfigurationError as error:
        yield ("reference",), f"file {error}"
    else:
        if not text.strip():
            yield ("reference",), f"file {reference!r} is empty: it has to hold the reference answer"


def metrics_that_need_a_reference(settings: EvaluatorSettings, around: Surroundings) -> Iterator[int]:
    """The numbers of the metrics that cannot score without a reference answer; code of others may stay unseen."""
    for number, metric in enumerate(settings.metrics):
        if metric.use_reference or _needs_reference(metric, settings, around):
            yield number


def needs_reference(metric: type, options: MetricOptions | None) -> bool:
    """Whether a class of metrics, made with these options, cannot score without a reference answer."""
    return bool(getattr(metric, "needs_reference", False)) or (options is not None and options.needs_reference)


def _needs_reference(metric: MetricSettings, settings: EvaluatorSettings, around: Surroundings) -> bool:
    custom = settings.custom_metrics.get(metric.type)
    if custom is not None:
        found = _find_class(plugins.metrics, custom.model_dump(by_alias=True), "module", "class", around)
    elif around.no_plugins and metric.type not in CODE_METRICS:
        return False
    else:
        found = _load(lambda: plugins.metrics.get(type_of_metric(metric, settings)), metric.type)
    if found.loaded is None:
        return False
    model = options_model(found.loaded)
    try:
        context = {"workspace": around.workspace}
        options = None if model is None else model.model_validate(metric.options, context=context)
    except ValidationError:
        return False  # told where options are checked
    return needs_reference(found.loaded, options)
