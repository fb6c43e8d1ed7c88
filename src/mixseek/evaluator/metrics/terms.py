"""Does the submission say what it must, and not what it must not?"""

from collections.abc import Iterable, Mapping
from typing import Any

import regex
from pydantic import Field

from mixseek.config.schema import Fault, MetricOptions, Text
from mixseek.evaluator.metrics.base import CodeMetric, Measured
from mixseek.evaluator.metrics.text import UNSPACED, folded

__all__ = ["Terms"]

_IN_A_WORD = rf"(?![{UNSPACED}])[\p{{L}}\p{{M}}\p{{N}}_]"


class TermsOptions(MetricOptions):
    """The terms, compared without regard to case and width."""

    required: list[Text] = Field(default=[], max_length=1000, description="Terms the submission has to contain.")
    forbidden: list[Text] = Field(default=[], max_length=1000, description="Terms it must not contain.")
    penalty: float = Field(default=100, ge=0, le=100, description="Points that each forbidden term takes off.")
    whole_words: bool = Field(
        default=True,
        description='Whether "art" is not found in "start"; terms in Japanese are found anywhere all the same.',
    )

    @classmethod
    def _faults(cls, data: Mapping[str, Any]) -> Iterable[Fault]:
        required, forbidden = (_folded_terms(data.get(name)) for name in ("required", "forbidden"))
        if not data.get("required") and not data.get("forbidden"):
            yield (), "name at least one term: required, forbidden or both"
        for term in sorted(required.keys() & forbidden.keys()):
            yield ("forbidden",), f"{forbidden[term]!r} is required too: keep one of the two"


def _folded_terms(terms: Any) -> dict[str, str]:
    return {folded(term): term for term in terms if isinstance(term, str)} if isinstance(terms, list) else {}


class Terms(CodeMetric[TermsOptions]):
    """The share of required terms that are there, less a penalty for each forbidden one."""

    Options = TermsOptions

    def __init__(self, options: TermsOptions | None = None) -> None:
        super().__init__(options)
        self._required = self._patterns(self.options.required)
        self._forbidden = self._patterns(self.options.forbidden)

    def measure(self, submission: str, reference: str | None) -> Measured:
        """Look for every term once."""
        text = " ".join(folded(submission).split())
        missing = [term for term, pattern in self._required.items() if not pattern.search(text)]
        found = [term for term, pattern in self._forbidden.items() if pattern.search(text)]
        there = (len(self._required) - len(missing)) / len(self._required) if self._required else 1
        return Measured(max(0.0, 100 * there - self.options.penalty * len(found)), _told(missing, found))

    def _patterns(self, terms: Iterable[str]) -> dict[str, "regex.Pattern[str]"]:
        """A pattern for each different term, by the way it was first written."""
        different = {" ".join(folded(term).split()): term for term in reversed(list(terms))}
        return {written: self._pattern(term) for term, written in reversed(different.items())}

    def _pattern(self, term: str) -> "regex.Pattern[str]":
        if not self.options.whole_words:
            return regex.compile(regex.escape(term, special_only=True))
        before = rf"(?<!{_IN_A_WORD})" if regex.match(_IN_A_WORD, term) else ""
        after = rf"(?!{_IN_A_WORD})" if regex.match(_IN_A_WORD, term[-1]) else ""
        return regex.compile(before + regex.escape(term, special_only=True) + after)


def _told(missing: list[str], found: list[str]) -> str:
    parts = [f"missing: {', '.join(missing)}"] if missing else []
    parts += [f"must not appear: {', '.join(found)}"] if found else []
    return "; ".join(parts) or "all required terms are there and no forbidden one"
