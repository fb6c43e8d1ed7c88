"""What the commands that ask once share: who may be asked, the wait for the answer, and the words for what it took."""

import contextlib
import os
from collections.abc import Coroutine, Iterator
from dataclasses import dataclass
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import typer

from mixseek.amounts import spent_words
from mixseek.cli.live import harmless_prints
from mixseek.cli.output import EXIT_INTERRUPTED, print_interrupted
from mixseek.config.manager import ConfigurationManager, locate_workspace
from mixseek.config.schema import EvaluatorSettings, OrchestratorSettings, PromptBuilderSettings, ProvidersSettings
from mixseek.errors import ConfigurationError, Problem, WorkspaceNotFoundError
from mixseek.records import MemberSubmission, MetricScore, Usage
from mixseek.redaction import Redactor
from mixseek.strangers import run_and_leave
from mixseek.workspace import WORKSPACE_VARIABLE, Workspace

if TYPE_CHECKING:
    from mixseek.orchestrator.single import Surroundings

__all__ = [
    "Judges",
    "bill_words",
    "judges_of",
    "member_words",
    "metric_words",
    "score_words",
    "surroundings",
    "told_when_interrupted",
    "wait_for",
    "with_bill_last",
    "workspace_or_none",
]

T = TypeVar("T")


def workspace_or_none(given: Path | None, *, needed: bool) -> Workspace:
    """The workspace; where none is named and none is needed, only a place for relative paths."""
    try:
        return locate_workspace(given)
    except WorkspaceNotFoundError:
        if needed or given is not None or os.environ.get(WORKSPACE_VARIABLE):
            raise
        return Workspace.bare()


@dataclass(frozen=True)
class Judges:
    """An evaluator and what it needs, wherever they were found."""

    evaluator: EvaluatorSettings
    prompts: PromptBuilderSettings
    providers: ProvidersSettings
    orchestrator: OrchestratorSettings
    reference: str | None = None


def judges_of(manager: ConfigurationManager, config: Path | None, *, for_a_run: bool = False) -> Judges:
    """The judges of an evaluator file or of an orchestrator file; without a file those of the workspace."""
    kind = None if config is None else manager.validate(config, complete=False).kind
    if config is not None and kind == "orchestrator":
        run = manager.load_run_settings(config)
        if for_a_run:
            named = run.orchestrator.evaluator_config
            manager.get_evaluator_settings(named and manager.workspace.resolve(named), for_a_run=True)
        return Judges(run.evaluator, run.prompt_builder, run.providers, run.orchestrator, run.reference)
    if kind not in (None, "evaluator"):
        raise ConfigurationError(Problem(f"is a {kind} file: give an evaluator or an orchestrator file", str(config)))
    return Judges(
        manager.get_evaluator_settings(config, for_a_run=for_a_run),
        manager.get_prompt_builder_settings(),
        manager.get_providers_settings(),
        manager.own_prices_and_storage(),
    )


def surroundings(manager: ConfigurationManager) -> "Surroundings":
    """What whoever is asked in this workspace needs."""
    from mixseek.orchestrator.single import Surroundings  # loads model code

    return Surroundings.of(manager)


_NO_ANSWER = "interrupted: there is no answer"


@contextlib.contextmanager
def told_when_interrupted(told: str = _NO_ANSWER) -> Iterator[None]:
    """Ctrl-C inside ends the command with a word about it, as JSON where JSON was asked for."""
    try:
        yield
    except KeyboardInterrupt:
        print_interrupted(told)
        raise typer.Exit(EXIT_INTERRUPTED) from None


def wait_for(work: Coroutine[Any, Any, T], redactor: Redactor, told: str = _NO_ANSWER) -> T:
    """The answer; what others print meanwhile stays out of the result. ``told`` is said if it is interrupted."""
    with told_when_interrupted(told), harmless_prints(redactor):
        return run_and_leave(work)


def bill_words(usage: Usage, cost_usd: float | None, seconds: float, known: float = 0.0) -> str:
    """What an answer took, in one line."""
    return f"{spent_words(usage, cost_usd, known=known)}, {seconds:.1f} s"


def with_bill_last(told: dict[str, Any]) -> dict[str, Any]:
    """A record as JSON in the order in which it is read: the answer, then what it took."""
    took = ("seconds", "usage", "cost_usd", "bill")
    return {name: told[name] for name in sorted(told, key=lambda name: took.index(name) if name in took else -1)}


def member_words(member: MemberSubmission) -> str:
    """How a member's work ended, in one line."""
    seconds = "" if member.execution_time_ms is None else f" {member.execution_time_ms / 1000:.1f} s"
    named = f"{member.agent_name} ({member.agent_type})"
    if member.status == "ERROR":
        return f"{named}: failed after{seconds}: {member.error_message or 'no reason given'}"
    warned = f", with a warning: {member.error_message}" if member.status == "WARNING" else ""
    return f"{named}: answered in{seconds}{warned}"


def metric_words(metric: MetricScore, weight: float | None = None) -> str:
    """What one metric says, in one line."""
    share = "" if weight is None else f" (weight {weight:.3g})"
    comment = f": {metric.evaluator_comment}" if metric.evaluator_comment else ""
    return f"{metric.metric_name} {score_words(metric.score)}{share}{comment}"


def score_words(score: float | None) -> str:
    """A score; what is no finite number is none."""
    return "unscored" if score is None or not isfinite(score) else f"{score:.2f}"
