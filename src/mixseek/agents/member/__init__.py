"""Members: the agents a leader calls as its tools."""

from mixseek.agents.member.base import BaseMemberAgent
from mixseek.agents.member.factory import MemberAgentFactory

__all__ = ["BaseMemberAgent", "MemberAgentFactory"]
