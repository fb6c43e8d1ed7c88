"""Whose tool a member uses: the one of its model's provider, or one of this machine."""

from collections.abc import Callable
from typing import Literal

from pydantic_ai import Tool
from pydantic_ai.capabilities import NativeOrLocalTool
from pydantic_ai.native_tools import AbstractNativeTool

from mixseek.config.schema import MemberAgentConfig
from mixseek.errors import ConfigurationError, Problem
from mixseek.llm import ModelHub
from mixseek.llm.providers_tools import has_tool

__all__ = ["Backend", "check_backend", "provider_or_local"]

Backend = Literal["auto", "provider", "local"]


def provider_or_local(
    backend: Backend, provider: AbstractNativeTool | None, local: Tool[None]
) -> NativeOrLocalTool[None]:
    """The tool of a model's provider where it has one that can do what the settings ask, otherwise the local one."""
    return NativeOrLocalTool(native=provider or False, local=False if backend == "provider" else local)


def check_backend(
    hub: ModelHub,
    config: MemberAgentConfig,
    backend: Backend,
    provider: AbstractNativeTool,
    local_is_missing: Callable[[], str | None],
) -> None:
    """Refuse a model without the tool that is asked for, and a local tool that is needed and not installed."""
    models = (config.model, *config.fallback_models)
    without = [name for name in models if backend == "local" or not has_tool(hub.model(name), provider)]
    if not without:
        return
    missing = local_is_missing()
    if backend == "provider":
        missing = f"{without[0]!r} has no tool of its own that can do what the settings ask: choose auto or local"
    if missing:
        raise ConfigurationError(Problem(missing, f"member {config.name!r}", f"tool_settings.{provider.kind}.backend"))
