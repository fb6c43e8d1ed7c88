"""One team's rounds."""

from mixseek.records import RoundState
from mixseek.round_controller.controller import OnRoundCompleteCallback, RoundController

__all__ = ["OnRoundCompleteCallback", "RoundController", "RoundState"]
