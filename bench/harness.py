"""Measuring a subject beside its limit: interleaved in one run, so that a busy machine slows both alike."""

import asyncio
import inspect
import time
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass

__all__ = ["Row", "Timing", "columns", "compare", "measure", "table"]

Work = Callable[[], object] | Callable[[], Awaitable[object]]


@dataclass(frozen=True)
class Timing:
    """Seconds of one callable over many runs."""

    median: float
    p95: float


@dataclass(frozen=True)
class Row:
    """A subject beside its limit; times in seconds, ``aim`` in words, e.g. ``"<= 2x"``."""

    name: str
    median: float
    p95: float
    limit_name: str = ""
    limit_median: float | None = None
    ratio: float | None = None
    aim: str = ""


def timing(seconds: Sequence[float]) -> Timing:
    """Median and 95th percentile.

    >>> timing([3.0, 1.0, 2.0]).median
    2.0
    """
    ordered = sorted(seconds)
    return Timing(ordered[len(ordered) // 2], ordered[min(len(ordered) - 1, int(len(ordered) * 0.95))])


async def _once(work: Work) -> float:
    started = time.perf_counter()
    result = work()
    if inspect.isawaitable(result):
        await result
    return time.perf_counter() - started


async def interleave(works: Sequence[Work], *, runs: int, warm_up: int = 3) -> list[Timing]:
    """Run all works in turn, ``runs`` times, after a warm-up; each round starts with another one."""
    for _ in range(warm_up):
        for work in works:
            await _once(work)
    seconds: list[list[float]] = [[] for _ in works]
    for run in range(runs):
        for index in range(len(works)):
            place = (index + run) % len(works)
            seconds[place].append(await _once(works[place]))
    return [timing(each) for each in seconds]


async def compare(
    name: str, subject: Work, limit_name: str, limit: Work, *, aim: str, runs: int = 50, warm_up: int = 3
) -> Row:
    """A subject and its limit, sync or async, measured in the same run."""
    own, bare = await interleave([subject, limit], runs=runs, warm_up=warm_up)
    return Row(name, own.median, own.p95, limit_name, bare.median, own.median / bare.median, aim)


def measure(work: Work, *, runs: int = 50, warm_up: int = 3) -> Timing:
    """One callable alone, sync or async."""
    return asyncio.run(interleave([work], runs=runs, warm_up=warm_up))[0]


def table(title: str, rows: Sequence[Row]) -> str:
    """The rows as aligned plain text.

    >>> print(table("t", [Row("a", 0.001, 0.002)]))
    t
      what    median       p95   limit   limit median   ratio   aim
      a      1.00 ms   2.00 ms
    """
    head = ("what", "median", "p95", "limit", "limit median", "ratio", "aim")
    return columns(title, [head, *(_cells(row) for row in rows)], to_the_right={1, 2, 4, 5})


def columns(title: str, cells: Sequence[Sequence[str]], to_the_right: Collection[int]) -> str:
    """Lines of cells as aligned plain text.

    >>> print(columns("t", [("a", "12"), ("bc", "3")], {1}))
    t
      a    12
      bc    3
    """
    widths = [max(len(line[column]) for line in cells) for column in range(len(cells[0]))]
    return "\n".join([title, *(_line(line, widths, to_the_right) for line in cells)])


def _cells(row: Row) -> tuple[str, ...]:
    bare = "" if row.limit_median is None else _milliseconds(row.limit_median)
    ratio = "" if row.ratio is None else f"{row.ratio:.2f}x"
    return (row.name, _milliseconds(row.median), _milliseconds(row.p95), row.limit_name, bare, ratio, row.aim)


def _milliseconds(seconds: float) -> str:
    return f"{seconds * 1e3:.2f} ms"


def _line(cells: Sequence[str], widths: Sequence[int], to_the_right: Collection[int]) -> str:
    padded = [
        cell.rjust(width) if column in to_the_right else cell.ljust(width)
        for column, (cell, width) in enumerate(zip(cells, widths, strict=True))
    ]
    return ("  " + "   ".join(padded)).rstrip()
