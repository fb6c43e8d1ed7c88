"""What the commands over stored executions share: finding one, reading it without secrets, and how values look."""

import asyncio
from collections.abc import Sequence
from datetime import datetime
from math import isfinite
from pathlib import Path
from typing import Annotated, Any

import typer

from mixseek.cli.chart import number
from mixseek.cli.completion import complete_execution
from mixseek.cli.logs import start_logging
from mixseek.cli.output import rounded, warn
from mixseek.config.manager import ConfigurationManager
from mixseek.records import Record
from mixseek.report.reading import find_execution, load_execution
from mixseek.report.record import ExecutionLine, ExecutionRecord, Status, has_ended
from mixseek.workspace import Workspace

__all__ = [
    "IdArgument",
    "Place",
    "as_json",
    "duration",
    "open_place",
    "score_text",
    "short_ids",
    "state",
    "tell_if_open",
    "when",
]

IdArgument = Annotated[
    str,
    typer.Argument(
        metavar="ID",
        help="The execution: its id, the beginning of it, or last.",
        show_default=False,
        autocompletion=complete_execution,
    ),
]
_LEAST_OF_AN_ID = 8


class Place:
    """A workspace that is read, and what takes the secrets out of what is shown."""

    def __init__(self, workspace: Path | None) -> None:
        manager = ConfigurationManager(workspace)
        self.workspace: Workspace = manager.workspace
        self.redactor = manager.redactor

    def find(self, wanted: str) -> str:
        """The whole id of the execution that is meant."""
        return asyncio.run(find_execution(self.workspace, wanted))

    def load(self, wanted: str) -> ExecutionRecord:
        """The execution that is meant, without secrets: a file of an older version may hold some."""
        return asyncio.run(self._load(wanted))

    async def _load(self, wanted: str) -> ExecutionRecord:
        record = await load_execution(self.workspace, await find_execution(self.workspace, wanted))
        dumped: Any = record.model_dump(mode="json")
        return ExecutionRecord.model_validate(self.redactor.value(dumped))


def open_place(workspace: Path | None) -> Place:
    """The workspace; whatever is logged goes to standard error alone, since reading leaves no trace."""
    place = Place(workspace)
    start_logging(place.workspace, place.redactor, file=False)
    return place


def tell_if_open(execution_id: str, status: Status) -> None:
    """Warn that what is told goes by a part of an execution."""
    if not has_ended(status):
        warn(f"mixseek: execution {execution_id} is {status}: this goes by the rounds that it has so far")


def as_json(value: Record | Sequence[Record]) -> Any:
    """A record, or several, for :func:`~mixseek.cli.output.print_json`."""
    if isinstance(value, Record):
        return rounded(value.model_dump(mode="json"))
    return [as_json(one) for one in value]


# --- how values look --------------------------------------------------------------------------------------------------


def short_ids(ids: Sequence[str]) -> dict[str, str]:
    """The beginning of each id, as long as it takes to tell them apart.

    >>> short_ids(["0123456789-a", "0123456789-b"])
    {'0123456789-a': '0123456789-a', '0123456789-b': '0123456789-b'}
    """
    different = set(ids)
    longest = max(map(len, ids), default=0)
    lengths = range(_LEAST_OF_AN_ID, longest)
    length = next((each for each in lengths if len({one[:each] for one in different}) == len(different)), longest)
    return {each: each[:length] for each in ids}


def score_text(score: float | None) -> str:
    """A score, or a dash: no score is not zero.

    >>> [score_text(score) for score in (0.0, None, float("nan"))]
    ['0.00', '-', '-']
    """
    return "-" if score is None or not isfinite(score) else number(score)


def duration(seconds: float | None) -> str:
    """Seconds in few letters.

    >>> [duration(each) for each in (None, 0.123, 59.96, 125, 7325)]
    ['-', '0.1s', '1m00s', '2m05s', '2h02m']
    """
    if seconds is None:
        return "-"
    if round(seconds, 1) < 60:
        return f"{seconds:.1f}s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes}m{rest:02}s" if minutes < 60 else f"{minutes // 60}h{minutes % 60:02}m"


def when(moment: datetime | None, *, short: bool = False) -> str:
    """A moment in the time of the reader; in short without the year if it is this one, else without the hour."""
    if moment is None:
        return "-"
    local = moment.astimezone()
    if not short:
        return f"{local:%Y-%m-%d %H:%M}"
    return f"{local:%m-%d %H:%M}" if local.year == datetime.now().astimezone().year else f"{local:%Y-%m-%d}"


def state(line: ExecutionLine | ExecutionRecord) -> str:
    """How an execution stands, in a word."""
    if line.status == "partial_failure":
        return "partial"
    return "running" if line.is_running else line.status
