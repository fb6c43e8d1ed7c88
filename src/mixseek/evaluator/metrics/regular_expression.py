"""Does the submission match a pattern as often as it should?"""

from collections.abc import Iterable, Mapping
from math import nan
from typing import Annotated, Any

import regex
from pydantic import AfterValidator, Field

from mixseek.config.schema import Fault, MetricOptions
from mixseek.config.shape import Words
from mixseek.evaluator.metrics.base import CodeMetric, Measured

__all__ = ["RegularExpression"]

_MOST_COUNTED = 1_000_000


def _compiles(pattern: str) -> str:
    try:
        regex.compile(pattern)
    except regex.error as error:
        raise ValueError(f"{pattern!r} is no regular expression: {error}") from None
    except RecursionError:
        raise ValueError("is nested too deeply for a regular expression") from None
    return pattern


class RegularExpressionOptions(MetricOptions):
    """The pattern and how often it should match."""

    pattern: Annotated[str, AfterValidator(_compiles), Words("a regular expression")] = Field(
        min_length=1, description="Pattern, as the package regex reads it; flags as in (?i), (?m), (?s)."
    )
    whole: bool = Field(default=False, description="Whether the whole submission, without outer space, has to match.")
    minimum: int = Field(default=1, ge=0, description="Fewest matches that get the full score.")
    maximum: int | None = Field(default=None, ge=0, description="Most matches that get it; 0: it must not match.")
    timeout_seconds: float = Field(
        default=1, gt=0, le=30, description="Longest search; a submission that takes longer is left unscored."
    )
    message: str | None = Field(
        default=None, description="What the team is told if it falls short; absent: the pattern."
    )

    @classmethod
    def _faults(cls, data: Mapping[str, Any]) -> Iterable[Fault]:
        most = data.get("maximum")
        least = data.get("minimum", 0 if most == 0 else 1)
        if isinstance(least, int) and isinstance(most, int) and least > most:
            yield ("minimum",), f"minimum ({least}) must be <= maximum ({most})"
        if data.get("whole") is True and isinstance(least, int) and least > 1:
            yield ("minimum",), "the whole submission matches at most once: take minimum out"


class RegularExpression(CodeMetric[RegularExpressionOptions]):
    """Full score for as many matches as wanted, and in proportion for fewer or more."""

    Options = RegularExpressionOptions
    takes_long = True

    def __init__(self, options: RegularExpressionOptions) -> None:
        super().__init__(options)
        self._pattern = regex.compile(options.pattern)

    def measure(self, submission: str, reference: str | None) -> Measured:
        """Count the matches, within the time there is."""
        try:
            count = self._count(submission)
        except TimeoutError:
            limit = self.options.timeout_seconds
            return Measured(nan, f"the pattern could not be searched for within {limit:g} s: write it shorter")
        score = 100 * self._share(count)
        told = self.options.message or f"pattern {self.options.pattern!r}: {self._wanted()}"
        # The sentence goes on, so the full stop of a message would stand in its middle.
        short = f"{told.rstrip('.。．')}; found: {count}"
        return Measured(score, f"matches: {count}, as wanted" if score == 100 else short)

    def _count(self, submission: str) -> int:
        limit = self.options.timeout_seconds
        if self.options.whole:
            return 1 if self._pattern.fullmatch(submission.strip(), timeout=limit, concurrent=True) else 0
        found = self._pattern.finditer(submission, timeout=limit, concurrent=True)
        return sum(1 for _, _ in zip(range(_MOST_COUNTED), found, strict=False))

    def _share(self, count: int) -> float:
        least, most = self._least, self.options.maximum
        if count < least:
            return count / least
        return most / count if most is not None and count > most else 1.0

    @property
    def _least(self) -> int:
        return 0 if self.options.maximum == 0 else self.options.minimum

    def _wanted(self) -> str:
        most = self.options.maximum
        if most == 0:
            return "must not match"
        if self.options.whole:
            return "the whole submission has to match"
        return f"wanted at least {self._least}" + ("" if most is None else f" and at most {most}")
