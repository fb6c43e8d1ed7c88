"""A competition from Python, without files.

    summary = mixseek.run(
        "Name three uses of bamboo.",
        teams=[{"team_id": "a", "team_name": "A", "leader": {"model": "openai:gpt-5-mini"}}],
        max_rounds=2,
    )

What is given is checked by the same rules, and told in the same words, as the files of a workspace, and played by the
same :class:`~mixseek.orchestrator.Orchestrator`.
"""

import asyncio
import threading
from collections.abc import Coroutine, Mapping, Sequence
from concurrent.futures import Future
from contextvars import copy_context
from pathlib import Path
from typing import Any, TypedDict, Unpack

from mixseek.config.manager import ConfigurationManager, Given
from mixseek.config.reading import checked_text
from mixseek.config.schema import (
    BudgetSettings,
    EvaluatorSettings,
    JudgmentSettings,
    PriceSettings,
    PromptBuilderSettings,
    ProvidersSettings,
    StorageSettings,
    TeamSettings,
)
from mixseek.errors import ConfigurationError
from mixseek.events import Listener
from mixseek.llm import Backoff
from mixseek.orchestrator.arguments import checked_limits, listed_teams
from mixseek.orchestrator.orchestrator import Orchestrator
from mixseek.orchestrator.own_parts import lending
from mixseek.records import Attachment, ExecutionSummary
from mixseek.round_controller import OnRoundCompleteCallback
from mixseek.storage.beginning import execution_to_resume, read_beginning
from mixseek.storage.journal import Journal
from mixseek.strangers import a_loop_runs, run_and_leave
from mixseek.workspace import Workspace

__all__ = ["Limits", "Options", "arun", "run"]

Table = Mapping[str, Any]
"""Settings as a TOML file would have them."""


class Limits(TypedDict, total=False):
    """The settings of an orchestrator file beside its teams."""

    timeout_per_team_seconds: int
    max_concurrent_teams: int
    max_retries_per_team: int
    max_rounds: int
    min_rounds: int
    submission_timeout_seconds: int
    judgment_timeout_seconds: int
    answer_schema: str | Table
    reference: str
    budget: BudgetSettings | Table
    prices: Mapping[str, PriceSettings | Table]
    storage: StorageSettings | Table


class Options(Limits, total=False):
    """All that :func:`run` takes beside the task and the teams."""

    evaluator: EvaluatorSettings | Table | None
    judgment: JudgmentSettings | Table | None
    prompt_builder: PromptBuilderSettings | Table | None
    providers: ProvidersSettings | Table | None
    workspace: Path | str | None
    execution_id: str | None
    resume: str | None
    accept_changes: bool
    on_round_complete: OnRoundCompleteCallback | None
    listeners: Sequence[Listener]
    backoff: Backoff | None
    attachments: Sequence[Attachment | Path | str] | None


Team = TeamSettings | Table | Path | str


def run(task: str, teams: Sequence[Team], **options: Unpack[Options]) -> ExecutionSummary:
    """:func:`arun` for programs and notebooks that do not await.

    Where an event loop runs already, as in a notebook, the competition has a thread and a loop of its own, and hooks
    and listeners are called there; Ctrl-C ends it all the same.
    """
    # Outside of the question whether a loop runs, or every error would be told as a consequence of the answer.
    play = _in_a_thread if a_loop_runs() else run_and_leave
    try:
        return play(arun(task, teams, **options))
    except KeyboardInterrupt:
        # Where in here it was does not matter to whoever pressed the keys.
        raise KeyboardInterrupt from None


async def arun(
    task: str,
    teams: Sequence[Team],
    *,
    evaluator: EvaluatorSettings | Table | None = None,
    judgment: JudgmentSettings | Table | None = None,
    prompt_builder: PromptBuilderSettings | Table | None = None,
    providers: ProvidersSettings | Table | None = None,
    workspace: Path | str | None = None,
    execution_id: str | None = None,
    resume: str | None = None,
    accept_changes: bool = False,
    on_round_complete: OnRoundCompleteCallback | None = None,
    listeners: Sequence[Listener] = (),
    backoff: Backoff | None = None,
    attachments: Sequence[Attachment | Path | str] | None = (),
    **limits: Unpack[Limits],
) -> ExecutionSummary:
    """Let teams answer ``task``, and return the leader board with the best answers and the bill.

    A team is :class:`TeamSettings`, a table like that of a team file, or the path of one; its members may name a class
    of yours as their ``type``, or be objects of one. The other parts are settings or tables too, and the metrics of an
    evaluator's table may be classes or objects. With a ``workspace`` its files hold for what is not given, and results
    are stored there; without one no file is looked for, nothing is written, and paths start at the current directory.
    Everything is checked before a model is called; mistakes are a :class:`~mixseek.errors.ConfigurationError`.

    With an execution of the workspace that was killed, interrupted or failed in part as ``resume`` (its id, the
    beginning of it, or ``last``), the same call goes on with it, and pays for nothing twice
    (:meth:`Orchestrator.resume`); with ``accept_changes`` also one that is not the same, as with a larger budget.
    """
    given_limits = checked_limits(limits, {"task", *Options.__annotations__})
    place = Workspace.bare() if workspace is None else Workspace.locate(workspace)
    with lending(Given(listed_teams(teams), evaluator, judgment, prompt_builder, providers)) as given:
        manager = ConfigurationManager(place, given=given)
        settings = await asyncio.to_thread(manager.assemble, given_limits)
        orchestrator = Orchestrator(
            settings,
            save_db=workspace is not None,
            on_round_complete=on_round_complete,
            listeners=listeners,
            backoff=backoff,
        )
        if resume is None:
            if accept_changes:
                raise ConfigurationError("accept_changes: goes with resume=ID, the execution that is gone on with")
            return await orchestrator.execute(task, execution_id=execution_id, attachments=attachments)
        if workspace is None or execution_id is not None or attachments:
            raise ConfigurationError(
                "resume: goes with the workspace that the execution is in, and without execution_id and attachments, "
                "which it has already"
            )
        async with Journal(place.journal) as journal:
            wanted = checked_text(resume, "execution id")
            # What nobody knows is refused by whoever resumes.
            resume = await execution_to_resume(journal, wanted) or wanted
            await _refuse_another_task(manager, journal, resume, task)
        return await orchestrator.resume(resume, accept_changes=accept_changes)


async def _refuse_another_task(manager: ConfigurationManager, journal: Journal, execution_id: str, task: str) -> None:
    """Whoever gives a task wants that one answered, and no other."""
    begun = await read_beginning(journal, execution_id)
    # What is kept has marks in place of secrets.
    if begun is not None and begun.user_prompt not in (task, manager.redactor.text(task)):
        raise ConfigurationError(
            f"resume: execution {execution_id!r} was begun with another task, {begun.user_prompt!r}: give that one"
        )


def _in_a_thread(playing: Coroutine[Any, Any, ExecutionSummary]) -> ExecutionSummary:
    """Run to the end in another thread; what interrupts the wait here cancels it there first."""
    started: Future[tuple[asyncio.AbstractEventLoop, asyncio.Task[ExecutionSummary]]] = Future()
    done: Future[ExecutionSummary] = Future()

    async def main() -> ExecutionSummary:
        task = asyncio.ensure_future(playing)
        started.set_result((asyncio.get_running_loop(), task))
        return await task

    def work() -> None:
        try:
            done.set_result(run_and_leave(main()))
        except BaseException as error:  # noqa: BLE001  # raised where it is waited for
            done.set_exception(error)

    thread = threading.Thread(target=copy_context().run, args=(work,), name="mixseek.run", daemon=True)
    thread.start()
    try:
        return done.result()
    except BaseException:
        if not done.done():
            loop, task = started.result()
            loop.call_soon_threadsafe(task.cancel)
        raise
    finally:
        thread.join()
