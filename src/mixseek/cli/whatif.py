"""``mixseek whatif``: what stopping earlier would have kept and saved."""

from typing import TYPE_CHECKING, Annotated

import typer

from mixseek.amounts import cost_words, counted, number, usd, usd_digits
from mixseek.cli.output import Format, FormatOption, WorkspaceOption, print_json, print_line, use_format, warn
from mixseek.cli.stored import IdArgument, as_json, duration, open_place, score_text, tell_if_open
from mixseek.cli.tables import Column, print_table

if TYPE_CHECKING:
    from mixseek.hindsight.whatif import Consumed, TeamOutcome, WhatIf, WhatIfReport

__all__ = ["app"]

app = typer.Typer(add_completion=False, rich_markup_mode=None)

_TOOK = (
    Column("Rounds", right=True),
    Column("Calls", right=True),
    Column("Tokens", right=True),
    Column("USD", right=True),
    Column("Time", right=True),
)
_RULES = (Column("Rule", elastic=True), Column("Winner", elastic=True), Column("Score", right=True), *_TOOK)
_TEAMS = (
    Column("#", right=True),
    Column("Team", elastic=True),
    Column("Score", right=True),
    Column("Round", right=True),
    *_TOOK,
    Column("Ended", elastic=True),
)


@app.command("whatif")
def whatif(
    execution: IdArgument,
    stop_rule: Annotated[
        list[str],
        typer.Option(
            "--stop-rule",
            metavar="RULE",
            help="NAME=NUMBER: max_rounds, min_rounds, target_score, plateau_rounds, plateau_min_gain, or budget in "
            "US dollars for all teams together; with commas several hold at once. Repeatable: each is told apart.",
        ),
    ],
    output: FormatOption = Format.TEXT,
    workspace: WorkspaceOption = None,
) -> None:
    """Tell what stopping earlier would have kept and saved, from the record alone: no model is asked.

    Before the execution's own min_rounds only max_rounds and a budget end a team. A budget pays for rounds in the order
    in which they ended.

    \b
    Examples:
      mixseek whatif last --stop-rule max_rounds=2
      mixseek whatif 3f2a --stop-rule target_score=80 --stop-rule plateau_rounds=1
      mixseek whatif last --stop-rule budget=0.5 -f json
    """
    use_format(output)
    place = open_place(workspace)

    from mixseek.hindsight.whatif import StopRule, what_if  # loads model code

    rules = [StopRule.parse(text) for text in stop_rule]
    report = what_if(place.load(execution), rules)
    tell_if_open(report.execution_id, report.status)
    if report.has_unknown_pauses:
        warn(
            f"mixseek: the journal cannot tell of execution {report.execution_id}, which may have had pauses: "
            "how long its rounds were played is not known"
        )
    if output is Format.JSON:
        print_json(as_json(report))
        return
    _print(report)


# --- what is printed --------------------------------------------------------------------------------------------------


def _print(report: "WhatIfReport") -> None:
    rules = (report.recorded, *report.rules)
    digits = usd_digits(one.kept.cost_usd for one in rules)
    print_table(_RULES, [_rule(one, digits) for one in rules])
    for one in report.rules:
        print_line()
        print_line(f"With {one.rule}: {_saved(one)}")
        digits = usd_digits(team.kept.cost_usd for team in one.teams)
        print_table(_TEAMS, [_team(team, digits) for team in one.teams])


def _rule(one: "WhatIf", digits: int) -> list[str]:
    winner, score = one.winner_name or "-", score_text(one.best_score)
    return [one.rule or "as it was played", winner, score, *_took(one.kept, digits)]


def _team(team: "TeamOutcome", digits: int) -> list[str]:
    return [
        "-" if team.rank is None else str(team.rank),
        team.team_name,
        score_text(team.best_score),
        "-" if team.best_round is None else str(team.best_round),
        *_took(team.kept, digits),
        (team.exit_reason or "-").replace("_", " "),
    ]


def _took(kept: "Consumed", digits: int) -> list[str]:
    return [
        str(kept.rounds),
        str(kept.requests),
        number(kept.input_tokens + kept.output_tokens),
        usd(kept.cost_usd, digits),
        duration(kept.seconds),
    ]


def _saved(one: "WhatIf") -> str:
    saved = one.saved
    held = f"since no team may stop so before round {one.held_until_round} (min_rounds)" if one.held_until_round else ""
    if not saved.rounds and not saved.requests:
        return f"nothing would have been saved{held and f', {held}'}"
    tokens = saved.input_tokens + saved.output_tokens
    spared = f"{counted(saved.rounds, 'round')}, {counted(saved.requests, 'call')}, {counted(tokens, 'token')}"
    cost = cost_words(saved.cost_usd)
    told = f"{spared} saved, {cost}" if saved.cost_usd is None else f"{spared}, {cost} saved"
    return told if saved.rounds or not held else f"{told}; no round, {held}"
