"""Who is at work on an execution just now."""

from mixseek.errors import ConfigurationError
from mixseek.storage.journal import Journal
from mixseek.storage.playing import is_playing
from mixseek.workspace import Workspace

__all__ = ["refuse_while_played"]


async def refuse_while_played(workspace: Workspace, execution_id: str, *, judges_may: bool = False) -> None:
    """Raise, with its name, if a process plays an execution; unless ``judges_may``, also if one judges it again."""
    async with Journal(workspace.journal) as journal:
        places = await journal.players(execution_id, workspace.database)
    at_work = [place for place in places if not judges_may or place.execution_id == execution_id]
    if at_work or is_playing(workspace.database, execution_id):
        who = f" by {at_work[0]}" if at_work else ""
        raise ConfigurationError(
            f"execution {execution_id!r} is being played{who}: wait until it is over, or end that process first"
        )
