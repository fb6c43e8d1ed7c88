"""How an execution was begun: the one event that says what it is to do and by which settings."""

from collections.abc import Iterable
from typing import Any

from mixseek.errors import NotResumableError
from mixseek.events import RunStarted
from mixseek.storage.journal import Journal
from mixseek.storage.journal_records import JournalEvent
from mixseek.storage.naming import executions_meant, words_of_several

__all__ = ["BEGINNINGS", "beginning_in", "execution_to_resume", "read_beginning"]

BEGINNINGS = ("RunStarted", "RunResumed")


async def read_beginning(journal: Journal, execution_id: str) -> RunStarted | None:
    """How the execution was begun; None if the journal does not know it."""
    return beginning_in(await journal.events(execution_id, kinds=BEGINNINGS))


async def execution_to_resume(journal: Journal, wanted: str) -> str | None:
    """The whole id of the execution that is meant; None if the journal knows none."""
    if await read_beginning(journal, wanted) is not None:
        return wanted
    runs = sorted(await journal.started_runs(), key=lambda run: run.position, reverse=True)
    meant = executions_meant(wanted, [run.execution_id for run in runs])
    if len(meant) > 1:
        raise NotResumableError(words_of_several(wanted, meant))
    return meant[0] if meant else None


def beginning_in(events: Iterable[JournalEvent]) -> RunStarted | None:
    """How these events say that it was begun; what another process was to go on with holds from then on."""
    told: dict[str, Any] = {}
    for event in events:
        if event.kind in BEGINNINGS and isinstance(event.payload, dict):
            known = {name: value for name, value in event.payload.items() if name in RunStarted.model_fields}
            told |= {"execution_id": event.execution_id, "at": told.get("at", event.at), **known}
    return RunStarted.model_validate(told) if told else None
