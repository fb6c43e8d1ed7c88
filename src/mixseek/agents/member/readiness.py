"""Members made ready before they are asked and let go of afterwards, each by a task of its own.

What a stranger's code does to the task it runs in must not reach the team's: on Python 3.11 a ``TaskGroup`` that fails
leaves its task marked as being cancelled, and pydantic-ai takes that at its word. One task does both, for scopes have
to be left in the task that entered them.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from typing import Any

from mixseek.agents.member.base import BaseMemberAgent
from mixseek.errors import ConfigurationError
from mixseek.strangers import in_words, is_for_us

__all__ = ["CLEAN_UP_SECONDS", "made_ready"]

logger = logging.getLogger(__name__)

CLEAN_UP_SECONDS = 25.0
"""The longest a member may take to let go. The servers of its tools have 20 s: 10 to end, and 10 to be made to."""
_LAST_SECONDS = 1.0


@asynccontextmanager
async def made_ready(member: BaseMemberAgent) -> AsyncGenerator[str | None]:
    """A member that is ready inside: why it cannot be asked, or None if it can. What the user can mend is raised."""
    ready: asyncio.Future[str | ConfigurationError | None] = asyncio.get_running_loop().create_future()
    over = asyncio.Event()
    keeper = asyncio.create_task(_keep(member, ready, over), name=f"member {member.agent_name!r}")
    either: set[asyncio.Future[Any]] = {keeper, ready}
    try:
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        # A member may also cancel the very task it is made ready in.
        absent = ready.result() if ready.done() else _not_ready(asyncio.CancelledError())
        if isinstance(absent, ConfigurationError):
            raise absent
        yield absent
    finally:
        over.set()
        if not ready.done():
            keeper.cancel()
        await _ended(keeper, member.agent_name)


async def _ended(keeper: asyncio.Task[None], name: str) -> None:
    """Wait until the member has let go, but not for ever: a team that has played has its result."""
    try:
        done, _ = await asyncio.wait({keeper}, timeout=CLEAN_UP_SECONDS)
        if not done:
            logger.warning("member %r did not clean up within %g s and is left as it is", name, CLEAN_UP_SECONDS)
    finally:
        keeper.cancel()
    # What it does when it is cancelled has a moment; then nobody waits any more.
    await asyncio.wait({keeper}, timeout=_LAST_SECONDS)


async def _keep(
    member: BaseMemberAgent, ready: asyncio.Future[str | ConfigurationError | None], over: asyncio.Event
) -> None:
    absent = await _absent(member)
    ready.set_result(absent)
    if absent is None:
        # A scope that the member has entered and that fails cancels this task; the member is let go of then.
        with suppress(asyncio.CancelledError):
            await over.wait()
        await _clean_up(member)


async def _absent(member: BaseMemberAgent) -> str | ConfigurationError | None:
    try:
        await member.initialize()
    except ConfigurationError as error:
        return error
    except BaseException as error:
        if is_for_us(error):
            raise
        logger.exception("member %r could not get ready", member.agent_name)
        return _not_ready(error)
    return None


def _not_ready(error: BaseException) -> str:
    return f"it could not get ready: {in_words(error)}"


async def _clean_up(member: BaseMemberAgent) -> None:
    """Let a member go; what it leaves behind must not cost anybody a result."""
    try:
        await member.cleanup()
    except BaseException as error:
        if is_for_us(error):
            raise
        logger.exception("member %r could not clean up", member.agent_name)
