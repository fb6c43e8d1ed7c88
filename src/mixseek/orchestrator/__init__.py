"""Teams in parallel."""

from mixseek.config.manager import load_orchestrator_settings
from mixseek.orchestrator.orchestrator import Orchestrator

__all__ = ["Orchestrator", "load_orchestrator_settings"]
