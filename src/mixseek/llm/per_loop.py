"""One of a thing for every event loop: connections and locks belong to the loop they were first used on."""

import asyncio
from collections.abc import Callable
from threading import Lock
from typing import Generic, TypeVar
from weakref import WeakKeyDictionary

__all__ = ["PerLoop"]

T = TypeVar("T")


class PerLoop(Generic[T]):
    """Makes a thing at its first use on a loop and forgets it with the loop."""

    def __init__(self, make: Callable[[], T]) -> None:
        self._make = make
        self._made: WeakKeyDictionary[asyncio.AbstractEventLoop, T] = WeakKeyDictionary()
        # Loops run in threads of their own, and the dictionary is shared by all of them.
        self._lock = Lock()

    def get(self) -> T:
        """The one of the running loop."""
        loop = asyncio.get_running_loop()
        with self._lock:
            if loop not in self._made:
                self._made[loop] = self._make()
            return self._made[loop]

    def pop(self) -> T | None:
        """The one of the running loop, which is forgotten; None if there is none."""
        with self._lock:
            return self._made.pop(asyncio.get_running_loop(), None)
