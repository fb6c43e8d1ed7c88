"""A judge whose whole instruction stands in the evaluator file."""

from mixseek.evaluator.metrics.base import LLMJudgeMetric

__all__ = ["LLMPlain"]


class LLMPlain(LLMJudgeMetric):
    """Scores by the ``system_instruction`` of its entry, or generally when there is none."""

    def get_instruction(self) -> str:
        """What the judge is told when its entry says nothing."""
        return self.texts.quality
