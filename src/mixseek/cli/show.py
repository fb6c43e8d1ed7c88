"""``mixseek show``: one execution, for reading in a terminal."""

import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Annotated

import typer
from rich.cells import cell_len, set_cell_size

from mixseek.amounts import command_to_copy, command_to_go_on, counted, number, spent_words, usd, usd_digits
from mixseek.cli.board import print_board
from mixseek.cli.chart import in_ascii, score_chart
from mixseek.cli.output import (
    Format,
    FormatOption,
    WorkspaceOption,
    print_json,
    print_line,
    print_text,
    use_format,
    writes_all,
)
from mixseek.cli.stored import IdArgument, as_json, duration, open_place, score_text, state, when
from mixseek.cli.tables import Column, print_table, terminal_width
from mixseek.errors import ConfigurationError, would_fail_again
from mixseek.records import Usage, cost_of, known_cost
from mixseek.report.reading import LAST
from mixseek.report.record import ExecutionRecord, MemberCall, RoundRecord, TeamRecord, has_ended
from mixseek.report.summing import by_team_role_and_model, by_team_round_and_role, lost_words

__all__ = ["app"]

app = typer.Typer(add_completion=False, rich_markup_mode=None)

_BILL = (
    Column("Team", elastic=True),
    Column("Role"),
    Column("Model", elastic=True),
    Column("Calls", right=True),
    Column("In", right=True),
    Column("Out", right=True),
    Column("USD", right=True),
)
_BILL_BY_ROUND = (_BILL[0], Column("Round", right=True), Column("Role"), *_BILL[3:])


@app.command("show")
def show(
    execution: IdArgument = LAST,
    team: Annotated[str | None, typer.Option("--team", metavar="ID", help="The rounds and bill of one team.")] = None,
    rounds: Annotated[
        bool, typer.Option("--rounds", help="Every submission, comment, judgment and member call in full.")
    ] = False,
    output: FormatOption = Format.TEXT,
    workspace: WorkspaceOption = None,
) -> None:
    """Show one execution: its answer, leader board, rounds and bill.

    Without an id it is the last one that was started. -f json has everything, --rounds or not.

    \b
    Examples:
      mixseek show
      mixseek show 3f2a --rounds --team alpha
      mixseek show last -f json
    """
    use_format(output)
    record = open_place(workspace).load(execution)
    chosen = record if team is None else _only(record, team)
    if output is Format.JSON:
        print_json(as_json(chosen))
        return
    _print_head(record, chosen, workspace)
    print_board(record)
    _print_scores(chosen)
    _print_rounds(chosen, in_full=rounds)
    _print_bill(chosen)
    _print_answer(record)


def _only(record: ExecutionRecord, wanted: str) -> ExecutionRecord:
    """The record with this team alone, by its id or its name."""
    teams = tuple(team for team in record.teams if wanted in (team.team_id, team.team_name))
    if not teams:
        known = ", ".join(repr(team.team_id) for team in record.teams) or "none"
        raise ConfigurationError(f"no team {wanted!r} took part; there are: {known}")
    ids = {team.team_id for team in teams}
    bill = tuple(line for line in record.bill if line.team_id in ids)
    return record.model_copy(
        update={
            "teams": teams,
            "usage": sum((team.usage for team in teams), start=Usage()),
            "cost_usd": cost_of(bill) if bill else None,
            "bill": bill,
            "lost": tuple(line for line in record.lost if line.team_id in ids),
        }
    )


# --- parts ------------------------------------------------------------------------------------------------------------


def _print_head(record: ExecutionRecord, chosen: ExecutionRecord, workspace: Path | None) -> None:
    print_line(f"Execution {record.execution_id}")
    took = "" if record.seconds is None else f", {duration(record.seconds)}"
    print_line(f"{state(record)}, started {when(record.started_at)}{took}")
    print_line(spent_words(record.usage, record.cost_usd, known=known_cost(record.bill)))
    if chosen is not record:
        names = " and ".join(team.team_name for team in chosen.teams)
        own = spent_words(chosen.usage, chosen.cost_usd, known=known_cost(chosen.bill))
        print_line(f"of which {names}: {own}")
    if record.can_go_on:
        print_line(_going_on(record, command_to_copy("resume", record.execution_id, workspace)))
    for one in record.attachments:
        print_line(f"attached: {one.name} ({one.media_type}, {counted(one.size, 'byte')})")
    print_line()
    print_line("Task")
    _print_indented(record.user_prompt)
    print_line()


def _going_on(record: ExecutionRecord, command: str) -> str:
    if not has_ended(record.status):
        return f"{command} goes on with it"
    reasons = [team.error for team in record.teams if team.error is not None and not would_fail_again(team.error)]
    return f"{command_to_go_on(command, reasons)} lets the teams go on that failed"


def _print_scores(record: ExecutionRecord) -> None:
    lines = score_chart(((team.team_name, _scores(team)) for team in record.teams), width=terminal_width())
    if not lines:
        return
    print_line("Scores by round")
    for line in lines:
        print_line(line if writes_all(sys.stdout) else in_ascii(line))
    print_line()


def _scores(team: TeamRecord) -> list[float | None]:
    """One for each round from the first on, played or not."""
    known = {one.round_number: one.score for one in team.rounds}
    return [known.get(number) for number in range(1, max(known, default=0) + 1)]


def _print_rounds(record: ExecutionRecord, *, in_full: bool) -> None:
    for team in record.teams:
        if team.error:
            print_line(f"{team.team_name} failed: {team.error}")
        for one in team.rounds:
            best = ", its best" if one.round_number == team.best_round else ""
            print_line(f"{team.team_name}, round {one.round_number}: {_outcome(one)}{best}")
            for line in _round_lines(one):
                print_line(f"  {line if in_full else _short(line)}")
            if in_full:
                _print_work(one)
        if team.shortage:
            print_line(f"{team.team_name} ended: {team.shortage}")
        if team.error or team.rounds:
            print_line()


def _outcome(one: RoundRecord) -> str:
    took = f" ({duration(one.seconds)})" if one.seconds is not None else ""
    return f"{score_text(one.score) if one.score is not None else 'no score'}{took}"


def _round_lines(one: RoundRecord) -> Iterator[str]:
    if one.failure:
        yield one.failure
    for metric in one.metrics:
        yield " ".join(f"{metric.metric_name} {score_text(metric.score)} {metric.evaluator_comment}".split())
    if one.flags:
        yield f"flags: {', '.join(one.flags)}"
    if one.judgment:
        verdict = "go on" if one.judgment.should_continue else "stop"
        yield f"judgment: {verdict}, {' '.join(one.judgment.reasoning.split())}"
    failed = [
        f"member {call.agent_name} failed: {call.error_message}" for call in one.members if call.status == "ERROR"
    ]
    yield from failed
    yield from (used.whole_words for used in one.tools if used.failed)


def _print_work(one: RoundRecord) -> None:
    for used in one.tools:
        if not used.failed:  # those that did are told already, as they are without --rounds
            print_line(f"  {used.whole_words}")
    for call in one.members:
        _print_member(call)
    if one.submission is not None:
        print_line("  submission")
        _print_indented(one.submission, by=4)
    print_line()


def _print_member(call: MemberCall) -> None:
    print_line(f"  member {call.agent_name}, {duration(call.seconds)}")
    if call.task is not None:
        _print_indented(call.task, by=4)
        print_line("    ->")
    _print_indented(call.error_message or "" if call.status == "ERROR" else call.content, by=4)


def _print_bill(record: ExecutionRecord) -> None:
    if not record.bill and not record.lost:
        return
    names = {team.team_id: team.team_name for team in record.teams}
    print_line("Bill")
    by_round = record.ended_by_budget
    lines = by_team_round_and_role(record.bill) if by_round else by_team_role_and_model(record.bill)
    digits = usd_digits(line.cost_usd for line in lines)
    rows = [
        [
            names.get(line.team_id, line.team_id),
            *([str(line.round_number), line.role] if by_round else [line.role, line.model]),
            number(line.requests),
            number(line.input_tokens),
            number(line.output_tokens),
            usd(line.cost_usd, digits),
        ]
        for line in lines
    ]
    if rows:
        print_table(_BILL_BY_ROUND if by_round else _BILL, rows)
    if words := lost_words(record.lost):
        print_line(words)
    print_line()


def _print_answer(record: ExecutionRecord) -> None:
    best = record.best
    if best is None or best.final is None or best.final.submission is None:
        print_line("No team has a result.")
        return
    print_line(f"Best answer: {best.team_name} ({best.team_id}), round {best.final.round_number}")
    print_line()
    print_text(best.final.submission)


def _print_indented(text: str, *, by: int = 2) -> None:
    print_text("\n".join(f"{'':{by}}{line}".rstrip() for line in _lines_of(text)))


def _lines_of(text: str) -> Iterable[str]:
    return text.replace("\r\n", "\n").split("\n")


def _short(line: str) -> str:
    """As much of a line as one line of the terminal holds."""
    mark = "…" if writes_all(sys.stdout) else "..."
    room = terminal_width() - 3
    return line if cell_len(line) <= room else f"{set_cell_size(line, room - len(mark)).rstrip()}{mark}"
