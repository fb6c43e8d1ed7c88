"""Named places at which a process can be made to die, to see that nothing is lost there.

``MIXSEEK_CRASH_AT=journal.before_commit`` in the environment kills the process with SIGKILL when it first gets to that
place, ``journal.before_commit:3`` when it gets there for the third time. The variable is read once, when this module is
imported. Without it a place costs one call of an empty function.
"""

import os
import signal
from collections.abc import Mapping
from itertools import count
from typing import Final

from mixseek.errors import ConfigurationError

__all__ = ["CRASH_AT", "CRASH_POINTS", "is_chosen", "reach"]

CRASH_AT: Final = "MIXSEEK_CRASH_AT"

CRASH_POINTS: Final[Mapping[str, str]] = {
    "call.before_request": "an attempt of a model call has its turn, and nothing of it has left",
    "call.request_sent": "the bytes of a request are with the system, and its answer is not awaited yet (over HTTP)",
    "call.after_answer": "an answer is there, and nobody has kept it",
    "journal.before_name": "a new journal is whole, but has only a temporary name",
    "journal.in_migration": "a migration of the journal is made and not committed; `:2` is the second one",
    "journal.after_migration": "the migrations of the journal are committed, and nothing else is",
    "journal.before_commit": "rows are written in a transaction of the journal and not committed",
    "journal.after_commit": "rows are in the journal, and those who wait for them have not heard of it",
    "place.before_commit": "the place of the one process that plays an execution is taken and not committed",
    "place.after_commit": "the place of the one process that plays an execution is taken, and nothing is played",
    "results.before_name": "a new `mixseek.db` is whole, but has only a temporary name",
    "results.in_migration": "a migration of `mixseek.db` is made and not committed; `:2` is the second one",
    "results.after_migration": "a migration of `mixseek.db` is committed, and the next is not begun",
    "results.before_commit": "rows are written in a transaction of `mixseek.db` and not committed",
    "results.after_commit": "rows are in `mixseek.db`, and those who wait for them have not heard of it",
    "round.submitted": "a team's submission is made and not scored",
    "round.scored": "a submission is scored, and the round is not kept",
    "round.kept": "a round is over and not in the journal; in `mixseek.db` it is only where a hook is called",
    "round.between": "a team's next round is decided on and not begun; `:1` is before its first",
    "team.before_end": "a team's best round is marked as its final one, and the end of the team is not in the journal",
    "summary.before_save": "all teams have ended, and the summary is not kept",
    "summary.after_save": "the summary is in `mixseek.db`, and the end of the run is not in the journal",
}
"""Every place by its name, with what has happened there and what has not."""


def reach(point: str) -> None:
    """Die here if the environment says so."""
    if point == _point and next(_times) == _time:
        os.kill(os.getpid(), signal.SIGKILL)


def is_chosen(point: str) -> bool:
    """Whether the process is to die at ``point``, for a place that can be watched only at a cost."""
    return point == _point


def _chosen(told: str) -> tuple[str, int]:
    """The point and the how-many-eth time it is meant.

    >>> _chosen("journal.before_commit:3")
    ('journal.before_commit', 3)
    """
    point, _, time = told.partition(":")
    if told and (point not in CRASH_POINTS or not (time or "1").isdecimal()):
        raise ConfigurationError(
            f"{CRASH_AT} is {told!r}, which names no crash point: unset it, or give one of {', '.join(CRASH_POINTS)}"
        )
    return point, int(time or 1)


_point, _time = _chosen(os.environ.get(CRASH_AT, ""))
_times = count(1)
