"""What the commands share that play a competition: the run with its progress, and all that is printed and written."""

from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import typer

from mixseek.amounts import command_to_copy
from mixseek.cli.answer_file import AnswerFile, write_answer
from mixseek.cli.interrupt import leave_interrupted, run_until_stopped
from mixseek.cli.live import showing
from mixseek.cli.output import Format, clean, warn
from mixseek.cli.progress import Progress
from mixseek.cli.report_file import ReportFile
from mixseek.cli.summary import print_summary, tell_of_interruption, tell_who_can_go_on
from mixseek.config.manager import RunSettings
from mixseek.errors import StorageError
from mixseek.events import Listener
from mixseek.records import ExecutionSummary
from mixseek.redaction import Redactor

if TYPE_CHECKING:
    from mixseek.orchestrator import Orchestrator

__all__ = ["EXIT_NO_RESULT", "EXIT_SOME_FAILED", "Played", "Wanted", "exit_code", "leave_with", "play"]

EXIT_SOME_FAILED = 1
EXIT_NO_RESULT = 2


@dataclass(frozen=True)
class Played:
    """What came of a run, and what was heard of it."""

    summary: ExecutionSummary
    progress: Progress


@dataclass(frozen=True)
class Wanted:
    """What a person wants of a run when it is over."""

    output: Format
    answer_to: AnswerFile | None
    page: ReportFile | None
    workspace: Path | None
    """As it was given, for the commands that a person is told."""


def play(
    settings: RunSettings,
    asking: Callable[["Orchestrator"], Coroutine[Any, Any, ExecutionSummary]],
    redactor: Redactor,
    listeners: Sequence[Listener],
    *,
    workspace: Path | None,
) -> Played:
    """Play, show on standard error what happens, and come back with what came of it; Ctrl-C ends it gracefully.

    ``workspace`` is as it was given, for the command that is told where a second Ctrl-C ends it at once.
    """
    # Imported when all files are right: a mistake in one is told without the second it takes to load model code.
    from mixseek.orchestrator import Orchestrator

    with showing(redactor) as progress:
        orchestrator = Orchestrator(settings.orchestrator, listeners=[progress, *listeners])
        try:
            summary = run_until_stopped(
                asking(orchestrator), orchestrator.stop, partial(_last_words, progress, workspace)
            )
        except StorageError as error:
            # What the teams did is paid for, and known even if it could not be stored.
            if progress.summary is None:
                raise
            warn(f"mixseek: {error}")
            summary = progress.summary
    return Played(summary, progress)


def _last_words(progress: Progress, workspace: Path | None) -> str:
    if progress.execution_id is None:
        return ""
    resume = command_to_copy("resume", progress.execution_id, workspace)
    return f"mixseek: ended at once; this goes on with it:\n  {clean(resume)}\n"


def leave_with(played: Played, wanted: Wanted, redactor: Redactor) -> NoReturn:
    """Print and write what came of a run, and end with its exit code."""
    summary = played.summary
    progress = played.progress
    has_begun = progress.execution_id is not None
    if has_begun or wanted.output is Format.JSON:
        print_summary(summary, wanted.output, redactor, progress.scores, is_resumed=progress.is_resumed)
    best = redactor.text(summary.team_results[0].submission_content) if summary.team_results else None
    is_written = write_answer(best, wanted.answer_to)
    is_told = wanted.page is None or not has_begun or wanted.page.save(summary.execution_id)
    given = None if wanted.workspace is None else str(wanted.workspace)
    if summary.interrupted:
        tell_of_interruption(summary, has_begun=has_begun, workspace=given)
        leave_interrupted()
    tell_who_can_go_on(summary, workspace=given)
    raise typer.Exit(exit_code(summary, is_written=is_written and is_told))


def exit_code(summary: ExecutionSummary, *, is_written: bool = True) -> int:
    """What the command ends with."""
    if not summary.team_results:
        return EXIT_NO_RESULT
    return EXIT_SOME_FAILED if summary.failed_teams_info or not is_written else 0
