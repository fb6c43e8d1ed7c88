"""Is the number in the submission the right one?"""

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from decimal import Decimal
from typing import Any, Literal

import regex
from pydantic import Field

from mixseek.config.schema import Fault, MetricOptions, Text
from mixseek.errors import EvaluationError
from mixseek.evaluator.metrics.base import CodeMetric, Measured
from mixseek.evaluator.metrics.numbers import EXACT, Number, find_numbers, narrow

__all__ = ["NumericAnswer"]

_LONGEST_SHOWN = 40
_NO_NUMBER = 'the reference answer holds no number: write one there, or set the option "expected"'


class NumericAnswerOptions(MetricOptions):
    """The number, how near is near enough, and which number of the submission is its answer."""

    expected: float | None = Field(
        default=None, allow_inf_nan=False, description="The right number; absent: the last one of the reference answer."
    )
    tolerance: float = Field(default=0, ge=0, allow_inf_nan=False, description="Largest difference that is right.")
    relative_tolerance: float = Field(
        default=0, ge=0, le=1, description="The same as a share of the right number; the larger of the two holds."
    )
    take: Literal["last", "first"] = Field(default="last", description="Which number of the submission is its answer.")
    after: Text | None = Field(
        default=None, description="Text the answer stands behind: the first number after its last occurrence is taken."
    )
    percent: Literal["fraction", "number"] = Field(
        default="fraction", description='Whether "5 %" is read as 0.05 or as 5.'
    )

    @property
    def needs_reference(self) -> bool:
        """Whether the right number has to come from the reference answer."""
        return self.expected is None

    def reference_fault(self, reference: str) -> str | None:
        """What is wrong with a reference answer that holds no number."""
        return _NO_NUMBER if self.expected is None and _last(find_numbers(reference)) is None else None

    def value(self, number: Number) -> Decimal:
        """What a number of a text counts as."""
        as_fraction = number.is_percent and self.percent == "fraction"
        return EXACT.scaleb(number.value, -2) if as_fraction else number.value

    @classmethod
    def _faults(cls, data: Mapping[str, Any]) -> Iterable[Fault]:
        if data.get("after") is not None and data.get("take") is not None:
            yield ("take",), 'has no meaning with "after": keep one of the two'


class NumericAnswer(CodeMetric[NumericAnswerOptions]):
    """Full score for the right number, within a tolerance, none for any other; the comment does not give it away."""

    Options = NumericAnswerOptions

    def measure(self, submission: str, reference: str | None) -> Measured:
        """Find the number and compare it, exactly."""
        answer = self._answer(submission)
        if answer is None:
            return Measured(0, self._missing())
        expected, found = self._expected(reference), self.options.value(answer)
        right = _is_near(found, expected, self.options.tolerance, self.options.relative_tolerance)
        shown = answer.written if len(answer.written) <= _LONGEST_SHOWN else answer.written[:_LONGEST_SHOWN] + "…"
        return Measured(100, f"{shown} is right") if right else Measured(0, f"{shown} is not right")

    def _answer(self, submission: str) -> Number | None:
        numbers = find_numbers(submission)
        if self.options.after is not None:
            end = _end_of_last(self.options.after, submission)
            return None if end is None else next((number for number in numbers if number.start >= end), None)
        if self.options.take == "first":
            return next(numbers, None)
        return _last(numbers)

    def _missing(self) -> str:
        marker = self.options.after
        return "there is no number in it" if marker is None else f"there is no number behind {marker!r}"

    def _expected(self, reference: str | None) -> Decimal:
        if self.options.expected is not None:
            return Decimal(repr(self.options.expected))
        number = _last(find_numbers(reference or ""))
        if number is None:
            raise EvaluationError(_NO_NUMBER)
        return self.options.value(number)


def _last(numbers: Iterator[Number]) -> Number | None:
    return next(iter(deque(numbers, maxlen=1)), None)


def _end_of_last(marker: str, text: str) -> int | None:
    pattern = regex.compile(regex.escape(narrow(marker)), flags=regex.IGNORECASE | regex.REVERSE)
    found = pattern.search(narrow(text))
    return found.end() if found else None


def _is_near(found: Decimal, expected: Decimal, tolerance: float, relative: float) -> bool:
    share = EXACT.multiply(Decimal(repr(relative)), EXACT.abs(expected))
    return EXACT.abs(EXACT.subtract(found, expected)) <= max(Decimal(repr(tolerance)), share)
