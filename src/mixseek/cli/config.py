"""``mixseek config``: write, show, list and validate configuration files."""

import contextlib
import os
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from pydantic import BaseModel

from mixseek.cli.files import EXISTS, keep_out_of_git, make_directory, write
from mixseek.cli.inputs import find_config
from mixseek.cli.output import Format, FormatOption, WorkspaceOption, print_json, print_line, use_format
from mixseek.config.checks import type_of_metric
from mixseek.config.kinds import KINDS, ORCHESTRATOR, PROMPT_BUILDER, Kind
from mixseek.config.layers import KeyPath, TraceInfo, show_path, show_value
from mixseek.config.manager import ConfigurationManager, Report, RunSettings, is_explicit
from mixseek.config.masking import mask
from mixseek.config.reading import read_text
from mixseek.config.reference import FieldReference, field_references, template_references
from mixseek.config.schema import EvaluatorSettings, OrchestratorSettings, PromptBuilderSettings, TeamSettings
from mixseek.config.shape import key_of
from mixseek.config.starter import needed_with, starter_text
from mixseek.errors import ConfigurationError, MissingFileError, Problem

__all__ = ["app"]

_WIDEST_VALUE = 80
_NAMED_IN = " (named in "

app = typer.Typer(
    help="""Write, show, list and validate configuration files.

    \b
    Examples:
      mixseek config init -w my-workspace
      mixseek config validate -w my-workspace
    """,
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
)

_TEMPLATES = "prompt_templates"
"""The directory of two templates, which stands beside the kinds of TOML files."""
_KINDS = (*KINDS, _TEMPLATES)

Component = Literal["orchestrator", "team", "member", "evaluator", "judgment", "prompt_builder", "providers"]


# --- init -----------------------------------------------------------------------------------------------------------


@app.command("init")
def init(
    component: Annotated[
        Component | None, typer.Option(metavar="KIND", help=f"Only this kind of file: {', '.join(KINDS)}.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite files that exist.")] = False,
    workspace: WorkspaceOption = None,
) -> None:
    """Write configuration files to start from; existing ones are kept unless --force is given.

    \b
    Examples:
      mixseek config init -w my-workspace
      mixseek config init -w my-workspace --component evaluator
    """
    if workspace is not None:
        make_directory(workspace)
    manager = ConfigurationManager(workspace)
    wanted = [KINDS[component]] if component else list(KINDS.values())
    if not force and all(os.path.lexists(manager.default_file(kind)) for kind in wanted):
        raise ConfigurationError([Problem(EXISTS, _shown(manager, kind)) for kind in wanted])
    for kind in needed_with(wanted[0]) if component else wanted:
        # What is only needed beside the wanted file is never overwritten.
        write(manager.workspace.root, _shown(manager, kind), starter_text(kind), force=force and kind in wanted)
    keep_out_of_git(manager.workspace.root)


def _shown(manager: ConfigurationManager, kind: Kind) -> str:
    return str(manager.default_file(kind).relative_to(manager.workspace.root))


# --- validate -------------------------------------------------------------------------------------------------------


@app.command("validate")
def validate(
    files: Annotated[
        list[Path] | None,
        typer.Argument(metavar="FILE", help="Files of any kind, or directories of them; none: the whole workspace."),
    ] = None,
    config: Annotated[
        Path | None,
        typer.Option(
            "--config", "-c", metavar="FILE", help="Only this orchestrator file and all it refers to, as exec reads it."
        ),
    ] = None,
    output: FormatOption = Format.TEXT,
    no_plugins: Annotated[bool, typer.Option("--no-plugins", help="Load no code of others.")] = False,
    workspace: WorkspaceOption = None,
) -> None:
    """Check files, and the files they refer to; all that is wrong is told at once.

    \b
    Examples:
      mixseek config validate -w my-workspace
      mixseek config validate configs/orchestrator.toml --no-plugins
      mixseek config validate -c configs/orchestrator.toml
    """
    use_format(output)
    manager = ConfigurationManager(workspace, no_plugins=no_plugins)
    reports = _reports(manager, files, config)
    problems = _once(problem for report in reports for problem in report.problems)
    if not no_plugins:  # else it is not known what models there are, and which metrics ask one
        problems += _refused_budgets(report.run for report in reports if not report.problems)
    if problems:
        raise ConfigurationError(problems)
    if output is Format.JSON:
        print_json({"files": [_report_as_json(report) for report in reports]})
        return
    _print_reports(reports)


def _reports(manager: ConfigurationManager, files: list[Path] | None, config: Path | None) -> list[Report]:
    if config is None:
        return [manager.validate(file) for file in _files_to_validate(manager, files)]
    if files:
        raise ConfigurationError("-c FILE is the file of a competition: give no other FILE beside it")
    report = manager.validate(find_config(config, manager.workspace, ORCHESTRATOR.file, ""))
    if report.kind not in (None, ORCHESTRATOR.name):
        raise ConfigurationError(Problem(f"-c takes {ORCHESTRATOR.words}: give this one without -c", report.file))
    return [report]


def _files_to_validate(manager: ConfigurationManager, given: list[Path] | None) -> list[Path]:
    if not given:
        return _files_in(manager, None)
    return [file for one in given for file in (_files_in(manager, one) if _is_directory(manager, one) else [one])]


def _files_in(manager: ConfigurationManager, directory: Path | None) -> list[Path]:
    files = manager.files(directory)
    if not files:
        message = "there is no TOML file in it: mixseek config init writes some to start from"
        if directory is None and manager.workspace.configs.is_file():
            message = "is a file, and has to be a directory: move it away; mixseek config init writes one to start from"
        raise ConfigurationError(Problem(message, str(directory or "configs")))
    return files


def _is_directory(manager: ConfigurationManager, path: Path) -> bool:
    try:
        return manager.workspace.find(path).is_dir()
    except (OSError, RuntimeError, ValueError):
        return False  # no name of a file at all, which is told when it is read


def _once(problems: Iterable[Problem]) -> list[Problem]:
    """Every problem once; a file that is read by itself and because another names it is told with that name."""
    all_of_them = list(dict.fromkeys(problems))
    named = {(one.file, one.message.partition(_NAMED_IN)[0]) for one in all_of_them if _NAMED_IN in one.message}
    return [one for one in all_of_them if (one.file, one.message) not in named]


def _refused_budgets(runs: Iterable[RunSettings | None]) -> list[Problem]:
    """What these runs would refuse to begin with, since their budgets can never count or pay for it."""
    problems: list[Problem] = []
    for run in runs:
        if run is not None and any((run.orchestrator.budget, *(team.budget for team in run.teams))):
            from mixseek.orchestrator.payable import not_to_be_paid_by_any  # loads model code

            with contextlib.redirect_stdout(sys.stderr):  # models may be made by code of others
                problems += not_to_be_paid_by_any(run)
    return list(dict.fromkeys(problems))


def _print_reports(reports: list[Report]) -> None:
    told: set[Problem] = set()
    for report in reports:
        print_line(f"{report.file}: ok ({report.kind})")
        for note in report.notes:
            if note not in told:
                print_line(f"  note: {note}")
        told.update(report.notes)


def _report_as_json(report: Report) -> dict[str, Any]:
    notes = [{"file": note.file, "key": note.key, "message": note.message} for note in report.notes]
    return {"file": report.file, "kind": report.kind, "notes": notes}


# --- show -----------------------------------------------------------------------------------------------------------


@app.command("show")
def show(
    what: Annotated[
        str | None,
        typer.Argument(metavar="KIND|FILE", help=f"Only this file, or the files of one kind: {', '.join(_KINDS)}."),
    ] = None,
    output: FormatOption = Format.TEXT,
    workspace: WorkspaceOption = None,
) -> None:
    """Show the values in effect and where each comes from; secrets are masked.

    \b
    Examples:
      mixseek config show -w my-workspace
      mixseek config show evaluator -f json
    """
    use_format(output)
    manager = ConfigurationManager(workspace)
    settings = _settings_of(manager, what)
    shown = [_effective(manager, one) for one in settings] + _templates_in_effect(manager, what, settings)
    if output is Format.JSON:
        print_json({"settings": shown})
        return
    for one in shown:
        print_line(_heading(one))
        for field in one["fields"]:
            print_line(_field_line(field))
        print_line()


def _settings_of(manager: ConfigurationManager, what: str | None) -> list[BaseModel]:
    if what is None:
        orchestrator = manager.default_file(ORCHESTRATOR)
        return _of_file(manager, orchestrator) if orchestrator.exists() else _of_defaults(manager)
    if what == _TEMPLATES:
        return []
    kind = KINDS.get(what)
    if kind is None:
        return _of_file(manager, _a_file(manager, what))
    return _of_kind(manager, kind)


def _a_file(manager: ConfigurationManager, what: str) -> Path:
    if not _is_there(manager, what):
        message = (
            f"is no file in the current directory or the workspace, and no kind: the kinds are {', '.join(_KINDS)}"
        )
        raise MissingFileError(Problem(message, what))
    return Path(what)


def _is_there(manager: ConfigurationManager, what: str) -> bool:
    try:
        return os.path.lexists(manager.workspace.find(what))
    except (OSError, RuntimeError, ValueError):
        return False


def _of_kind(manager: ConfigurationManager, kind: Kind) -> list[BaseModel]:
    """The default file, or the defaults, of kinds that have them, and all other files of the kind."""
    default = manager.default_file(kind)
    files = [file for file in manager.files() if manager.validate(file, complete=False).kind == kind.name]
    if kind.is_default:
        return [manager.load(kind), *(manager.load(kind, file) for file in files if file != default)]
    if not files:
        told = f"there is no {kind.name} file in the workspace: mixseek config init --component {kind.name} writes one"
        raise MissingFileError(told)
    return [manager.load(kind, file) for file in files]


def _of_defaults(manager: ConfigurationManager) -> list[BaseModel]:
    return [manager.load(kind) for kind in KINDS.values() if kind.is_default]


def _of_file(manager: ConfigurationManager, file: Path) -> list[BaseModel]:
    report = manager.validate(file, complete=False)
    if report.problems:
        raise ConfigurationError(report.problems)
    return list(report.settings)


def _effective(manager: ConfigurationManager, settings: BaseModel) -> dict[str, Any]:
    kind = next(kind for kind in KINDS.values() if kind.model is type(settings))
    masked = mask(settings.model_dump(mode="json", by_alias=True))
    if isinstance(settings, EvaluatorSettings):
        for metric, shown in zip(settings.metrics, masked["metrics"], strict=True):
            shown["type"] = type_of_metric(metric, settings)
    fields = [
        _as_json(show_path(kind.key(keys)), manager.get_trace_info(settings, path), value)
        for path, keys, value in _leaves(settings, masked)
    ]
    _tell_files_in_use(manager, fields)
    team = {"team_id": settings.team_id} if isinstance(settings, TeamSettings) else {}
    return {"kind": kind.name, "file": manager.file_of(settings), **team, "fields": fields}


def _tell_files_in_use(manager: ConfigurationManager, fields: list[dict[str, Any]]) -> None:
    """Where a key could name a file and does not: the file that is read instead, or None where the defaults hold."""
    for kind in KINDS.values():
        for field in fields:
            if field["field"] == f"orchestrator.{kind.name}_config" and field["value"] is None:
                there = os.path.lexists(manager.default_file(kind))
                field["file_in_use"] = _shown(manager, kind) if there else None


def _leaves(value: Any, masked: Any, path: KeyPath = (), keys: KeyPath = ()) -> Iterator[tuple[KeyPath, KeyPath, Any]]:
    """Every single setting: its path, its keys in a file, its masked value; tables of any shape are one setting."""
    if isinstance(value, BaseModel):
        for name, field in type(value).model_fields.items():
            key = key_of(name, field)
            yield from _leaves(getattr(value, name), masked[key], (*path, name), (*keys, key))
        for name, item in (value.model_extra or {}).items():
            yield from _leaves(item, masked[name], (*path, name), (*keys, name))
    elif isinstance(value, dict | list) and any(isinstance(item, BaseModel) for item in _items(value).values()):
        for key, item in _items(value).items():
            yield from _leaves(item, masked[key], (*path, key), (*keys, key))
    else:
        yield path, keys, masked


def _items(value: dict[str, Any] | list[Any]) -> dict[Any, Any]:
    return value if isinstance(value, dict) else dict(enumerate(value))


def _as_json(key: str, trace: TraceInfo, masked: Any) -> dict[str, Any]:
    name = trace.field.rpartition(".")[2]
    overrode = [
        {"source": origin.source, "where": str(origin.place), "value": mask(origin.value, name)}
        for origin in trace.overrode
    ]
    return {
        "field": key,
        "value": masked,
        "source": trace.source,
        "where": trace.where,
        "overrode": overrode,
    }


def _templates_in_effect(
    manager: ConfigurationManager, what: str | None, settings: list[BaseModel]
) -> list[dict[str, Any]]:
    """The two templates of the workspace, where they are there and a competition, or they themselves, are shown."""
    directory = manager.workspace.prompt_templates
    run = [one for one in settings if isinstance(one, PromptBuilderSettings)] if _is_a_run(what, settings) else []
    if not directory.is_dir() or not (run or what == _TEMPLATES):
        return []
    _raise_problems(manager.validate(directory))
    shown = f"configs/{_TEMPLATES}"
    fields = [_template_field(directory / one.key, f"{shown}/{one.key}") for one in template_references()]
    prompts = run[0] if run else manager.load(PROMPT_BUILDER)
    assert isinstance(prompts, PromptBuilderSettings)  # noqa: S101  # what a file of this kind is read as
    return [{"kind": _TEMPLATES, "file": shown, "in_use": not is_explicit(prompts), "fields": fields}]


def _is_a_run(what: str | None, settings: list[BaseModel]) -> bool:
    return what is None or any(isinstance(one, OrchestratorSettings) for one in settings)


def _raise_problems(report: Report) -> None:
    if report.problems:
        raise ConfigurationError(report.problems)


def _template_field(file: Path, shown: str) -> dict[str, Any]:
    return {"field": file.name, "value": mask(read_text(file, shown)), "source": "file", "where": shown, "overrode": []}


def _heading(one: dict[str, Any]) -> str:
    kind = KINDS.get(one["kind"])
    if kind is None:
        use = "what the teams are told" if one["in_use"] else "not in use: prompt_builder.team_user_prompt is set"
        return f"# {one['kind']} ({one['file']}; {use})"
    team = f" {one['team_id']}" if "team_id" in one else ""
    return f"# {kind.name}{team} ({one['file'] or f'defaults: there is no configs/{kind.file}'})"


def _field_line(field: dict[str, Any]) -> str:
    value = _not_set(field) if field["value"] is None else _short(field["value"])
    origin = _origin(field)
    over = [_origin(one) for one in field["overrode"] if one["source"] != "default"]
    return f"{field['field']} = {value}  [{origin}{''.join(f'; over {one}' for one in over)}]"


def _not_set(field: dict[str, Any]) -> str:
    if "file_in_use" not in field:
        return "(not set)"
    return f"(not set; {field['file_in_use']} is read)" if field["file_in_use"] else "(not set; the defaults hold)"


def _origin(field: dict[str, Any]) -> str:
    return str(TraceInfo("", None, field["source"], field["where"]))


def _short(value: Any) -> str:
    text = show_value(value)
    return text if len(text) <= _WIDEST_VALUE else text[: _WIDEST_VALUE - 3] + "..."


# --- list -----------------------------------------------------------------------------------------------------------


@app.command("list")
def list_(
    kind: Annotated[str | None, typer.Argument(metavar="KIND", help=f"Only this kind: {', '.join(_KINDS)}.")] = None,
    output: FormatOption = Format.TEXT,
    workspace: WorkspaceOption = None,
) -> None:
    """List the files of the workspace with their state, and all settings with limits, defaults and variables.

    \b
    Examples:
      mixseek config list -w my-workspace
      mixseek config list judgment
    """
    use_format(output)
    _check_kind(kind)
    manager = ConfigurationManager(workspace, no_plugins=True)
    reports = [manager.validate(file) for file in manager.files()]
    reports = [report for report in reports if kind in (None, report.kind)]
    settings = {name: _references(name) for name in _KINDS if kind in (None, name)}
    if output is Format.JSON:
        print_json(_list_as_json(reports, settings))
        return
    _print_list(reports, settings)


def _check_kind(kind: str | None) -> None:
    if kind is not None and kind not in _KINDS:
        raise ConfigurationError(f"unknown kind of file {kind!r}: the kinds are {', '.join(_KINDS)}")


def _references(name: str) -> list[FieldReference]:
    return template_references() if name == _TEMPLATES else field_references(KINDS[name])


def _print_list(reports: list[Report], settings: dict[str, list[FieldReference]]) -> None:
    print_line("# files")
    for report in reports:
        print_line(f"{report.file}  {report.kind or 'unknown kind'}  {_state(report)}")
    for name, fields in settings.items():
        print_line()
        print_line(f"# {name} (configs/{KINDS[name].file if name in KINDS else name})")
        for field in fields:
            print_line(_reference_line(field))
    if any(report.problems for report in reports):
        print_line()
        print_line("There are problems: mixseek config validate tells them.")


def _state(report: Report) -> str:
    if not report.problems:
        return "ok"
    return "1 problem" if len(report.problems) == 1 else f"{len(report.problems)} problems"


def _reference_line(field: FieldReference) -> str:
    variable = f"  {field.variable}" if field.variable else ""
    default = field.default if field.is_required else f"default: {field.default}"
    return f"{field.key}  {field.allowed}  {default}{variable}"


def _list_as_json(reports: list[Report], settings: dict[str, list[FieldReference]]) -> dict[str, Any]:
    return {
        "files": [
            {"file": report.file, "kind": report.kind, "problems": [str(problem) for problem in report.problems]}
            for report in reports
        ],
        "settings": {name: [vars(field) for field in fields] for name, fields in settings.items()},
    }
