"""Teams of LLM agents compete over rounds; the best answer comes back with the leader board and the bill."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mixseek.orchestrator.compete import arun, run

__version__ = "0.1.0"

__all__ = ["__version__", "arun", "run"]


def __getattr__(name: str) -> Any:
    # Looked up when first used: importing the package alone stays cheap.
    if name not in ("arun", "run"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from mixseek.orchestrator import compete

    return getattr(compete, name)
