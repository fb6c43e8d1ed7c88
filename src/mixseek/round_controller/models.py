"""The records of a round."""

from mixseek.records import ImprovementJudgment, RoundState

__all__ = ["ImprovementJudgment", "RoundState"]
