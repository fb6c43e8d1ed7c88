"""``mixseek exec``: one competition; its progress goes to standard error, its result to standard output."""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, NoReturn

import typer

from mixseek.cli.answer_file import OutputOption, answer_file
from mixseek.cli.completion import complete_execution
from mixseek.cli.inputs import (
    AttachmentsOption,
    PromptArgument,
    PromptFileOption,
    ReferenceOption,
    find_config,
    read_given,
    reference_text,
)
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
from mixseek.cli.playing import EXIT_NO_RESULT, Wanted, leave_with, play
from mixseek.cli.report_file import ReportFileOption, ReportOption, report_file
from mixseek.cli.resume import AcceptChangesOption, ResumeOutputs, resume_execution
from mixseek.config.attachments import read_attachments
from mixseek.config.kinds import ORCHESTRATOR
from mixseek.config.manager import ConfigurationManager, RunSettings, locate_workspace, redactor_of
from mixseek.errors import ConfigurationError, MixSeekError, StorageError
from mixseek.records import Attachment

__all__ = ["app"]

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
    resume: Annotated[
        str | None,
        typer.Option(
            "--resume",
            metavar="ID",
            help="Go on with this execution instead, as mixseek resume does.",
            autocompletion=complete_execution,
        ),
    ] = None,
    accept_changes: AcceptChangesOption = False,
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
      mixseek exec --resume last
    """
    use_format(output_format)
    if resume is not None:
        _refuse_beside_resume(prompt, config, prompt_file, files, reference, timeout, dry_run or None)
        outputs = ResumeOutputs(output, report, report_to, output_format, workspace)
        resume_execution(resume, outputs, logs, accept_changes=accept_changes)
    if accept_changes:
        raise ConfigurationError("--accept-changes goes with --resume ID")
    place = locate_workspace(workspace)
    overrides = _overrides(timeout, reference_text(reference, place))
    manager = ConfigurationManager(place, overrides=overrides, options=_OPTIONS)
    start_logging(place, manager.redactor, logs, file=not dry_run)
    file = find_config(config, place, ORCHESTRATOR.file, "name one, or make a workspace with mixseek init")
    settings = manager.load_run_settings(file, for_a_run=not dry_run)
    attachments = read_attachments(files or (), place)
    answer_to = answer_file(output)
    page = report_file(place, report, report_to)
    is_given = prompt is not None or prompt_file is not None
    task = read_given(prompt, prompt_file, place) if is_given or not dry_run else None
    if dry_run or task is None:
        if unwritten := [*(["answer"] if answer_to else []), *(["report"] if page else [])]:
            warn(f"mixseek: a dry run writes no {' and no '.join(unwritten)}")
        _leave_with_plan(manager, file, settings, _size(task, attachments), output_format)
    redactor = redactor_of(manager.environ, settings.providers)
    with watching(logs, manager.environ) as listeners:
        played = play(
            settings, lambda it: it.execute(task, attachments=attachments), redactor, listeners, workspace=workspace
        )
    leave_with(played, Wanted(output_format, answer_to, page, workspace), redactor)


_OPTIONS = {"orchestrator": {"timeout_per_team_seconds": "--timeout", "reference": "--reference"}}


def _overrides(timeout: int | None, reference: str | None) -> dict[str, dict[str, int | str]]:
    given = {"timeout_per_team_seconds": timeout, "reference": reference}
    return {"orchestrator": {name: value for name, value in given.items() if value is not None}}


def _refuse_beside_resume(*given: object) -> None:
    """Task, files and settings of an execution are its own."""
    if any(one is not None for one in given):
        raise ConfigurationError(
            "--resume ID goes on with the task and the settings the execution was begun with: "
            "give no prompt, -c, --prompt-file, --file, --reference, --timeout or --dry-run beside it"
        )


# --- a plan -----------------------------------------------------------------------------------------------------------


def _size(task: str | None, attachments: Sequence[Attachment]) -> int | None:
    """How many bytes teams would be given; None where no task is."""
    if task is None:
        return None
    return len(task.encode("utf-8", "surrogatepass")) + sum(one.size for one in attachments)


def _leave_with_plan(
    manager: ConfigurationManager, file: Path, settings: RunSettings, size: int | None, output: Format
) -> NoReturn:
    """Print what a run would do, and what keeps it from beginning."""
    fault = _fault(manager, file, settings)
    _print_plan(plan_of(settings, manager.environ, size), output, fault)
    raise typer.Exit(EXIT_NO_RESULT if fault else 0)


def _fault(manager: ConfigurationManager, file: Path, settings: RunSettings) -> MixSeekError | None:
    """What keeps a run by these settings from beginning: a missing key, a part that cannot be built, a bad journal."""
    from mixseek.orchestrator import Orchestrator  # as below

    try:
        manager.load_run_settings(file, for_a_run=True)
        asyncio.run(Orchestrator(settings.orchestrator).rehearse())
    except (ConfigurationError, StorageError) as error:
        return error
    return None


def _print_plan(plan: Plan, output: Format, fault: MixSeekError | None) -> None:
    """The plan, and what keeps it from being played."""
    if output is Format.JSON:
        print_json({**plan.as_json(), **({"error": error_as_json(fault)} if fault else {})})
        return
    for line in plan.lines():
        print_line(line)
    if fault:
        print_error(fault)
