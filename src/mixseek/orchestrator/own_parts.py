"""Members and metrics that are handed over as Python classes or objects: names for them, lent for one run.

Settings hold names, never objects. So a class stands under its name for as long as the run lasts, and an object under
the name of its class, as a class that gives this object whenever it is asked for one.
"""

import copy
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, TypeGuard

from mixseek import plugins
from mixseek.agents.member.base import BaseMemberAgent
from mixseek.config.manager import Given
from mixseek.errors import ConfigurationError, Problem
from mixseek.evaluator.metrics.base import BaseMetric

__all__ = ["lending"]


@contextmanager
def lending(given: Given) -> Iterator[Given]:
    """What is given with names in place of classes and objects; the names hold inside."""
    lender = _Lender()
    teams = [lender.team(number, team) for number, team in enumerate(given.teams)]
    named = replace(given, teams=teams, evaluator=lender.evaluator(given.evaluator))
    with plugins.members.lent(lender.members), plugins.metrics.lent(lender.metrics):
        yield named


@dataclass
class _Lender:
    members: dict[str, type] = field(default_factory=dict)
    metrics: dict[str, type] = field(default_factory=dict)
    _seen: dict[int, str] = field(default_factory=dict)
    """Member objects by their identity, and where each was given."""

    def team(self, number: int, team: Any) -> Any:
        if not isinstance(team, Mapping):
            return team
        table = team.get("team")
        if isinstance(table, Mapping):
            return {**team, "team": self._with_members(table, f"teams[{number}]: team.members")}
        return self._with_members(team, f"teams[{number}]: members")

    def _with_members(self, team: Mapping[str, Any], shown: str) -> Mapping[str, Any]:
        members = team.get("members")
        if not _is_list(members):
            return team
        return {**team, "members": [self._member(each, f"{shown}[{at}]") for at, each in enumerate(members)]}

    def _member(self, member: Any, shown: str) -> Any:
        if isinstance(member, BaseMemberAgent):
            self._refuse_twice(member, shown)
            table = member.config.model_dump(by_alias=True, exclude_unset=True, exclude={"plugin"})
            return {**table, "type": _name(self.members, plugins.members, _giving_member(member))}
        if isinstance(member, Mapping) and isinstance(member.get("type"), type):
            return {**member, "type": _name(self.members, plugins.members, member["type"])}
        return member

    def _refuse_twice(self, member: BaseMemberAgent, shown: str) -> None:
        """One object serves one team: it is made ready and let go of by that team alone."""
        first = self._seen.setdefault(id(member), shown)
        if first != shown:
            raise ConfigurationError(Problem(f"is the same object as {first}: make one for each team", shown))

    def evaluator(self, evaluator: Any) -> Any:
        metrics = evaluator.get("metrics") if isinstance(evaluator, Mapping) else None
        if not _is_list(metrics):
            return evaluator
        return {**evaluator, "metrics": [self._metric(metric) for metric in metrics]}

    def _metric(self, metric: Any) -> Any:
        if isinstance(metric, BaseMetric):
            metric = {"name": type(metric).__name__, "type": metric}
        kind = metric.get("type") if isinstance(metric, Mapping) else None
        if isinstance(kind, BaseMetric):
            kind = _giving_metric(kind)
        return {**metric, "type": _name(self.metrics, plugins.metrics, kind)} if isinstance(kind, type) else metric


def _is_list(value: Any) -> TypeGuard[Sequence[Any]]:
    return isinstance(value, Sequence) and not isinstance(value, str)


def _name(lent: dict[str, type], registry: plugins.Registry[type], kind: type) -> str:
    """A name of its own, the class's if it is free: a notebook may have two classes of one name."""
    name, number = kind.__name__, 1
    while (name in lent and lent[name] is not kind) or (name in registry and name not in lent):
        number += 1
        name = f"{kind.__name__} {number}"
    lent[name] = kind
    return name


def _giving_member(member: BaseMemberAgent) -> type:
    def given(_cls: type, _config: object) -> BaseMemberAgent:
        return member

    return type(type(member).__name__, (type(member),), {"__new__": given})


def _giving_metric(metric: BaseMetric) -> type:
    """Each team gets a copy: an evaluator gives a metric its judge."""

    def given(_cls: type) -> BaseMetric:
        return copy.copy(metric)

    # It is made already: its options are not to be asked for again.
    made = {"__new__": given, "Options": None, "needs_reference": _needs_reference(metric)}
    return type(type(metric).__name__, (type(metric),), made)


def _needs_reference(metric: BaseMetric) -> bool:
    return any(getattr(each, "needs_reference", False) for each in (metric, getattr(metric, "options", None)))
