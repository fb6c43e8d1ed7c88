"""One question to one team, one member or one evaluator, with the parts of a competition and without the competition.

A team that answers once plays one round as the only team of a run, so that limits, retries, stores and events are those
of any other. A member and an evaluator are asked as a leader and a round ask them.
"""

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import uuid4

from jinja2 import TemplateError

from mixseek.agents.member.asking import ask_member as ask
from mixseek.agents.member.factory import MemberAgentFactory
from mixseek.agents.member.readiness import made_ready
from mixseek.amounts import larger_limit_words, limit_in
from mixseek.config.manager import ConfigurationManager, RunSettings, problems_within
from mixseek.config.schema import (
    EvaluatorSettings,
    MemberAgentConfig,
    OrchestratorSettings,
    PromptBuilderSettings,
    ProvidersSettings,
    Settings,
)
from mixseek.errors import BudgetExhaustedError, ConfigurationError, EvaluationError, StorageError
from mixseek.evaluator import Evaluator
from mixseek.evaluator.gates import flags_of
from mixseek.events import (
    Event,
    Listener,
    MemberFinished,
    RunFinished,
    RunInterrupted,
    SubmissionEvaluated,
    SubmissionMade,
)
from mixseek.llm import Backoff, Scope, calling
from mixseek.orchestrator.arguments import checked_backoff, checked_listeners
from mixseek.orchestrator.estimate import unpayable_answers
from mixseek.orchestrator.orchestrator import Orchestrator
from mixseek.records import (
    Attachment,
    EvaluationRequest,
    EvaluationResult,
    ExecutionSummary,
    MemberSubmission,
    MetricScore,
    ModelUsage,
    Record,
    Usage,
    cost_of,
)
from mixseek.round_controller.priced import unpriced_models
from mixseek.round_controller.run import Run, open_run
from mixseek.templating import TEXTS, with_place
from mixseek.workspace import Workspace

__all__ = [
    "Bill",
    "EvaluationAnswer",
    "MemberAnswer",
    "Surroundings",
    "TeamAlone",
    "TeamAnswer",
    "ask_member",
    "ask_team",
    "bill_of",
    "evaluate_submission",
    "failing_template_told",
    "refuse_unpayable",
    "refuse_unpriced",
    "shortage_told",
]

logger = logging.getLogger(__name__)

_ALONE = "alone"
_LONGEST_SECONDS = 300


@dataclass(frozen=True)
class Surroundings:
    """What a question needs beside whom it is asked."""

    workspace: Workspace
    prompts: PromptBuilderSettings
    providers: ProvidersSettings
    orchestrator: OrchestratorSettings
    """For its prices and its budget."""

    @classmethod
    def of(cls, manager: ConfigurationManager) -> "Surroundings":
        """What whoever is asked in a workspace needs, by the workspace's own files."""
        return cls(
            manager.workspace,
            manager.get_prompt_builder_settings(),
            manager.get_providers_settings(),
            manager.own_prices_and_storage(),
        )


class Bill(Record):
    """What an answer took."""

    seconds: float
    usage: Usage = Usage()
    cost_usd: float | None = None
    bill: tuple[ModelUsage, ...] = ()


class TeamAnswer(Bill):
    """What one team made of one task in one round."""

    execution_id: str
    user_prompt: str
    team_id: str
    team_name: str
    answer: str | None = None
    """None: there is none, and ``error`` says why."""
    answer_format: str = "md"
    score: float | None = None
    metrics: tuple[MetricScore, ...] = ()
    flags: tuple[str, ...] = ()
    error: str | None = None
    """Why there is no answer, or no score although one was asked for."""
    interrupted: bool = False
    """Whether the team was stopped before it was done."""
    members: tuple[MemberSubmission, ...] = ()
    """Every call of a member, in their order."""


class MemberAnswer(Bill):
    """What one member made of one task."""

    task: str
    result: MemberSubmission


class EvaluationAnswer(Bill):
    """What an evaluator says of one submission."""

    request: EvaluationRequest
    result: EvaluationResult
    failures: tuple[str, ...] = ()
    """Why metrics could not score, if any could not; those of the others are in ``result``."""


async def ask_team(
    settings: RunSettings,
    task: str,
    *,
    save_db: bool = False,
    attachments: Sequence[Attachment | Path | str] = (),
    listeners: Sequence[Listener] = (),
    backoff: Backoff | None = None,
) -> TeamAnswer:
    """Let the one team of these settings answer; how many rounds it has, and whether it is scored, they say."""
    alone = TeamAlone(settings, save_db=save_db, listeners=listeners, backoff=backoff)
    return await alone.answer(task, attachments=attachments)


class TeamAlone:
    """The one team of some settings, which answers once, unless :meth:`stop` ends it."""

    def __init__(
        self,
        settings: RunSettings,
        *,
        save_db: bool = False,
        listeners: Sequence[Listener] = (),
        backoff: Backoff | None = None,
    ) -> None:
        self._settings = settings
        self._heard = _Heard()
        heard_by: list[Listener] = [self._heard, *checked_listeners(listeners)]
        self._orchestrator = Orchestrator(settings, save_db=save_db, listeners=heard_by, backoff=backoff)

    async def answer(self, task: str, *, attachments: Sequence[Attachment | Path | str] = ()) -> TeamAnswer:
        """What the team makes of a task, as far as it comes."""
        try:
            summary = await self._orchestrator.execute(task, attachments=attachments)
        except StorageError:
            # What the team did is paid for, and known even if it could not be stored.
            if self._heard.summary is None:
                raise
            logger.exception("what the team did could not be stored")
            summary = self._heard.summary
        return _team_answer(task, self._settings, self._heard, summary)

    def stop(self) -> None:
        """End it soon, from any thread or a signal handler; the answer then is what there is of it."""
        self._orchestrator.stop()


def _team_answer(task: str, settings: RunSettings, heard: "_Heard", summary: ExecutionSummary) -> TeamAnswer:
    [team] = settings.teams
    error = next((failed.error_message for failed in summary.failed_teams_info), None)
    return TeamAnswer(
        execution_id=summary.execution_id,
        user_prompt=task,
        team_id=team.team_id,
        team_name=team.team_name,
        answer=heard.answer,
        answer_format="md" if team.answer_schema is None and settings.orchestrator.answer_schema is None else "json",
        score=heard.evaluated.score if heard.evaluated else None,
        metrics=tuple(heard.evaluated.metrics) if heard.evaluated else (),
        flags=tuple(heard.evaluated.flags) if heard.evaluated else (),
        error=error or ("interrupted before it began" if summary.interrupted else None),
        interrupted=summary.interrupted,
        members=tuple(heard.members),
        seconds=summary.total_execution_time_seconds,
        usage=summary.usage,
        cost_usd=summary.cost_usd,
        bill=tuple(summary.bill),
    )


@dataclass
class _Heard:
    """What a team gave, also where it failed afterwards."""

    answer: str | None = None
    evaluated: SubmissionEvaluated | None = None
    summary: ExecutionSummary | None = None
    members: list[MemberSubmission] = field(default_factory=list)

    def __call__(self, event: Event) -> None:
        match event:
            case MemberFinished():
                self.members.append(event.submission)
            case SubmissionMade():
                self.answer = event.submission_content
            case SubmissionEvaluated():
                self.evaluated = event
            case RunFinished() | RunInterrupted():
                self.summary = event.summary


async def ask_member(
    config: MemberAgentConfig,
    task: str,
    around: Surroundings,
    *,
    listeners: Sequence[Listener] = (),
    backoff: Backoff | None = None,
) -> MemberAnswer:
    """Ask one member; that it failed is a result too, but what the user can mend is raised before any call."""
    started = time.monotonic()
    if config.timeout_seconds is None:
        config = config.model_copy(update={"timeout_seconds": _LONGEST_SECONDS})
    async with _running(around, listeners, backoff) as run:
        texts = TEXTS[around.prompts.language]
        member = MemberAgentFactory.create_agent(config, workspace=around.workspace, texts=texts)
        member.check_model(run.hub)
        refuse_unpriced(run, config, around)
        scope = Scope(
            execution_id=run.execution_id, team_id=_ALONE, round_number=1, role="member", agent_name=config.name
        )
        async with made_ready(member) as absent:
            with calling(scope, run.meter):
                async with run.before_time_is_up(_ALONE):
                    given = await ask(member, task, scope, run.tell, absent=absent)
        return MemberAnswer(task=task, result=given.submission, **bill_of(run, started))


async def evaluate_submission(
    settings: EvaluatorSettings,
    request: EvaluationRequest,
    around: Surroundings,
    *,
    listeners: Sequence[Listener] = (),
    backoff: Backoff | None = None,
) -> EvaluationAnswer:
    """Score one submission; a metric that cannot is told in ``failures`` and costs the scores of no other."""
    started = time.monotonic()
    async with _running(around, listeners, backoff) as run:
        evaluator = Evaluator(settings, around.prompts, hub=run.hub, workspace=around.workspace.root)
        evaluator.require_reference(request.reference)
        refuse_unpriced(run, settings, around)
        scope = Scope(
            execution_id=run.execution_id, team_id=_ALONE, round_number=1, role="evaluator", agent_name="evaluator"
        )
        with calling(scope, run.meter), shortage_told(around, "this submission can be scored"):
            async with run.before_time_is_up(_ALONE):
                with failing_template_told(around, "for this submission"):
                    found = await evaluator.evaluate_each(request)
        failures = tuple(str(each) for each in found if isinstance(each, EvaluationError))
        result = await _told_together(found, evaluator, request)
        return EvaluationAnswer(request=request, result=result, failures=failures, **bill_of(run, started))


async def _told_together(
    found: Sequence[MetricScore | EvaluationError], evaluator: Evaluator, request: EvaluationRequest
) -> EvaluationResult:
    """What the metrics say, those of them that can; the sum of a part must not pass for that of all."""
    scores = [each for each in found if isinstance(each, MetricScore)]
    overall = evaluator.weigh(scores) if len(scores) == len(found) else None
    flags = await asyncio.to_thread(flags_of, request.submission, request.user_query, {})
    return EvaluationResult(metrics=scores, overall_score=overall, flags=flags)


@asynccontextmanager
async def _running(around: Surroundings, listeners: Sequence[Listener], backoff: Backoff | None) -> AsyncGenerator[Run]:
    run = open_run(
        str(uuid4()),
        around.workspace,
        save_db=False,
        providers=around.providers,
        orchestrator=around.orchestrator,
        listeners=checked_listeners(listeners),
        backoff=checked_backoff(backoff),
    )
    async with run:
        run.purses.start()
        yield run


@contextmanager
def failing_template_told(around: Surroundings, when: str) -> Iterator[None]:
    """A prompt template for judges that fails inside is raised as what the user can mend."""
    try:
        yield
    except TemplateError as error:
        told = ConfigurationError(f"fails {when}, correct it: {with_place(error)}")
        raise ConfigurationError(problems_within(around.prompts, ("evaluator_user_prompt",), told)) from error


@contextmanager
def shortage_told(around: Surroundings, then: str) -> Iterator[None]:
    """A budget that cannot pay for all judges is told with its place, and with what to do and what comes ``then``."""
    try:
        yield
    except BudgetExhaustedError as error:
        remedy = larger_limit_words([str(error)])
        if remedy is None:
            raise
        told = ConfigurationError(f"{error}; {remedy}, {then}")
        problems = problems_within(around.orchestrator, ("budget", str(limit_in(str(error)))), told)
        raise BudgetExhaustedError("; ".join(map(str, problems))) from error


def refuse_unpriced(run: Run, settings: Settings, around: Surroundings) -> None:
    """Raise ConfigurationError if the budget counts money and a model of these settings has no price."""
    problems = unpriced_models(run, _ALONE, [settings], around.workspace, has_file=True)
    if problems:
        raise ConfigurationError(problems)


def refuse_unpayable(run: Run, settings: EvaluatorSettings, around: Surroundings) -> None:
    """Raise ConfigurationError if the budget could not pay for one answer of a judge of these settings."""
    problems = unpayable_answers(around.orchestrator, settings, run.purses.max_output_tokens(_ALONE), run.hub)
    if problems:
        raise ConfigurationError(list(dict.fromkeys(problems)))


def bill_of(run: Run, started: float) -> dict[str, Any]:
    """What was consumed since a moment of the monotonic clock, as the fields of a :class:`Bill`."""
    bill = run.meter.bill()
    return {
        "seconds": time.monotonic() - started,
        "usage": run.meter.usage,
        "cost_usd": cost_of(bill),
        "bill": tuple(bill),
    }
