"""Long pauses of the garbage collector, kept out of a run."""

import gc
import threading
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["long_lived"]

_lock = threading.Lock()
_users = 0
_thresholds = gc.get_threshold()
# Full walks become rare, not none: after some millions of new objects garbage in old cycles is still found.
_YOUNG_WALKS_A_FULL_ONE = 1000


@contextmanager
def long_lived() -> Iterator[None]:
    """Spare what exists now the collector's walks, and make full walks rare: most of it lives as long as the run.

    Modules, models and agents are most of all objects, and a full collection that looks at them all holds up every
    team for up to a quarter of a second; with many teams such walks took a fifth of all time. What is made inside is
    collected as ever while it is young, and everything again when the last run has ended.
    """
    global _users, _thresholds
    with _lock:
        if not _users:
            _thresholds = gc.get_threshold()
            gc.set_threshold(_thresholds[0], _thresholds[1], _YOUNG_WALKS_A_FULL_ONE)
        _users += 1
        gc.freeze()
    try:
        yield
    finally:
        with _lock:
            _users -= 1
            if not _users:
                # Starts the count of young walks afresh: otherwise a walk of everything would be due at once.
                gc.freeze()
                gc.set_threshold(*_thresholds)
                gc.unfreeze()
