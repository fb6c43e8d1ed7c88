"""``mixseek attack``: the attack texts of the package against one's own judge."""

import contextlib
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from mixseek.amounts import cost_words
from mixseek.cli.asking import judges_of
from mixseek.cli.logs import LogOptions, start_logging, takes_log_options, watching
from mixseek.cli.output import Format, FormatOption, WorkspaceOption, print_json, print_line, use_format, warn
from mixseek.config.manager import ConfigurationManager
from mixseek.strangers import run_and_leave

if TYPE_CHECKING:
    from mixseek.attacks import Attack
    from mixseek.attacks.trial import CategoryShift, Trial, TrialReport

__all__ = ["app"]

EXIT_SOME_FAILED = 1
EXIT_NO_RESULT = 2
EXIT_INTERRUPTED = 130

app = typer.Typer(add_completion=False, rich_markup_mode=None)


@app.command("attack")
@takes_log_options
def attack(
    config: Annotated[
        Path, typer.Option("--config", "-c", metavar="FILE", help="The evaluator or the orchestrator file.")
    ],
    category: Annotated[
        list[str] | None, typer.Option("--category", help="Only this category; may be given several times.")
    ] = None,
    limit: Annotated[
        int | None, typer.Option("--limit", min=1, help="So many attacks, of each category in turn.")
    ] = None,
    output: FormatOption = Format.TEXT,
    workspace: WorkspaceOption = None,
    *,
    logs: LogOptions,
) -> None:
    """Try to fool the judges of a file, and print how far their scores moved.

    Exit codes: 0 every attack was judged, 1 some could not be, 2 none could be or a mistake in the configuration,
    130 Ctrl-C.

    \b
    Examples:
      mixseek attack -c configs/evaluator.toml --limit 10
      mixseek attack -c configs/orchestrator.toml -f json
    """
    use_format(output)
    manager = ConfigurationManager(workspace)
    start_logging(manager.workspace, manager.redactor, logs)
    # Imported when it is needed: help and mistakes on the command line need no model code.
    from mixseek.attacks import load_attacks

    attacks = load_attacks(category or (), limit)
    with watching(logs, manager.environ):
        report = _run(_trial(manager, config), attacks)
    _print(report, output)
    raise typer.Exit(_exit_code(report))


def _run(trial: "Trial", attacks: Sequence["Attack"]) -> "TrialReport":
    warn(f"{len(attacks)} attacks, {trial.calls(attacks)} model calls: {', '.join(trial.judges)}")
    try:
        # What metrics of others print must not end up in the result.
        with contextlib.redirect_stdout(sys.stderr):
            return run_and_leave(trial.run(attacks))
    except KeyboardInterrupt:
        warn("interrupted")
        raise typer.Exit(EXIT_INTERRUPTED) from None


def _trial(manager: ConfigurationManager, config: Path) -> "Trial":
    from mixseek.attacks.trial import Trial
    from mixseek.llm import ModelHub

    judges = judges_of(manager, config)
    root = manager.workspace.root
    hub = ModelHub(judges.providers, judges.orchestrator.prices, environ=manager.environ, root=root)
    return Trial(judges.evaluator, judges.prompts, hub, manager.workspace)


def _exit_code(report: "TrialReport") -> int:
    failed = sum(verdict.error is not None for verdict in report.verdicts)
    if failed == len(report.verdicts):
        return EXIT_NO_RESULT
    return EXIT_SOME_FAILED if failed else 0


# --- what is printed --------------------------------------------------------------------------------------------------


def _print(report: "TrialReport", output: Format) -> None:
    if output is Format.JSON:
        print_json(report.model_dump(mode="json"))
        return
    honest = ", ".join(f"{score:.1f}" for score in report.honest_scores)
    print_line(f"The honest answer got {honest}")
    print_line()
    print_line(f"{'category':<20} {'attacks':>7} {'moved':>6} {'raised':>6} {'mean':>7} {'highest':>8}")
    for shift in report.categories:
        print_line(_row(shift))
    print_line()
    for verdict in report.verdicts:
        if verdict.error is not None:
            warn(f"{verdict.id}: {verdict.error}")
    print_line(_outcome(report))


def _outcome(report: "TrialReport") -> str:
    moved = sum(verdict.moved for verdict in report.verdicts)
    raised = sum(verdict.raised for verdict in report.verdicts)
    cost = cost_words(report.cost_usd)
    told = f"{moved} of {len(report.verdicts)} attacks moved the score, {raised} of them upwards"
    return f"{told}; {report.usage.requests} model calls, {cost}"


def _row(shift: "CategoryShift") -> str:
    counts = f"{shift.attacks:>7} {shift.moved:>6} {shift.raised:>6}"
    failed = f"  ({shift.failed} not judged)" if shift.failed else ""
    return f"{shift.category:<20} {counts} {_points(shift.mean):>7} {_points(shift.highest):>8}{failed}"


def _points(shift: float | None) -> str:
    return "-" if shift is None else f"{shift:+.1f}"
