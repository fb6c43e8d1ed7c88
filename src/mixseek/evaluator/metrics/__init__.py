"""Metrics: one small class each."""

from mixseek.evaluator.metrics.base import BaseMetric, LLMJudgeMetric

__all__ = ["BaseMetric", "LLMJudgeMetric"]
