"""A row of the leader board."""

from mixseek.records import LeaderBoardEntry

__all__ = ["LeaderBoardEntry"]
