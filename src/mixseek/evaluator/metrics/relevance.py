"""Does the submission answer the question that was asked?"""

from mixseek.evaluator.metrics.base import LLMJudgeMetric

__all__ = ["Relevance"]


class Relevance(LLMJudgeMetric):
    """How closely the submission keeps to the task."""

    def get_instruction(self) -> str:
        """What the judge is told."""
        return self.texts.relevance
