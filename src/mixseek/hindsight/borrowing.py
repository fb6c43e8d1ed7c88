"""A journal that answers calls made about an execution with what was answered before, to them or in the execution."""

from collections.abc import Sequence

from pydantic import JsonValue

from mixseek.errors import RunError
from mixseek.storage.journal import CallScope, Journal, ModelCall, Request, StartedCall, ToolResult

__all__ = ["BorrowingJournal", "NotAnsweredError"]


class NotAnsweredError(RunError):
    """A call whose answer nobody has, where nobody may be asked."""


class BorrowingJournal:
    """Keeps calls under an id of their own, and finds the answers to the same requests of the execution ``of`` too.

    ``attempts`` are the tries of a team among which it looks. One that is ``closed`` lets no call leave.
    """

    def __init__(self, journal: Journal, of: str, attempts: Sequence[int], *, closed: bool = False) -> None:
        self._journal = journal
        self._of = of
        self._attempts = attempts
        self._closed = closed
        self._borrowed: dict[str, list[str]] = {}
        self.reused = 0
        """How many calls were answered with what was there."""
        self.missing = 0
        """How many had no answer."""

    def request(
        self,
        scope: CallScope,
        *,
        model: str,
        settings: JsonValue,
        tools: JsonValue,
        messages: JsonValue,
        attempt: int = 0,
        within: str = "",
    ) -> Request:
        """The request as it is kept; what the execution would have kept it under is remembered."""

        def asked(of: CallScope, number: int) -> Request:
            return self._journal.request(
                of, model=model, settings=settings, tools=tools, messages=messages, attempt=number, within=within
            )

        request = asked(scope, attempt)
        original = scope.model_copy(update={"execution_id": self._of})
        self._borrowed[request.key] = [asked(original, number).key for number in self._attempts]
        return request

    async def find_call(self, key: str, occurrence: int) -> ModelCall | None:
        """The answer to this request, or to the same one in the execution."""
        for each in (key, *self._borrowed.pop(key, ())):
            known = await self._journal.find_call(each, occurrence)
            if known is not None:
                self.reused += 1
                return known
        self.missing += 1
        if self._closed:
            raise NotAnsweredError("nobody has answered this yet")
        return None

    async def call_starts(self, call: StartedCall, *, durable: bool = True) -> None:
        """Take note of a call that is about to leave."""
        await self._journal.call_starts(call, durable=durable)

    async def record_call(self, call: ModelCall) -> None:
        """Keep a call that came to an end."""
        await self._journal.record_call(call)

    def tool_key(
        self,
        scope: CallScope,
        tool: str,
        arguments: JsonValue,
        *,
        attempt: int = 0,
        within: str = "",
        call_id: str = "",
    ) -> str:
        """The key of a use of a tool."""
        return self._journal.tool_key(scope, tool, arguments, attempt=attempt, within=within, call_id=call_id)

    async def find_tool_result(self, key: str, occurrence: int) -> ToolResult | None:
        """What a tool gave back when it was used like this before."""
        return await self._journal.find_tool_result(key, occurrence)

    async def record_tool_result(self, result: ToolResult) -> None:
        """Keep what a tool gave back."""
        await self._journal.record_tool_result(result)
