"""``mixseek rejudge``: other judges over recorded submissions."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mixseek.amounts import command_to_copy, counted
from mixseek.cli.asking import bill_words, judges_of, score_words, wait_for
from mixseek.cli.inputs import ReferenceOption, find_config, reference_text
from mixseek.cli.logs import LogOptions, start_logging, takes_log_options, watching
from mixseek.cli.output import (
    Format,
    FormatOption,
    WorkspaceOption,
    print_json,
    print_line,
    rounded,
    use_format,
    warn,
)
from mixseek.cli.plan import estimate_lines
from mixseek.cli.stored import IdArgument, Place, tell_if_open
from mixseek.cli.tables import Column, print_table
from mixseek.config.manager import ConfigurationManager, redactor_of
from mixseek.redaction import Redactor
from mixseek.report.summing import lost_words

if TYPE_CHECKING:
    from mixseek.hindsight.rejudging import RejudgedTeam, RejudgePlan, Rejudgment

__all__ = ["app"]

EXIT_SOME_FAILED = 1
_KEPT = (
    "interrupted: what was answered is kept, and the same command goes on from there; "
    "calls on their way may be billed, and are told then"
)

app = typer.Typer(add_completion=False, rich_markup_mode=None)

_COLUMNS = (
    Column("#", right=True),
    Column("Team", elastic=True),
    Column("Score", right=True),
    Column("Round", right=True),
    Column("Was #", right=True),
    Column("Score", right=True),
    Column("Round", right=True),
    Column("Moved"),
)


@app.command("rejudge")
@takes_log_options
def rejudge(
    execution: IdArgument,
    evaluator: Annotated[
        Path,
        typer.Option("--evaluator", "-e", metavar="FILE", help="The evaluator file, or an orchestrator file."),
    ],
    reference: ReferenceOption = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Tell what would be asked, and ask nobody.")] = False,
    output: FormatOption = Format.TEXT,
    workspace: WorkspaceOption = None,
    *,
    logs: LogOptions,
) -> None:
    """Let other judges score what was submitted, and show how the ranking changes; nothing is generated again.

    Every submission of every round is judged by the metrics of the file. Answers are kept: doing the same again, also
    after a crash, asks only what was not answered, and what judges were asked in the same words before, in the
    execution or by another file, is not asked again. The execution itself stays as it is.

    Exit codes: 0 every metric scored every submission, 1 some could not, 2 none could or a mistake, 130 Ctrl-C.

    \b
    Examples:
      mixseek rejudge last --evaluator configs/strict.toml
      mixseek rejudge 3f2a -e configs/evaluator.toml --dry-run
      mixseek rejudge last -e configs/strict.toml -f json
    """
    use_format(output)
    manager = ConfigurationManager(workspace)
    start_logging(manager.workspace, manager.redactor, logs)
    judges = judges_of(manager, find_config(evaluator, manager.workspace, "", ""), for_a_run=True)
    redactor = redactor_of(manager.environ, judges.providers)
    given = reference_text(reference, manager.workspace) or judges.reference
    execution_id = Place(workspace).find(execution)

    from mixseek.hindsight.rejudging import plan_rejudging, rejudge  # loads model code, when files are right
    from mixseek.orchestrator.single import Surroundings

    around = Surroundings(manager.workspace, judges.prompts, judges.providers, judges.orchestrator)
    if dry_run:
        planning = plan_rejudging(execution_id, judges.evaluator, around=around, reference=given)
        plan = wait_for(planning, redactor)
        tell_if_open(plan.execution_id, plan.status)
        _print_plan(plan, output, redactor)
        return
    with watching(logs, manager.environ) as listeners:
        work = rejudge(execution_id, judges.evaluator, around=around, reference=given, listeners=listeners)
        rejudged = wait_for(work, redactor, _KEPT)
    tell_if_open(rejudged.execution_id, rejudged.status)
    _print(rejudged, output, redactor, workspace)
    raise typer.Exit(_exit_code(rejudged))


def _exit_code(rejudged: "Rejudgment") -> int:
    if not rejudged.failed_metrics:
        return 0
    cells = [cell for team in rejudged.teams for one in team.rounds for cell in one.metrics]
    return EXIT_SOME_FAILED if any(cell.score is not None for cell in cells) else 2


# --- what is printed --------------------------------------------------------------------------------------------------


def _print_plan(plan: "RejudgePlan", output: Format, redactor: Redactor) -> None:
    if output is Format.JSON:
        print_json(redactor.value({"dry_run": True, **plan.model_dump(mode="json")}))
        return
    print_line(f"{counted(plan.submissions, 'submission')}, each by {', '.join(plan.metrics)}")
    print_line(f"Metrics that ask a model: {', '.join(plan.judges) or 'none'}")
    print_line(f"{counted(plan.calls, 'model call')} to make, {plan.reused_calls} answered before")
    for line in estimate_lines(plan.estimate) if plan.calls else ():
        print_line(redactor.text(line))


def _print(rejudged: "Rejudgment", output: Format, redactor: Redactor, workspace: Path | None) -> None:
    if output is Format.JSON:
        told: Any = rejudged.model_dump(mode="json")
        print_json(redactor.value(rounded(told)))
        return
    rows = [_row(team) for team in rejudged.teams]
    print_table(_COLUMNS, [[redactor.text(cell) for cell in row] for row in rows])
    print_line()
    print_line(redactor.text(_winner(rejudged)))
    if rejudged.new_winner not in (None, rejudged.old_winner):
        new = rejudged.teams[0]
        command = command_to_copy("show", rejudged.execution_id, workspace, "--team", new.team_id, "--rounds")
        print_line(redactor.text(f"its answer is that of round {new.new_round} in {command}"))
    for line in _failures(rejudged):
        warn(redactor.text(f"mixseek: {line}"))
    print_line(bill_words(rejudged.usage, rejudged.cost_usd, rejudged.seconds) + _reused(rejudged.reused_calls))
    if words := lost_words(rejudged.lost, rejudged.lost_before):
        print_line(words)


def _row(team: "RejudgedTeam") -> list[str]:
    return [
        _number(team.new_rank),
        team.team_name,
        score_words(team.new_score),
        _number(team.new_round),
        _number(team.old_rank),
        score_words(team.old_score),
        _number(team.old_round),
        _moved(team.moved),
    ]


def _number(value: int | None) -> str:
    return "-" if value is None else str(value)


def _moved(places: int | None) -> str:
    if not places:
        return "-" if places is None else ""
    return f"{'up' if places > 0 else 'down'} {abs(places)}"


def _winner(rejudged: "Rejudgment") -> str:
    names = {team.team_id: team.team_name for team in rejudged.teams}
    old, new = (names.get(each or "", "nobody") for each in (rejudged.old_winner, rejudged.new_winner))
    if unscored := ", ".join(team.team_name for team in rejudged.teams if _could_not_be_scored(team)):
        if rejudged.new_winner is None:
            return f"nobody wins: {unscored} could not be scored"
        as_before = " as before," if rejudged.old_winner == rejudged.new_winner else ""
        # Others move up for it, which says nothing: how many moved is not told.
        return f"{new} wins{as_before} among the teams that could be scored; {unscored} could not be"
    moved = sum(bool(team.moved) for team in rejudged.teams)
    if rejudged.old_winner == rejudged.new_winner:
        return f"{new} wins as before; {moved} of {counted(len(rejudged.teams), 'team')} moved"
    return f"{new} wins, no longer {old}; {moved} of {counted(len(rejudged.teams), 'team')} moved"


def _could_not_be_scored(team: "RejudgedTeam") -> bool:
    """Whether metrics failed for all that it submitted; who submitted nothing has no score for that."""
    return team.new_score is None and any(cell.error is not None for one in team.rounds for cell in one.metrics)


def _failures(rejudged: "Rejudgment") -> Iterator[str]:
    for team in rejudged.teams:
        for one in team.rounds:
            for cell in one.metrics:
                if cell.error is not None:
                    yield f"{team.team_name}, round {one.round_number}, {cell.metric_name}: {cell.error}"


def _reused(calls: int) -> str:
    return f"; {counted(calls, 'answer')} from the journal" if calls else ""
