"""One team's rounds."""

from collections.abc import Awaitable, Callable

from mixseek.records import MemberSubmission, RoundState

__all__ = ["OnRoundCompleteCallback", "RoundState"]

OnRoundCompleteCallback = Callable[[RoundState, list[MemberSubmission]], Awaitable[None]]
"""Called after every round; what it raises is logged and never stops a run."""
