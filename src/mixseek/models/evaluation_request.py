"""What an evaluation is asked."""

from mixseek.records import EvaluationRequest

__all__ = ["EvaluationRequest"]
