"""Similarity: every score is computed by hand from the parts of both texts, as a fraction."""

from fractions import Fraction
from typing import Any

import pytest
from pydantic import ValidationError

from mixseek.evaluator.metrics.similarity import Similarity, SimilarityOptions


@pytest.mark.parametrize(
    ("submission", "reference", "options", "score"),
    [
        ("Tokyo is large", "Tokyo is large", {}, 100),
        ("ＴＯＫＹＯ", "tokyo", {}, 100),
        ("a b", "c d", {}, 0),
        ("", "a", {}, 0),
        # b and c of 3 + 3 words: 2 * 2 / 6
        ("a b c", "b c d", {}, Fraction(200, 3)),
        # Each word as often as both have it, a once and b once: 2 * 2 / 6
        ("a a b", "a b b", {}, Fraction(200, 3)),
        # 東京, 京都 and 東京: 2 * 1 / 3
        ("東京都", "東京", {}, Fraction(200, 3)),
        # 今日 日は は晴 晴れ and 明日 日は は晴 晴れ: 2 * 3 / 8
        ("今日は晴れ", "明日は晴れ", {}, 75),
        # Single letters, 4 of 5 shared: 2 * 4 / 10
        ("今日は晴れ", "明日は晴れ", {"ngram": 1}, 80),
        # 今日は 日は晴 は晴れ and 明日は 日は晴 は晴れ: 2 * 2 / 6
        ("今日は晴れ", "明日は晴れ", {"ngram": 3}, Fraction(200, 3)),
        # A run shorter than a part is a part: 猫
        ("猫", "猫", {"ngram": 5}, 100),
        # ai, 時代 and ai, の, 時代: 2 * 2 / 5
        ("AI時代", "ＡＩ の 時代", {}, 80),
        # All of the reference's words are there, whatever else is: 2 / 2
        ("a b c d", "a b", {"method": "coverage"}, 100),
        # 1 of 3
        ("a", "a b c", {"method": "coverage"}, Fraction(100, 3)),
        # 日は は晴 晴れ of the 4 parts of the reference
        ("今日は晴れ、明後日は雨", "明日は晴れ", {"method": "coverage"}, 75),
        # The longest common subsequence of kitten and sitting is ittn: 2 * 4 / (6 + 7)
        ("kitten", "sitting", {"method": "edits"}, Fraction(800, 13)),
        # 日は晴れ is common: 2 * 4 / 10
        ("今日は晴れ", "明日は晴れ", {"method": "edits"}, 80),
        # 3 of 5 words: 60 %, of the 80 % that are enough
        ("a b c d e", "a b c x y", {"full_at": 80}, 75),
        ("a b c d e", "a b c x y", {"full_at": 60}, 100),
        # A text of its own: 1 of 1 + 1 words
        ("x", "y", {"text": "x"}, 100),
    ],
)
def test_similarity_agrees_with_the_score_computed_by_hand(
    submission: str, reference: str, options: dict[str, Any], score: Fraction | int
) -> None:
    measured = Similarity(SimilarityOptions(**options)).measure(submission, reference)
    assert measured.score == pytest.approx(float(score), abs=1e-9)


@pytest.mark.parametrize("method", ["overlap", "coverage", "edits"])
def test_the_comment_does_not_give_the_reference_away(method: Any) -> None:
    comment = Similarity(SimilarityOptions(method=method)).measure("x", "秘密の答え").comment
    assert not set(comment) & set("秘密の答え")


@pytest.mark.parametrize("method", ["overlap", "coverage"])
@pytest.mark.parametrize("signs", ["→", "∅", "😀", " … "])
def test_a_reference_of_signs_alone_is_refused_where_words_are_compared(method: Any, signs: str) -> None:
    told = "has no letter and no digit to compare by words"
    assert told in str(SimilarityOptions(method=method).reference_fault(signs))
    assert SimilarityOptions(method=method, text="a word").reference_fault(signs) is None
    assert SimilarityOptions(method=method).reference_fault(f"{signs} 5") is None
    with pytest.raises(ValidationError, match=told):
        SimilarityOptions(method=method, text=signs)


def test_a_reference_of_signs_alone_may_be_compared_by_its_letters() -> None:
    assert SimilarityOptions(method="edits").reference_fault("→") is None
    assert Similarity(SimilarityOptions(method="edits", text="→")).measure("→", None).score == 100


def test_a_similarity_without_a_text_of_its_own_needs_a_reference() -> None:
    assert SimilarityOptions().needs_reference
    assert not SimilarityOptions(text="x").needs_reference
