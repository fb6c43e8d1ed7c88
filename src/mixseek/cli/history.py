"""``mixseek history``: the executions of the workspace."""

import asyncio
from typing import Annotated

import typer

from mixseek.amounts import command_to_copy, usd, usd_digits
from mixseek.cli.output import Format, FormatOption, WorkspaceOption, print_json, print_line, use_format
from mixseek.cli.stored import as_json, duration, open_place, score_text, short_ids, state, when
from mixseek.cli.tables import Column, print_table
from mixseek.report.reading import list_executions
from mixseek.report.record import ExecutionLine

__all__ = ["app"]

app = typer.Typer(add_completion=False, rich_markup_mode=None)

_COLUMNS = (
    Column("Id"),
    Column("Started"),
    Column("State"),
    Column("Teams", right=True),
    Column("Best", right=True),
    Column("Time", right=True),
    Column("USD", right=True),
    Column("Task", prose=True),
)


@app.command("history")
def history(
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, help="At most so many executions.")] = 20,
    output: FormatOption = Format.TEXT,
    workspace: WorkspaceOption = None,
) -> None:
    """List the executions of the workspace, the newest first.

    A run that goes on is "running", one that was stopped "interrupted", one that was killed "unfinished", one in which
    some teams failed "partial". A dash stands for what is not known.

    \b
    Examples:
      mixseek history
      mixseek history --limit 5 -f json
    """
    use_format(output)
    place = open_place(workspace)
    lines = asyncio.run(list_executions(place.workspace))
    shown = lines[:limit]
    if output is Format.JSON:
        print_json(place.redactor.value(as_json(shown)))
        return
    if not lines:
        print_line(f"nothing was played in {str(place.workspace.root)!r} yet: mixseek exec plays a competition")
        return
    ids = short_ids([line.execution_id for line in lines])
    digits = usd_digits(line.cost_usd for line in shown)
    rows = [[ids[line.execution_id], *_cells(line, digits)] for line in shown]
    print_table(_COLUMNS, [[place.redactor.text(cell) for cell in row] for row in rows])
    if any(line.is_open and not line.names_no_file for line in shown):
        resume = command_to_copy("resume", "ID", workspace)
        print_line(f"{resume} goes on with one that is interrupted or unfinished")
    if len(shown) < len(lines):
        print_line(f"{len(lines) - len(shown)} more: --limit {len(lines)} lists all")


def _cells(line: ExecutionLine, digits: int) -> list[str]:
    return [
        when(line.started_at, short=True),
        state(line),
        str(line.total_teams),
        score_text(line.best_score),
        duration(line.seconds),
        usd(line.cost_usd, digits),
        line.user_prompt,
    ]
