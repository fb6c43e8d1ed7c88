"""Length: every score is computed by hand, as a fraction, from the counts given in words beside it."""

from fractions import Fraction
from typing import Any

import pytest

from mixseek.evaluator.metrics.length import Length, LengthOptions

KANJI = "東京都の人口は増えている。"  # 13 characters: 東京都の人口は 7, 増えている 5, 。 1


@pytest.mark.parametrize(
    ("submission", "options", "score"),
    [
        ("a" * 100, {"minimum": 100}, 100),
        # 20 below 100, over a width of 50: 1 - 20/50
        ("a" * 80, {"minimum": 100}, Fraction(60)),
        ("a" * 50, {"minimum": 100}, 0),
        ("", {"minimum": 1}, 0),
        # 5 above 20, over a width of 10: 1 - 5/10
        ("a" * 25, {"maximum": 20}, Fraction(50)),
        # 5 above 20, over a width of 2 * 20: 1 - 5/40
        ("a" * 25, {"maximum": 20, "slope": 2.0}, Fraction(175, 2)),
        ("a" * 21, {"maximum": 20, "slope": 0}, 0),
        ("a" * 20, {"minimum": 10, "maximum": 20, "slope": 0}, 100),
        # Outer space and the line break do not count, the space between words does: 5
        ("  ab\ncde\r\n", {"minimum": 5, "maximum": 5, "slope": 0}, 100),
        ("ab cd", {"minimum": 5, "maximum": 5, "slope": 0}, 100),
        (KANJI, {"minimum": 13, "maximum": 13, "slope": 0}, 100),
        # 13 of 20, 7 below, width 10: 1 - 7/10
        (KANJI, {"minimum": 20}, Fraction(30)),
        # A letter with its combining mark is one character, and so is a family of four: 2
        ("か\u3099👨\u200d👩\u200d👧\u200d👦", {"minimum": 2, "maximum": 2, "slope": 0}, 100),
        # It's / a / well-known / fact / 3.14: 5 words
        ("It's a well-known fact: 3.14.", {"unit": "words", "minimum": 5, "maximum": 5, "slope": 0}, 100),
        # 3 words of 4, 1 below, width 2: 1 - 1/2
        ("one two three", {"unit": "words", "minimum": 4}, Fraction(50)),
        # 猫 が 3 匹 と dog: 6 words, 1 above 5, width 2.5: 1 - 1/2.5
        ("猫が3匹とdog", {"unit": "words", "maximum": 5}, Fraction(60)),
        # 東京 / の / 天 / 気 in the o200k vocabulary: 4 tokens, 1 above 3, width 1.5: 1 - 1/1.5
        ("東京の天気", {"unit": "tokens", "maximum": 3}, Fraction(100, 3)),
    ],
)
def test_length_agrees_with_the_score_computed_by_hand(
    submission: str, options: dict[str, Any], score: Fraction | int
) -> None:
    measured = Length(LengthOptions(**options)).measure(submission, None)
    assert measured.score == pytest.approx(float(score), abs=1e-9)


@pytest.mark.parametrize(
    ("submission", "comment"),
    [
        ("a" * 1200, "1,200 characters: write at most 1,000"),
        ("a", "1 character: write at least 10"),
        ("a" * 10, "10 characters: within the range"),
    ],
)
def test_length_says_what_to_do(submission: str, comment: str) -> None:
    assert Length(LengthOptions(minimum=10, maximum=1000)).measure(submission, None).comment == comment
