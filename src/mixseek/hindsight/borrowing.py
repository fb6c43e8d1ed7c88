"""A journal that answers calls made about an execution with what was answered before, to them or in the execution."""

from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, Self

from mixseek.errors import RunError
from mixseek.redaction import Redactor
from mixseek.storage.journal import CallScope, Journal, ModelCall, Request, RoundPrompt

__all__ = ["BorrowingJournal", "NotAnsweredError"]

_LIKELY_TRIES = 3


class NotAnsweredError(RunError):
    """A call whose answer nobody has, where nobody may be asked."""


class BorrowingJournal(Journal):
    """Keeps calls under an id of their own, and finds what was answered elsewhere to the same requests.

    That is in the execution ``of``, and under the other ids of calls that were made about it.
    One that is ``closed`` lets no call leave.
    """

    def __init__(self, path: Path, of: str, *, redactor: Redactor, closed: bool = False) -> None:
        super().__init__(path, redactor=redactor)
        self._of = of
        self._tries = _LIKELY_TRIES
        self._closed = closed
        self._borrowed: dict[str, Iterator[str]] = {}
        self._asking: dict[str, CallScope] = {}
        """Who makes each request."""
        self._others: Sequence[str] = ()
        self.reused = 0
        """How many calls were answered with what was there."""
        self.missing: list[CallScope] = []
        """Whose calls had no answer."""

    async def __aenter__(self) -> Self:
        started = await self.events(self._of, kinds=("TeamStarted",))
        # A team that failed and was resumed has more tries than settings allow; one on its own tells of none.
        told: list[Any] = [event.payload for event in started]
        self._tries = max((int(each["attempt"]) for each in told), default=_LIKELY_TRIES)
        self._others = await self.derived_ids(self._of)
        return await super().__aenter__()

    def request(self, scope: CallScope, **asked: Any) -> Request:
        """The request as it is kept; what it would have been kept under elsewhere is remembered."""
        request = super().request(scope, **asked)
        self._borrowed[request.key] = self._other_keys(scope, asked)
        self._asking[request.key] = scope
        return request

    def _other_keys(self, scope: CallScope, asked: dict[str, Any]) -> Iterator[str]:
        """One after the other, since each is made from the whole request."""
        for number in range(1, self._tries + 1):
            original = scope.model_copy(update={"execution_id": self._of})
            yield super().request(original, **{**asked, "attempt": number}).key
        for each in self._others:
            if each != scope.execution_id:
                yield super().request(scope.model_copy(update={"execution_id": each}), **asked).key

    async def find_call(self, key: str, occurrence: int) -> ModelCall | None:
        """The answer to this request, or to the same one elsewhere."""
        for each in chain([key], self._borrowed.pop(key, ())):
            known = await super().find_call(each, occurrence)
            if known is not None:
                self.reused += 1
                return known
        self.missing.append(self._asking[key])
        if self._closed:
            raise NotAnsweredError("nobody has answered this yet")
        return None

    async def find_first_prompt(self, team_id: str, round_number: int, role: str) -> RoundPrompt | None:
        """The prompt of the execution for this round and role, or else that of the first calls made about it."""
        for execution_id in (self._of, *self._others):
            known = await self.find_prompt(execution_id, team_id, round_number, role)
            if known is not None:
                return known
        return None
