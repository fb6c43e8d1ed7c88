"""Metrics: one small class each."""

from mixseek.evaluator.metrics.base import BaseMetric, CodeMetric, LLMJudgeMetric, Measured, MetricOptions

__all__ = ["BaseMetric", "CodeMetric", "LLMJudgeMetric", "Measured", "MetricOptions"]
