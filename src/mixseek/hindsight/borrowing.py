"""A journal that answers calls made about an execution with what was answered before, to them or in the execution."""

from pathlib import Path
from typing import Any, Self

from mixseek.errors import RunError
from mixseek.redaction import Redactor
from mixseek.storage.journal import CallScope, Journal, ModelCall, Request

__all__ = ["BorrowingJournal", "NotAnsweredError"]

_LIKELY_TRIES = 3


class NotAnsweredError(RunError):
    """A call whose answer nobody has, where nobody may be asked."""


class BorrowingJournal(Journal):
    """Keeps calls under an id of their own, and finds the answers to the same requests of the execution ``of`` too.

    One that is ``closed`` lets no call leave.
    """

    def __init__(self, path: Path, of: str, *, redactor: Redactor, closed: bool = False) -> None:
        super().__init__(path, redactor=redactor)
        self._of = of
        self._tries = _LIKELY_TRIES
        self._closed = closed
        self._borrowed: dict[str, list[str]] = {}
        self.reused = 0
        """How many calls were answered with what was there."""
        self.missing = 0
        """How many had no answer."""

    async def __aenter__(self) -> Self:
        started = await self.events(self._of, kinds=("TeamStarted",))
        # A team that failed and was resumed has more tries than settings allow; one on its own tells of none.
        told: list[Any] = [event.payload for event in started]
        self._tries = max((int(each["attempt"]) for each in told), default=_LIKELY_TRIES)
        return await super().__aenter__()

    def request(self, scope: CallScope, **asked: Any) -> Request:
        """The request as it is kept; what the execution would have kept it under is remembered."""
        keyed = super().request
        request = keyed(scope, **asked)
        original = scope.model_copy(update={"execution_id": self._of})
        self._borrowed[request.key] = [
            keyed(original, **{**asked, "attempt": number}).key for number in range(1, self._tries + 1)
        ]
        return request

    async def find_call(self, key: str, occurrence: int) -> ModelCall | None:
        """The answer to this request, or to the same one in the execution."""
        for each in (key, *self._borrowed.pop(key, ())):
            known = await super().find_call(each, occurrence)
            if known is not None:
                self.reused += 1
                return known
        self.missing += 1
        if self._closed:
            raise NotAnsweredError("nobody has answered this yet")
        return None
