"""Does the submission cover what was asked?"""

from mixseek.evaluator.metrics.base import LLMJudgeMetric

__all__ = ["Coverage"]


class Coverage(LLMJudgeMetric):
    """How much of what the task needs the submission has."""

    def get_instruction(self) -> str:
        """What the judge is told."""
        return self.texts.coverage
