"""``mixseek prune``: take the bodies of old calls out of the journal."""

import re
from datetime import datetime, timedelta
from typing import Annotated

import typer

from mixseek.amounts import counted
from mixseek.cli.output import Format, FormatOption, WorkspaceOption, print_json, print_line, use_format
from mixseek.cli.stored import as_json, open_place, short_ids, when
from mixseek.cli.tables import Column, print_table
from mixseek.records import Record, utc_now
from mixseek.storage.playing import is_playing
from mixseek.storage.pruning import Prunable, drop_bodies, prunable
from mixseek.workspace import Workspace

__all__ = ["app"]

app = typer.Typer(add_completion=False, rich_markup_mode=None)

_COLUMNS = (Column("Id"), Column("Ended"), Column("Calls", right=True), Column("Size", right=True))
_AGE = re.compile(r"(\d+)\s*([smhdw])")
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}


def age(text: str) -> timedelta:
    """A duration in words of one letter.

    >>> age("30d"), age("12h")
    (datetime.timedelta(days=30), datetime.timedelta(seconds=43200))
    """
    found = _AGE.fullmatch(text.strip())
    if found is None:
        raise typer.BadParameter(f"{text!r} is no age: write a number and s, m, h, d or w, 30d for example")
    try:
        return timedelta(seconds=int(found[1]) * _SECONDS[found[2]])
    except OverflowError:
        raise typer.BadParameter(f"{text!r} is longer than there are dates") from None


class Pruned(Record):
    """What was dropped, or would be."""

    executions: tuple[Prunable, ...]
    freed_bytes: int
    """By how much journal.db and its log became smaller; in a dry run how much the bodies take."""
    dry_run: bool


@app.command("prune")
def prune(
    older_than: Annotated[
        timedelta,
        typer.Option(
            "--older-than",
            metavar="AGE",
            parser=age,
            help="Executions that ended longer ago: 30d, 12h, 2w; m is minutes, s seconds.",
        ),
    ] = "30d",  # type: ignore[assignment]  # the parser makes it one
    keep: Annotated[
        int,
        typer.Option(
            "--keep", metavar="N", min=0, help="Leave the newest N that ended alone, in the order of history."
        ),
    ] = 0,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only tell what would be dropped.")] = False,
    output: FormatOption = Format.TEXT,
    workspace: WorkspaceOption = None,
) -> None:
    """Drop what was asked and answered in calls of old executions from journal.db, and give the room back to the disk.

    Results, bills and all that show, export, rejudge and rebuild need stay. An execution so pruned cannot be resumed or
    replayed any more. One that has not ended, or is being played, is left alone. delete removes an execution whole.

    \b
    Examples:
      mixseek prune --dry-run
      mixseek prune --older-than 2w --keep 10
    """
    use_format(output)
    workspace_ = open_place(workspace).workspace
    chosen = tuple(_chosen(workspace_, older_than, keep))
    size = sum(one.size for one in chosen)
    freed = size if dry_run or not chosen else drop_bodies(workspace_.journal, [one.execution_id for one in chosen])
    pruned = Pruned(executions=chosen, freed_bytes=freed, dry_run=dry_run)
    if output is Format.JSON:
        print_json(as_json(pruned))
    else:
        _print(pruned)


def _chosen(workspace: Workspace, older_than: timedelta, keep: int) -> list[Prunable]:
    found = prunable(workspace.journal)
    return [one for one in found[keep:] if _is_old(one.ended_at, older_than) and not _is_played(workspace, one)]


def _is_old(ended_at: datetime, older_than: timedelta) -> bool:
    return utc_now() - ended_at > older_than


def _is_played(workspace: Workspace, one: Prunable) -> bool:
    return is_playing(workspace.database, one.execution_id)


def _print(pruned: Pruned) -> None:
    if not pruned.executions:
        print_line("nothing to prune: no execution that ended is old enough and still has the bodies of its calls")
        return
    ids = short_ids([one.execution_id for one in pruned.executions])
    rows = [[ids[one.execution_id], when(one.ended_at), str(one.calls), _bytes(one.size)] for one in pruned.executions]
    print_table(_COLUMNS, rows)
    count = counted(len(pruned.executions), "execution")
    if pruned.dry_run:
        print_line(f"{count} would be pruned, {_bytes(pruned.freed_bytes)} of bodies dropped; nothing was changed")
    else:
        print_line(f"{count} pruned; the files of the journal are {_bytes(pruned.freed_bytes)} smaller")


def _bytes(count: int) -> str:
    """A size in few letters.

    >>> [_bytes(each) for each in (999, 12_345, 5_600_000)]
    ['999 B', '12.3 kB', '5.6 MB']
    """
    size, unit = float(count), "B"
    for larger in ("kB", "MB", "GB"):
        if abs(size) < 1000:
            break
        size, unit = size / 1000, larger
    return f"{count} B" if unit == "B" else f"{size:.1f} {unit}"
