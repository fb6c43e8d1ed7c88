"""``mixseek replay``: a finished execution played again from its journal."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from mixseek.amounts import counted
from mixseek.cli.asking import wait_for
from mixseek.cli.output import Format, FormatOption, WorkspaceOption, print_json, print_line, use_format, warn
from mixseek.cli.stored import IdArgument, as_json, open_place, score_text
from mixseek.cli.tables import Column, print_table

if TYPE_CHECKING:
    from mixseek.hindsight.replaying import Replay

__all__ = ["app"]

EXIT_DIFFERENT = 1
EXIT_NOT_REPLAYED = 2
_MOST_CHANGES = 5

app = typer.Typer(add_completion=False, rich_markup_mode=None)

_COLUMNS = (
    Column("#", right=True),
    Column("Team", elastic=True),
    Column("Score", right=True),
    Column("Round", right=True),
    Column("Ended", elastic=True),
)


@app.command("replay")
def replay(
    execution: IdArgument,
    config: Annotated[
        Path | None,
        typer.Option("--config", "-c", metavar="FILE", help="Another orchestrator file than the execution's own."),
    ] = None,
    output: FormatOption = Format.TEXT,
    workspace: WorkspaceOption = None,
) -> None:
    """Play a finished execution again from its journal: no provider is asked, no key is needed, nothing is written.

    Every call is answered, or fails, as it did. In the end stands the leader board, and whether it is that of the
    record; a changed configuration or a metric that is not always the same shows there.

    Exit codes: 0 it came to the same, 1 it did not, 2 it, or a team of it, cannot be replayed, 130 Ctrl-C.

    \b
    Examples:
      mixseek replay last
      mixseek replay 3f2a -f json
    """
    use_format(output)
    place = open_place(workspace)
    execution_id = place.find(execution)

    from mixseek.hindsight.replaying import replay as play_again  # loads model code

    told = wait_for(play_again(execution_id, workspace, config=config), place.redactor)
    if output is Format.JSON:
        print_json(place.redactor.value(as_json(told)))
    else:
        _print(told)
    raise typer.Exit(0 if told.equal else EXIT_DIFFERENT if _differs(told) else EXIT_NOT_REPLAYED)


def _differs(told: "Replay") -> bool:
    """Whether what could be replayed is not what was recorded."""
    return bool(told.differences or told.missing_calls)


def _print(told: "Replay") -> None:
    _tell_of_changes("was resumed with a change", told.resumed_with)
    if not told.equal:
        _tell_of_changes("changed since", told.changes)
    rows = [
        [
            str(team.rank),
            team.team_name,
            score_text(team.score),
            str(team.round_number),
            (team.exit_reason or "-").replace("_", " "),
        ]
        for team in told.teams
    ]
    if rows:
        print_table(_COLUMNS, rows)
    if told.failed_teams:
        print_line(f"failed: {', '.join(told.failed_teams)}")
    if told.taken_out:
        places = told.places_of_taken_out
        named = (f"{one} (place {places[one]})" if one in places else one for one in told.taken_out)
        print_line(f"taken out when the execution was resumed, and not played again: {', '.join(named)}")
    if told.with_earlier_settings:
        named = (f"{team_id} ({_rounds(last)})" for team_id, last in told.with_earlier_settings.items())
        print_line(
            f"cannot be replayed: {', '.join(named)}: these rounds were begun with earlier settings, before a change "
            "that was accepted with --accept-changes; mixseek show shows what they came to"
        )
    print_line()
    for line in (*told.differences, *(f"not in the journal: {call}" for call in told.missing_calls)):
        print_line(line)
    if told.tries_taken_as_failed:
        print_line(
            f"taken as failed, as they had, though they would go on now: {', '.join(told.tries_taken_as_failed)}"
        )
    calls = counted(told.calls, "call")
    print_line(f"{_outcome(told)}: {calls} answered from the journal, nobody was asked, {told.seconds:.1f} s")
    if left_out := ", ".join(_left_out(told)):
        print_line(f"not among them: {left_out}")


def _rounds(last: int) -> str:
    return "round 1" if last == 1 else f"rounds 1 to {last}"


def _outcome(told: "Replay") -> str:
    if told.equal:
        return "equal to the record"
    if _differs(told):
        return "not what was recorded"
    return "the rest is equal to the record" if told.teams or told.failed_teams else "no team could be replayed"


def _left_out(told: "Replay") -> Iterator[str]:
    """Why fewer calls were answered than mixseek show and mixseek journal count."""
    if told.calls_cut_off:
        yield f"{counted(told.calls_cut_off, 'call')} without an answer, cut off or failed"
    if told.calls_of_taken_out:
        yield f"{counted(told.calls_of_taken_out, 'call')} of teams that were taken out"
    if told.calls_not_asked_for:
        yield f"{counted(told.calls_not_asked_for, 'call')} that nobody makes now"


def _tell_of_changes(when: str, changes: Sequence[str]) -> None:
    """What most likely makes the difference, before all that follows from it."""
    for change in changes[:_MOST_CHANGES]:
        warn(f"mixseek: {when}: {change}")
    more = len(changes) - _MOST_CHANGES
    if more > 0:
        warn(f"mixseek: and {more} more; -f json tells all")
