"""Tables: drawn by rich in a terminal, plain aligned lines anywhere else; every cell is harmless."""

import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass

from rich.cells import cell_len

from mixseek.cli.chart import fit
from mixseek.cli.output import clean, print_line, writes_all

__all__ = ["Column", "print_table", "terminal_width"]

_PLAIN_WIDTH = 100
_LEAST_ELASTIC = 8


@dataclass(frozen=True)
class Column:
    """One column."""

    title: str
    right: bool = False
    elastic: bool = False
    """Whether it is cut where the line would become too long for a terminal."""
    prose: bool = False
    """Whether it is cut in a pipe, too: a task may have pages, and a name is looked for by whatever reads the pipe."""


def terminal_width() -> int:
    """How many letters a line of standard output may have."""
    return shutil.get_terminal_size((80, 24)).columns if sys.stdout.isatty() else _PLAIN_WIDTH


def print_table(columns: Sequence[Column], rows: Sequence[Sequence[str]]) -> None:
    """A table on standard output; numbers come as texts."""
    cells = [[_harmless(cell) for cell in row] for row in rows]
    widths = _widths(columns, cells)
    if sys.stdout.isatty() and _taken(widths) > terminal_width():
        _stack(columns, cells)
        return
    fitted = [[fit(cell, width).rstrip() for cell, width in zip(row, widths, strict=True)] for row in cells]
    if sys.stdout.isatty():
        _draw(columns, fitted)
        return
    for row in ([column.title for column in columns], *fitted):
        padded = (fit(cell, width, right=each.right) for cell, width, each in zip(row, widths, columns, strict=True))
        print_line("  ".join(padded).rstrip())


def _harmless(cell: str) -> str:
    """One line that standard output can take."""
    line = clean(" ".join(cell.split()))
    return line if writes_all(sys.stdout) else line.encode("ascii", "backslashreplace").decode()


def _widths(columns: Sequence[Column], rows: Sequence[Sequence[str]]) -> list[int]:
    """As wide as the widest cell; where that is too much, columns that may be cut share what the others leave."""
    widths = [
        max(cell_len(cell) for cell in (column.title, *cells)) for column, *cells in zip(columns, *rows, strict=True)
    ]
    in_terminal = sys.stdout.isatty()
    elastic = [at for at, column in enumerate(columns) if column.prose or (in_terminal and column.elastic)]
    excess = _taken(widths) - terminal_width()
    for at in sorted(elastic, key=lambda at: -widths[at]):
        cut = min(max(excess, 0), max(0, widths[at] - _LEAST_ELASTIC))
        widths[at] -= cut
        excess -= cut
    return widths


def _taken(widths: Sequence[int]) -> int:
    """How wide a table is: two blanks between columns; rich has one more at each end."""
    return sum(widths) + 2 * len(widths)


def _stack(columns: Sequence[Column], rows: Sequence[Sequence[str]]) -> None:
    """A line for each cell, where a line for each row would cut ids and numbers."""
    width = max(cell_len(column.title) for column in columns)
    for number, row in enumerate(rows):
        if number:
            print_line()
        for column, cell in zip(columns, row, strict=True):
            print_line(f"{fit(column.title, width)}  {cell}")


def _draw(columns: Sequence[Column], rows: Sequence[Sequence[str]]) -> None:
    # Only now: whoever pipes does not pay for it.
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False, header_style="bold", show_edge=False)
    for column in columns:
        table.add_column(column.title, justify="right" if column.right else "left", no_wrap=True, overflow="ellipsis")
    for row in rows:
        # A text, not markup: a name with brackets stays what it is.
        table.add_row(*(Text(cell) for cell in row))
    Console(file=sys.stdout, highlight=False, markup=False, emoji=False).print(table)
