"""``mixseek delete``: take one execution out of the workspace."""

import asyncio
import sys
from typing import Annotated

import typer

from mixseek.cli.completion import complete_execution
from mixseek.cli.output import Format, FormatOption, WorkspaceOption, clean, print_json, print_line, use_format
from mixseek.cli.stored import Place, as_json, open_place, state, when
from mixseek.errors import ConfigurationError
from mixseek.report.deleting import Deleted, delete_execution

__all__ = ["app"]

app = typer.Typer(add_completion=False, rich_markup_mode=None)


@app.command("delete")
def delete(
    execution: Annotated[
        str,
        typer.Argument(
            metavar="ID", help="The execution: its id, the beginning of it, or last.", autocompletion=complete_execution
        ),
    ],
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    output: FormatOption = Format.TEXT,
    workspace: WorkspaceOption = None,
) -> None:
    """Remove one execution from the workspace: its results, what the journal kept of it, and its attachments.

    Attachments that other executions have too stay. One that is being played is not removed.
    Exit codes: 0 removed, 1 not removed since the answer was no, 2 a mistake.

    \b
    Examples:
      mixseek delete 3f2a
      mixseek delete last --yes
    """
    use_format(output)
    place = open_place(workspace)
    execution_id = place.find(execution)
    if not yes and not _confirmed(place, execution_id):
        print_line("nothing was removed")
        raise typer.Exit(1)
    deleted = asyncio.run(delete_execution(place.workspace, execution_id))
    if output is Format.JSON:
        print_json(as_json(deleted))
        return
    for line in _lines(deleted):
        print_line(line)


def _confirmed(place: Place, execution_id: str) -> bool:
    if not sys.stdin.isatty():
        raise ConfigurationError("nobody can be asked here: give --yes to remove it without a question")
    record = place.load(execution_id)
    task = " ".join(record.user_prompt.split())[:60]
    question = f"Remove execution {execution_id} ({state(record)}, {when(record.started_at)}, {task!r})?"
    return typer.confirm(clean(question), err=True)


def _lines(deleted: Deleted) -> list[str]:
    tables = ", ".join(f"{count} of {table}" for table, count in deleted.rows.items() if count) or "none"
    return [
        f"removed execution {deleted.execution_id}",
        f"  rows in mixseek.db: {tables}",
        f"  rows in journal.db: {deleted.journal_rows}",
        f"  attachments: {', '.join(deleted.attachments) or 'none'}",
    ]
