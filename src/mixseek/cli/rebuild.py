"""``mixseek rebuild``: make the rows of the results from the journal."""

import asyncio
from dataclasses import asdict

import typer

from mixseek.amounts import counted, number
from mixseek.cli.output import Format, FormatOption, WorkspaceOption, print_json, print_line, use_format
from mixseek.cli.stored import Place, open_place
from mixseek.errors import ConfigurationError
from mixseek.storage.aggregation_store import AggregationStore
from mixseek.storage.rebuilding import Rebuilt, journal_beside

__all__ = ["app"]

EXIT_NOT_ALL = 1

app = typer.Typer(add_completion=False, rich_markup_mode=None)


@app.command("rebuild")
def rebuild(output: FormatOption = Format.TEXT, workspace: WorkspaceOption = None) -> None:
    """Make the rows of every execution in journal.db anew in mixseek.db, as the runs wrote them.

    Rows of executions that the journal does not have stay as they are. A mixseek.db that is missing or cannot be opened
    is made by whoever needs it first, without this command; this one also makes one that opens but cannot be read. A
    broken file is kept under another name. Of executions that are being played only missing rows are made.

    Exit codes: 0 all rows were made, 1 an execution has a damaged row in the journal, so that not all of its own could
    be, 2 nothing could be made.

    \b
    Examples:
      mixseek rebuild
      mixseek rebuild -w my-workspace -f json
    """
    use_format(output)
    place = open_place(workspace)
    rebuilt = asyncio.run(_rebuilt(place))
    if output is Format.JSON:
        print_json(asdict(rebuilt))
        raise typer.Exit(_exit_code(rebuilt))
    made = f"{counted(rebuilt.added, 'row')} added, {number(rebuilt.changed)} changed"
    if rebuilt.anew:
        anew = f"{counted(rebuilt.anew, 'row')} made anew"
        made = f"{anew}, {number(rebuilt.added)} more added, {number(rebuilt.changed)} changed"
    print_line(f"{counted(len(rebuilt.executions), 'execution')} in the journal: {made}")
    if rebuilt.others:
        stay = "stays as it is" if rebuilt.others == 1 else "stay as they are"
        print_line(f"{counted(rebuilt.others, 'other execution')} in mixseek.db {stay}")
    for execution_id in rebuilt.unreadable:
        print_line(
            f"not all of {execution_id}: mixseek journal verify names its damaged rows, "
            f"mixseek delete {execution_id} takes it out"
        )
    raise typer.Exit(_exit_code(rebuilt))


def _exit_code(rebuilt: Rebuilt) -> int:
    return EXIT_NOT_ALL if rebuilt.unreadable else 0


async def _rebuilt(place: Place) -> Rebuilt:
    if journal_beside(place.workspace.database) is None:
        raise ConfigurationError(f"{str(place.workspace.journal)!r} holds no execution to make anything from")
    async with AggregationStore(place.workspace.root, redactor=place.redactor) as store:
        return await store.rebuild()
