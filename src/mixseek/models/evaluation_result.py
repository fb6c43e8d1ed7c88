"""What an evaluation gives."""

from mixseek.records import EvaluationResult, MetricScore

__all__ = ["EvaluationResult", "MetricScore"]
