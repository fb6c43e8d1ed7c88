"""What a member is made from and what it gives back."""

from mixseek.config.schema import MemberAgentConfig
from mixseek.records import AgentType, MemberAgentResult, ResultStatus

__all__ = ["AgentType", "MemberAgentConfig", "MemberAgentResult", "ResultStatus"]
