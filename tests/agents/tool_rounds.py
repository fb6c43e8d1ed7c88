"""A member that uses tools in whole rounds, and what is kept of it: what tests of functions and servers share."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from mixseek.events import MemberFinished
from mixseek.records import MemberSubmission
from mixseek.storage.journal import ToolResult
from mixseek.testing import ModelCall, ModelServer, ToolCall
from soak.arena import Arena, Played, Team

__all__ = ["FUNCTIONS", "arena_with", "submission_of", "uses", "using"]

FUNCTIONS = Path(__file__).with_name("shop_functions.py")


def using(*calls: ToolCall) -> Callable[[ModelCall], Any]:
    """A member that makes these calls, one after the other, and then tells what it heard."""

    def answer(call: ModelCall) -> Any:
        heard = len(call.tool_results)
        return calls[heard] if heard < len(calls) else "help for: " + "\n".join(call.tool_results)

    return answer


def arena_with(tmp_path: Path, server: ModelServer, member: str, *calls: ToolCall, rounds: int = 1) -> Arena:
    shutil.copy(FUNCTIONS, tmp_path / "shop_functions.py")
    arena = Arena(
        tmp_path, server.base_url, [Team("alpha", member=member)], orchestrator=f"max_rounds = {rounds}\nmin_rounds = 1"
    )
    arena.script(server)
    server.on("member-alpha", using(*calls))
    return arena


def submission_of(played: Played) -> MemberSubmission:
    [finished] = [event for event in played.events if isinstance(event, MemberFinished)]
    return finished.submission


async def uses(arena: Arena, played: Played) -> list[ToolResult]:
    """What members' tools gave, as the journal has it."""
    async with arena.journal() as journal:
        kept = await journal.tool_results(played.summary.execution_id)
    return [each for each in kept if each.scope.role == "member"]
