"""``mixseek exec``: one competition; its progress goes to standard error, its result to standard output."""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from mixseek.cli.live import showing
from mixseek.cli.logs import LogOptions, start_logging, takes_log_options, watching
from mixseek.cli.output import (
    Format,
    FormatOption,
    WorkspaceOption,
    print_json,
    print_line,
    print_text,
    use_format,
    warn,
)
from mixseek.cli.plan import plan_of
from mixseek.config.attachments import read_attachments
from mixseek.config.checks import later_fields
from mixseek.config.layers import show_path
from mixseek.config.manager import ConfigurationManager, RunSettings, redactor_of
from mixseek.errors import ConfigurationError, StorageError
from mixseek.events import Listener
from mixseek.records import Attachment, ExecutionSummary, LeaderBoardEntry
from mixseek.redaction import Redactor

__all__ = ["app"]

EXIT_SOME_FAILED = 1
EXIT_NO_RESULT = 2
EXIT_INTERRUPTED = 130

app = typer.Typer(add_completion=False, rich_markup_mode=None)


@app.command("exec")
@takes_log_options
def exec_(
    prompt: Annotated[str, typer.Argument(metavar="PROMPT", help="The task for all teams.")],
    config: Annotated[Path, typer.Option("--config", "-c", metavar="FILE", help="The orchestrator file.")],
    attach: Annotated[
        list[Path] | None, typer.Option("--attach", metavar="FILE", help="A file that comes with the task; repeatable.")
    ] = None,
    timeout: Annotated[int | None, typer.Option("--timeout", help="Seconds for all rounds of a team.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Check everything and call no model.")] = False,
    output: FormatOption = Format.TEXT,
    workspace: WorkspaceOption = None,
    *,
    logs: LogOptions,
) -> None:
    """Let the teams of a file compete over a task, and print the best answer.

    Exit codes: 0 all teams have a result and none failed, 1 some results and some failures, 2 no result or a mistake
    in the configuration, 130 Ctrl-C.
    """
    use_format(output)
    _check_prompt(prompt)
    manager = ConfigurationManager(workspace, overrides=_overrides(timeout))
    start_logging(manager.workspace, Redactor.from_environment(manager.environ), logs, file=not dry_run)
    settings = manager.load_run_settings(config, for_a_run=True)
    attachments = read_attachments(attach or (), manager.workspace)
    _warn_of_what_is_not_in_effect(settings)
    if dry_run:
        _rehearse(settings)
        _print_plan(settings, output)
        return
    redactor = redactor_of(manager.environ, settings.providers)
    with watching(logs, manager.environ) as listeners:
        summary = _play(settings, prompt, attachments, redactor, listeners)
    _print_summary(summary, output, redactor)
    raise typer.Exit(_exit_code(summary))


def _check_prompt(prompt: str) -> None:
    if not prompt.strip():
        raise ConfigurationError("the prompt is empty: say what the teams have to do")
    try:
        prompt.encode()
    except UnicodeEncodeError as error:
        raise ConfigurationError("the prompt is not UTF-8 text") from error


def _overrides(timeout: int | None) -> dict[str, dict[str, int]]:
    return {} if timeout is None else {"orchestrator": {"timeout_per_team_seconds": timeout}}


def _warn_of_what_is_not_in_effect(settings: RunSettings) -> None:
    """A limit that does not hold is worth a line every time: somebody counts on it."""
    set_but_idle = [show_path(path) for path in later_fields(settings.orchestrator)]
    for team in settings.teams:
        set_but_idle += [f"team {team.team_id!r}: {show_path(path)}" for path in later_fields(team)]
    for name in set_but_idle:
        warn(f"mixseek: {name}: not yet in effect; the run is not held to it")


# --- the run ----------------------------------------------------------------------------------------------------------


def _rehearse(settings: RunSettings) -> None:
    from mixseek.orchestrator import Orchestrator  # as below

    asyncio.run(Orchestrator(settings.orchestrator, save_db=False).rehearse())


def _play(
    settings: RunSettings,
    prompt: str,
    attachments: Sequence[Attachment],
    redactor: Redactor,
    listeners: Sequence[Listener],
) -> ExecutionSummary:
    # Imported when all files are right: a mistake in one is told without the second it takes to load model code.
    from mixseek.orchestrator import Orchestrator

    try:
        with showing(redactor) as progress:
            orchestrator = Orchestrator(settings.orchestrator, listeners=[progress, *listeners])
            return asyncio.run(orchestrator.execute(prompt, attachments=attachments))
    except KeyboardInterrupt:
        warn(progress.interrupted())
        raise typer.Exit(EXIT_INTERRUPTED) from None
    except StorageError as error:
        # What the teams did is paid for, and known even if it could not be stored.
        if progress.summary is None:
            raise
        warn(f"mixseek: {error}")
        return progress.summary


def _exit_code(summary: ExecutionSummary) -> int:
    if not summary.team_results:
        return EXIT_NO_RESULT
    return EXIT_SOME_FAILED if summary.failed_teams_info else 0


# --- what is printed --------------------------------------------------------------------------------------------------


def _print_plan(settings: RunSettings, output: Format) -> None:
    plan = plan_of(settings)
    if output is Format.JSON:
        print_json(plan.as_json())
        return
    for line in plan.lines():
        print_line(line)


def _print_summary(summary: ExecutionSummary, output: Format, redactor: Redactor) -> None:
    """Without secrets, as the tables have it: an answer may hold a key that a tool gave away."""
    if output is Format.JSON:
        print_json(redactor.value(summary.model_dump(mode="json")))
        return
    for line in _summary_lines(summary):
        print_line(redactor.text(line))
    if summary.team_results:
        best = summary.team_results[0]
        print_line(f"Best answer: {_named(best.team_name, best.team_id)}, round {best.round_number}")
        print_line()
        print_text(redactor.text(best.submission_content))


def _summary_lines(summary: ExecutionSummary) -> list[str]:
    lines = ["Leader board"]
    lines += [f"  {place}. {_result(entry)}" for place, entry in enumerate(summary.team_results, start=1)]
    lines += [] if summary.team_results else ["  no team has a result"]
    if summary.failed_teams_info:
        lines += ["", "Failed"]
        lines += [f"  {_named(one.team_name, one.team_id)}: {one.error_message}" for one in summary.failed_teams_info]
    return [*lines, "", _usage(summary), f"Execution {summary.execution_id}", ""]


def _result(entry: LeaderBoardEntry) -> str:
    score = "unscored" if entry.score is None else f"{entry.score:.2f}"
    reason = f", {entry.exit_reason}" if entry.exit_reason else ""
    return f"{_named(entry.team_name, entry.team_id)}: {score} in round {entry.round_number}{reason}"


def _usage(summary: ExecutionSummary) -> str:
    usage = summary.usage
    cost = "cost not known" if summary.cost_usd is None else f"{summary.cost_usd:.4f} USD"
    tokens = f"{usage.input_tokens} tokens in, {usage.output_tokens} out"
    return f"{usage.requests} model calls, {tokens}, {cost}, {summary.total_execution_time_seconds:.1f} s"


def _named(team_name: str, team_id: str) -> str:
    return f"{team_name} ({team_id})"
