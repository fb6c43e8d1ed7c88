"""``mixseek board``: the leader board of one execution, or the best results of all."""

import asyncio
from collections.abc import Sequence
from enum import StrEnum
from typing import Annotated

import typer

from mixseek.amounts import number, usd, usd_digits
from mixseek.cli.completion import complete_execution
from mixseek.cli.output import Format, WorkspaceOption, print_document, print_json, print_line, use_format
from mixseek.cli.stored import Place, as_json, open_place, score_text, short_ids
from mixseek.cli.tables import Column, print_table
from mixseek.report.boards import Result, best_of_all, board_of
from mixseek.report.record import ExecutionRecord
from mixseek.report.tabular import csv_text

__all__ = ["app", "print_board"]

app = typer.Typer(add_completion=False, rich_markup_mode=None)


class BoardFormat(StrEnum):
    """How a board is written."""

    TEXT = "text"
    JSON = "json"
    CSV = "csv"


_ONE = (
    Column("#", right=True),
    Column("Team", elastic=True),
    Column("Score", right=True),
    Column("Round", right=True),
    Column("Rounds", right=True),
    Column("Tokens", right=True),
    Column("USD", right=True),
    Column("Ended", elastic=True),
)
_ALL = (
    Column("#", right=True),
    Column("Team", elastic=True),
    Column("Score", right=True),
    Column("Round", right=True),
    Column("Execution"),
    Column("Task", prose=True),
)


@app.command("board")
def board(
    execution: Annotated[
        str | None,
        typer.Argument(
            metavar="ID",
            help="The execution: its id, the beginning of it, or last. None: all.",
            autocompletion=complete_execution,
        ),
    ] = None,
    limit: Annotated[
        int | None, typer.Option("--limit", "-n", min=1, help="At most so many lines; of all executions 20.")
    ] = None,
    output: Annotated[BoardFormat, typer.Option("--format", "-f", help="How to answer.")] = BoardFormat.TEXT,
    workspace: WorkspaceOption = None,
) -> None:
    """Show the leader board of one execution, or of all: each team's best round in each execution.

    \b
    Examples:
      mixseek board last
      mixseek board --limit 5
      mixseek board 3f2a -f csv > board.csv
    """
    use_format(Format.JSON if output is BoardFormat.JSON else Format.TEXT)
    place = open_place(workspace)
    results = board_of(place.load(execution))[:limit] if execution is not None else _of_all(place, limit or 20)
    match output:
        case BoardFormat.JSON:
            print_json(as_json(results))
        case BoardFormat.CSV:
            print_document(csv_text(list(Result.model_fields), [list(dict(one).values()) for one in results]))
        case BoardFormat.TEXT:
            print_results(results) if execution is not None else _print_all(place, results)


def _of_all(place: Place, limit: int) -> list[Result]:
    found = asyncio.run(best_of_all(place.workspace, limit))
    return [Result.model_validate(place.redactor.value(one.model_dump(mode="json"))) for one in found]


def print_board(record: ExecutionRecord) -> None:
    """The leader board of an execution under its title."""
    print_line("Leader board")
    print_results(board_of(record))
    print_line()


def print_results(results: Sequence[Result]) -> None:
    """The teams of one execution."""
    if not results:
        print_line("  no team has played a round")
        return
    digits = usd_digits(one.cost_usd for one in results)
    print_table(_ONE, [_cells(one, digits) for one in results])


def _cells(one: Result, digits: int) -> list[str]:
    known = one.requests is not None
    return [
        "-" if one.rank is None else str(one.rank),
        one.team_name,
        score_text(one.score),
        "-" if one.round_number is None else str(one.round_number),
        "-" if one.rounds is None else str(one.rounds),
        number((one.input_tokens or 0) + (one.output_tokens or 0)) if known else "-",
        usd(one.cost_usd, digits),
        _ended(one),
    ]


def _ended(one: Result) -> str:
    if one.error:
        return f"failed: {one.error}"
    return (one.exit_reason or "-").replace("_", " ")


def _print_all(place: Place, results: Sequence[Result]) -> None:
    if not results:
        print_line(f"no team in {str(place.workspace.root)!r} has a scored round yet: mixseek exec plays a competition")
        return
    ids = short_ids([one.execution_id for one in results])
    rows = [
        [
            str(one.rank),
            one.team_name,
            score_text(one.score),
            str(one.round_number),
            ids[one.execution_id],
            one.user_prompt,
        ]
        for one in results
    ]
    print_table(_ALL, rows)
