"""Is the submission clear, and does it hold together?"""

from mixseek.evaluator.metrics.base import LLMJudgeMetric

__all__ = ["ClarityCoherence"]


class ClarityCoherence(LLMJudgeMetric):
    """How easy the submission is to follow."""

    def get_instruction(self) -> str:
        """What the judge is told."""
        return self.texts.clarity_coherence
