"""Requests and their numbers among identical ones, both of which may be made later than the request is.

To make JSON and a key of a request costs most of what a call does for the journal, and it costs least where many are
made one after the other, as in the journal's thread. Numbers go by the order in which requests were announced, so that
it does not matter when they are made, nor by which thread.
"""

import threading
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, field

from mixseek.storage.journal_records import Request

__all__ = ["NumberedRequest", "Numbering"]


@dataclass(eq=False, slots=True)
class NumberedRequest:
    """A request as it is kept, and its number among identical ones."""

    _numbering: "Numbering"
    _make: Callable[[], Request] | None
    _outcome: tuple[Request, int] | Exception | None = None

    @property
    def request(self) -> Request:
        """What is asked."""
        return self._settled()[0]

    @property
    def occurrence(self) -> int:
        """How many of its key were announced before it."""
        return self._settled()[1]

    @property
    def is_settled(self) -> bool:
        """Whether request and number are made, or cannot be."""
        return self._outcome is not None

    def settle(self, number: Callable[[str], int]) -> None:
        """Make the request and have its key numbered; what goes wrong is for whoever wants this one."""
        try:
            assert self._make is not None  # noqa: S101  # called once
            request = self._make()
            self._outcome = request, number(request.key)
        except Exception as error:  # noqa: BLE001  # whoever makes it may want another one
            self._outcome = error
        self._make = None

    def _settled(self) -> tuple[Request, int]:
        if self._outcome is None:
            self._numbering.settle_up_to(self)
        if not isinstance(self._outcome, tuple):
            raise self._outcome or AssertionError("a request that was announced is settled")
        return self._outcome


@dataclass(eq=False)
class Numbering:
    """Numbers what has the same key, from 0.

    >>> numbering = Numbering()
    >>> [numbering.next(key) for key in ("a", "b", "a")]
    [0, 0, 1]
    """

    _seen: Counter[str] = field(default_factory=Counter)
    _announced: deque[NumberedRequest] = field(default_factory=deque)
    _settling: threading.Lock = field(default_factory=threading.Lock)

    def announce(self, make: Callable[[], Request]) -> NumberedRequest:
        """The next request; ``make`` is called by the first who wants to know more of it or of a later one."""
        announced = NumberedRequest(self, make)
        self._announced.append(announced)
        return announced

    def foresee(self, request: Request) -> NumberedRequest:
        """What :meth:`announce` would give for the request, without counting it."""
        self.settle_up_to(None)
        return NumberedRequest(self, None, (request, self._seen[request.key]))

    def next(self, key: str) -> int:
        """The number of something else than a request, which has a key of its own kind."""
        number = self._seen[key]
        self._seen[key] += 1
        return number

    def settle_up_to(self, wanted: NumberedRequest | None) -> None:
        """Make and number requests in their order, up to one, or all of them."""
        with self._settling:
            while self._announced and not (wanted is not None and wanted.is_settled):
                self._announced.popleft().settle(self.next)
