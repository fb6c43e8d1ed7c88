"""``mixseek config``: write, show, list and validate configuration files."""

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from pydantic import BaseModel

from mixseek.cli.output import Format, FormatOption, WorkspaceOption, print_json, print_line, use_format
from mixseek.config.kinds import KINDS, ORCHESTRATOR, Kind
from mixseek.config.layers import KeyPath, TraceInfo
from mixseek.config.manager import ConfigurationManager, Report
from mixseek.config.masking import mask
from mixseek.config.reference import FieldReference, field_references
from mixseek.config.shape import key_of
from mixseek.config.starter import needed_with, starter_text
from mixseek.errors import ConfigurationError, Problem

__all__ = ["app"]

_WIDEST_VALUE = 80
_EXISTS = "exists already: use --force to overwrite it"

app = typer.Typer(
    help="Write, show, list and validate configuration files.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
)

Component = Literal["orchestrator", "team", "member", "evaluator", "judgment", "prompt_builder", "providers"]


# --- init -----------------------------------------------------------------------------------------------------------


@app.command("init")
def init(
    component: Annotated[Component | None, typer.Option(help="Only this kind of file.")] = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite files that exist.")] = False,
    workspace: WorkspaceOption = None,
) -> None:
    """Write configuration files to start from; existing ones are kept unless --force is given."""
    if workspace is not None:
        _make_directory(workspace)
    manager = ConfigurationManager(workspace)
    wanted = [KINDS[component]] if component else list(KINDS.values())
    if not force and all(os.path.lexists(manager.default_file(kind)) for kind in wanted):
        raise ConfigurationError([Problem(_EXISTS, _shown(manager, kind)) for kind in wanted])
    for kind in needed_with(wanted[0]) if component else wanted:
        # What is only needed beside the wanted file is never overwritten.
        _write(manager, kind, force=force and kind in wanted)


def _make_directory(workspace: Path) -> None:
    try:
        workspace.expanduser().mkdir(parents=True, exist_ok=True)
    except FileExistsError:
        return  # told as what it is when it is opened as a workspace
    except OSError as error:
        raise ConfigurationError(f"workspace {str(workspace)!r} cannot be created: {error.strerror}") from error


def _write(manager: ConfigurationManager, kind: Kind, *, force: bool) -> None:
    shown = _shown(manager, kind)
    try:
        _put(manager.default_file(kind), starter_text(kind), force=force)
        print_line(f"wrote {shown}")
    except FileExistsError:
        print_line(f"kept {shown}: {_EXISTS}")
    except OSError as error:
        raise ConfigurationError(Problem(f"cannot be written: {error.strerror}", shown)) from error


def _put(file: Path, text: str, *, force: bool) -> None:
    """The whole file or nothing: it is written beside its place and then given its name."""
    file.parent.mkdir(parents=True, exist_ok=True)
    descriptor, name = tempfile.mkstemp(dir=file.parent, prefix=f".{file.name}.")
    temporary = Path(name)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as stream:
            stream.write(text)
        temporary.chmod(0o644)
        if force:
            temporary.replace(file)
        else:
            # Unlike a rename, a link fails when the name is taken, whoever took it since we looked.
            file.hardlink_to(temporary)
    finally:
        temporary.unlink(missing_ok=True)


def _shown(manager: ConfigurationManager, kind: Kind) -> str:
    return str(manager.default_file(kind).relative_to(manager.workspace.root))


# --- validate -------------------------------------------------------------------------------------------------------


@app.command("validate")
def validate(
    files: Annotated[list[Path], typer.Argument(metavar="FILE...", help="Files of any kind.")],
    output: FormatOption = Format.TEXT,
    no_plugins: Annotated[bool, typer.Option("--no-plugins", help="Load no code of others.")] = False,
    workspace: WorkspaceOption = None,
) -> None:
    """Check files, and the files they refer to; all that is wrong is told at once."""
    use_format(output)
    manager = ConfigurationManager(workspace, no_plugins=no_plugins)
    reports = [manager.validate(file) for file in files]
    problems = dict.fromkeys(problem for report in reports for problem in report.problems)
    if problems:
        raise ConfigurationError(list(problems))
    if output is Format.JSON:
        print_json({"files": [_report_as_json(report) for report in reports]})
        return
    for report in reports:
        print_line(f"{report.file}: ok ({report.kind})")
        for note in report.notes:
            print_line(f"  note: {note}")


def _report_as_json(report: Report) -> dict[str, Any]:
    notes = [{"file": note.file, "key": note.key, "message": note.message} for note in report.notes]
    return {"file": report.file, "kind": report.kind, "notes": notes}


# --- show -----------------------------------------------------------------------------------------------------------


@app.command("show")
def show(
    what: Annotated[str | None, typer.Argument(metavar="[KIND|FILE]", help="A kind of file, or a file.")] = None,
    output: FormatOption = Format.TEXT,
    workspace: WorkspaceOption = None,
) -> None:
    """Show the values in effect and where each comes from; secrets are masked."""
    use_format(output)
    manager = ConfigurationManager(workspace)
    shown = [_effective(manager, settings) for settings in _settings_of(manager, what)]
    if output is Format.JSON:
        print_json({"settings": shown})
        return
    for one in shown:
        print_line(f"# {one['kind']}")
        for field in one["fields"]:
            print_line(_field_line(field))
        print_line()


def _settings_of(manager: ConfigurationManager, what: str | None) -> list[BaseModel]:
    if what is None:
        orchestrator = manager.default_file(ORCHESTRATOR)
        return _of_file(manager, orchestrator) if orchestrator.exists() else _of_defaults(manager)
    kind = KINDS.get(what)
    if kind is None:
        return _of_file(manager, Path(what))
    return [_of_kind(manager, kind)]


def _of_kind(manager: ConfigurationManager, kind: Kind) -> BaseModel:
    if kind.is_default:
        return manager.load(kind)
    return manager.load(kind, manager.default_file(kind))


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
    paths = _leaves(settings, masked)
    return {
        "kind": kind.name,
        "fields": [_as_json(manager.get_trace_info(settings, path), value) for path, value in paths],
    }


def _leaves(value: Any, masked: Any, above: KeyPath = ()) -> Iterator[tuple[KeyPath, Any]]:
    """Every single setting with its masked value; tables without a fixed shape are one setting."""
    if isinstance(value, BaseModel):
        for name, field in type(value).model_fields.items():
            yield from _leaves(getattr(value, name), masked[key_of(name, field)], (*above, name))
        for name, item in (value.model_extra or {}).items():
            yield from _leaves(item, masked[name], (*above, name))
    elif isinstance(value, dict) and any(isinstance(item, BaseModel) for item in value.values()):
        for key, item in value.items():
            yield from _leaves(item, masked[key], (*above, key))
    elif isinstance(value, list) and any(isinstance(item, BaseModel) for item in value):
        for number, item in enumerate(value):
            yield from _leaves(item, masked[number], (*above, number))
    else:
        yield above, masked


def _as_json(trace: TraceInfo, masked: Any) -> dict[str, Any]:
    name = trace.field.rpartition(".")[2]
    overrode = [
        {"source": origin.source, "where": str(origin.place), "value": mask(origin.value, name)}
        for origin in trace.overrode
    ]
    return {
        "field": trace.field,
        "value": masked,
        "source": trace.source,
        "where": trace.where,
        "overrode": overrode,
    }


def _field_line(field: dict[str, Any]) -> str:
    value = "(not set)" if field["value"] is None else _short(field["value"])
    origin = f"{field['source']} {field['where']}".rstrip()
    over = [f"{one['source']} {one['where']}".rstrip() for one in field["overrode"] if one["source"] != "default"]
    return f"{field['field']} = {value}  [{origin}{''.join(f'; over {one}' for one in over)}]"


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= _WIDEST_VALUE else text[: _WIDEST_VALUE - 3] + "..."


# --- list -----------------------------------------------------------------------------------------------------------


@app.command("list")
def list_(output: FormatOption = Format.TEXT, workspace: WorkspaceOption = None) -> None:
    """List the files of the workspace with their state, and all settings with limits, defaults and variables."""
    use_format(output)
    manager = ConfigurationManager(workspace, no_plugins=True)
    reports = [manager.validate(file) for file in sorted(manager.workspace.configs.rglob("*.toml"))]
    settings = {kind: field_references(kind) for kind in KINDS.values()}
    if output is Format.JSON:
        print_json(_list_as_json(reports, settings))
        return
    print_line("# files")
    for report in reports:
        print_line(f"{report.file}  {report.kind or 'unknown kind'}  {_state(report)}")
    for kind, fields in settings.items():
        print_line()
        print_line(f"# {kind.name} (configs/{kind.file})")
        for field in fields:
            print_line(_reference_line(field))


def _state(report: Report) -> str:
    if not report.problems:
        return "ok"
    return "1 problem" if len(report.problems) == 1 else f"{len(report.problems)} problems"


def _reference_line(field: FieldReference) -> str:
    variable = f"  {field.variable}" if field.variable else ""
    return f"{field.key}  {field.allowed}  default: {field.default}{variable}"


def _list_as_json(reports: list[Report], settings: dict[Kind, list[FieldReference]]) -> dict[str, Any]:
    return {
        "files": [
            {"file": report.file, "kind": report.kind, "problems": [str(problem) for problem in report.problems]}
            for report in reports
        ],
        "settings": {kind.name: [vars(field) for field in fields] for kind, fields in settings.items()},
    }
