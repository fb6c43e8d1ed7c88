"""Other judges over recorded submissions: nothing is generated again, and nothing is paid for twice.

Every judge's call is kept in the journal under an id that follows from the execution and the evaluator, so that the
same question finds its answer the next time, also when the process died half-way. A judge that is asked exactly what it
was asked in the execution itself or under another such id, because only weights or other metrics changed, is not asked
again at all.
"""

import asyncio
import hashlib
import json
import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from math import isfinite
from pathlib import Path
from typing import Any

from pydantic import computed_field
from pydantic_ai import UserContent
from pydantic_core import to_jsonable_python

from mixseek.config.manager import ConfigurationManager, redactor_of
from mixseek.config.schema import EvaluatorSettings, PromptBuilderSettings
from mixseek.errors import (
    ConfigurationError,
    EvaluationError,
    PlaceLostError,
    PlaceTakenError,
    StorageError,
)
from mixseek.evaluator import Evaluator
from mixseek.events import Listener
from mixseek.hindsight.borrowing import BorrowingJournal
from mixseek.llm import Backoff, Scope, attached_text, calling
from mixseek.orchestrator.estimate import Estimate, estimate_judging
from mixseek.orchestrator.single import (
    Surroundings,
    bill_of,
    failing_template_told,
    refuse_unpayable,
    refuse_unpriced,
    shortage_told,
)
from mixseek.prompt_builder import EvaluatorPromptContext, UserPromptBuilder
from mixseek.prompt_builder.fence import new_nonce
from mixseek.prompt_builder.formatters import get_current_datetime_with_timezone
from mixseek.records import (
    Attachment,
    EvaluationRequest,
    LostUsage,
    MetricScore,
    ModelUsage,
    Record,
    Standing,
    Usage,
    order_standings,
    utc_now,
)
from mixseek.report.players import refuse_while_played
from mixseek.report.reading import load_execution
from mixseek.report.record import ExecutionRecord, RoundRecord, Status, TeamRecord
from mixseek.round_controller.run import Run, open_run
from mixseek.storage.attachments import read_kept_attachments
from mixseek.storage.journal import RoundPrompt, derived_id
from mixseek.templating import TEXTS
from mixseek.workspace import Workspace

__all__ = ["Cell", "RejudgePlan", "RejudgedRound", "RejudgedTeam", "Rejudgment", "plan_rejudging", "rejudge"]


class Cell(Record):
    """What one metric says of one submission; without a score, ``error`` says why."""

    metric_name: str
    weight: float
    score: float | None = None
    evaluator_comment: str = ""
    error: str | None = None


class RejudgedRound(Record):
    """One submission, judged anew."""

    round_number: int
    old_score: float | None
    new_score: float | None = None
    """None where a metric gave no score, or there is no submission."""
    metrics: tuple[Cell, ...] = ()


class RejudgedTeam(Record):
    """Where a team stood, and where it stands by the new scores."""

    team_id: str
    team_name: str
    old_rank: int | None = None
    old_score: float | None = None
    old_round: int | None = None
    new_rank: int | None = None
    new_score: float | None = None
    new_round: int | None = None
    rounds: tuple[RejudgedRound, ...] = ()

    @computed_field  # type: ignore[prop-decorator]
    @property
    def moved(self) -> int | None:
        """How many places it went up, or down below zero; None where it has or had none."""
        return None if self.old_rank is None or self.new_rank is None else self.old_rank - self.new_rank


class Rejudgment(Record):
    """An execution as other judges see it, and what asking them took this time."""

    execution_id: str
    journal_id: str
    """The id under which the judges' calls are kept."""
    user_prompt: str
    status: Status
    """How the execution itself stands."""
    old_winner: str | None = None
    new_winner: str | None = None
    """Ids of teams."""
    teams: tuple[RejudgedTeam, ...]
    """By their new rank; after them those without one, by id."""
    submissions: int
    failed_metrics: int
    """How many scores there are not, of all metrics of all submissions."""
    reused_calls: int
    """How many calls the journal had the answers to."""
    seconds: float
    usage: Usage = Usage()
    cost_usd: float | None = None
    bill: tuple[ModelUsage, ...] = ()
    lost: tuple[LostUsage, ...] = ()
    """What these judges may have been paid beyond all bills, the times before included."""
    lost_before: int = 0
    """How many of these attempts were made when the same was asked before."""


class RejudgePlan(Record):
    """What judging again would take."""

    execution_id: str
    journal_id: str
    status: Status
    submissions: int
    metrics: tuple[str, ...]
    judges: tuple[str, ...]
    """The metrics that ask a model."""
    calls: int
    """How many calls would be made, if none has to be repeated."""
    reused_calls: int
    """How many the journal has the answers to."""
    estimate: Estimate
    """What those that would be made may take."""


async def rejudge(
    execution_id: str,
    evaluator: EvaluatorSettings | Path | str,
    workspace: Path | str | Workspace | None = None,
    *,
    around: Surroundings | None = None,
    reference: str | None = None,
    listeners: Sequence[Listener] = (),
    backoff: Backoff | None = None,
) -> Rejudgment:
    """Judge every recorded submission of an execution by the metrics of ``evaluator``, a file or settings.

    ``around`` and ``reference`` replace the settings of the workspace and the reference answer of the record.
    """
    started = time.monotonic()
    asked = await _asked(execution_id, evaluator, workspace, around, reference)
    async with _judging(asked, listeners, backoff) as judging:
        with shortage_told(asked.around, "the same again asks only what was not answered"):
            rounds = await _all_rounds(judging)
    teams = _teams(asked.record, rounds)
    return Rejudgment(
        execution_id=asked.record.execution_id,
        journal_id=asked.journal_id,
        user_prompt=asked.record.user_prompt,
        status=asked.record.status,
        old_winner=next((team.team_id for team in asked.record.teams if team.rank == 1), None),
        new_winner=next((team.team_id for team in teams if team.new_rank == 1), None),
        teams=teams,
        submissions=len(rounds),
        failed_metrics=sum(cell.error is not None for one in rounds.values() for cell in one.metrics),
        reused_calls=judging.answers.reused,
        **bill_of(judging.run, started),
        lost=tuple(judging.run.meter.lost),
        lost_before=judging.lost_before,
    )


async def plan_rejudging(
    execution_id: str,
    evaluator: EvaluatorSettings | Path | str,
    workspace: Path | str | Workspace | None = None,
    *,
    around: Surroundings | None = None,
    reference: str | None = None,
) -> RejudgePlan:
    """What :func:`rejudge` would ask for; nobody is asked, and nothing is written."""
    asked = await _asked(execution_id, evaluator, workspace, around, reference)
    async with _judging(asked, (), None, closed=True) as judging:
        await _all_rounds(judging)
    return RejudgePlan(
        execution_id=asked.record.execution_id,
        journal_id=asked.journal_id,
        status=asked.record.status,
        submissions=len(_submissions(asked.record)),
        metrics=tuple(metric.name for metric in asked.settings.metrics),
        judges=tuple(judging.judges),
        calls=len(judging.answers.missing),
        reused_calls=judging.answers.reused,
        estimate=_estimate(judging),
    )


def _estimate(judging: "_Judging") -> Estimate:
    asked = judging.asked
    beside = [asked.record.user_prompt, *map(str, judging.beside)]
    if asked.reference and judging.evaluator.shows_reference:
        beside.append(asked.reference)
    read = {
        (team.team_id, one.round_number): sum(
            len(text.encode("utf-8", "surrogatepass")) for text in (*beside, submitted)
        )
        for team, one, submitted in _submissions(asked.record)
    }
    calls = [(scope.agent_name, read[scope.team_id, scope.round_number]) for scope in judging.answers.missing]
    return estimate_judging(
        asked.settings, calls, judging.run.hub, asked.around.orchestrator.budget, judging.run.purses.used
    )


# --- what is asked ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Asked:
    """An execution, and by whom it is to be judged."""

    record: ExecutionRecord
    settings: EvaluatorSettings
    around: Surroundings
    reference: str | None

    @property
    def journal_id(self) -> str:
        """Follows from the execution and all that judges see; weights are none of it, so that they cost no call."""
        metrics = [metric.model_copy(update={"weight": None}) for metric in self.settings.metrics]
        seen = [self.settings.model_copy(update={"metrics": metrics}), self.around.prompts, self.reference]
        text = json.dumps(to_jsonable_python(seen, fallback=str), sort_keys=True)
        digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
        return derived_id(self.record.execution_id, f"rejudged-{digest[:16]}")


async def _asked(
    execution_id: str,
    evaluator: EvaluatorSettings | Path | str,
    workspace: Path | str | Workspace | None,
    around: Surroundings | None,
    reference: str | None,
) -> _Asked:
    if around is None:
        around = Surroundings.of(ConfigurationManager(workspace))
    record = await load_execution(around.workspace, execution_id)
    if not isinstance(evaluator, EvaluatorSettings):
        manager = ConfigurationManager(around.workspace)
        evaluator = await asyncio.to_thread(manager.get_evaluator_settings, Path(evaluator), for_a_run=True)
    await refuse_while_played(around.workspace, execution_id, judges_may=True)
    if not _submissions(record):
        raise ConfigurationError(f"execution {execution_id!r} has no submission that could be judged")
    return _Asked(record, evaluator, around, reference or record.reference)


def _submissions(record: ExecutionRecord) -> list[tuple[TeamRecord, RoundRecord, str]]:
    return [(team, one, one.submission) for team in record.teams for one in team.rounds if one.submission]


# --- judging ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Judging:
    """Judges at work."""

    asked: _Asked
    run: Run
    answers: BorrowingJournal
    evaluator: Evaluator
    beside: Sequence[UserContent]
    """What came with the task, as far as judges are shown it."""
    lost_before: int
    """How many attempts broke off, or told no usage, when the same was asked before."""
    closed: bool

    @property
    def judges(self) -> list[str]:
        return self.evaluator.judges


@asynccontextmanager
async def _judging(
    asked: _Asked, listeners: Sequence[Listener], backoff: Backoff | None, *, closed: bool = False
) -> AsyncGenerator[_Judging]:
    around = asked.around
    run = open_run(
        asked.journal_id,
        around.workspace,
        save_db=False,
        providers=around.providers,
        orchestrator=around.orchestrator,
        listeners=listeners,
        backoff=backoff,
    )
    redactor = redactor_of(ConfigurationManager(around.workspace).environ, around.providers)
    answers = BorrowingJournal(around.workspace.journal, asked.record.execution_id, redactor=redactor, closed=closed)
    async with answers, _undisturbed(asked, answers, closed=closed):
        run.meter.journal, run.meter.reuse_answers = answers, True
        beside = attached_text(await _attachments(asked), TEXTS[around.prompts.language])
        evaluator = Evaluator(
            asked.settings, around.prompts, hub=run.hub, workspace=around.workspace.root, beside=beside
        )
        evaluator.require_reference(asked.reference)
        if closed:
            evaluator = evaluator.judges_alone()
        async with run:
            refuse_unpriced(run, asked.settings, around)
            refuse_unpayable(run, asked.settings, around)
            if not closed:
                await run.hub.prepare()
            # One budget for these judges, however often they are asked: the command says to give it again.
            run.meter.begin_with(await answers.spending(asked.journal_id))
            lost_before = sum(line.attempts for line in run.meter.lost)
            if not closed:
                run.purses.start()
            yield _Judging(asked, run, answers, evaluator, beside, lost_before, closed)


@asynccontextmanager
async def _undisturbed(asked: _Asked, answers: BorrowingJournal, *, closed: bool) -> AsyncGenerator[None]:
    """As the only process that asks these judges: two would pay for the same. Who only looks takes no place."""
    if closed:
        yield
        return
    try:
        await answers.take_place(asked.journal_id, asked.around.workspace.database)
    except PlaceTakenError as error:
        raise PlaceTakenError(
            f"execution {asked.record.execution_id!r} is being judged by the same judges, by {error.holder}: "
            "wait until it is over, and the answers cost nothing; or end that process first",
            holder=error.holder,
        ) from error
    try:
        yield
    finally:
        await answers.leave_place()


async def _attachments(asked: _Asked) -> Sequence[Attachment]:
    """What came with the task; what is not kept as it was is refused, since judges would be shown something else."""
    directory = asked.around.workspace.attachments
    try:
        return await asyncio.to_thread(read_kept_attachments, directory, asked.record.attachments)
    except StorageError as error:
        raise ConfigurationError(f"judges would be shown something else than before: {error}") from error


_Place = tuple[str, int]


async def _all_rounds(judging: _Judging) -> dict[_Place, RejudgedRound]:
    """Every submission, as many at once as teams would play."""
    places = asyncio.Semaphore(judging.asked.around.orchestrator.max_concurrent_teams)

    async def judged(
        one: RoundRecord, request: EvaluationRequest, told: dict[str, str]
    ) -> tuple[_Place, RejudgedRound]:
        async with places:
            return (request.team_id or "", one.round_number), await _judged(judging, one, request, told)

    # A template that fails for one submission does so before the judges of another are paid.
    prompted = [
        (one, request := _request(judging.asked, team, one, submission), await _prompts(judging, request))
        for team, one, submission in _submissions(judging.asked.record)
    ]
    tasks = [asyncio.create_task(judged(*each)) for each in prompted]
    try:
        return dict(await asyncio.gather(*tasks))
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _request(asked: _Asked, team: TeamRecord, one: RoundRecord, submission: str) -> EvaluationRequest:
    return EvaluationRequest(
        user_query=asked.record.user_prompt,
        submission=submission,
        execution_id=asked.journal_id,
        team_id=team.team_id,
        round_number=one.round_number,
        reference=asked.reference,
    )


async def _judged(
    judging: _Judging, one: RoundRecord, request: EvaluationRequest, prompts: dict[str, str]
) -> RejudgedRound:
    evaluator, team_id = judging.evaluator, request.team_id or ""
    scope = Scope(
        execution_id=judging.asked.journal_id,
        team_id=team_id,
        round_number=one.round_number,
        role="evaluator",
        agent_name="evaluator",
    )
    with calling(scope, judging.run.meter):
        async with judging.run.before_time_is_up(team_id):
            results = await evaluator.evaluate_each(request, **prompts)
    cells = [_cell(*each) for each in zip(evaluator.weights.items(), results, strict=True)]
    scores = [result for result in results if isinstance(result, MetricScore)]
    return RejudgedRound(
        round_number=one.round_number,
        old_score=one.score,
        new_score=evaluator.weigh(scores) if len(scores) == len(results) else None,
        metrics=tuple(cells),
    )


def _cell(metric: tuple[str, float], result: MetricScore | EvaluationError) -> Cell:
    name, weight = metric
    if isinstance(result, EvaluationError):
        if isinstance(result.__cause__, StorageError | PlaceLostError):
            raise result.__cause__  # what is asked now would be paid for and lost
        return Cell(metric_name=name, weight=weight, error=str(result))
    if not isfinite(result.score):
        error = "gave no finite number"
        return Cell(metric_name=name, weight=weight, evaluator_comment=result.evaluator_comment, error=error)
    return Cell(metric_name=name, weight=weight, score=result.score, evaluator_comment=result.evaluator_comment)


async def _prompts(judging: _Judging, request: EvaluationRequest) -> dict[str, str]:
    if not judging.judges:
        return {}
    prompts = {"prompt": await _prompt(judging, request, "evaluator")}
    if judging.evaluator.shows_reference:
        prompts["reference_prompt"] = await _prompt(judging, request, "evaluator_with_reference")
    return prompts


async def _prompt(judging: _Judging, request: EvaluationRequest, role: str) -> str:
    """What judges are told: as it was told them last time, or with the clock and the nonce of the first time."""
    where = request.team_id or "", request.round_number or 0, role
    known = await judging.answers.find_prompt(judging.asked.journal_id, *where)
    if known is not None:
        return known.text
    first = await judging.answers.find_first_prompt(*where)
    clock = first.clock if first and first.clock else get_current_datetime_with_timezone()
    nonce = first.nonce if first and first.nonce else new_nonce()
    around = judging.asked.around
    with failing_template_told(around, f"for round {where[1]} of team {where[0]!r}"):
        text = _built(around.prompts, request, clock, nonce, with_reference=role != "evaluator")
    if not judging.closed:
        await judging.answers.record_prompt(
            RoundPrompt(
                execution_id=judging.asked.journal_id,
                team_id=where[0],
                round_number=where[1],
                role=role,
                text=text,
                clock=clock,
                nonce=nonce,
                made_at=utc_now(),
            )
        )
    return text


def _built(
    settings: PromptBuilderSettings, request: EvaluationRequest, clock: str, nonce: str, *, with_reference: bool
) -> str:
    builder = UserPromptBuilder(settings=settings, clock=lambda: clock, nonce=lambda: nonce)
    return builder.build_evaluator_prompt(
        EvaluatorPromptContext(
            user_query=request.user_query,
            submission=request.submission,
            reference=request.reference if with_reference else None,
        )
    )


# --- the new ranking --------------------------------------------------------------------------------------------------


def _teams(record: ExecutionRecord, rounds: dict[_Place, RejudgedRound]) -> tuple[RejudgedTeam, ...]:
    teams = [_team(team, rounds) for team in record.teams]
    latest = {team.team_id: team.latest_round for team in record.teams}
    standings = order_standings(
        Standing(
            team_id=team.team_id,
            team_name=team.team_name,
            best_score=team.new_score,
            latest_round=latest[team.team_id],
            total_rounds=len(team.rounds),
        )
        for team in teams
        if team.new_score is not None
    )
    ranks = {standing.team_id: standing.rank for standing in standings}
    ranked = [team.model_copy(update={"new_rank": ranks.get(team.team_id)}) for team in teams]
    return tuple(sorted(ranked, key=lambda team: (team.new_rank is None, team.new_rank or 0, team.team_id)))


def _team(team: TeamRecord, rounds: dict[_Place, RejudgedRound]) -> RejudgedTeam:
    own = [
        rounds.get((team.team_id, one.round_number))
        or RejudgedRound(round_number=one.round_number, old_score=one.score)
        for one in team.rounds
    ]
    best: tuple[Any, Any] = max(
        ((one.new_score, one.round_number) for one in own if one.new_score is not None), default=(None, None)
    )
    return RejudgedTeam(
        team_id=team.team_id,
        team_name=team.team_name,
        old_rank=team.rank,
        old_score=team.best_score,
        old_round=team.best_round,
        new_score=best[0],
        new_round=best[1],
        rounds=tuple(own),
    )
