"""Members: the agents a leader calls as its tools."""

from mixseek.agents.member.base import BaseMemberAgent

__all__ = ["BaseMemberAgent"]
