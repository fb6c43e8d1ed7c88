"""A member that answers with its model, and with whatever tools its kind and its settings give it."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pydantic_ai import Agent
from pydantic_ai.capabilities import AgentCapability
from pydantic_ai.native_tools import AbstractNativeTool
from pydantic_ai.toolsets import AbstractToolset

from mixseek.agents.in_vain import LIMITS, NO_ANSWER, why_in_vain
from mixseek.agents.member.base import BaseMemberAgent
from mixseek.agents.member.mcp import McpServer, start_all, stop_all
from mixseek.agents.member.tools import MAX_RESULT_CHARS, ToolWatch, function_tools, refuse_equal_names
from mixseek.errors import ModelOutputError
from mixseek.llm import current_hub, messages_to_json, model_settings, usage_record
from mixseek.records import MemberAgentResult

__all__ = ["PlainMemberAgent"]


class PlainMemberAgent(BaseMemberAgent):
    """One model, its instruction and the task; the agent is made once and serves every task of the run."""

    _agent: Agent[None, str] | None = None
    _servers: Sequence[McpServer] = ()

    def own_tools(self) -> Sequence[AgentCapability[None]]:
        """The tools of this kind of member; a plain one has none of its own."""
        return ()

    @property
    def providers_tool(self) -> AbstractNativeTool | None:
        """The tool of its model's provider that it uses where there is one."""
        return None

    @property
    def max_result_chars(self) -> int:
        """The most its model is given of one result of a tool."""
        return MAX_RESULT_CHARS

    async def initialize(self) -> None:
        """Connect to the servers of its tools and build the agent."""
        await self.cleanup()
        self._servers = self._own_servers()
        try:
            await start_all(self._servers)
            self._agent = self._built()
        except BaseException:
            await self.cleanup()
            raise

    async def cleanup(self) -> None:
        """Let go of the servers."""
        servers, self._servers, self._agent = self._servers, (), None
        await stop_all(servers)

    def _built(self) -> Agent[None, str]:
        agent = Agent(
            current_hub().model(self.config.model, fallback_models=self.config.fallback_models),
            instructions=self.config.system_instruction or None,
            system_prompt=self.config.system_prompt or (),
            model_settings=model_settings(self.config),
            name=self.agent_name,
            capabilities=[ToolWatch(self.max_result_chars, self.texts), *self.own_tools()],
            toolsets=[self._functions(), *self._servers],
            retries=self.config.max_retries,
        )
        refuse_equal_names(agent.toolsets, self.agent_name)
        return agent

    def _functions(self) -> AbstractToolset[None]:
        settings = self.config.tool_settings.functions if self.config.tool_settings else None
        return function_tools(self.config.functions, settings, root=self._root)

    def _own_servers(self) -> list[McpServer]:
        environ = current_hub().environ
        named = self.config.mcp_servers.items()
        return [McpServer(name, settings, environ=environ, directory=self._root) for name, settings in named]

    @property
    def _root(self) -> Path | None:
        return None if self.workspace is None else self.workspace.root

    async def execute(self, task: str, context: dict[str, Any] | None = None, **kwargs: Any) -> MemberAgentResult:
        """Answer ``task``."""
        if self._agent is None:
            await self.initialize()
        assert self._agent is not None  # noqa: S101  # initialize() made it
        try:
            result = await self._agent.run(task, usage_limits=LIMITS)
        except NO_ANSWER as error:
            raise ModelOutputError(f"no usable answer: {why_in_vain(error)}", model=self.config.model) from error
        return MemberAgentResult.success(
            result.output,
            self.agent_name,
            self.agent_type,
            usage_info=usage_record(result.usage),
            all_messages=messages_to_json(result.all_messages()),
        )
