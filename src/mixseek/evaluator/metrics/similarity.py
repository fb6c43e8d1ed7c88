"""How near does the submission come to a reference answer?"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Literal

import regex
from pydantic import Field

from mixseek.config.schema import Fault, MetricOptions, Text
from mixseek.evaluator.metrics.base import CodeMetric, Measured
from mixseek.evaluator.metrics.text import UNSPACED, folded, words

__all__ = ["Similarity"]

_LONGEST_COMPARED = 50_000
_NO_WORD = 'has no letter and no digit to compare by words: method = "edits" compares signs'
_RUN = regex.compile(rf"[{UNSPACED}]++")


class SimilarityOptions(MetricOptions):
    """What is compared, and how."""

    method: Literal["overlap", "coverage", "edits"] = Field(
        default="overlap",
        description='"overlap": parts both have; "coverage": parts of the reference; "edits": letters in their order.',
    )
    ngram: int = Field(
        default=2, ge=1, le=5, description="Letters of a part in Japanese and the like; else a word is one."
    )
    full_at: float = Field(default=100, gt=0, le=100, description="Similarity, in percent, that gets the full score.")
    text: Text | None = Field(default=None, description="Text to compare with, instead of the task's reference answer.")

    @property
    def needs_reference(self) -> bool:
        """Whether there is no text of its own."""
        return self.text is None

    def reference_fault(self, reference: str) -> str | None:
        """What is wrong with a reference answer that has nothing to compare by words."""
        return (
            f"the reference answer {_NO_WORD}" if self.text is None and _has_no_word(self.method, reference) else None
        )

    @classmethod
    def _faults(cls, data: Mapping[str, Any]) -> Iterable[Fault]:
        if isinstance(text := data.get("text"), str) and _has_no_word(data.get("method", "overlap"), text):
            yield ("text",), _NO_WORD


class Similarity(CodeMetric[SimilarityOptions]):
    """Similarity to a reference answer, without regard to case and width; the comment does not give it away."""

    Options = SimilarityOptions

    def measure(self, submission: str, reference: str | None) -> Measured:
        """Compare by the method."""
        wanted = self.options.text or reference or ""
        share = _METHODS[self.options.method](folded(submission), folded(wanted), self.options.ngram)
        score = min(100.0, 100 * (100 * share) / self.options.full_at)
        return Measured(score, f"{100 * share:.1f} % {_WORDS[self.options.method]}")


def _overlap(submission: str, reference: str, ngram: int) -> float:
    ours, theirs = _parts(submission, ngram), _parts(reference, ngram)
    total = ours.total() + theirs.total()
    return 2 * (ours & theirs).total() / total if total else 1.0


def _coverage(submission: str, reference: str, ngram: int) -> float:
    ours, theirs = _parts(submission, ngram), _parts(reference, ngram)
    return (ours & theirs).total() / theirs.total() if theirs else 1.0


def _edits(submission: str, reference: str, ngram: int) -> float:  # noqa: ARG001
    from rapidfuzz.distance import Indel

    # The time grows with the product of the lengths.
    ours, theirs = (" ".join(text.split())[:_LONGEST_COMPARED] for text in (submission, reference))
    return Indel.normalized_similarity(ours, theirs)


_METHODS: Mapping[str, Callable[[str, str, int], float]] = {
    "overlap": _overlap,
    "coverage": _coverage,
    "edits": _edits,
}
_WORDS = {
    "overlap": "of its words and of the reference answer's are shared",
    "coverage": "of the reference answer's words are there",
    "edits": "of the letters agree with the reference answer, in their order",
}


def _has_no_word(method: str, reference: str) -> bool:
    """Whether every submission would be as near to it as any other."""
    return method != "edits" and not _parts(folded(reference), ngram=1)


def _parts(text: str, ngram: int) -> Counter[str]:
    """Words, and in scripts without spaces every so many letters that follow each other, or all if there are fewer."""
    spaced = _RUN.sub(" ", text)
    return Counter([*words(spaced), *(part for run in _RUN.findall(text) for part in _letters(run, ngram))])


def _letters(run: str, ngram: int) -> Iterator[str]:
    return (run[start : start + ngram] for start in range(max(1, len(run) - ngram + 1)))
