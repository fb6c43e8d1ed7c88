"""Is the submission easy to read?

English by Flesch's reading ease, Japanese by the formula of Tateishi, Ono and Yamada (1988), which looks at the length
of sentences and of the runs of kanji, hiragana, katakana and Latin letters. Both are about 0 to 100, higher is easier.
"""

import unicodedata
from collections.abc import Iterable
from typing import Literal

import regex
from pydantic import Field

from mixseek.config.schema import MetricOptions
from mixseek.evaluator.metrics.base import CodeMetric, Measured
from mixseek.evaluator.metrics.markdown import read_markdown

__all__ = ["Readability", "count_syllables", "english_ease", "japanese_ease"]

_LETTER = regex.compile(r"\p{L}")
_JAPANESE = regex.compile(r"[\p{Han}\p{Hiragana}\p{Katakana}]")
_JAPANESE_SHARE = 0.3
_TARGETS = {"en": 60.0, "ja": 50.0}

_WORD = regex.compile(r"\p{Latin}++(?:['’-]\p{Latin}++)*+")
_ENGLISH_END = regex.compile(r"[.!?]++[\"'”’)\]]*+(?:\s++(?=[\"'“‘(\[]*+[\p{Lu}\p{N}])|\s*+$)")
_VOWELS = regex.compile(r"[aeiouy]++")
_SILENT = regex.compile(
    r"(?:[^aeiouyl]|[aeiouy]l)e$|(?:[^aeiouytdl]|[aeiouy]l)ed$|(?:[^aeiouycgsxzhl]|[aeiouy]l|[^cs]h)es$"
)

_JAPANESE_END = regex.compile(r"[。．！？!?]++[」』）)]*+")
_COMMA = regex.compile(r"[、，]")
_RUNS = {
    "latin": regex.compile(r"\p{Latin}++"),
    "hiragana": regex.compile(r"\p{Hiragana}++"),
    "kanji": regex.compile(r"[\p{Han}々〆]++"),
    "katakana": regex.compile(r"[\p{Katakana}ー]++"),
}


class ReadabilityOptions(MetricOptions):
    """The language, and how easy is easy enough."""

    language: Literal["auto", "en", "ja"] = Field(
        default="auto", description='Language of the submission; "auto": Japanese if 30 % of its letters are.'
    )
    target: float | None = Field(
        default=None,
        gt=0,
        le=100,
        description="Ease that gets the full score; absent: 60 for English, 50 for Japanese.",
    )


class Readability(CodeMetric[ReadabilityOptions]):
    """Reading ease as a share of the target, at most 100; code, tables and headings are left out."""

    Options = ReadabilityOptions

    def measure(self, submission: str, reference: str | None) -> Measured:
        """Take the prose and measure it in its language."""
        prose = read_markdown(submission).prose
        language = _language(prose) if self.options.language == "auto" else self.options.language
        ease = japanese_ease(prose) if language == "ja" else english_ease(prose)
        if ease is None:
            return Measured(0, "there are no sentences to read")
        target = self.options.target or _TARGETS[language]
        score = min(100.0, max(0.0, 100 * ease / target))
        advice = "easy enough" if score == 100 else _ADVICE[language]
        return Measured(score, f"reading ease {ease:.1f}, wanted {target:g}: {advice}")


_ADVICE = {
    "en": "write shorter sentences and shorter words",
    "ja": "write shorter sentences, with shorter runs of kanji and katakana and fewer commas",
}


def _language(prose: Iterable[str]) -> str:
    text = "\n".join(prose)
    letters = len(_LETTER.findall(text))
    return "ja" if letters and len(_JAPANESE.findall(text)) / letters >= _JAPANESE_SHARE else "en"


def english_ease(paragraphs: Iterable[str]) -> float | None:
    """Flesch's reading ease: 206.835 - 1.015 * words/sentence - 84.6 * syllables/word; None without a word."""
    sentences = words = syllables = 0
    for paragraph in paragraphs:
        for sentence in _ENGLISH_END.split(paragraph):
            found = _WORD.findall(sentence)
            sentences += bool(found)
            words += len(found)
            syllables += sum(map(count_syllables, found))
    return 206.835 - 1.015 * words / sentences - 84.6 * syllables / words if words else None


def count_syllables(word: str) -> int:
    """Groups of vowels, less a silent ``e`` in an ending ``-e``, ``-ed`` or ``-es``; at least one.

    >>> [count_syllables(word) for word in ("made", "table", "walked", "wanted", "boxes", "syllables")]
    [1, 2, 1, 2, 2, 3]
    """
    plain = "".join(c for c in unicodedata.normalize("NFD", word.lower()) if not unicodedata.combining(c))
    return max(1, len(_VOWELS.findall(plain)) - bool(_SILENT.search(plain)))


def japanese_ease(paragraphs: Iterable[str]) -> float | None:
    """115.79 - 0.12 ls - 1.37 la + 7.4 lh - 23.18 lc - 5.4 lk - 4.67 cp; None without a sentence.

    ls: characters a sentence; la, lh, lc, lk: average length of the runs of Latin letters, hiragana, kanji and
    katakana, 0 where there is none; cp: commas a sentence.
    """
    sentences = characters = commas = 0
    runs = dict.fromkeys(_RUNS, 0)
    letters = dict.fromkeys(_RUNS, 0)
    for paragraph in paragraphs:
        sentences += sum(bool(_LETTER.search(each)) for each in _JAPANESE_END.split(paragraph))
        characters += len("".join(paragraph.split()))
        commas += len(_COMMA.findall(paragraph))
        for name, pattern in _RUNS.items():
            found = pattern.findall(paragraph)
            runs[name] += len(found)
            letters[name] += sum(map(len, found))
    if not sentences:
        return None
    latin, hiragana, kanji, katakana = (letters[name] / (runs[name] or 1) for name in _RUNS)
    of_runs = -1.37 * latin + 7.4 * hiragana - 23.18 * kanji - 5.4 * katakana
    return 115.79 - 0.12 * characters / sentences + of_runs - 4.67 * commas / sentences
