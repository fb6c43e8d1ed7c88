"""Scores submissions: runs the metrics and weighs them."""

from mixseek.evaluator.evaluator import Evaluator
from mixseek.records import EvaluationRequest, EvaluationResult, MetricScore

__all__ = ["EvaluationRequest", "EvaluationResult", "Evaluator", "MetricScore"]
