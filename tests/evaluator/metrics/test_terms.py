"""Terms: every score is computed by hand as 100 * found/required - penalty * forbidden."""

from fractions import Fraction
from typing import Any

import pytest

from mixseek.evaluator.metrics.terms import Terms, TermsOptions

GUIDE = "生成AIの利用ガイドライン: 個人情報を入力しない。Use the API key with care."


@pytest.mark.parametrize(
    ("submission", "options", "score"),
    [
        (GUIDE, {"required": ["個人情報", "ガイドライン"]}, 100),
        # 2 of 3
        (GUIDE, {"required": ["個人情報", "ガイドライン", "著作権"]}, Fraction(200, 3)),
        (GUIDE, {"required": ["著作権"]}, 0),
        # Between Japanese letters a Latin term stands by itself.
        (GUIDE, {"required": ["AI"]}, 100),
        # Case and width do not matter: full-width letters, half-width katakana.
        (GUIDE, {"required": ["ａｐｉ", "ｶﾞｲﾄﾞﾗｲﾝ"]}, 100),
        # "art" and "car" are only parts of words: 1 of 3
        ("start the cart for art's sake", {"required": ["art", "car", "star"]}, Fraction(100, 3)),
        ("start the cart", {"required": ["art", "car"], "whole_words": False}, 100),
        ("concatenate the catalogue", {"forbidden": ["cat"]}, 100),
        ("The Cat.", {"forbidden": ["cat"]}, 0),
        # 1 of 2 required, 1 forbidden at 20: 50 - 20
        ("赤と青", {"required": ["赤", "緑"], "forbidden": ["青", "黒"], "penalty": 20}, 30),
        # Two forbidden at 30: 100 - 60
        ("青くて黒い", {"forbidden": ["青", "黒", "白"], "penalty": 30}, 40),
        # 1 of 1 required, 2 forbidden at 60: below 0 is 0
        ("赤青黒", {"required": ["赤"], "forbidden": ["青", "黒"], "penalty": 60}, 0),
        # However often it appears, a term counts once: 100 - 10
        ("青青青", {"forbidden": ["青"], "penalty": 10}, 90),
        # The same term in two spellings is one: 1 of 2
        ("ＡＢＣ", {"required": ["abc", "ABC", "xyz"]}, 50),
        # A term of several words may run over the end of a line.
        ("machine\n  learning", {"required": ["Machine Learning"]}, 100),
        ("C++ と C#", {"required": ["C++", "c#"]}, 100),
        ("", {"required": ["x"]}, 0),
        ("", {"forbidden": ["x"]}, 100),
        ("straße", {"required": ["STRASSE"]}, 100),
    ],
)
def test_terms_agree_with_the_score_computed_by_hand(
    submission: str, options: dict[str, Any], score: Fraction | int
) -> None:
    measured = Terms(TermsOptions(**options)).measure(submission, None)
    assert measured.score == pytest.approx(float(score), abs=1e-9)


def test_terms_name_what_is_missing_and_what_must_go() -> None:
    terms = Terms(TermsOptions(required=["赤", "緑"], forbidden=["青"]))
    assert terms.measure("青い空", None).comment == "missing: 赤, 緑; must not appear: 青"
    assert terms.measure("赤と緑", None).comment == "all required terms are there and no forbidden one"
