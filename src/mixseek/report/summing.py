"""Bills added up: by model, by team, role and model, by team, round and role, or all of it."""

from collections.abc import Callable, Iterable
from functools import reduce

from mixseek.amounts import cost_words, counted, number
from mixseek.records import LostUsage, ModelUsage

__all__ = ["by_model", "by_team_role_and_model", "by_team_round_and_role", "lost_words", "total"]

_ROLES = ("leader", "member", "evaluator", "judgment")


def total(bill: Iterable[ModelUsage]) -> ModelUsage | None:
    """All lines as one; None if there is none."""
    lines = list(bill)
    return reduce(ModelUsage.plus, lines) if lines else None


def by_team_round_and_role(bill: Iterable[ModelUsage]) -> list[ModelUsage]:
    """A line for each role in each round of each team, over all agents and models."""
    return _grouped(bill, lambda line: (line.team_id, line.round_number, _ROLES.index(line.role)))


def lost_words(lost: Iterable[LostUsage], before: int = 0) -> str | None:
    """What may have been paid beyond the bill, in one line; None if nothing was.

    ``before`` tells how many of the attempts were made when the same was asked before.
    """
    lines = list(lost)
    if not lines:
        return None
    attempts = sum(line.attempts for line in lines)
    told = f"{_attempts_words(attempts, before)} and may have been billed beyond that"
    bounded = [line for line in lines if line.tokens is not None]
    return f"{told}: {_set_aside_words(reduce(LostUsage.plus, bounded), attempts)}" if bounded else told


def _attempts_words(attempts: int, before: int) -> str:
    told, earlier = "broke off or told no usage", "when this was asked before"
    if before == attempts:
        return f"{counted(attempts, 'attempt')} {told} {earlier}"
    some = f", {number(before)} of them {earlier}," if before else ""
    return f"{counted(attempts, 'attempt')}{some} {told}"


def _set_aside_words(bounded: LostUsage, attempts: int) -> str:
    """It is no "up to": under a limit of requests alone answers may be longer than what was set aside for them."""
    cost = "" if bounded.cost_usd is None else f" and {cost_words(bounded.cost_usd)}"
    of_them = "" if bounded.attempts == attempts else f" for {number(bounded.attempts)} of them"
    return f"{counted(bounded.tokens or 0, 'token')}{cost} were set aside{of_them}"


def by_team_role_and_model(bill: Iterable[ModelUsage]) -> list[ModelUsage]:
    """A line for each model in each role of each team, over all rounds and agents."""
    return _grouped(bill, lambda line: (line.team_id, _ROLES.index(line.role), line.model))


def by_model(bill: Iterable[ModelUsage]) -> list[ModelUsage]:
    """A line for each model, over all that used it."""
    return _grouped(bill, lambda line: (line.model,))


def _grouped(bill: Iterable[ModelUsage], key: Callable[[ModelUsage], tuple[str | int, ...]]) -> list[ModelUsage]:
    """Lines of the same key as one, in the order of the keys."""
    groups: dict[tuple[str | int, ...], list[ModelUsage]] = {}
    for line in bill:
        groups.setdefault(key(line), []).append(line)
    return [reduce(ModelUsage.plus, groups[key]) for key in sorted(groups)]
