"""How often an agent asks its model for one answer, and what is told when it got none."""

from pydantic_ai import UsageLimits
from pydantic_ai.exceptions import UnexpectedModelBehavior, UsageLimitExceeded

__all__ = ["LIMITS", "NO_ANSWER", "why_in_vain"]

_MOST_REQUESTS = 50
LIMITS = UsageLimits(request_limit=_MOST_REQUESTS)
"""Against a model that calls tools without end."""

NO_ANSWER = (UnexpectedModelBehavior, UsageLimitExceeded)
"""What an agent raises whose model gave nothing that can be used."""


def why_in_vain(error: Exception) -> str:
    """The reason in words; without advice on settings of a library, which nobody here can follow."""
    if isinstance(error, UsageLimitExceeded):
        return f"the model was asked {_MOST_REQUESTS} times and still called tools"
    return str(error).partition(" Consider raising")[0]
