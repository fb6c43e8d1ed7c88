"""A member that answers with its model, and with whatever tools its kind and its settings give it."""

from collections.abc import Sequence
from typing import Any

from pydantic_ai import Agent
from pydantic_ai.capabilities import AgentCapability

from mixseek.agents.member.base import BaseMemberAgent
from mixseek.llm import current_hub, messages_to_json, model_settings, usage_record
from mixseek.records import MemberAgentResult

__all__ = ["PlainMemberAgent"]


class PlainMemberAgent(BaseMemberAgent):
    """One model, its instruction and the task; the agent is made once and serves every task of the run."""

    _agent: Agent[None, str] | None = None

    def own_tools(self) -> Sequence[AgentCapability[None]]:
        """The tools of this kind of member; a plain one has none of its own."""
        return ()

    async def initialize(self) -> None:
        """Build the agent."""
        self._agent = Agent(
            current_hub().model(self.config.model, fallback_models=self.config.fallback_models),
            instructions=self.config.system_instruction or None,
            system_prompt=self.config.system_prompt or (),
            model_settings=model_settings(self.config),
            name=self.agent_name,
            capabilities=self.own_tools(),
        )

    async def execute(self, task: str, context: dict[str, Any] | None = None, **kwargs: Any) -> MemberAgentResult:
        """Answer ``task``."""
        if self._agent is None:
            await self.initialize()
        assert self._agent is not None  # noqa: S101  # initialize() made it
        result = await self._agent.run(task)
        return MemberAgentResult.success(
            result.output,
            self.agent_name,
            self.agent_type,
            usage_info=usage_record(result.usage),
            all_messages=messages_to_json(result.all_messages()),
        )
