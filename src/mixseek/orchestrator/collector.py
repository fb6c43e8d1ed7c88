"""Long pauses of the garbage collector, kept out of a run."""

import gc
import threading
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["long_lived"]

_lock = threading.Lock()
_users = 0


@contextmanager
def long_lived() -> Iterator[None]:
    """Spare what exists now the collector's walks: it lives as long as the run.

    Modules, models and agents are most of all objects, and a full collection that looks at them all holds up every
    team for up to a quarter of a second. What is made inside is collected as ever, and everything again when the last
    run has ended.
    """
    global _users
    with _lock:
        _users += 1
        gc.freeze()
    try:
        yield
    finally:
        with _lock:
            _users -= 1
            if not _users:
                gc.unfreeze()
