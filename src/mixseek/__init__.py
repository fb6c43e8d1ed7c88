"""Teams of LLM agents compete over rounds; the best answer comes back with the leader board and the bill."""

__version__ = "0.1.0"

__all__ = ["__version__"]
