"""Taking an execution away from both stores."""

from mixseek.records import Record
from mixseek.report.players import refuse_while_played
from mixseek.storage.aggregation_store import AggregationStore
from mixseek.storage.journal import Journal
from mixseek.workspace import Workspace

__all__ = ["Deleted", "delete_execution"]


class Deleted(Record):
    """What was removed."""

    execution_id: str
    rows: dict[str, int]
    """How many rows of each table of the results."""
    journal_rows: int
    attachments: tuple[str, ...]
    """The hashes of the files that nobody else uses."""


async def delete_execution(workspace: Workspace, execution_id: str) -> Deleted:
    """Remove all that is stored of an execution, by its whole id; one that is being played is refused.

    Interrupted on the way, it can be done again: as long as either store has anything of it, it is found.
    """
    await refuse_while_played(workspace, execution_id)
    rows: dict[str, int] = {}
    attachments: tuple[str, ...] = ()
    if workspace.database.exists():
        async with AggregationStore(workspace.root) as store:
            rows, attachments = await store.delete_execution(execution_id, workspace.attachments)
    async with Journal(workspace.journal) as journal:
        journal_rows = await journal.delete(execution_id)
    return Deleted(execution_id=execution_id, rows=rows, journal_rows=journal_rows, attachments=attachments)
