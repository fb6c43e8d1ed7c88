"""``mixseek resume``: go on with an execution that did not end, paying for nothing twice."""

import asyncio
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, NoReturn

import typer

from mixseek.amounts import without_file_words
from mixseek.cli.answer_file import OutputOption, answer_file
from mixseek.cli.completion import complete_execution
from mixseek.cli.logs import LogOptions, start_logging, takes_log_options, watching
from mixseek.cli.output import Format, FormatOption, WorkspaceOption, use_format
from mixseek.cli.playing import Wanted, leave_with, play
from mixseek.cli.report_file import ReportFileOption, ReportOption, report_file
from mixseek.config.manager import ConfigurationManager, locate_workspace, redactor_of
from mixseek.errors import ACCEPT_CHANGES, NotResumableError, Problem
from mixseek.events import RunStarted
from mixseek.workspace import Workspace

__all__ = ["AcceptChangesOption", "ResumeOutputs", "app", "resume_execution"]

_ACCEPT_CHANGES = "--accept-changes"
AcceptChangesOption = Annotated[
    bool,
    typer.Option(_ACCEPT_CHANGES, help="Go on although settings, plugins or files are not what they were."),
]

app = typer.Typer(add_completion=False, rich_markup_mode=None)


@app.command("resume")
@takes_log_options
def resume(
    execution: Annotated[
        str | None,
        typer.Argument(
            metavar="[ID]",
            help="The execution: its id, the beginning of it, or last; the newest unfinished one.",
            show_default=False,
            autocompletion=complete_execution,
        ),
    ] = None,
    accept_changes: AcceptChangesOption = False,
    output: OutputOption = None,
    report: ReportOption = False,
    report_to: ReportFileOption = None,
    output_format: FormatOption = Format.TEXT,
    workspace: WorkspaceOption = None,
    *,
    logs: LogOptions,
) -> None:
    """Go on with an execution that did not end: killed, interrupted, or with teams that failed.

    Finished teams and rounds are loaded, and in a round that did not end every call that was answered is answered
    from the journal: only what nobody has answered is asked and paid for. Task, attachments and settings are those it
    was begun with; if a file has changed since, that is told, and nothing is done without --accept-changes.

    Exit codes: 0 all teams have a result and none failed, 1 some results and some failures, 2 no result or a mistake,
    130 Ctrl-C.

    \b
    Examples:
      mixseek resume
      mixseek resume 3f2a --output answer.md
      mixseek resume last --accept-changes -f json
    """
    use_format(output_format)
    outputs = ResumeOutputs(output, report, report_to, output_format, workspace)
    resume_execution(execution, outputs, logs, accept_changes=accept_changes)


@dataclass(frozen=True)
class ResumeOutputs:
    """What the command line says about the result."""

    output: Path | None
    report: bool
    report_to: Path | None
    output_format: Format
    workspace: Path | None


def resume_execution(
    execution: str | None, given: ResumeOutputs, logs: LogOptions, *, accept_changes: bool
) -> NoReturn:
    """Go on with the execution that is meant, print what came of it, and leave."""
    place = locate_workspace(given.workspace)
    start_logging(place, ConfigurationManager(place).redactor, logs)
    execution_id, begun = asyncio.run(_meant(place, execution, given.workspace))
    manager = ConfigurationManager(place, overrides={"orchestrator": begun.overrides})
    settings = manager.load_run_settings(_file(begun, place, accept_changes=accept_changes), for_a_run=True)
    redactor = redactor_of(manager.environ, settings.providers)
    page = report_file(place, given.report, given.report_to)
    wanted = Wanted(given.output_format, answer_file(given.output), page, given.workspace)
    with watching(logs, manager.environ) as listeners:
        try:
            played = play(
                settings,
                lambda it: it.resume(execution_id, accept_changes=accept_changes),
                redactor,
                listeners,
                workspace=given.workspace,
            )
        except NotResumableError as error:
            raise type(error)([_with_option(problem) for problem in error.problems]) from error
    leave_with(played, wanted, redactor)


def _with_option(problem: Problem) -> Problem:
    """The same; where the remedy is an argument of Python, it is the option that stands for it here."""
    words = problem.message.removesuffix(ACCEPT_CHANGES)
    return problem if words == problem.message else replace(problem, message=words + _ACCEPT_CHANGES)


async def _meant(place: Workspace, execution: str | None, given: Path | None) -> tuple[str, RunStarted]:
    # Stores are loaded when one is looked into: the help of exec needs none.
    from mixseek.report.reading import find_execution, find_unfinished
    from mixseek.storage.beginning import read_beginning
    from mixseek.storage.journal import Journal

    execution_id = await (find_unfinished(place, given) if execution is None else find_execution(place, execution))
    async with Journal(place.journal) as journal:
        begun = await read_beginning(journal, execution_id)
    if begun is None:
        raise NotResumableError(
            f"the journal has nothing of execution {execution_id}, so there is nothing to go on from: "
            "mixseek exec plays its task anew"
        )
    return execution_id, begun


def _file(begun: RunStarted, place: Workspace, *, accept_changes: bool) -> Path:
    if begun.config_file is None:
        words = without_file_words(accept_changes=accept_changes)
        raise NotResumableError(f"execution {begun.execution_id} {words}")
    file = place.resolve(begun.config_file)
    if not file.exists():
        raise NotResumableError(
            Problem(f"does not exist, and execution {begun.execution_id} was begun with it: put it back", str(file))
        )
    return file
