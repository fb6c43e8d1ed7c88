"""Tools that a provider uses itself for its model: searching the web, reading pages, running code."""

from typing import Final

from pydantic_ai.models import Model, ModelRequestParameters
from pydantic_ai.native_tools import SUPPORTED_NATIVE_TOOLS, AbstractNativeTool

__all__ = ["PROVIDERS_TOOL_TOKENS", "has_tool", "most_found_tokens"]

PROVIDERS_TOOL_TOKENS: Final = 200_000
"""What such tools may bring into one call; there is no true bound."""


def has_tool(model: Model, tool: AbstractNativeTool) -> bool:
    """Whether the provider of a model has this tool, and it can do what its settings ask."""
    known = tuple(model.profile.get("supported_native_tools", SUPPORTED_NATIVE_TOOLS))
    return isinstance(tool, known) and not model.unsupported_native_tool_settings(tool)


def most_found_tokens(model: Model, parameters: ModelRequestParameters) -> int:
    """What the provider's tools may bring into a call; a tool that it does not have is never offered to it."""
    return PROVIDERS_TOOL_TOKENS if any(has_tool(model, tool) for tool in parameters.native_tools) else 0
