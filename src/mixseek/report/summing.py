"""Bills added up: by team, role and model, by team, round and role, or all of it."""

from collections.abc import Iterable
from functools import reduce

from mixseek.records import LostUsage, ModelUsage
from mixseek.report.money import cost_words

__all__ = ["by_team_role_and_model", "by_team_round_and_role", "lost_words", "total"]

_ROLES = ("leader", "member", "evaluator", "judgment")


def total(bill: Iterable[ModelUsage]) -> ModelUsage | None:
    """All lines as one; None if there is none."""
    lines = list(bill)
    return reduce(ModelUsage.plus, lines) if lines else None


def by_team_round_and_role(bill: Iterable[ModelUsage]) -> list[ModelUsage]:
    """A line for each role in each round of each team, over all agents and models."""
    groups: dict[tuple[str, int, int], list[ModelUsage]] = {}
    for line in bill:
        groups.setdefault((line.team_id, line.round_number, _ROLES.index(line.role)), []).append(line)
    return [reduce(ModelUsage.plus, groups[key]) for key in sorted(groups)]


def lost_words(lost: Iterable[LostUsage]) -> str | None:
    """What may have been paid beyond the bill, in one line; None if nothing was."""
    lines = list(lost)
    if not lines:
        return None
    whole = reduce(LostUsage.plus, lines)
    tries = f"{whole.attempts} attempt{'s' * (whole.attempts != 1)}"
    cost = "" if whole.cost_usd is None else f" and up to {cost_words(whole.cost_usd)}"
    return f"{tries} broke off and may have been billed beyond that: up to {whole.tokens} tokens{cost}"


def by_team_role_and_model(bill: Iterable[ModelUsage]) -> list[ModelUsage]:
    """A line for each model in each role of each team, over all rounds and agents."""
    groups: dict[tuple[str, int, str], list[ModelUsage]] = {}
    for line in bill:
        groups.setdefault((line.team_id, _ROLES.index(line.role), line.model), []).append(line)
    return [reduce(ModelUsage.plus, groups[key]) for key in sorted(groups)]
