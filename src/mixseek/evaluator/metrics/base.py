"""What a metric is: one asynchronous method from a question and a submission to a score."""

from abc import ABC, abstractmethod
from typing import Any, Protocol

from mixseek.errors import EvaluationError
from mixseek.records import MetricScore

__all__ = ["BaseMetric", "Judge", "LLMJudgeMetric"]


class BaseMetric(ABC):
    """A metric, computed in code or asked of a model.

    A custom metric may give any finite number; NaN or infinity leave the submission unscored.

        class Brevity(BaseMetric):
            async def evaluate(self, user_query, submission, **context):
                return MetricScore(metric_name="Brevity", score=max(0, 100 - len(submission) / 10))
    """

    @abstractmethod
    async def evaluate(
        self,
        user_query: str,
        submission: str,
        execution_id: str | None = None,
        team_id: str | None = None,
        round_number: int | None = None,
        **kwargs: Any,
    ) -> MetricScore:
        """Score ``submission`` as an answer to ``user_query``."""


class Judge(Protocol):
    """A model that scores by an instruction; the evaluator hands one to every metric that needs it."""

    async def __call__(self, metric_name: str, instruction: str, user_query: str, submission: str) -> MetricScore:
        """Ask the model once."""
        ...


class LLMJudgeMetric(BaseMetric):
    """A metric that is asked of a model: a subclass says what to look for, the evaluator brings the judge."""

    judge: Judge | None = None

    @abstractmethod
    def get_instruction(self) -> str:
        """What the judge is told to look for."""

    async def evaluate(
        self,
        user_query: str,
        submission: str,
        execution_id: str | None = None,
        team_id: str | None = None,
        round_number: int | None = None,
        **kwargs: Any,
    ) -> MetricScore:
        """Ask the judge."""
        name = type(self).__name__
        if self.judge is None:
            raise EvaluationError(f"metric {name!r} has no judge: let an Evaluator run it, or set its 'judge'")
        return await self.judge(name, self.get_instruction(), user_query, submission)
