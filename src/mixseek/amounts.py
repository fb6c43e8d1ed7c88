"""How amounts are written for people, wherever one is: counts, tokens, money, and what a budget limits."""

import re
import shlex
from collections.abc import Iterable
from decimal import Decimal
from pathlib import Path
from typing import Final, Protocol

from mixseek.errors import ACCEPT_CHANGES

__all__ = [
    "amount_words",
    "calls_to_go_on",
    "change_words",
    "command_to_copy",
    "command_to_go_on",
    "cost_words",
    "counted",
    "larger_limit_words",
    "limit_in",
    "limit_words",
    "number",
    "spent_words",
    "tokens_words",
    "usd",
    "usd_digits",
    "without_file_words",
]

_FEWEST_DIGITS: Final = 2
_UNITS: Final = {"max_cost_usd": "USD", "max_tokens": "token", "max_requests": "call", "max_seconds": "second"}
_LONGEST_ANSWER: Final = "max_output_tokens (or max_tokens of an agent that has it)"
_BUDGET: Final = re.compile(r"\((max_\w+) of \[(?:team\.)?budget\]\)")
"""How a purse names the limit that was in the way."""
_MISTAKE: Final = re.compile(r"(metric .+?) (?:failed at |gave no MetricScore |could not score: measure has to )")
"""How an evaluator names a metric whose code is wrong."""


class _Tokens(Protocol):
    @property
    def input_tokens(self) -> int: ...

    @property
    def output_tokens(self) -> int: ...


class _Usage(_Tokens, Protocol):
    @property
    def requests(self) -> int: ...


def number(value: float) -> str:
    """A number with a mark after each three digits, and a tenth where there is one.

    >>> number(0), number(2_000_000), number(61.25)
    ('0', '2,000,000', '61.2')
    """
    return f"{value:,.1f}".removesuffix(".0")


def counted(count: float, noun: str) -> str:
    """A count with its noun.

    >>> counted(1, "call"), counted(1200, "call")
    ('1 call', '1,200 calls')
    """
    return f"{number(count)} {noun}{'s' * (count != 1)}"


def usd(cost: float | None, digits: int | None = None) -> str:
    """US dollars as a number; a dash where a price is not known, and more digits where a sum would look like nothing.

    Costs in one column all have the ``digits`` that :func:`usd_digits` gives for it.

    >>> [usd(cost) for cost in (None, 0, 0.00000002, 0.00012345, 0.0021, 3.5, 1234.567)]
    ['-', '0', '0.000001', '0.000123', '0.0021', '3.5000', '1,234.57']
    """
    if cost is None:
        return "-"
    if not cost:
        return "0"
    digits = digits or _digits(cost)
    # What is something must not look like nothing.
    return f"{max(cost, 10.0**-digits):,.{digits}f}"


def usd_digits(costs: Iterable[float | None]) -> int:
    """How many digits behind the point the costs of one column have: as many as the smallest of them needs.

    >>> costs = (None, 0, 0.000434, 0.0021, 12.5)
    >>> [usd(cost, usd_digits(costs)) for cost in costs]
    ['-', '0', '0.000434', '0.002100', '12.500000']
    """
    return max((_digits(cost) for cost in costs if cost), default=_FEWEST_DIGITS)


def _digits(cost: float) -> int:
    return 6 if cost < 0.001 else 4 if cost < 10 else _FEWEST_DIGITS


def cost_words(cost: float | None, known: float = 0.0) -> str:
    """A sum of money in a sentence; of one that is not known, what is ``known`` of it.

    >>> cost_words(0.0021), cost_words(0), cost_words(None), cost_words(None, 0.0021)
    ('0.0021 USD', '0 USD', 'cost not known', 'cost not known, but 0.0021 USD at least')
    """
    if cost is None:
        return f"cost not known, but {usd(known)} USD at least" if known else "cost not known"
    return f"{usd(cost)} USD"


def tokens_words(usage: _Tokens) -> str:
    """What was read and written: ``1,302 tokens in, 1,267 out``."""
    return f"{number(usage.input_tokens)} tokens in, {number(usage.output_tokens)} out"


def spent_words(usage: _Usage, cost_usd: float | None, noun: str = "model call", known: float = 0.0) -> str:
    """What something took: ``15 model calls, 1,302 tokens in, 1,267 out, 0.0021 USD``."""
    return f"{counted(usage.requests, noun)}, {tokens_words(usage)}, {cost_words(cost_usd, known)}"


def limit_words(limit: str, allowed: float, used: float | None = None) -> str:
    """What a limit of a budget allows, and how much of it is used.

    >>> limit_words("max_requests", 5, 3), limit_words("max_cost_usd", 0.05, 0.041)
    ('3 of 5 calls', '0.041 of 0.05 USD')
    >>> limit_words("max_tokens", 2_000_000), limit_words("max_seconds", 0.01, 0.00832), limit_words("max_seconds", 90)
    ('2,000,000 tokens', '0.00832 of 0.01 seconds', '90 seconds')
    """
    unit = _UNITS[limit]
    before = "" if used is None else f"{amount_words(limit, used)} of "
    return f"{before}{amount_words(limit, allowed)} {unit}{'s' * (unit != 'USD' and allowed != 1)}"


def amount_words(limit: str, amount: float) -> str:
    """An amount of what ``limit`` is about, without its unit; money as people write it in a budget, 0.05 for 0.0500."""
    if limit == "max_cost_usd":
        return f"{Decimal(f'{amount:.6g}'):,f}"
    if limit == "max_seconds" and 0 < amount < 1:
        return f"{Decimal(f'{amount:.3g}'):f}"  # a tenth would make nothing of a small limit
    return number(amount)


def limit_in(reason: str) -> str | None:
    """The limit of a budget that was in the way, where a reason to end names one.

    >>> limit_in("the run's budget of 9 seconds is used up (max_seconds of [budget])"), limit_in("HTTP 401")
    ('max_seconds', None)
    """
    named = _BUDGET.search(reason)
    return named and named[1]


def larger_limit_words(reasons: Iterable[str]) -> str | None:
    """What has to be changed before teams go on that ended for these reasons; None where one ended at no limit.

    >>> larger_limit_words(["no calls are left (max_requests of [budget])"]), larger_limit_words(["HTTP 401"])
    ('with a larger limit', None)
    """
    limits = [limit_in(reason) for reason in reasons]
    if not limits or None in limits:
        return None
    # Room for the longest answer is most of what a call needs of these.
    shorter = f", or a smaller {_LONGEST_ANSWER}" if {"max_cost_usd", "max_tokens"}.intersection(limits) else ""
    return f"with a larger limit{shorter}"


def change_words(reasons: Iterable[str]) -> str | None:
    """What has to be changed before teams go on that ended for these reasons, most of all the code of a metric.

    >>> change_words(["metric 'Own' failed at own.py, line 3: KeyError: 'a'", "HTTP 401"])
    "with metric 'Own' mended"
    """
    reasons = list(reasons)
    wrong = dict.fromkeys(found[1] for reason in reasons if (found := _MISTAKE.match(reason)))
    return f"with {', '.join(wrong)} mended" if wrong else larger_limit_words(reasons)


def command_to_copy(verb: str, execution_id: str, workspace: Path | str | None, *options: str) -> str:
    """A command about an execution, with the workspace as it was given.

    >>> command_to_copy("show", "3f2a", "my place", "--rounds")
    "mixseek show 3f2a --rounds -w 'my place'"
    """
    place = [] if workspace is None else ["-w", str(workspace)]
    return shlex.join(["mixseek", verb, execution_id, *options, *place])


def command_to_go_on(resume: str, reasons: Iterable[str]) -> str:
    """How teams go on that ended for these reasons: with all as it is they would only fail again.

    >>> command_to_go_on("mixseek resume last", ["no calls are left (max_requests of [budget])"])
    'with a larger limit, mixseek resume last --accept-changes'
    """
    change = change_words(reasons)
    return f"{change}, {resume} --accept-changes" if change else resume


def calls_to_go_on(*, accept_changes: bool = False) -> str:
    """How an execution goes on that was begun from Python and names no orchestrator file, as a command needs one.

    >>> calls_to_go_on()
    'the same mixseek.run(..., resume=ID), or Orchestrator.resume(ID)'
    """
    accepted = f", {ACCEPT_CHANGES}" if accept_changes else ""
    return f"the same mixseek.run(..., resume=ID{accepted}), or Orchestrator.resume(ID{accepted})"


def without_file_words(*, accept_changes: bool = False) -> str:
    """Why no command goes on with an execution that names no orchestrator file, and what does."""
    return (
        "names no orchestrator file: it was played by mixseek team, whose task can be given again, or from Python: "
        f"{calls_to_go_on(accept_changes=accept_changes)}, goes on"
    )
