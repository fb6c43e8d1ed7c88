"""``mixseek exec``: one competition; its progress goes to standard error, its result to standard output."""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from mixseek.cli.answer_file import OutputOption, answer_file, write_answer
from mixseek.cli.inputs import (
    AttachmentsOption,
    PromptArgument,
    PromptFileOption,
    ReferenceOption,
    find_config,
    read_given,
    reference_text,
)
from mixseek.cli.interrupt import leave_interrupted, run_until_stopped
from mixseek.cli.live import showing
from mixseek.cli.logs import LogOptions, start_logging, takes_log_options, watching
from mixseek.cli.output import (
    Format,
    FormatOption,
    WorkspaceOption,
    error_as_json,
    print_error,
    print_json,
    print_line,
    use_format,
    warn,
)
from mixseek.cli.plan import Plan, plan_of
from mixseek.cli.progress import Progress
from mixseek.cli.report_file import ReportFileOption, ReportOption, report_file
from mixseek.cli.summary import print_summary, tell_of_interruption
from mixseek.config.attachments import read_attachments
from mixseek.config.kinds import ORCHESTRATOR
from mixseek.config.manager import ConfigurationManager, RunSettings, locate_workspace, redactor_of
from mixseek.errors import ConfigurationError, StorageError
from mixseek.events import Listener
from mixseek.records import Attachment, ExecutionSummary
from mixseek.redaction import Redactor

__all__ = ["app", "exit_code", "play"]

EXIT_SOME_FAILED = 1
EXIT_NO_RESULT = 2

app = typer.Typer(add_completion=False, rich_markup_mode=None)


@app.command("exec")
@takes_log_options
def exec_(
    prompt: PromptArgument = None,
    config: Annotated[
        Path | None,
        typer.Option(
            "--config", "-c", metavar="FILE", help="The orchestrator file; configs/orchestrator.toml of the workspace."
        ),
    ] = None,
    prompt_file: PromptFileOption = None,
    files: AttachmentsOption = None,
    reference: ReferenceOption = None,
    output: OutputOption = None,
    report: ReportOption = False,
    report_to: ReportFileOption = None,
    timeout: Annotated[int | None, typer.Option("--timeout", help="Seconds for all rounds of a team.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Check everything and call no model.")] = False,
    output_format: FormatOption = Format.TEXT,
    workspace: WorkspaceOption = None,
    *,
    logs: LogOptions,
) -> None:
    """Let the teams of a file compete over a task, and print the best answer.

    The task is an argument, a file or what comes on standard input.

    Exit codes: 0 all teams have a result and none failed, 1 some results and some failures, 2 no result or a mistake
    in the configuration, 130 Ctrl-C.

    \b
    Examples:
      mixseek exec "Name three uses of bamboo." -w my-workspace
      mixseek exec --prompt-file task.md --file table.csv --output answer.md
      cat task.md | mixseek exec -c configs/orchestrator.toml -f json
      mixseek exec "What is 6 times 7?" --reference 42 --dry-run
      mixseek exec "Name three uses of bamboo." --report
    """
    use_format(output_format)
    place = locate_workspace(workspace)
    overrides = _overrides(timeout, reference_text(reference, place))
    manager = ConfigurationManager(place, overrides=overrides, options=_OPTIONS)
    start_logging(place, Redactor.from_environment(manager.environ), logs, file=not dry_run)
    file = find_config(config, place, ORCHESTRATOR.file, "name one, or make a workspace with mixseek init")
    settings = manager.load_run_settings(file, for_a_run=not dry_run)
    attachments = read_attachments(files or (), place)
    answer_to = answer_file(output)
    page = report_file(place, report, report_to)
    if dry_run:
        size = None
        if prompt is not None or prompt_file is not None:
            text = read_given(prompt, prompt_file, place)
            size = len(text.encode("utf-8", "surrogatepass")) + sum(one.size for one in attachments)
        fault = _fault(manager, file, settings)
        _print_plan(plan_of(settings, manager.environ, size), output_format, fault)
        raise typer.Exit(EXIT_NO_RESULT if fault else 0)
    task = read_given(prompt, prompt_file, place)
    redactor = redactor_of(manager.environ, settings.providers)
    with watching(logs, manager.environ) as listeners:
        summary, progress = play(settings, task, attachments, redactor, listeners)
    print_summary(summary, output_format, redactor, progress.scores)
    best = redactor.text(summary.team_results[0].submission_content) if summary.team_results else None
    is_written = write_answer(best, answer_to)
    has_begun = progress.execution_id is not None
    is_told = page is None or not has_begun or page.save(summary.execution_id)
    if summary.interrupted:
        given = None if workspace is None else str(workspace)
        tell_of_interruption(summary, has_begun=has_begun, workspace=given)
        leave_interrupted()
    raise typer.Exit(exit_code(summary, is_written=is_written and is_told))


_OPTIONS = {"orchestrator": {"timeout_per_team_seconds": "--timeout", "reference": "--reference"}}


def _overrides(timeout: int | None, reference: str | None) -> dict[str, dict[str, int | str]]:
    given = {"timeout_per_team_seconds": timeout, "reference": reference}
    return {"orchestrator": {name: value for name, value in given.items() if value is not None}}


# --- the run ----------------------------------------------------------------------------------------------------------


def _fault(manager: ConfigurationManager, file: Path, settings: RunSettings) -> ConfigurationError | None:
    """What keeps a run by these settings from beginning: a key that is missing, or a part that cannot be built."""
    from mixseek.orchestrator import Orchestrator  # as below

    try:
        manager.load_run_settings(file, for_a_run=True)
        asyncio.run(Orchestrator(settings.orchestrator, save_db=False).rehearse())
    except ConfigurationError as error:
        return error
    return None


def play(
    settings: RunSettings,
    prompt: str,
    attachments: Sequence[Attachment],
    redactor: Redactor,
    listeners: Sequence[Listener],
) -> tuple[ExecutionSummary, Progress]:
    """Play, show on standard error what happens, and come back with what came of it; Ctrl-C ends it gracefully."""
    # Imported when all files are right: a mistake in one is told without the second it takes to load model code.
    from mixseek.orchestrator import Orchestrator

    with showing(redactor) as progress:
        orchestrator = Orchestrator(settings.orchestrator, listeners=[progress, *listeners])
        try:
            summary = run_until_stopped(orchestrator.execute(prompt, attachments=attachments), orchestrator.stop)
        except StorageError as error:
            # What the teams did is paid for, and known even if it could not be stored.
            if progress.summary is None:
                raise
            warn(f"mixseek: {error}")
            summary = progress.summary
    return summary, progress


def exit_code(summary: ExecutionSummary, *, is_written: bool = True) -> int:
    """What the command ends with."""
    if not summary.team_results:
        return EXIT_NO_RESULT
    return EXIT_SOME_FAILED if summary.failed_teams_info or not is_written else 0


# --- what is printed --------------------------------------------------------------------------------------------------


def _print_plan(plan: Plan, output: Format, fault: ConfigurationError | None) -> None:
    """The plan, and what keeps it from being played."""
    if output is Format.JSON:
        print_json({**plan.as_json(), **({"error": error_as_json(fault)} if fault else {})})
        return
    for line in plan.lines():
        print_line(line)
    if fault:
        print_error(fault)
