"""One team's rounds: prompt, leader, evaluator, leader board, judgment, and again.

The controller can be started again after a failure: finished rounds stay as they are, a submission that could not be
scored is scored again, and only what is missing is played.
"""

import inspect
import logging
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import AsyncExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING

from jinja2 import TemplateError
from pydantic import JsonValue
from pydantic_ai import UserContent

from mixseek.agents.leader.agent import LEADER, Leader, Turn
from mixseek.agents.member.base import BaseMemberAgent
from mixseek.agents.member.factory import MemberAgentFactory
from mixseek.agents.member.readiness import made_ready
from mixseek.config.answer_schema import load_answer_schema
from mixseek.config.layers import KeyPath
from mixseek.config.manager import ConfigurationManager, is_explicit, problems_within, read_team_settings
from mixseek.config.schema import (
    EvaluatorSettings,
    JudgmentSettings,
    PromptBuilderSettings,
    RoundPromptConfig,
    TeamSettings,
)
from mixseek.crash_points import reach
from mixseek.errors import (
    BudgetExhaustedError,
    ConfigurationError,
    EvaluationError,
    NoResultError,
    Problem,
    RoundTimeoutError,
    SubmissionError,
    TeamTimeoutError,
)
from mixseek.evaluator import Evaluator
from mixseek.events import (
    AttachmentsKept,
    HistoryKept,
    RoundFailed,
    RoundFinished,
    RoundJudged,
    RoundStarted,
    SubmissionEvaluated,
    SubmissionMade,
    SubmissionUnscored,
    TeamFinished,
)
from mixseek.judgment import Decision, Judgment, decide_by_rule, go_on, settle, stop_for_want
from mixseek.llm import PatientTimeout, Scope, attached_text, calling
from mixseek.prompt_builder import PromptBuilder, RoundPromptContext, TeamPromptBuilder
from mixseek.prompt_builder.formatters import one_line
from mixseek.records import (
    EvaluationRequest,
    EvaluationResult,
    ExitReason,
    ImprovementJudgment,
    LeaderBoardEntry,
    MemberSubmission,
    MemberSubmissionsRecord,
    MetricScore,
    ModelRole,
    ModelUsage,
    OrchestratorTask,
    RoundResult,
    RoundState,
    Standing,
    Usage,
    utc_now,
)
from mixseek.round_controller.prompts import RoundPrompts
from mixseek.round_controller.restored import RestoredTeam
from mixseek.round_controller.run import Run, as_final, best_entry, open_run, standing_of
from mixseek.round_controller.uncut import Backlog, beside, uncut
from mixseek.storage.aggregation_store import AggregationStore
from mixseek.strangers import alone, is_for_us
from mixseek.templating import TEXTS, Texts, with_place
from mixseek.workspace import Workspace

if TYPE_CHECKING:
    from mixseek.json_schema import JsonSchema

__all__ = ["OnRoundCompleteCallback", "RoundController"]

logger = logging.getLogger(__name__)

NOT_FINITE = "the mean of its metrics is no finite number"
NOT_ASKED = "nobody was asked to score it"

OnRoundCompleteCallback = Callable[[RoundState, list[MemberSubmission]], Awaitable[None] | None]
"""Called after every round, and awaited if it can be; what it raises is logged and never stops a run."""


@dataclass(frozen=True)
class _Submitted:
    """A submission that is made and kept, and may still have to be scored."""

    number: int
    turn: Turn
    started_at: datetime
    history: HistoryKept | None
    """What the store is to have of it; None for what an older version left without it."""
    known: dict[str, MetricScore] = field(default_factory=dict)
    """What metrics said of it in tries in which others failed: nobody pays for that twice."""


class RoundController:
    """Plays the rounds of one team. One instance belongs to one team and one event loop.

    Without ``evaluator_settings`` nobody scores, and the last submission is the team's result.
    """

    def __init__(
        self,
        team_config_path: Path,
        workspace: Path | Workspace,
        task: OrchestratorTask,
        evaluator_settings: EvaluatorSettings | None,
        judgment_settings: JudgmentSettings,
        prompt_builder_settings: PromptBuilderSettings,
        save_db: bool = True,
        on_round_complete: OnRoundCompleteCallback | None = None,
        *,
        prompt_builder: PromptBuilder | TeamPromptBuilder | None = None,
        prompt_config: RoundPromptConfig | None = None,
        template_dir: Path | None = None,
        team_settings: TeamSettings | None = None,
        store: AggregationStore | None = None,
        run: Run | None = None,
        answer_schema: "JsonSchema | None" = None,
    ) -> None:
        self._place = Workspace.locate(workspace)
        self._task = task
        self._team = team_settings or read_team_settings(team_config_path, self._place.root)
        self._on_round_complete = on_round_complete
        self._owns_run = run is None
        self._run = run or open_run(
            task.execution_id,
            self._place,
            store=store,
            save_db=save_db,
            providers=ConfigurationManager(self._place).get_providers_settings(),
        )
        texts = TEXTS[prompt_builder_settings.language]
        self._members = self._made_members(texts)
        self._schema = self._own_schema() or answer_schema
        self._run.purses.open(self._team.team_id, self._team.budget)
        self._check_models()
        self._leader = Leader(
            self._team,
            self._members,
            self._run.hub,
            answer_schema=self._schema,
            attachments=task.attachments,
            texts=texts,
        )
        read = attached_text(task.attachments, texts)
        self._evaluator = self._judges(evaluator_settings, prompt_builder_settings, read)
        self._judgment = Judgment(judgment_settings, self._run.hub, beside=read, texts=texts)
        self._prompts = RoundPrompts(
            prompt_builder_settings,
            strategy=prompt_builder,
            template_dir=template_dir or _templates_of(self._place, prompt_builder_settings),
            config=prompt_config,
            journal=self._run.journal,
        )
        self._prompts.reuse = self._run.replays
        self._history: list[RoundState] = []
        self._entries: list[LeaderBoardEntry] = []
        self._decided: dict[int, bool] = {}
        self._backlog = Backlog()
        """What the store is still to have of rounds that the journal has."""
        self._unscored: _Submitted | None = None
        self._unscored_entry: LeaderBoardEntry | None = None
        self._exit_reason: ExitReason = "max_rounds_reached"
        self._attempt = 0
        self._user_prompt = task.user_prompt
        self.ran_out_because: str | None = None
        """What its budget could not pay for in the middle of a round that was broken off."""
        self.stood_still = 0.0
        """Seconds in which the team's time stood still, because its calls waited for their turn at a provider."""

    def _made_members(self, texts: Texts) -> list[BaseMemberAgent]:
        """All members; what is wrong with those that cannot be made is told at once."""
        members: list[BaseMemberAgent] = []
        problems: list[Problem] = []
        for each in self._team.members:
            try:
                members.append(MemberAgentFactory.create_agent(each, workspace=self._place, texts=texts))
            except ConfigurationError as error:
                problems += error.problems
        if problems:
            raise ConfigurationError(problems)
        return members

    def _judges(
        self, settings: EvaluatorSettings | None, prompts: PromptBuilderSettings, beside: Sequence[UserContent]
    ) -> Evaluator | None:
        if settings is None:
            return None
        made = Evaluator(settings, prompts, hub=self._run.hub, workspace=self._place.root, beside=beside)
        made.require_reference(self._task.reference)
        return made

    def get_team_id(self) -> str:
        """The team's id."""
        return self._team.team_id

    def get_team_name(self) -> str:
        """The team's name."""
        return self._team.team_name

    def restore(self, team: RestoredTeam, outdated: frozenset[str] = frozenset()) -> None:
        """Take up the team where another process left it; its next try is the one that it was in.

        Prompts of the roles that are ``outdated`` are made anew, since they would say something else by now.
        """
        for finished in team.rounds:
            self._entries.append(finished.entry)
            self._run.memory.put(finished.entry)
            if finished.verdict is not None:
                # Whatever a model thought of it: a team that stops has a reason.
                self._decided[finished.state.round_number] = finished.verdict.exit_reason is None
                self._exit_reason = finished.verdict.exit_reason or self._exit_reason
        self._history = [finished.state for finished in team.rounds]
        if team.rounds and team.rounds[-1].verdict is not None:
            # What was told last may not have been written any more; the same goes for the messages of a submission.
            self._backlog.add(partial(self._save_verdict, team.rounds[-1].verdict, team.rounds[-1].state))
        if team.submission is not None:
            made = team.submission
            turn = Turn(made.content, list(made.members), list(made.messages))
            known = {score.metric_name: score for score in made.known}
            self._unscored = _Submitted(made.round_number, turn, made.started_at, made.history, known)
        self._attempt = team.attempt - 1
        self._prompts.reuse, self._prompts.outdated = True, outdated

    # --- the loop -----------------------------------------------------------------------------------------------------

    async def run_round(self, user_prompt: str, timeout_seconds: float) -> LeaderBoardEntry:
        """Play all rounds and return the best; called again after a failure, it goes on where it stopped."""
        self._attempt += 1
        self._user_prompt = user_prompt
        self._run.purses.start(self._team.team_id)
        limit = PatientTimeout(timeout_seconds)
        try:
            # Around the limit: letting go of what was taken has a limit of its own, and costs nobody a result.
            async with AsyncExitStack() as taken:
                async with limit:
                    await self._get_ready(taken)
                    best = await self._play_rounds()
                    if self._owns_run:
                        await self._run.tell_for_good(
                            TeamFinished(**self._where(), team_name=self._team.team_name, best=best)
                        )
                return best
        except TimeoutError as error:
            if not limit.expired():
                raise
            raise TeamTimeoutError(timeout_seconds) from error
        finally:
            self.stood_still += limit.stood_still
            # A further try is a new one: it is told how things stand by then.
            self._prompts.reuse = self._run.replays

    async def run_round_with_timeout(self, user_prompt: str, timeout_seconds: float) -> RoundResult:
        """:meth:`run_round` with what it consumed and how long it took."""
        started = time.monotonic()
        best = await self.run_round(user_prompt, timeout_seconds)
        state = self._history[best.round_number - 1]
        return RoundResult(
            execution_id=best.execution_id,
            team_id=best.team_id,
            team_name=best.team_name,
            round_number=best.round_number,
            submission_content=best.submission_content,
            evaluation_score=best.score,
            evaluation_feedback=state.evaluation_feedback,
            usage=_total(self._run.meter.bill(team_id=best.team_id))
            + Usage(tool_calls=self._run.meter.tool_calls(best.execution_id, best.team_id)),
            execution_time_seconds=time.monotonic() - started,
        )

    async def _play_rounds(self) -> LeaderBoardEntry:
        async with self._backlog.cleared_on_error():
            return await self._play_to_the_end()

    async def _play_to_the_end(self) -> LeaderBoardEntry:
        try:
            while await self._goes_on():
                reach("round.between")
                async with beside(self._backlog.so_far()):
                    await self._play(len(self._history) + 1)
        except BudgetExhaustedError as error:
            # The round that was broken off costs nobody a result: the best one before it counts.
            if self.standing is None and self._last_unscored() is None:
                raise
            self._exit_reason, self.ran_out_because = "budget_exhausted", str(error)
        return await self.finish(self._exit_reason)

    async def _goes_on(self) -> bool:
        """Whether there is another round; what was decided stays decided when the team is tried again."""
        if not self._history:
            return True
        latest = self._history[-1]
        # Another process may have gone on to a round that there is no more: it was taken up with fewer of them.
        is_beyond = latest.round_number >= self._task.max_rounds and self._decided.get(latest.round_number)
        if is_beyond or latest.round_number not in self._decided:
            verdict = await self._decide(latest)
            self._decided[latest.round_number] = verdict.should_continue
        return self._decided[latest.round_number]

    async def _play(self, number: int) -> RoundState:
        """One round, from the prompt to the leader board; a round without a submission has failed, but is a round."""
        await self._run.purses.begin_round(self._team.team_id)
        started_at, submissions = utc_now(), list[MemberSubmission]()
        try:
            submitted = self._unscored or await self._submit(number, started_at, submissions)
        except (SubmissionError, RoundTimeoutError) as failure:
            state = self._unscored_state(number, "", str(failure), started_at)
            await self._record(state, submissions, failed=True)
            return state
        reach("round.submitted")
        state = await self._score(submitted)
        reach("round.scored")
        await self._record(state, submitted.turn.members)
        return state

    async def _submit(self, number: int, started_at: datetime, submissions: list[MemberSubmission]) -> _Submitted:
        prompt = await self._prompts.team_prompt(self._context(number))
        self._run.tell(RoundStarted(**self._where(), round_number=number, prompt=prompt))
        limit = PatientTimeout(self._task.submission_timeout_seconds)
        turn: Turn | None = None
        try:
            with self._calling(number, "leader", LEADER) as scope:
                async with limit, self._run.before_time_is_up(self._team.team_id):
                    turn = await self._leader.play(prompt, scope, self._run.tell, submissions)
        except TimeoutError as error:
            if not limit.expired():
                raise
            raise RoundTimeoutError(f"no submission within {self._task.submission_timeout_seconds} s") from error
        finally:
            history = self._tell_history(number, submissions, [] if turn is None else turn.messages)
            if turn is None:
                # There is nothing to be scored, and so nothing beside which it could be written.
                await self._keep_history(history)
        self._run.tell(
            SubmissionMade(
                **self._where(),
                round_number=number,
                submission_content=turn.submission,
                round_started_at=started_at,
            )
        )
        return _Submitted(number, turn, started_at, history)

    async def _score(self, submitted: _Submitted) -> RoundState:
        """The scored round; a submission that cannot be scored is kept as it is, and the team's run ends there."""
        number, content = submitted.number, submitted.turn.submission
        if self._evaluator is None:
            await self._keep_history(submitted.history)
            return self._unscored_state(number, content, NOT_ASKED, submitted.started_at)
        self._unscored = submitted
        request = EvaluationRequest(
            user_query=self._user_prompt,
            submission=content,
            **self._where(),
            round_number=number,
            reference=self._task.reference,
        )
        try:
            async with beside(partial(self._keep_history, submitted.history)):
                result = await self._evaluated(self._evaluator, request, submitted)
        except (EvaluationError, BudgetExhaustedError) as error:
            state = self._unscored_state(number, content, str(error), submitted.started_at)
            unscored = SubmissionUnscored(
                **self._where(),
                state=state,
                entry=self._entry(state),
                usage=self._bill(number),
                reason=str(error),
                known=list(submitted.known.values()),
            )
            await self._save_round(unscored)
            self._unscored_entry = unscored.entry
            self._run.memory.put(unscored.entry)
            await self._run.tell_for_good(unscored)
            raise
        self._run.tell(
            SubmissionEvaluated(
                **self._where(),
                round_number=number,
                score=result.overall_score,
                metrics=result.metrics,
                flags=result.flags,
            )
        )
        if result.overall_score is None:
            return self._unscored_state(number, content, _why_unscored(result), submitted.started_at, result)
        return RoundState(
            round_number=number,
            submission_content=content,
            evaluation_score=result.overall_score,
            score_details=result.to_score_details(),
            evaluation_feedback=result.feedback_summary,
            round_started_at=submitted.started_at,
            round_ended_at=utc_now(),
            message_history=submitted.turn.messages,
        )

    async def _evaluated(
        self, evaluator: Evaluator, request: EvaluationRequest, submitted: _Submitted
    ) -> EvaluationResult:
        prompts = await self._evaluator_prompts(evaluator, request)
        with self._calling(submitted.number, "evaluator", "evaluator"):
            async with self._run.before_time_is_up(self._team.team_id):
                return await evaluator.evaluate(
                    request, **prompts, earlier=self._submitted_before(), known=submitted.known
                )

    async def _evaluator_prompts(self, evaluator: Evaluator, request: EvaluationRequest) -> dict[str, str]:
        if not evaluator.judges:
            return {}
        try:
            prompts = {"prompt": await self._prompts.evaluator_prompt(request)}
            if evaluator.shows_reference:
                prompts["reference_prompt"] = await self._prompts.evaluator_prompt(request, with_reference=True)
        except TemplateError as error:
            raise EvaluationError(with_place(error)) from error
        return prompts

    # --- go on or stop ------------------------------------------------------------------------------------------------

    async def should_continue_round(self, state: RoundState) -> ImprovementJudgment:
        """Whether another round is played after ``state``; decided by rules, else by the model, and recorded."""
        judgment = await self._decide(state)
        await self._backlog.clear()
        return judgment

    async def _decide(self, state: RoundState) -> ImprovementJudgment:
        """:meth:`should_continue_round`, told to whoever listens; the store does not have it yet."""
        rule = decide_by_rule(
            self._history,
            self._judgment.settings,
            min_rounds=self._task.min_rounds,
            max_rounds=self._task.max_rounds,
            shortage=self._run.purses.shortage(self._team.team_id),
        )
        try:
            opinion = await self._opinion(rule, state)
        except BudgetExhaustedError as error:
            rule, opinion = rule if rule.exit_reason else stop_for_want(str(error)), None
        decision = settle(rule, opinion)
        self._tell_verdict(state, opinion or rule.judgment, decision.exit_reason)
        self._exit_reason = decision.exit_reason or self._exit_reason
        return decision.judgment

    async def _opinion(self, rule: Decision, state: RoundState) -> ImprovementJudgment | None:
        if state.evaluation_score is None or not self._judgment.asks_model(rule):
            return None
        try:
            prompt = await self._prompts.judgment_prompt(self._context(state.round_number))
        except TemplateError as error:
            return go_on(f"the judgment failed, so the team goes on: {with_place(error)}")
        with self._calling(state.round_number, "judgment", "judgment"):
            async with beside(self._backlog.so_far()), self._run.before_time_is_up(self._team.team_id):
                return await self._judgment.ask(prompt, self._task.judgment_timeout_seconds)

    def _tell_verdict(self, state: RoundState, judgment: ImprovementJudgment, exit_reason: ExitReason | None) -> None:
        judged = RoundJudged(
            **self._where(),
            round_number=state.round_number,
            judgment=judgment,
            exit_reason=exit_reason,
            usage=self._bill(state.round_number, judgment=True),
        )
        self.update_round_state(state.model_copy(update={"improvement_judgment": judgment}))
        self._run.tell(judged)
        self._backlog.add(partial(self._save_verdict, judged, state))

    async def _save_verdict(self, judged: RoundJudged, state: RoundState) -> None:
        if self._run.store is None:
            return
        await self._run.store.save_round_status(
            judged.execution_id,
            self._team.team_id,
            self._team.team_name,
            judged.round_number,
            **judged.judgment.model_dump(),
            round_started_at=state.round_started_at,
            round_ended_at=state.round_ended_at,
            usage=judged.usage,
            at=judged.at,
        )

    # --- what is kept -------------------------------------------------------------------------------------------------

    def load_previous_round(self, round_number: int) -> RoundState | None:
        """A round this controller has played; None if it has not."""
        return next((state for state in self._history if state.round_number == round_number), None)

    def update_round_state(self, state: RoundState) -> None:
        """Add a round to the history, or replace what was known of it.

        Only the latest round keeps its messages, with many teams the most of all that is held; the store has all.
        """
        known = {each.round_number: each for each in [*self._history, state]}
        *earlier, latest = (known[number] for number in sorted(known))
        self._history = [*(each.model_copy(update={"message_history": []}) for each in earlier), latest]

    async def finish(self, reason: ExitReason) -> LeaderBoardEntry:
        """Mark the best finished round as the team's final submission, with the reason it stopped."""
        best = self.best(reason)
        self._backlog.add(partial(self._run.mark_final, best))
        await self._backlog.clear()
        return best

    def best(self, reason: ExitReason) -> LeaderBoardEntry:
        """The best finished round as a final submission."""
        best = best_entry(self._entries) or self._last_unscored()
        if best is None:
            last = f"; the last one: {self._history[-1].score_details['reason']}" if self._history else ""
            raise NoResultError(f"no round of team {self._team.team_id!r} has a scored submission{last}")
        return as_final(best, reason)

    def _last_unscored(self) -> LeaderBoardEntry | None:
        """The result of a team that nobody scores."""
        submitted = [entry for entry in self._entries if entry.submission_content]
        return submitted[-1] if submitted and self._evaluator is None else None

    def has_finished(self, round_number: int) -> bool:
        """Whether this round is on the leader board."""
        return any(entry.round_number == round_number for entry in self._entries)

    @property
    def best_so_far(self) -> LeaderBoardEntry | None:
        """The best finished round as it is on the leader board; None without a scored one."""
        return best_entry(self._entries)

    @property
    def standing(self) -> Standing | None:
        """Where the team stands by its rounds on the leader board; None without a scored one."""
        unscored = [] if self._unscored_entry is None else [self._unscored_entry]
        return standing_of([*self._entries, *unscored])

    async def _record(self, state: RoundState, submissions: list[MemberSubmission], *, failed: bool = False) -> None:
        entry = self._entry(state)
        told = {**self._where(), "state": state, "entry": entry, "usage": self._bill(state.round_number)}
        finished = RoundFailed(**told, reason=state.evaluation_feedback) if failed else RoundFinished(**told)
        if self._results_may_follow:
            self._backlog.add(partial(self._save_round, finished))
            self._run.tell_soon(self._kept(finished))
            return
        # A run that is stopped between the row and its event would tell of other results than its database holds.
        await uncut(self._save_round(finished), lambda _: self._run.tell(self._kept(finished)))
        await self._run.tell_for_good(self._kept(finished))
        await self._call_hook(state, submissions)

    @property
    def _results_may_follow(self) -> bool:
        """Whether the journal is enough to go on from a round; a hook may look for it in the database."""
        return self._run.results_may_follow and self._on_round_complete is None

    def _kept(self, finished: RoundFinished | RoundFailed) -> RoundFinished | RoundFailed:
        """The round as one that nothing undoes any more."""
        reach("round.kept")
        self._entries.append(finished.entry)
        self._run.memory.put(finished.entry)
        self.update_round_state(finished.state)
        # Not before it is kept: a team that is tried again has to find its submission, or it would be paid twice.
        self._unscored = self._unscored_entry = None
        self._run.purses.round_finished(self._team.team_id)
        return finished

    async def _save_round(self, told: RoundFinished | RoundFailed | SubmissionUnscored) -> None:
        if self._run.store is not None:
            await self._run.store.save_round(
                told.entry,
                round_started_at=told.state.round_started_at,
                round_ended_at=told.state.round_ended_at,
                usage=told.usage,
            )

    def _tell_history(
        self, number: int, submissions: Sequence[MemberSubmission], messages: Sequence[JsonValue]
    ) -> HistoryKept:
        record = MemberSubmissionsRecord(
            **self._where(), team_name=self._team.team_name, round_number=number, submissions=list(submissions)
        )
        history = HistoryKept(**self._where(), record=record, message_history=list(messages))
        self._run.tell(history)
        return history

    async def _keep_history(self, history: HistoryKept | None) -> None:
        if self._run.store is not None and history is not None:
            await self._run.store.save_aggregation(
                history.execution_id, history.record, history.message_history, at=history.at
            )

    async def _call_hook(self, state: RoundState, submissions: list[MemberSubmission]) -> None:
        if self._on_round_complete is None:
            return
        hook = self._on_round_complete
        try:
            await alone(lambda: _hooked(hook, state, submissions), "on_round_complete")
        except BaseException as error:  # a hook looks at a run and must never be able to end it
            if is_for_us(error):
                raise
            logger.exception("on_round_complete failed after round %d of %r", state.round_number, self._team.team_id)

    def _entry(self, state: RoundState) -> LeaderBoardEntry:
        return LeaderBoardEntry(
            **self._where(),
            team_name=self._team.team_name,
            round_number=state.round_number,
            submission_content=state.submission_content,
            submission_format="md" if self._schema is None else "json",
            score=state.evaluation_score,
            score_details=state.score_details,
        )

    def _unscored_state(
        self, number: int, content: str, reason: str, started_at: datetime, result: EvaluationResult | None = None
    ) -> RoundState:
        return RoundState(
            round_number=number,
            submission_content=content,
            evaluation_score=None,
            score_details={"reason": reason, **(result.to_score_details() if result else {})},
            evaluation_feedback=(result.feedback_summary if result else "") or reason,
            round_started_at=started_at,
            round_ended_at=utc_now(),
        )

    def _submitted_before(self) -> dict[int, str]:
        return {state.round_number: state.submission_content for state in self._history if state.submission_content}

    def _bill(self, number: int, *, judgment: bool = False) -> list[ModelUsage]:
        lines = self._run.meter.bill(**self._where(), round_number=number)
        return [line for line in lines if (line.role == "judgment") == judgment]

    def _check_models(self) -> None:
        """Refuse models that cannot be made, or cannot do what is asked of them, all of them at once."""
        leader, hub = self._team.leader, self._run.hub
        checks: list[tuple[KeyPath, Callable[[], object]]] = [
            (("leader",), lambda: hub.model(leader.model, fallback_models=leader.fallback_models)),
            *((("members", number), partial(member.check_model, hub)) for number, member in enumerate(self._members)),
        ]
        problems: list[Problem] = []
        for path, check in checks:
            try:
                check()
            except ConfigurationError as error:
                problems += problems_within(self._team, path, error)
        if problems:
            raise ConfigurationError(problems)

    # --- small things -------------------------------------------------------------------------------------------------

    def _own_schema(self) -> "JsonSchema | None":
        given = self._team.answer_schema
        return None if given is None else load_answer_schema(given, self._place)

    def _where(self) -> dict[str, str]:
        return {"execution_id": self._task.execution_id, "team_id": self._team.team_id}

    def _context(self, number: int) -> RoundPromptContext:
        return RoundPromptContext(
            **self._where(),
            user_prompt=self._user_prompt,
            round_number=number,
            round_history=self._history,
            team_name=self._team.team_name,
            store=self._run.board,
        )

    @contextmanager
    def _calling(self, number: int, role: ModelRole, agent_name: str) -> Iterator[Scope]:
        scope = Scope(**self._where(), round_number=number, role=role, agent_name=agent_name, attempt=self._attempt)
        with calling(scope, self._run.meter):
            yield scope

    async def _get_ready(self, taken: AsyncExitStack) -> None:
        """Make everything ready that a run of rounds needs; ``taken`` lets go of it."""
        if self._owns_run:
            await taken.enter_async_context(self._run)
            await self._run.keep(self._task.attachments)
            if attached := tuple(one.info for one in self._task.attachments):
                self._run.tell(AttachmentsKept(**self._where(), attachments=attached))
        self._leader.absent.clear()
        for member in () if self._run.replays else self._members:
            absent = await taken.enter_async_context(made_ready(member))
            if absent is not None:
                self._leader.absent[member.agent_name] = absent


async def _hooked(hook: OnRoundCompleteCallback, state: RoundState, submissions: list[MemberSubmission]) -> None:
    awaited = hook(state, submissions)
    if inspect.isawaitable(awaited):
        await awaited


def _templates_of(workspace: Workspace, settings: PromptBuilderSettings) -> Path | None:
    """The workspace's own template files, unless a template was chosen more explicitly than by its default file."""
    return workspace.prompt_templates if workspace.prompt_templates.is_dir() and not is_explicit(settings) else None


def _why_unscored(result: EvaluationResult) -> str:
    """Which metrics gave no score, and their advice: the team would repeat what nobody tells it."""
    return "; ".join(_without_score(metric) for metric in result.metrics if not isfinite(metric.score)) or NOT_FINITE


def _without_score(metric: MetricScore) -> str:
    comment = one_line(metric.evaluator_comment)
    return f"metric {metric.metric_name!r} gave no finite number" + (f": {comment}" if comment else "")


def _total(bill: Sequence[ModelUsage]) -> Usage:
    lines = (
        Usage(requests=line.requests, input_tokens=line.input_tokens, output_tokens=line.output_tokens) for line in bill
    )
    return sum(lines, start=Usage())
