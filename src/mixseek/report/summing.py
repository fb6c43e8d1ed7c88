"""Bills added up: by team, role and model, or all of it."""

from collections.abc import Iterable
from functools import reduce

from mixseek.records import ModelUsage

__all__ = ["by_team_role_and_model", "total"]

_ROLES = ("leader", "member", "evaluator", "judgment")


def total(bill: Iterable[ModelUsage]) -> ModelUsage | None:
    """All lines as one; None if there is none."""
    lines = list(bill)
    return reduce(ModelUsage.plus, lines) if lines else None


def by_team_role_and_model(bill: Iterable[ModelUsage]) -> list[ModelUsage]:
    """A line for each model in each role of each team, over all rounds and agents."""
    groups: dict[tuple[str, int, str], list[ModelUsage]] = {}
    for line in bill:
        groups.setdefault((line.team_id, _ROLES.index(line.role), line.model), []).append(line)
    return [reduce(ModelUsage.plus, groups[key]) for key in sorted(groups)]
