"""A member that runs code: with its provider's own tool, or in a sandbox of ours."""

from collections.abc import Iterator, Sequence

from pydantic_ai import Tool
from pydantic_ai.capabilities import AgentCapability, NativeOrLocalTool
from pydantic_ai.native_tools import AbstractNativeTool, CodeExecutionTool

from mixseek.agents.member.plain import PlainMemberAgent
from mixseek.config.schema import CodeExecutionSettings, MemberAgentConfig
from mixseek.errors import ConfigurationError, Problem
from mixseek.llm import ModelHub
from mixseek.llm.providers_tools import has_tool
from mixseek.sandbox import BubblewrapSandbox, CodeResult, Limits, MontySandbox, Sandbox, monty_is_missing
from mixseek.templating import Texts

__all__ = ["CodeExecutionMemberAgent"]


class CodeExecutionMemberAgent(PlainMemberAgent):
    """A plain member with one tool more: running code."""

    def __init__(self, config: MemberAgentConfig) -> None:
        super().__init__(config)
        self._settings = (config.tool_settings and config.tool_settings.code_execution) or CodeExecutionSettings()

    def check_model(self, hub: ModelHub) -> None:
        """Refuse a model without the tool that was chosen for it."""
        without = [name for name in self._models() if not has_tool(hub.model(name), CodeExecutionTool())]
        missing = None
        if self._settings.backend == "provider" and without:
            missing = f"{without[0]!r} cannot run code itself: choose another backend (auto, monty, bubblewrap)"
        elif self._settings.backend == "auto" and without:
            missing = monty_is_missing()
        if missing:
            key = "tool_settings.code_execution.backend"
            raise ConfigurationError(Problem(missing, f"member {self.agent_name!r}", key))

    def own_tools(self) -> Sequence[AgentCapability[None]]:
        """The provider's own tool, ours, or ours for models without one."""
        backend = self._settings.backend
        local = False if backend == "provider" else self._local_tool()
        return [NativeOrLocalTool(native=self.providers_tool or False, local=local)]

    @property
    def providers_tool(self) -> AbstractNativeTool | None:
        """The provider's, unless a sandbox of this machine was chosen."""
        return CodeExecutionTool() if self._settings.backend in ("auto", "provider") else None

    @property
    def max_result_chars(self) -> int:
        """What a run may print, and how it ended."""
        return super().max_result_chars + self._settings.output_chars

    def _models(self) -> Iterator[str]:
        yield self.config.model
        yield from self.config.fallback_models

    def _local_tool(self) -> Tool[None]:
        settings, texts = self._settings, self.texts
        limits = Limits(settings.timeout_seconds, settings.memory_mb, settings.output_chars)
        full = settings.backend == "bubblewrap"
        sandbox: Sandbox = BubblewrapSandbox(limits) if full else MontySandbox(limits)

        async def run_python(code: str) -> str:
            return _told(await sandbox.run_python(code), limits, texts)

        return Tool(run_python, description=texts.run_full_python if full else texts.run_python)


def _told(result: CodeResult, limits: Limits, texts: Texts) -> str:
    """What the model reads of a run: what was printed, then how it ended."""
    lines = [result.output.rstrip("\n")] if result.output else [texts.no_output]
    if result.is_cut:
        lines.append(texts.output_cut.format(characters=limits.output_chars))
    if result.limit:
        lines.append(_over(result.limit, limits, texts))
    elif result.exit_code:
        lines.append(texts.exit_code.format(code=result.exit_code))
    return "\n".join(lines)


def _over(limit: str, limits: Limits, texts: Texts) -> str:
    told = {"time": texts.over_time, "memory": texts.over_memory, "output": texts.over_output}[limit]
    return told.format(seconds=limits.timeout_seconds, megabytes=limits.memory_mb)
