"""Scores submissions: runs the metrics and weighs them."""

from typing import TYPE_CHECKING, Any

from mixseek.records import EvaluationRequest, EvaluationResult, MetricScore

if TYPE_CHECKING:
    from mixseek.evaluator.evaluator import Evaluator

__all__ = ["EvaluationRequest", "EvaluationResult", "Evaluator", "MetricScore"]


def __getattr__(name: str) -> Any:
    # A workspace's metric imports from beneath this package while files are only checked; that needs no models.
    if name == "Evaluator":
        from mixseek.evaluator.evaluator import Evaluator

        return Evaluator
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
