"""Runs the metrics of a submission concurrently and weighs them.

A judge sees the submission only as fenced data and gives its reason before its score. A score that is not a finite
number leaves the submission unscored; a metric that fails is an :class:`EvaluationError`, never a zero.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from contextvars import ContextVar
from copy import copy
from dataclasses import dataclass
from functools import cache
from math import isfinite, nan
from pathlib import Path
from typing import Any, TypeVar, cast

from pydantic import BaseModel, Field, ValidationError
from pydantic_ai import UserContent

from mixseek import plugins
from mixseek.config.checks import needs_reference, options_model, type_of_metric
from mixseek.config.layers import show_path
from mixseek.config.manager import problems_within
from mixseek.config.problems import faults_of
from mixseek.config.schema import (
    EvaluatorSettings,
    MetricOptions,
    MetricSettings,
    ModelParams,
    PromptBuilderSettings,
)
from mixseek.errors import (
    BudgetExhaustedError,
    ConfigurationError,
    EvaluationError,
    MixSeekError,
    PluginError,
    Problem,
    WorkspaceNotFoundError,
)
from mixseek.evaluator.gates import flags_of
from mixseek.evaluator.metrics.base import BaseMetric, CodeMetric, Judge, LLMJudgeMetric
from mixseek.llm import ModelHub, OnTheirWay, ask, calling, current_hub, current_scope, described, model_settings
from mixseek.prompt_builder import EvaluatorPromptContext, UserPromptBuilder
from mixseek.records import EvaluationRequest, EvaluationResult, MetricScore
from mixseek.strangers import alone, in_words, is_for_us, place_in, text_of
from mixseek.surrogates import whole_text
from mixseek.workspace import Workspace

__all__ = ["Evaluator"]


class _Verdict(BaseModel):
    """What a judge is asked for; the comment comes before the score, so that the score follows from it."""

    evaluator_comment: str
    score: float = Field(ge=0, le=100)


@dataclass(frozen=True)
class _Weighed:
    """A metric as it is used: under its own name and with its share of the score."""

    name: str
    metric: BaseMetric
    weight: float
    needs_reference: bool = False
    options: MetricOptions | None = None


logger = logging.getLogger(__name__)

T = TypeVar("T")
_DIGITS_OF_A_SCORE = 9
_LONG = 50_000
_TIME_FOR_A_SCORE = 10.0
"""For an answer to be written to the journal, and made a score of."""
_NO_REFERENCE = "needs a reference answer: give it as reference, on the command line with --reference"


@dataclass(frozen=True)
class _Prompts:
    """What the judges of one submission are told, and those of them that are shown the reference answer."""

    plain: str
    with_reference: str | None


_prompts: ContextVar[_Prompts | None] = ContextVar("evaluator_prompts", default=None)


class Evaluator:
    """Scores submissions by the metrics of its settings; ``beside`` comes with every judge's prompt."""

    def __init__(
        self,
        settings: EvaluatorSettings,
        prompt_builder_settings: PromptBuilderSettings | None = None,
        *,
        hub: ModelHub | None = None,
        workspace: Path | None = None,
        beside: Sequence[UserContent] = (),
    ) -> None:
        self.settings = settings
        self._beside = beside
        self._builder = UserPromptBuilder(settings=prompt_builder_settings or PromptBuilderSettings())
        self._hub = hub or current_hub()
        self._workspace = workspace
        self._metrics = [self._placed(number, metric) for number, metric in enumerate(settings.metrics)]

    def register_custom_metric(self, name: str, metric: BaseMetric) -> None:
        """Use ``metric`` for every entry of the settings whose name or type is ``name``."""
        entries = [entry for entry in self.settings.metrics if name in {entry.name, entry.type}]
        if not entries:
            raise EvaluationError(f"no metric of the settings is named {name!r}: add it to [[metrics]]")
        if isinstance(metric, LLMJudgeMetric) and metric.judge is None:
            metric.judge, metric.texts = self._judge(entries[0]), self._builder.texts
        options = metric.options if isinstance(metric, CodeMetric) else None
        needing = {entry.name: entry.use_reference or needs_reference(type(metric), options) for entry in entries}
        self._metrics = [
            _Weighed(known.name, metric, known.weight, needing[known.name], options) if known.name in needing else known
            for known in self._metrics
        ]

    @property
    def judges(self) -> list[str]:
        """The names of the metrics that ask a model."""
        return [weighed.name for weighed in self._metrics if isinstance(weighed.metric, LLMJudgeMetric)]

    def judges_alone(self) -> "Evaluator":
        """The same one without the metrics that ask no model."""
        alone = copy(self)
        alone._metrics = [weighed for weighed in self._metrics if isinstance(weighed.metric, LLMJudgeMetric)]
        return alone

    @property
    def shows_reference(self) -> bool:
        """Whether one of the judges is shown the reference answer."""
        return any(entry.use_reference for entry in self.settings.metrics)

    def require_reference(self, reference: str | None) -> None:
        """Refuse to go on without the reference answer a metric needs: found out before anything is paid for."""
        faults = [(each.name, _reference_fault(each, reference)) for each in self._metrics]
        problems = [Problem(fault, f"metric {name!r}") for name, fault in faults if fault]
        if problems:
            raise ConfigurationError(problems)

    def build_prompt(self, request: EvaluationRequest, *, with_reference: bool = False) -> str:
        """The prompt the judges of this submission are given, or those that are shown the reference answer."""
        context = EvaluatorPromptContext(
            user_query=request.user_query,
            submission=request.submission,
            reference=request.reference if with_reference else None,
        )
        return self._builder.build_evaluator_prompt(context)

    async def evaluate(
        self,
        request: EvaluationRequest,
        *,
        prompt: str | None = None,
        reference_prompt: str | None = None,
        earlier: Mapping[int, str] | None = None,
        known: dict[str, MetricScore] | None = None,
    ) -> EvaluationResult:
        """All metrics of ``request`` and their weighted mean; the first that fails ends the others.

        ``earlier`` are the team's submissions so far by their round, to tell a copy by. Metrics that are ``known`` by
        their names are not asked; what others say that may have paid for it is added, also if one of them fails.
        """
        self.require_reference(request.reference)
        flags = await _flags(request, earlier or {})
        known = {} if known is None else known
        with self._prompted(request, prompt, reference_prompt):
            scores = await _all([_known_or_scored(known, each, request, self._workspace) for each in self._metrics])
        return EvaluationResult(metrics=scores, overall_score=self.weigh(scores), flags=flags)

    async def evaluate_each(
        self, request: EvaluationRequest, *, prompt: str | None = None, reference_prompt: str | None = None
    ) -> list[MetricScore | EvaluationError]:
        """Every metric's score by itself, in their order, or why it has none: one that fails ends no other."""
        self.require_reference(request.reference)
        with self._prompted(request, prompt, reference_prompt):
            return await _all([_scored_or_failed(weighed, request, self._workspace) for weighed in self._metrics])

    def weigh(self, scores: Sequence[MetricScore]) -> float | None:
        """The weighted mean of all metrics' scores; None if it is no finite number, or if no metric counts.

        Rounded far below what anyone scores, because a mean of numbers like 1/3 may miss its value by 1e-14: a perfect
        submission would not reach a target of 100, and equal teams would not tie.
        """
        weighted = sum(weighed.weight * score.score for weighed, score in zip(self._metrics, scores, strict=True))
        # Weights may miss 1 by a thousandth, which must not make 100.05 out of 100; those of judges alone may be none.
        whole = sum(weighed.weight for weighed in self._metrics)
        mean = weighted / whole if whole else nan
        return round(mean, _DIGITS_OF_A_SCORE) if isfinite(mean) else None

    @property
    def weights(self) -> dict[str, float]:
        """The share each metric has in the whole."""
        return {weighed.name: weighed.weight for weighed in self._metrics}

    @contextmanager
    def _prompted(self, request: EvaluationRequest, prompt: str | None, reference_prompt: str | None) -> Iterator[None]:
        """What judges are told inside; where there are none, nothing is built that nobody reads."""
        if not self.judges:
            yield
            return
        if self.shows_reference and reference_prompt is None:
            reference_prompt = self.build_prompt(request, with_reference=True)
        token = _prompts.set(_Prompts(prompt or self.build_prompt(request), reference_prompt))
        try:
            yield
        finally:
            _prompts.reset(token)

    # --- making the metrics -------------------------------------------------------------------------------------------

    def _placed(self, number: int, entry: MetricSettings) -> _Weighed:
        """A metric as it is used; of one that cannot be made, the place in its file is told."""
        try:
            return self._made(entry)
        except PluginError as error:
            raise PluginError(problems_within(self.settings, ("metrics", number), error)) from error

    def _made(self, entry: MetricSettings) -> _Weighed:
        found = self._class_of(entry)
        options = self._options(entry, options_model(found))
        # A metric that offers a model of its options is made with one of these, which no signature can say.
        make = cast("Callable[..., BaseMetric]", found)
        metric = plugins.make(make, **entry.options) if options is None else plugins.make(make, options)
        if isinstance(metric, CodeMetric):
            if not hasattr(metric, "options"):
                raise PluginError(
                    f"class {found.__name__!r} does not keep its options: call super().__init__(options) first"
                )
            options = metric.options
        if isinstance(metric, LLMJudgeMetric):
            metric.judge, metric.texts = self._judge(entry), self._builder.texts
        weight = 1 / len(self.settings.metrics) if entry.weight is None else entry.weight
        needing = entry.use_reference or needs_reference(found, options)
        return _Weighed(entry.name, metric, weight, needing, options)

    def _options(self, entry: MetricSettings, model: type[MetricOptions] | None) -> MetricOptions | None:
        if model is None:
            return None
        try:
            return model.model_validate(entry.options, context={"workspace": self._place()})
        except ValidationError as error:
            faults = faults_of(error, model)
            above = f"options of metric {entry.name!r}"
            raise ConfigurationError([Problem(text, above, show_path(path) or None) for path, text in faults]) from None

    def _place(self) -> Workspace | None:
        try:
            return Workspace.locate(self._workspace)
        except WorkspaceNotFoundError:
            return None

    def _class_of(self, entry: MetricSettings) -> type[BaseMetric]:
        custom = self.settings.custom_metrics.get(entry.type)
        if custom is not None:
            path = None if custom.path is None else Workspace.locate(self._workspace).resolve(custom.path)
            return plugins.metrics.load_class(custom.class_name, module=custom.module, path=path)
        return plugins.metrics.get(type_of_metric(entry, self.settings))

    def _judge(self, entry: MetricSettings) -> Judge:
        params = _parameters(entry, self.settings)
        model = self._hub.model(entry.model or self.settings.llm_default.model or self.settings.default_model)
        texts = self._builder.texts
        form = described(_Verdict, evaluator_comment=texts.verdict_comment, score=texts.verdict_score)

        async def judge(metric_name: str, instruction: str, user_query: str, submission: str) -> MetricScore:
            request = EvaluationRequest(user_query=user_query, submission=submission)
            prompts = _prompts.get() or _Prompts(self.build_prompt(request), None)
            verdict = await ask(
                model,
                form,
                prompt=(prompts.with_reference if entry.use_reference else None) or prompts.plain,
                beside=self._beside,
                instructions=entry.system_instruction or instruction,
                settings=model_settings(params),
            )
            return MetricScore(metric_name=metric_name, **verdict.model_dump())

        return judge


def _reference_fault(weighed: _Weighed, reference: str | None) -> str | None:
    if reference is None:
        return _NO_REFERENCE if weighed.needs_reference else None
    return weighed.options.reference_fault(reference) if weighed.options else None


def _parameters(entry: MetricSettings, settings: EvaluatorSettings) -> ModelParams:
    """A metric's own parameters, then those of all metrics, then the top level of the file."""
    top: dict[str, Any] = {"max_retries": settings.max_retries, "timeout_seconds": settings.timeout_seconds}
    layers = [
        {name: getattr(layer, name) for name in ModelParams.model_fields} for layer in (settings.llm_default, entry)
    ]
    for layer in layers:
        top |= {name: value for name, value in layer.items() if value is not None}
    return ModelParams(**top)


async def _flags(request: EvaluationRequest, earlier: Mapping[int, str]) -> list[str]:
    """The flags of a submission; a very long one is looked at beside the event loop, for the sake of other teams."""
    if len(request.submission) < _LONG:
        return flags_of(request.submission, request.user_query, earlier)
    return await asyncio.to_thread(flags_of, request.submission, request.user_query, earlier)


async def _all(scoring: Sequence[Coroutine[Any, Any, T]]) -> list[T]:
    """Each one's score; the first failure is raised when all others have ended, with the answers they wait for.

    No TaskGroup: on Python 3.11 one that fails leaves the task that waits for it marked as being cancelled, and
    pydantic-ai takes that at its word the next time it is asked.
    """
    requests = [OnTheirWay() for _ in scoring]
    tasks = [_followed(each, own) for each, own in zip(scoring, requests, strict=True)]
    try:
        return await asyncio.gather(*tasks)
    except Exception:  # not where we are cancelled: then nobody has time for answers
        await asyncio.gather(*map(_answered, tasks, requests))
        raise
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _followed(scoring: Coroutine[Any, Any, T], requests: OnTheirWay) -> asyncio.Task[T]:
    with requests.followed():
        return asyncio.create_task(scoring)


async def _answered(task: asyncio.Task[Any], requests: OnTheirWay) -> None:
    """Let a metric have the answer that is on its way or came, which is paid for, and make a score of it.

    One that has not asked yet ends at once: its answer would be waited for by nobody.
    """
    await requests.landed()
    while requests.were_answered and not task.done():
        await asyncio.wait({task}, timeout=_TIME_FOR_A_SCORE)
        if not requests:
            break
        await requests.landed()
    task.cancel()
    await asyncio.wait({task})


def _arguments(metric: BaseMetric, request: EvaluationRequest) -> dict[str, Any]:
    """What a metric is called with: the reference only where it is asked for by name, as most were written without."""
    return request.model_dump(include=_taken(type(metric)))


@cache
def _taken(metric: type[BaseMetric]) -> set[str]:
    return plugins.metrics.arguments_of(metric)


async def _scored(
    weighed: _Weighed, request: EvaluationRequest, root: Path | None, *, is_told: bool = False
) -> MetricScore:
    """``is_told``: whoever asks tells of a failure, so the console need not; the log has its traceback anyway."""
    scope = current_scope()
    with (
        calling(scope.model_copy(update={"role": "evaluator", "agent_name": weighed.name})) if scope else nullcontext()
    ):
        try:
            arguments = _arguments(weighed.metric, request)
            score = await alone(lambda: weighed.metric.evaluate(**arguments), f"metric {weighed.name!r}")
        except BudgetExhaustedError:
            raise
        except MixSeekError as error:
            may_pass = error.retryable if isinstance(error, EvaluationError) else True
            # A stranger's metric may raise one of ours, with words of its own.
            told = f"metric {weighed.name!r} could not score: {text_of(error)}"
            raise EvaluationError(told, retryable=may_pass) from error
        except BaseException as error:  # a stranger's metric may raise anything
            if is_for_us(error):
                raise
            failed = f"metric {weighed.name!r} failed{_place_in(weighed.metric, error, root)}"
            logger.warning("%s", failed, exc_info=True, extra={"is_told": is_told})
            # Code that asks nobody does the same with the same submission.
            may_pass = not isinstance(weighed.metric, CodeMetric) or isinstance(error, OSError)
            raise EvaluationError(f"{failed}: {in_words(error)}", retryable=may_pass) from error
    if not isinstance(score, MetricScore):
        raise EvaluationError(f"metric {weighed.name!r} gave no MetricScore but {type(score).__name__}")
    comment = whole_text(score.evaluator_comment)
    return score.model_copy(update={"metric_name": weighed.name, "evaluator_comment": comment})


async def _known_or_scored(
    known: dict[str, MetricScore], weighed: _Weighed, request: EvaluationRequest, root: Path | None
) -> MetricScore:
    if weighed.name in known:
        return known[weighed.name]
    score = await _scored(weighed, request, root)
    # Code that asks nobody measures again at no cost, perhaps mended by then.
    if isfinite(score.score) and not isinstance(weighed.metric, CodeMetric):
        known[weighed.name] = score
    return score


def _place_in(metric: BaseMetric, error: BaseException, root: Path | None) -> str:
    place = place_in(type(metric), error, root)
    return "" if place is None else f" at {place.file}, line {place.line}"


async def _scored_or_failed(
    weighed: _Weighed, request: EvaluationRequest, root: Path | None
) -> MetricScore | EvaluationError:
    try:
        return await _scored(weighed, request, root, is_told=True)
    except EvaluationError as error:
        return error
