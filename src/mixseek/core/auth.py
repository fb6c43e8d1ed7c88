"""Models for agents that build their own."""

from mixseek.errors import AuthenticationError
from mixseek.llm import create_authenticated_model

__all__ = ["AuthenticationError", "create_authenticated_model"]
