"""From a member's settings to the member."""

from mixseek import plugins
from mixseek.agents.member.base import BaseMemberAgent
from mixseek.config.manager import problems_within
from mixseek.config.schema import MemberAgentConfig
from mixseek.errors import PluginError
from mixseek.records import AgentType
from mixseek.templating import JAPANESE, Texts
from mixseek.workspace import Workspace

__all__ = ["MemberAgentFactory"]

plugins.members.register(AgentType.PLAIN, "mixseek.agents.member.plain:PlainMemberAgent")
plugins.members.register(AgentType.CODE_EXECUTION, "mixseek.agents.member.code_execution:CodeExecutionMemberAgent")
plugins.members.register(AgentType.WEB_SEARCH, "mixseek.agents.member.web_search:WebSearchMemberAgent")
plugins.members.register(AgentType.WEB_FETCH, "mixseek.agents.member.web_fetch:WebFetchMemberAgent")


class MemberAgentFactory:
    """Makes members of every registered type, and custom ones from the class their settings name."""

    @staticmethod
    def create_agent(
        config: MemberAgentConfig, *, workspace: Workspace | None = None, texts: Texts = JAPANESE
    ) -> BaseMemberAgent:
        """The member of these settings; relative paths and modules of functions start at the workspace."""
        try:
            agent = _made(config, workspace)
        except PluginError as error:
            at = "type" if config.plugin is None else "plugin"
            raise PluginError(problems_within(config, (at,), error)) from error
        agent.workspace = workspace
        agent.texts = texts
        return agent

    @staticmethod
    def register_agent(agent_type: str, agent_class: type[BaseMemberAgent]) -> None:
        """Let ``agent_type`` in a team file stand for ``agent_class``."""
        plugins.members.register(agent_type, agent_class)

    @staticmethod
    def get_supported_types() -> list[str]:
        """Every type a team file may name."""
        return sorted({*plugins.members, AgentType.CUSTOM.value})


def _made(config: MemberAgentConfig, workspace: Workspace | None) -> BaseMemberAgent:
    found = _class_of(config, workspace)
    agent = plugins.make(found, config)
    if not isinstance(getattr(agent, "config", None), MemberAgentConfig):
        raise PluginError(f"class {found.__name__!r} does not keep its settings: call super().__init__(config) first")
    return agent


def _class_of(config: MemberAgentConfig, workspace: Workspace | None) -> type[BaseMemberAgent]:
    plugin = config.plugin
    if plugin is None:
        return plugins.members.get(config.type)
    path = None
    if plugin.path is not None:
        path = (workspace or Workspace.locate()).resolve(plugin.path)
    return plugins.members.load_class(plugin.agent_class, module=plugin.agent_module, path=path)
