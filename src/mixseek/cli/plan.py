"""What a run would do, told without doing it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from mixseek.amounts import cost_words, counted, number, usd
from mixseek.config.checks import is_known_judge, type_of_metric
from mixseek.config.manager import RunSettings
from mixseek.config.schema import EvaluatorSettings, TeamSettings
from mixseek.embedded import FETCHABLE, PREFIX, is_fetched

if TYPE_CHECKING:
    from mixseek.orchestrator.estimate import Estimate

__all__ = ["Plan", "estimate_lines", "plan_of"]


@dataclass(frozen=True)
class _Asked:
    """Somebody who may ask a model; None where none is asked or it is not known, as of metrics of a class of yours."""

    name: str
    kind: str
    model: str | None
    fallback_models: Sequence[str] = ()

    def __str__(self) -> str:
        others = f", then {', '.join(self.fallback_models)}" if self.fallback_models else ""
        name = self.name if self.kind == self.name else f"{self.name} ({self.kind})"
        return name if self.model is None else f"{name}: {self.model}{others}"

    def as_json(self) -> dict[str, Any]:
        return {**vars(self), "fallback_models": list(self.fallback_models)}


@dataclass(frozen=True)
class _TeamPlan:
    team_id: str
    team_name: str
    leader: _Asked
    members: tuple[_Asked, ...]


@dataclass(frozen=True)
class Plan:
    """Teams, metrics, judgment and rounds of a run, and how many model calls that can be."""

    teams: tuple[_TeamPlan, ...]
    metrics: tuple[_Asked, ...]
    judgment: str
    min_rounds: int
    max_rounds: int
    timeout_per_team_seconds: int
    calls: int
    """Every round played, every member asked once a round and using no tool, no call tried again."""
    has_own_metrics: bool
    """Whether there are metrics of classes of the user's own, which may ask models too and are not counted."""
    fetches: tuple[str, ...]
    """Embedded models whose weights are not on this machine yet."""
    estimate: "Estimate"

    def lines(self) -> list[str]:
        """The plan for people."""
        lines = [f"{counted(len(self.teams), 'team')}, {self._rounds()} each, "]
        lines[0] += f"{self.timeout_per_team_seconds} s for all rounds of a team"
        for team in self.teams:
            lines += [f"{team.team_name} ({team.team_id})", f"  {team.leader}"]
            lines += [f"  {member}" for member in team.members]
        lines += ["Metrics", *(f"  {metric}" for metric in self.metrics)]
        lines += [f"Judgment: {'by rules alone' if self.judgment == 'none' else self.judgment}"]
        return [
            *lines,
            f"{counted(self.calls, 'model call')}, if every round is played, "
            "each member is asked once a round and uses no tool",
            f"More, if members are asked again, their models go on after a tool{self._own_metrics()}, "
            "or calls are tried again",
            *estimate_lines(self.estimate),
            *(f"A run would first fetch the weights of {name}" for name in self.fetches),
        ]

    def _rounds(self) -> str:
        if self.min_rounds == self.max_rounds:
            return counted(self.max_rounds, "round")
        return f"{self.min_rounds} (min_rounds) to {self.max_rounds} rounds"

    def _own_metrics(self) -> str:
        return ", metrics of yours ask a model" if self.has_own_metrics else ""

    def as_json(self) -> dict[str, Any]:
        """The plan for programs."""
        teams = [
            {
                "team_id": team.team_id,
                "team_name": team.team_name,
                "leader": team.leader.as_json(),
                "members": [member.as_json() for member in team.members],
            }
            for team in self.teams
        ]
        plan = {**vars(self), "teams": teams, "metrics": [metric.as_json() for metric in self.metrics]}
        return {"dry_run": True, **plan, "estimate": self.estimate.as_json()}


def plan_of(settings: RunSettings, environ: Mapping[str, str], task_bytes: int | None = None) -> Plan:
    """What a run by these settings would do, with a task of so many bytes if there is one."""
    from mixseek.llm import ModelHub  # loads model code
    from mixseek.orchestrator.estimate import estimate

    orchestrator = settings.orchestrator
    teams, metrics = tuple(map(_team, settings.teams)), _metrics(settings.evaluator)
    own = settings.evaluator.custom_metrics
    hub = ModelHub(settings.providers, orchestrator.prices, environ=environ, root=settings.workspace.root)
    return Plan(
        teams=teams,
        metrics=metrics,
        judgment=settings.judgment.model,
        min_rounds=orchestrator.min_rounds,
        max_rounds=orchestrator.max_rounds,
        timeout_per_team_seconds=orchestrator.timeout_per_team_seconds,
        calls=sum(_calls(settings, team) for team in settings.teams),
        has_own_metrics=any(type_of_metric(one, settings.evaluator) in own for one in settings.evaluator.metrics),
        fetches=_fetches(settings, teams, metrics, environ),
        estimate=estimate(settings, task_bytes, hub),
    )


def estimate_lines(estimate: "Estimate") -> list[str]:
    """An estimate for people."""
    low, high = estimate.low, estimate.high
    cost = _cost_between(low.cost_usd, high.cost_usd)
    return [
        "Estimate",
        f"  {_between(low.calls, high.calls)} model call{'s' * (high.calls != 1)}, "
        f"{_between(low.tokens, high.tokens)} tokens, {cost}",
        *(f"  {one}" for one in estimate.assumptions),
        *(f"  no price is known for {model}: give it one in [prices]" for model in estimate.unpriced),
        *(f"  {_unused_price(name, near)}" for name, near in estimate.unused_prices.items()),
        *(f"  budget of {one}" for one in estimate.against_budget),
    ]


def _unused_price(name: str, near: str | None) -> str:
    hint = "" if near is None else f"; did you mean {near}?"
    return f"[prices] has a price for {name}, a model that nobody here names{hint}"


def _between(low: int, high: int) -> str:
    return number(low) if low == high else f"{number(low)} to {number(high)}"


def _cost_between(low: float | None, high: float | None) -> str:
    if low is None or high is None:
        return "cost not known"
    if not high:
        return "no cost"
    return cost_words(high) if usd(low) == usd(high) else f"{usd(low)} to {usd(high)} USD"


def _fetches(
    settings: RunSettings, teams: Sequence[_TeamPlan], metrics: Sequence[_Asked], environ: Mapping[str, str]
) -> tuple[str, ...]:
    asked = [*(one for team in teams for one in (team.leader, *team.members)), *metrics]
    models = {settings.judgment.model, *(model for one in asked for model in (one.model, *one.fallback_models))}
    known = {
        f"{PREFIX}:{name}": weights for name, weights in FETCHABLE.items() if PREFIX not in settings.providers.providers
    }
    missing = [weights for model, weights in known.items() if model in models and not is_fetched(weights, environ)]
    return tuple(f"{weights.name}, {weights.megabytes} MB" for weights in missing)


def _team(team: TeamSettings) -> _TeamPlan:
    leader = _Asked("leader", "leader", team.leader.model, team.leader.fallback_models)
    members = tuple(_Asked(one.name, str(one.type), one.model, one.fallback_models) for one in team.members)
    return _TeamPlan(team.team_id, team.team_name, leader, members)


def _metrics(evaluator: EvaluatorSettings) -> tuple[_Asked, ...]:
    default = evaluator.llm_default.model or evaluator.default_model
    return tuple(
        _Asked(
            one.name,
            type_of_metric(one, evaluator),
            one.model or (default if is_known_judge(one, evaluator) else None),
        )
        for one in evaluator.metrics
    )


def _judges(evaluator: EvaluatorSettings) -> int:
    """How many metrics are known to ask a model."""
    return sum(is_known_judge(metric, evaluator) for metric in evaluator.metrics)


def _calls(settings: RunSettings, team: TeamSettings) -> int:
    # A leader with members asks for them in one answer and writes its submission in the next.
    leader = 2 if team.members else 1
    each_round = leader + len(team.members) + _judges(settings.evaluator)
    return each_round * settings.orchestrator.max_rounds + _judgments(settings)


def _judgments(settings: RunSettings) -> int:
    """Asked from the first round that may be the last; after the very last only for the record."""
    if settings.judgment.model == "none":
        return 0
    orchestrator = settings.orchestrator
    return orchestrator.max_rounds - orchestrator.min_rounds + settings.judgment.judge_on_final_round
