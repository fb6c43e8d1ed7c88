"""Teams in parallel: limits, deadlines, retries, and the summary.

Every file is read and every model built before the first call is paid for. Teams do not know of each other: what ends
one never touches the others, and its finished rounds still count.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from jinja2 import TemplateError

from mixseek.amounts import calls_to_go_on, command_to_copy
from mixseek.config.answer_schema import load_answer_schema
from mixseek.config.attachments import read_attachments
from mixseek.config.manager import ConfigurationManager, RunSettings, warn_of_prices
from mixseek.config.reading import checked_text
from mixseek.config.schema import OrchestratorSettings, TeamSettings
from mixseek.crash_points import reach
from mixseek.errors import (
    ACCEPT_CHANGES,
    BudgetExhaustedError,
    ConfigurationError,
    EvaluationError,
    MixSeekError,
    ModelError,
    NoResultError,
    NotResumableError,
    PlaceLostError,
    Problem,
    RunChangedError,
    RunError,
    StorageError,
    TeamTimeoutError,
    UnstorableValueError,
)
from mixseek.events import (
    Event,
    Listener,
    RoundStarted,
    RunFinished,
    RunInterrupted,
    RunResumed,
    RunStarted,
    TeamFailed,
    TeamFinished,
    TeamStarted,
)
from mixseek.llm import Backoff
from mixseek.llm.purse import Spend
from mixseek.orchestrator.arguments import (
    checked_backoff,
    checked_hook,
    checked_id,
    checked_listeners,
    checked_reference,
    checked_settings,
    checked_timeout,
)
from mixseek.orchestrator.collector import long_lived
from mixseek.orchestrator.estimate import first_round
from mixseek.orchestrator.fingerprint import changes, fingerprint, outdated_scores
from mixseek.orchestrator.payable import not_to_be_paid
from mixseek.orchestrator.stopping import Stoppable
from mixseek.records import (
    Attachment,
    ExecutionSummary,
    ExitReason,
    FailedTeamInfo,
    LeaderBoardEntry,
    ModelUsage,
    OrchestratorTask,
    TeamStatus,
    cost_of,
    order_standings,
    utc_now,
)
from mixseek.round_controller import OnRoundCompleteCallback, RoundController
from mixseek.round_controller.prompts import outdated_prompts
from mixseek.round_controller.restored import RestoredRun, RestoredTeam, restore_run
from mixseek.round_controller.run import Run, as_final, best_entry, open_run, standing_of
from mixseek.storage.attachments import read_kept_attachments
from mixseek.storage.beginning import execution_to_resume
from mixseek.storage.journal import Journal
from mixseek.storage.journal_checks import refuse_damaged
from mixseek.strangers import in_words, is_for_us, text_of
from mixseek.templating import with_place
from mixseek.workspace import Workspace

if TYPE_CHECKING:
    from mixseek.json_schema import JsonSchema

__all__ = ["Orchestrator", "play_again"]

logger = logging.getLogger(__name__)

_LAST_WRITE_SECONDS = 3.0
_REMEDY = f"this is not what the execution was begun with: undo it, or go on all the same with {ACCEPT_CHANGES}"


class Orchestrator:
    """Plays competitions by one configuration; several may run at the same time.

    Of settings that name files, the files are read at each execution; :class:`RunSettings` are whole, and nothing is
    read for them.
    ``backoff`` paces the retries of model calls: for tests that must not wait, and for tuning of one's own.
    """

    def __init__(
        self,
        settings: OrchestratorSettings | RunSettings,
        save_db: bool = True,
        on_round_complete: OnRoundCompleteCallback | None = None,
        *,
        journal: bool = True,
        listeners: Sequence[Listener] = (),
        backoff: Backoff | None = None,
    ) -> None:
        self._configured: RunSettings | None = None
        settings = checked_settings(settings)
        if isinstance(settings, RunSettings):
            self._configured, self.settings, self._workspace = settings, settings.orchestrator, settings.workspace
        else:
            self.settings, self._workspace = settings, Workspace.locate(settings.workspace_path)
        self._save_db = save_db
        self._on_round_complete = checked_hook(on_round_complete)
        self._journal = journal
        self._listeners = checked_listeners(listeners)
        self._backoff = checked_backoff(backoff)
        self._statuses: dict[str, TeamStatus] = {}
        self._running: set[Stoppable] = set()

    async def execute(
        self,
        user_prompt: str,
        timeout_seconds: int | None = None,
        execution_id: str | None = None,
        *,
        reference: str | None = None,
        attachments: Sequence[Attachment | Path | str] | None = (),
    ) -> ExecutionSummary:
        """Let all teams answer ``user_prompt``; ``timeout_seconds`` is for all rounds of one team.

        ``reference`` is the text of a reference answer for metrics and judges, in place of the settings' one.
        ``attachments`` come with the task: leaders see what their models can, judges the texts.
        An ``execution_id`` of one's own has to be new to the workspace, and one that commands can name.
        """
        wanted = _Wanted(
            checked_text(user_prompt, "prompt"),
            checked_timeout(timeout_seconds),
            checked_id(execution_id),
            checked_reference(reference),
            attachments,
        )
        return await self._play(partial(self._begin, wanted), wanted.user_prompt, wanted.execution_id)

    async def resume(
        self, execution_id: str, timeout_seconds: int | None = None, *, accept_changes: bool = False
    ) -> ExecutionSummary:
        """Go on with an execution that did not end, or with its teams that failed; what was paid for is used again.

        It is named by its id, by the beginning of it, or by ``last``.
        The settings have to be those it was begun with: a :class:`~mixseek.errors.RunChangedError` names what is
        different, unless ``accept_changes``. Task, attachments and a reference that came with the task are its own.
        The summary's time and bill are of all processes that played it. Each team has its whole time again, or
        ``timeout_seconds``.
        """
        execution_id = checked_text(execution_id, "execution id")
        begin = partial(self._begin_again, execution_id, checked_timeout(timeout_seconds), accept_changes)
        return await self._play(begin, "", execution_id)

    async def _play(
        self,
        begin: Callable[[AsyncExitStack], Awaitable["_Execution"]],
        user_prompt: str,
        execution_id: str | None,
    ) -> ExecutionSummary:
        self._running.add(stoppable := Stoppable())
        started, execution, summary = time.monotonic(), None, None
        try:
            async with AsyncExitStack() as around:
                try:
                    async with stoppable:
                        execution = await begin(around)
                        execution.when_lost(stoppable.stop)
                        summary = await execution.play()
                except asyncio.CancelledError:
                    if execution is not None:
                        with suppress(PlaceLostError):
                            await execution.end(None)
                    raise
                if execution is None:
                    return _interrupted(user_prompt, execution_id, time.monotonic() - started)
                return await execution.end(summary)
        finally:
            self._running.discard(stoppable)

    def stop(self) -> None:
        """End what is being executed: calls in flight are cancelled, and ``execute`` returns what there is so far.

        May be called from any thread and from a signal handler. The summary says ``interrupted`` and holds the best
        finished round of every team; it is not stored, so that the execution counts as interrupted.
        """
        for stoppable in tuple(self._running):
            stoppable.stop()

    async def _begin(self, wanted: "_Wanted", around: AsyncExitStack) -> "_Execution":
        """Read and open all that one execution needs; ``around`` lets go of it."""
        configured = await self._complete(wanted.reference)
        task = _task(configured, wanted.user_prompt, wanted.timeout_seconds, wanted.execution_id).model_copy(
            update={"attachments": await asyncio.to_thread(read_attachments, wanted.attachments, self._workspace)}
        )
        if self._save_db and self._journal:
            await asyncio.to_thread(refuse_damaged, self._workspace.journal)
        run = await self._open(task.execution_id, configured, around, is_new=wanted.execution_id is None)
        if wanted.execution_id is not None:
            await _refuse_known(self._workspace, run)
        return self._execution(task, configured, run, wanted)

    async def _begin_again(
        self, wanted_id: str, timeout_seconds: int | None, accept_changes: bool, around: AsyncExitStack
    ) -> "_Execution":
        """:meth:`_begin` for an execution that the journal knows."""
        if not (self._save_db and self._journal):
            raise ConfigurationError("an execution is resumed from the journal: it cannot be left out")
        execution_id = await _known_id(self._workspace, wanted_id)
        configured = await self._complete(None)
        # All that is on the board is in memory before the first team is asked anything.
        run = await self._open(execution_id, configured, around, is_new=True)
        restored = await _restored(run, execution_id)
        run.take_up(restored)
        wanted = await _wanted_before(restored.started, self._workspace)
        wanted = replace(wanted, timeout_seconds=timeout_seconds or wanted.timeout_seconds)
        if restored.started.has_own_reference:
            configured = replace(configured, reference=wanted.reference)
        task = _task(configured, wanted.user_prompt, wanted.timeout_seconds, execution_id).model_copy(
            update={"attachments": wanted.attachments}
        )
        execution = self._execution(task, configured, run, wanted)
        execution.accept_changes = accept_changes
        return execution

    async def _open(self, execution_id: str, configured: RunSettings, around: AsyncExitStack, *, is_new: bool) -> Run:
        run = open_run(
            execution_id,
            self._workspace,
            save_db=self._save_db,
            journal=self._journal,
            providers=configured.providers,
            orchestrator=self.settings,
            is_new=is_new,
            takes_place=True,
            listeners=self._listeners,
            backoff=self._backoff,
        )
        return await around.enter_async_context(run)

    def _execution(self, task: OrchestratorTask, configured: RunSettings, run: Run, wanted: "_Wanted") -> "_Execution":
        warn_of_prices(configured)
        statuses = self._watch(configured)
        return _Execution(task, configured, run, self._workspace, self._on_round_complete, statuses, wanted)

    async def rehearse(self) -> None:
        """Make all that a run needs, models and members included, and call nobody; what cannot be made is raised.

        So is a journal that a run would not begin with. No file is changed.
        """
        configured = await self._complete(None)
        task = _task(configured, "rehearsal", None, None)
        if self._save_db and self._journal:
            await asyncio.to_thread(refuse_damaged, self._workspace.journal, leaves_no_trace=True)
        run = open_run(
            task.execution_id,
            self._workspace,
            save_db=False,
            providers=configured.providers,
            orchestrator=self.settings,
        )
        async with run:
            wanted = _Wanted(task.user_prompt, None, None, None, ())
            await _Execution(task, configured, run, self._workspace, None, {}, wanted).make_controllers()

    async def _complete(self, reference: str | None) -> RunSettings:
        if self._configured is not None:
            return replace(self._configured, reference=reference or self._configured.reference)
        # Hundreds of files take a while; whatever else runs on this loop goes on meanwhile.
        manager = ConfigurationManager(self._workspace.root)
        return await asyncio.to_thread(manager.complete, self.settings, reference=reference)

    def get_team_status(self, team_id: str) -> TeamStatus:
        """Where a team stands in the execution that was started last."""
        return self._statuses[team_id]

    def get_all_team_statuses(self) -> list[TeamStatus]:
        """Where all teams stand in the execution that was started last."""
        return list(self._statuses.values())

    def _watch(self, configured: RunSettings) -> dict[str, TeamStatus]:
        """A fresh table for one execution, so that two at the same time do not mix."""
        self._statuses = {
            team.team_id: TeamStatus(team_id=team.team_id, team_name=team.team_name) for team in configured.teams
        }
        return self._statuses


@dataclass(frozen=True)
class _Wanted:
    """What :meth:`Orchestrator.execute` is, or was, asked for."""

    user_prompt: str
    timeout_seconds: int | None
    execution_id: str | None
    reference: str | None
    attachments: Sequence[Attachment | Path | str] | None


def _interrupted(user_prompt: str, execution_id: str | None, seconds: float) -> ExecutionSummary:
    """The summary of a run that was stopped before it began."""
    return ExecutionSummary(
        execution_id=execution_id or str(uuid4()),
        user_prompt=user_prompt,
        team_results=[],
        total_execution_time_seconds=seconds,
        interrupted=True,
    )


async def _wanted_before(begun: RunStarted, workspace: Workspace) -> _Wanted:
    """What was asked for when a run was begun."""
    kept = await asyncio.to_thread(read_kept_attachments, workspace.attachments, begun.attachments)
    reference = begun.reference if begun.has_own_reference else None
    return _Wanted(begun.user_prompt, begun.timeout_seconds, begun.execution_id, reference, kept)


async def play_again(
    run: Run, begun: RunStarted, configured: RunSettings, tries: Mapping[str, int]
) -> ExecutionSummary:
    """Play the task of an execution that was ``begun`` once more, in a run that has its own way to answer calls.

    ``tries`` are those that each team had: a resume gives new ones.
    """
    wanted = await _wanted_before(begun, configured.workspace)
    if begun.has_own_reference:
        configured = replace(configured, reference=wanted.reference)
    task = _task(configured, wanted.user_prompt, wanted.timeout_seconds, run.execution_id).model_copy(
        update={"attachments": wanted.attachments}
    )
    statuses = {team.team_id: TeamStatus(team_id=team.team_id, team_name=team.team_name) for team in configured.teams}
    execution = _Execution(task, configured, run, configured.workspace, None, statuses, wanted)
    execution.tries = tries
    return await execution.play()


async def _known_id(workspace: Workspace, wanted: str) -> str:
    """Whoever takes the place of an execution writes that down; of one that never was, nothing is to be left."""
    async with Journal(workspace.journal) as journal:
        execution_id = await execution_to_resume(journal, wanted)
    if execution_id is None:
        raise _unknown(wanted)
    return execution_id


async def _refuse_known(workspace: Workspace, run: Run) -> None:
    """Two executions of one id would mix; whoever asks has its place, so that nobody else begins it meanwhile."""
    if run.store is None:
        return
    async with Journal(workspace.journal) as journal:
        if await journal.last_sequences(run.execution_id) or await run.store.knows(run.execution_id):
            raise ConfigurationError(
                f"execution {run.execution_id!r} is in this workspace already: give another id, or resume it"
            )


def _unknown(execution_id: str) -> NotResumableError:
    return NotResumableError(f"the journal knows no execution {execution_id!r}: mixseek history lists what there is")


async def _restored(run: Run, execution_id: str) -> RestoredRun:
    assert run.journal is not None  # noqa: S101  # whoever resumes has one
    restored = await restore_run(run.journal, execution_id)
    if restored is None:
        raise _unknown(execution_id)
    if restored.is_whole and not restored.ran_out:
        raise NotResumableError(f"execution {execution_id} is whole, there is nothing to resume: mixseek show shows it")
    if (pruned_at := await run.journal.pruned_at(execution_id)) is not None:
        raise NotResumableError(
            f"execution {execution_id} was pruned on {pruned_at:%Y-%m-%d}: the answers it would go on from are gone; "
            "mixseek show still shows its results"
        )
    return restored


class _Execution:
    """One competition, from the first team's start to the summary."""

    def __init__(
        self,
        task: OrchestratorTask,
        configured: RunSettings,
        run: Run,
        workspace: Workspace,
        on_round_complete: OnRoundCompleteCallback | None,
        statuses: dict[str, TeamStatus],
        wanted: _Wanted,
    ) -> None:
        self._task = task
        self._wanted = wanted
        self.accept_changes = False
        """Whether a run that is resumed goes on although what it depends on is not what it was."""
        self.tries: Mapping[str, int] = {}
        """How often teams are tried at least, where that is known."""
        self._configured = configured
        self._run = run
        self._statuses = statuses
        self._places = asyncio.Semaphore(configured.orchestrator.max_concurrent_teams)
        self._results: list[LeaderBoardEntry] = []
        self._failures: list[FailedTeamInfo] = []
        run.events.subscribe(self._follow)
        self._workspace = workspace
        self._on_round_complete = on_round_complete
        self._controllers: list[RoundController] = []
        self._taken_out: list[RestoredTeam] = []
        """Teams that played before and are not among the settings any more: what they came to counts."""
        self._started = time.monotonic() - (run.restored.seconds if run.restored else 0.0)
        self._has_begun = False
        self._is_saved = True
        """Whether the store has all it should; if not, the journal calls the run unfinished, so that it is resumed."""
        self._schema: JsonSchema | None = None

    async def play(self) -> ExecutionSummary:
        """All teams, then the summary; results are returned even if the summary cannot be written."""
        await self.make_controllers()
        beginning = self._beginning()
        if self._run.restored is not None:
            beginning = self._taken_up(self._run.restored, beginning)
        await self._run.hub.prepare()
        await self._run.keep(self._task.attachments)
        self._guess_first_rounds()
        await self._run.count_what_was_spent()
        self._has_begun = True
        await self._run.tell_for_good(beginning)
        await self._run.catch_up()
        for team in self._taken_out:
            await self._take_out(team)
        await self._keep_usage_before()
        self._run.purses.start()
        with long_lived():
            await self._play_teams()
            summary = self._summary()
            reach("summary.before_save")
            await self._save(summary)
            reach("summary.after_save")
        return summary

    def _guess_first_rounds(self) -> None:
        """Tell purses what first rounds may take, as far as anybody can tell before; also of teams that have ended."""
        if not self._run.purses:
            return
        size = len(self._task.user_prompt.encode()) + sum(one.size for one in self._task.attachments)
        for team in self._configured.teams:
            taken = first_round(self._configured, team, size, self._run.hub)
            self._run.purses.guess(team.team_id, Spend(taken.cost_usd or 0.0, taken.tokens, taken.calls))

    def when_lost(self, stop: Callable[[], None]) -> None:
        """Call ``stop`` when another process has taken the execution over."""
        if self._run.place is not None:
            self._run.place.when_lost(stop)

    def _beginning(self) -> RunStarted:
        shown = self._configured.shown()
        return RunStarted(
            execution_id=self._task.execution_id,
            user_prompt=self._task.user_prompt,
            team_names={team.team_id: team.team_name for team in self._configured.teams},
            max_rounds=self._task.max_rounds,
            reference=self._task.reference,
            attachments=tuple(attachment.info for attachment in self._task.attachments),
            configuration=shown,
            fingerprint=fingerprint(self._configured, shown, self._task.attachments),
            config_file=self._configured.file,
            overrides=self._configured.overrides,
            timeout_seconds=self._wanted.timeout_seconds,
            has_own_reference=self._wanted.reference is not None,
        )

    def _taken_up(self, restored: RestoredRun, started: RunStarted) -> RunResumed:
        """Put the teams where they were; a run that depends on other things than before is refused."""
        changed = changes(restored.started, started, self._configured)
        if changed and not self.accept_changes:
            raise RunChangedError([*changed, Problem(_REMEDY)])
        if restored.is_whole and not changed:
            raise NotResumableError(
                f"execution {self._task.execution_id} ended at its budget: raise the limit that it met, "
                f"then resume it with {ACCEPT_CHANGES}"
            )
        # With what it had before it would end again, or, since others have ended, play what it did not play then.
        there = {controller.get_team_id() for controller in self._controllers}
        reopened = tuple(
            team_id for team_id, team in restored.teams.items() if team.ran_out and changed and team_id in there
        )
        self._taken_out = [team for team_id, team in restored.teams.items() if team_id not in there and team.rounds]
        scores, prompts = outdated_scores(restored.started, started), outdated_prompts(restored.started, started)
        for controller in self._controllers:
            team_id = controller.get_team_id()
            team = restored.teams.get(team_id, RestoredTeam())
            team = team.with_more_to_spend() if team_id in reopened else team
            self._restore(controller, team.without_scores(scores), prompts)
        return RunResumed(
            **started.model_dump(exclude={"at"}),
            scores={team_id: team.scores for team_id, team in restored.teams.items()},
            finished=tuple(entry.team_id for entry in self._results),
            reopened=reopened,
        )

    def _restore(self, controller: RoundController, team: RestoredTeam, outdated: frozenset[str]) -> None:
        controller.restore(team, outdated)
        # That a round began whose submission is there was told by another process.
        self._note(controller, current_round=len(team.rounds) + (team.submission is not None))
        if team.best is not None:
            self._results.append(team.best)
            self._note(controller, status="completed")

    async def end(self, summary: ExecutionSummary | None) -> ExecutionSummary:
        """Tell how it ended; without a summary it was stopped, and what there is makes one."""
        self._run.check_place()
        where = {"execution_id": self._task.execution_id}
        if summary is not None:
            finished = RunFinished(**where, summary=summary)
            if self._is_saved:
                await self._tell_the_end(finished)
            else:
                self._run.events.emit(finished)
            return summary
        unfinished = self._unfinished()
        for controller in unfinished:
            self._interrupt(controller)
        summary = self._summary(interrupted=True)
        if self._has_begun:
            # Somebody waits for the end, and a database may be held by another program for long.
            await _briefly(self._tell_the_end(RunInterrupted(**where, summary=summary)))
            await _briefly(self._keep_usage(*(controller.get_team_id() for controller in unfinished)))
        return summary

    async def _play_teams(self) -> None:
        async with asyncio.TaskGroup() as group:
            for controller in self._unfinished():
                group.create_task(self._play_team(controller))
        self._run.check_place()
        for controller in self._unfinished():
            await self._fail(controller, RunError("something the team called cancelled the team's own task"))

    async def make_controllers(self) -> None:
        """Build everything all teams need, with a breath between two teams for whatever else runs on this loop."""
        given = self._configured.orchestrator.answer_schema
        self._schema = None if given is None else load_answer_schema(given, self._workspace)
        problems: list[Problem] = []
        for reference, team in zip(self._configured.orchestrator.teams, self._configured.teams, strict=True):
            try:
                self._controllers.append(self._controller(reference.config, team))
                problems += not_to_be_paid(self._run, self._configured, team)
            except ConfigurationError as error:
                problems += error.problems
            await asyncio.sleep(0)
        if problems:
            raise ConfigurationError(list(dict.fromkeys(problems)))

    def _controller(self, config: str, team: TeamSettings) -> RoundController:
        return RoundController(
            Path(config),
            self._workspace,
            self._task,
            self._configured.evaluator if self._configured.is_scored else None,
            self._configured.judgment,
            self._configured.prompt_builder,
            on_round_complete=self._on_round_complete,
            team_settings=team,
            run=self._run,
            answer_schema=self._schema,
        )

    def _unfinished(self) -> list[RoundController]:
        """Teams that neither ended nor failed.

        When all have been played there are none but those whose task was cancelled although the run was not: a group
        of tasks says nothing of these.
        """
        known = {entry.team_id for entry in self._results} | {failed.team_id for failed in self._failures}
        return [controller for controller in self._controllers if controller.get_team_id() not in known]

    async def _take_out(self, team: RestoredTeam) -> None:
        """Note what a team came to that plays no more: its result, or else its best finished round."""
        for entry in team.entries:
            self._run.memory.put(entry)  # the others see its place as before
        unscored = [] if self._configured.is_scored else [each for each in team.entries if each.submission_content]
        best = team.best or best_entry(team.entries) or next(reversed(unscored), None)
        if best is None:
            return
        if team.best is None:
            best = as_final(best, "taken_out")
            await self._run.mark_final(best)
            where = {"execution_id": best.execution_id, "team_id": best.team_id, "team_name": best.team_name}
            await self._run.tell_for_good(TeamFinished(**where, best=best))
        self._results.append(best)

    # --- one team -----------------------------------------------------------------------------------------------------

    async def _play_team(self, controller: RoundController) -> None:
        purses, team_id = self._run.purses, controller.get_team_id()
        purses.expect(team_id)
        async with self._places:
            try:
                best = await self._try(controller)
            except PlaceLostError:
                return  # no failure of the team: the whole run ends, and who has it now is said once
            except BaseException as error:  # the edge where one team must not take down the others
                if isinstance(error, asyncio.CancelledError) or is_for_us(error):
                    raise  # a team whose task was cancelled is told of when all have been played
                await self._fail(controller, error)
            else:
                self._results.append(best)
                self._note(controller, status="completed", completed_at=utc_now())
                broken_off = {}
                if controller.ran_out_because is not None:
                    await self._keep_usage(team_id)
                    usage = self._run.meter.bill(team_id=team_id)
                    broken_off = {"reason": controller.ran_out_because, "usage": usage}
                reach("team.before_end")
                await self._tell_the_end(TeamFinished(**self._where(controller), best=best, **broken_off))
            finally:
                purses.leave(team_id)

    async def _try(self, controller: RoundController) -> LeaderBoardEntry:
        """Play, and after a failure again from the first unfinished round, within the one deadline of the team."""
        deadline = time.monotonic() + self._task.timeout_seconds
        self._note(controller, status="running", started_at=utc_now())
        first, last = self._tries(controller)
        attempt = first
        while True:
            retry = max(0, self._configured.orchestrator.max_retries_per_team - (last - attempt))
            self._run.tell(TeamStarted(**self._where(controller), attempt=attempt, retry=retry))
            try:
                left = deadline + controller.stood_still - time.monotonic()
                return await controller.run_round(self._task.user_prompt, left)
            except TeamTimeoutError as error:
                # The last try had only what was left of it.
                raise TeamTimeoutError(self._task.timeout_seconds) from error
            except (NoResultError, BudgetExhaustedError, PlaceLostError):
                raise
            except Exception as error:
                if _could_not_be_stored(error):
                    raise
                if attempt == first and self._only_replayed(controller) and not _is_mistake_in_code(error):
                    # What failed by the answers that the journal has fails by them again: that was no try.
                    last += 1
                elif attempt >= last or not _worth_another_try(error):
                    raise
                logger.warning("team %r failed and tries again: %s", controller.get_team_id(), _reason(error))
            attempt += 1

    def _tries(self, controller: RoundController) -> tuple[int, int]:
        """The number of the team's next try and of its last one."""
        retries = self._configured.orchestrator.max_retries_per_team
        restored = self._run.restored
        team = None if restored is None else restored.teams.get(controller.get_team_id())
        if team is None:
            return 1, max(1 + retries, self.tries.get(controller.get_team_id(), 0))
        return team.attempt, max(team.attempt, team.first_attempt + retries)

    def _only_replayed(self, controller: RoundController) -> bool:
        """Whether a team that goes on asked nobody anything in this process."""
        made = self._run.meter.calls_made(self._task.execution_id, controller.get_team_id())
        return self._run.restored is not None and not made

    async def _fail(self, controller: RoundController, error: BaseException) -> None:
        """Note why a team cannot go on; its best finished round still counts."""
        timed_out = isinstance(error, TeamTimeoutError)
        reason = _reason(error)
        # Why the last of many failed rounds failed may quote its answer, which is nothing for a log.
        told = "no round has a scored submission" if isinstance(error, NoResultError) else reason
        logger.warning(
            "team %r failed: %s", controller.get_team_id(), told, exc_info=not isinstance(error, MixSeekError)
        )
        best = await self._best_so_far(controller, "partial_failure_timeout" if timed_out else "partial_failure")
        team_id, team_name = controller.get_team_id(), controller.get_team_name()
        self._failures.append(FailedTeamInfo(team_id=team_id, team_name=team_name, error_message=reason))
        self._note(
            controller, status="timeout" if timed_out else "failed", completed_at=utc_now(), error_message=reason
        )
        await self._keep_usage(team_id)
        usage = self._run.meter.bill(team_id=team_id)
        await self._tell_the_end(TeamFailed(**self._where(controller), reason=reason, best=best, usage=usage))

    def _interrupt(self, controller: RoundController) -> None:
        """Note where a team was when the run was stopped; nothing is marked as final, since it may go on."""
        team_id, team_name = controller.get_team_id(), controller.get_team_name()
        number = self._statuses[team_id].current_round
        when = "after" if controller.has_finished(number) else "in"
        reason = f"interrupted {when} round {number}" if number else "interrupted before its first round"
        if controller.best_so_far is not None:
            self._results.append(controller.best_so_far)
        self._failures.append(FailedTeamInfo(team_id=team_id, team_name=team_name, error_message=reason))
        self._note(controller, status="interrupted", completed_at=utc_now(), error_message=reason)

    async def _best_so_far(self, controller: RoundController, reason: ExitReason) -> LeaderBoardEntry | None:
        if controller.standing is None:
            return None
        try:
            best = await controller.finish(reason)
        except StorageError:
            logger.exception("the final submission of team %r could not be marked", controller.get_team_id())
            best = controller.best(reason)
        self._results.append(best)
        return best

    async def _keep_usage(self, *team_ids: str) -> None:
        """The bill of the rounds that teams failed in, which no finished round brings along."""
        await self._keep_bill([line for team_id in team_ids for line in self._run.meter.bill(team_id=team_id)])

    async def _keep_bill(self, bill: Sequence[ModelUsage]) -> None:
        if self._run.store is None or not bill:
            return
        try:
            await self._run.store.save_model_usage(bill)
        except StorageError:
            teams = sorted({line.team_id for line in bill})
            logger.exception("what %s consumed could not be written", ", ".join(map(repr, teams)))

    async def _keep_usage_before(self) -> None:
        """The bill of rounds that a process was killed in: nobody may come to their end.

        Their team plays no more, or there are fewer rounds by now.
        """
        if self._run.restored is None:
            return
        there = {controller.get_team_id() for controller in self._controllers}
        finished = {
            (team_id, one.state.round_number)
            for team_id, team in self._run.restored.teams.items()
            if team_id in there
            for one in team.rounds
        }
        bill = self._run.meter.bill()
        await self._keep_bill([line for line in bill if (line.team_id, line.round_number) not in finished])

    async def _tell_the_end(self, event: Event) -> None:
        """Tell a result; it stands even if the journal cannot keep it."""
        try:
            await self._run.tell_for_good(event)
        except StorageError:
            logger.exception("%s could not be written to the journal", event.kind)

    def _where(self, controller: RoundController) -> dict[str, str]:
        return {
            "execution_id": self._task.execution_id,
            "team_id": controller.get_team_id(),
            "team_name": controller.get_team_name(),
        }

    def _follow(self, event: Event) -> None:
        if isinstance(event, RoundStarted) and event.team_id is not None:
            changes = {"current_round": event.round_number}
            self._statuses[event.team_id] = self._statuses[event.team_id].model_copy(update=changes)

    def _note(self, controller: RoundController, **changes: object) -> None:
        team_id = controller.get_team_id()
        self._statuses[team_id] = self._statuses[team_id].model_copy(update=changes)

    # --- the end ------------------------------------------------------------------------------------------------------

    def _summary(self, *, interrupted: bool = False) -> ExecutionSummary:
        results = self._in_order()
        bill = self._run.meter.bill()
        return ExecutionSummary(
            execution_id=self._task.execution_id,
            user_prompt=self._task.user_prompt,
            team_results=results,
            best_team_id=results[0].team_id if results else None,
            best_score=results[0].score if results else None,
            total_execution_time_seconds=time.monotonic() - self._started,
            failed_teams_info=self._failures,
            interrupted=interrupted,
            usage=self._run.meter.usage,
            cost_usd=cost_of(bill),
            bill=bill,
            lost=self._run.meter.lost,
        )

    def _in_order(self) -> list[LeaderBoardEntry]:
        """Final submissions by the one order of teams, which looks at all their rounds."""
        finals = {entry.team_id: entry for entry in self._results}
        standings = [each for controller in self._controllers if (each := controller.standing)]
        standings += [each for team in self._taken_out if (each := standing_of(team.entries))]
        ranked = [finals[standing.team_id] for standing in order_standings(standings) if standing.team_id in finals]
        return ranked or list(finals.values())  # nobody was asked to score

    async def _save(self, summary: ExecutionSummary) -> None:
        if self._run.store is None:
            return
        try:
            await self._run.store.save_execution_summary(
                summary.execution_id,
                summary.user_prompt,
                summary.status,
                [entry.model_dump(mode="json") for entry in summary.team_results],
                summary.total_teams,
                summary.best_team_id,
                summary.best_score,
                summary.total_execution_time_seconds,
                at=summary.created_at,
            )
        except StorageError:
            self._is_saved = self._run.journal is None
            if self._configured.file is None:
                resume = calls_to_go_on()
            else:
                resume = command_to_copy("resume", summary.execution_id, self._workspace.root)
            remedy = "" if self._is_saved else f"; {resume} writes it"
            logger.exception("the summary of execution %s could not be written%s", summary.execution_id, remedy)


def _task(
    configured: RunSettings, user_prompt: str, timeout_seconds: int | None, execution_id: str | None
) -> OrchestratorTask:
    settings = configured.orchestrator
    return OrchestratorTask(
        execution_id=execution_id or str(uuid4()),
        user_prompt=user_prompt,
        team_configs=[Path(team.config) for team in settings.teams],
        timeout_seconds=timeout_seconds or settings.timeout_per_team_seconds,
        max_rounds=settings.max_rounds,
        min_rounds=settings.min_rounds,
        submission_timeout_seconds=settings.submission_timeout_seconds,
        judgment_timeout_seconds=settings.judgment_timeout_seconds,
        reference=configured.reference,
    )


def _reason(error: BaseException) -> str:
    if isinstance(error, TemplateError):
        return with_place(error)
    return text_of(error) if isinstance(error, MixSeekError) else in_words(error)


async def _briefly(writing: Coroutine[Any, Any, None]) -> None:
    """Give a last write a moment, and give it up then."""
    try:
        async with asyncio.timeout(_LAST_WRITE_SECONDS):
            await writing
    except TimeoutError:
        logger.warning("what was done last could not be written within %g s", _LAST_WRITE_SECONDS)


def _could_not_be_stored(error: BaseException) -> bool:
    """Whether a store failed, which tried again itself: another try would pay for answers again that a resume has."""
    causes = _causes(error)
    return any(isinstance(cause, StorageError) and not isinstance(cause, UnstorableValueError) for cause in causes)


def _worth_another_try(error: BaseException) -> bool:
    """Whether the same could go well the next time: a wrong key, a spent limit or a mistake in code will not."""
    found = (
        next((one for one in _causes(error) if isinstance(one, kind)), None) for kind in (ModelError, EvaluationError)
    )
    return all(one is None or one.retryable for one in found)


def _is_mistake_in_code(error: BaseException) -> bool:
    """Whether no other answers would help: a metric would do the same with them."""
    return isinstance(error, EvaluationError) and not error.retryable


def _causes(error: BaseException) -> Iterator[BaseException]:
    cause: BaseException | None = error
    while cause is not None:
        yield cause
        cause = cause.__cause__
