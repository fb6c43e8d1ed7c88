"""What a metric is: one asynchronous method from a question and a submission to a score."""

import asyncio
from abc import ABC, abstractmethod
from typing import Any, ClassVar, Generic, NamedTuple, Protocol, TypeVar, cast

from mixseek.config.schema import MetricOptions
from mixseek.errors import EvaluationError
from mixseek.records import MetricScore
from mixseek.templating import JAPANESE, Texts

__all__ = ["BaseMetric", "CodeMetric", "Judge", "LLMJudgeMetric", "Measured", "MetricOptions"]

_LONG = 20_000


class BaseMetric(ABC):
    """A metric, computed in code or asked of a model.

    A custom metric may give any finite number; NaN or infinity leave the submission unscored. Its ``options`` are the
    arguments of its constructor, or, if it offers a :class:`MetricOptions` as its ``Options``, one made of that.

        class Brevity(BaseMetric):
            async def evaluate(self, user_query, submission, **context):
                return MetricScore(metric_name="Brevity", score=max(0, 100 - len(submission) / 10))

    An ``evaluate`` with a parameter named ``reference`` is given the task's reference answer, or None.
    """

    needs_reference: ClassVar[bool] = False
    """Whether the metric cannot score without a reference answer: a run without one is then refused at its start."""

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
    texts: Texts = JAPANESE
    """What judges are told, in the language of the run; the evaluator brings it with the judge."""

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


class Measured(NamedTuple):
    """A score from 0 to 100, NaN if there is none, and why: the team reads it to do better."""

    score: float
    comment: str


Opt = TypeVar("Opt", bound=MetricOptions)


class CodeMetric(BaseMetric, Generic[Opt]):
    """A metric that is computed in code: a subclass measures, by ``Options`` if it has some, and asks nobody.

    class Questions(CodeMetric["Questions.Options"]):
        class Options(MetricOptions):
            most: int = 3

        def measure(self, submission, reference):
            asked = submission.count("?")
            return Measured(100 if asked <= self.options.most else 0, f"{asked} questions")
    """

    Options: ClassVar[type[MetricOptions]]
    takes_long: ClassVar[bool] = False
    """Whether even a short submission may take long, as with patterns: it is then always measured in a thread."""

    def __init__(self, options: Opt | None = None) -> None:
        # A metric that takes no options need not offer a model of them.
        self.options = options or cast("Opt", getattr(self, "Options", MetricOptions)())

    @abstractmethod
    def measure(self, submission: str, reference: str | None) -> Measured:
        """Score ``submission``; called in a thread if that may take long, so it must end by itself."""

    async def evaluate(
        self,
        user_query: str,
        submission: str,
        execution_id: str | None = None,
        team_id: str | None = None,
        round_number: int | None = None,
        *,
        reference: str | None = None,
        **kwargs: Any,
    ) -> MetricScore:
        """Measure, off the event loop where it could hold up others."""
        if self.takes_long or len(submission) + len(reference or "") > _LONG:
            measured = await asyncio.to_thread(self.measure, submission, reference)
        else:
            measured = self.measure(submission, reference)
        if not hasattr(measured, "score") or not hasattr(measured, "comment"):  # a stranger's measure may give anything
            told = f"measure has to return Measured(score, comment), and it returned {type(measured).__name__}"
            raise EvaluationError(told, retryable=False)
        return MetricScore(metric_name=type(self).__name__, score=measured.score, evaluator_comment=measured.comment)
