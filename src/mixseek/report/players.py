"""Who is at work on an execution just now."""

from collections.abc import Sequence

from mixseek.errors import ConfigurationError
from mixseek.storage.journal import Journal
from mixseek.storage.places import Place
from mixseek.storage.playing import is_playing
from mixseek.workspace import Workspace

__all__ = ["played_by", "refuse_while_played"]


async def refuse_while_played(workspace: Workspace, execution_id: str, *, judges_may: bool = False) -> None:
    """Raise, with its name, if a process plays an execution; unless ``judges_may``, also if one judges it again."""
    at_work = [
        place
        for place in await _players(workspace, execution_id)
        if not judges_may or place.execution_id == execution_id
    ]
    if at_work or is_playing(workspace.database, execution_id):
        raise ConfigurationError(
            f"execution {execution_id!r} is being played{_by(at_work)}: "
            "wait until it is over, or end that process first"
        )


async def played_by(workspace: Workspace, execution_id: str) -> str:
    """The process that plays an execution, to stand behind "is being played"; nothing where it is not known."""
    return _by(await _players(workspace, execution_id))


async def _players(workspace: Workspace, execution_id: str) -> list[Place]:
    async with Journal(workspace.journal) as journal:
        return await journal.players(execution_id, workspace.database)


def _by(places: Sequence[Place]) -> str:
    return f" by {places[0]}" if places else ""
