"""Numbers as people write them, and answers compared exactly."""

from decimal import Decimal
from typing import Any

import pytest

from mixseek.evaluator.metrics.numbers import find_numbers
from mixseek.evaluator.metrics.numeric_answer import NumericAnswer, NumericAnswerOptions


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("The answer is 42.", ["42"]),
        ("答えは４２です", ["42"]),
        ("1,234,567.89", ["1234567.89"]),
        ("1，２３４円", ["1234"]),
        ("1,2,3", ["1", "2", "3"]),
        ("1234,567", ["1234", "567"]),
        ("3億5000万円", ["350000000"]),
        ("1.5万", ["15000"]),
        # (1 * 1000 + 2 * 100) * 10,000
        ("1千2百万", ["12000000"]),
        ("2千万と3百万", ["20000000", "3000000"]),
        # 10^12 + 2 * 10^8 + 3 * 10^4 + 456
        ("1兆2億3万456", ["1000200030456"]),
        ("5千人、3百円、2十", ["5000", "300", "20"]),
        ("-5 と −５ と –5 と ▲5 と +5", ["-5", "-5", "-5", "-5", "5"]),
        ("2020–2024", ["2020", "2024"]),
        ("10-20", ["10", "20"]),
        ("2024-05-01", ["2024", "5", "1"]),
        ("1e5, 1.2E-3", ["100000", "0.0012"]),
        ("6.02×10^23", ["602000000000000000000000"]),
        ("1.5 x 10^{-3}", ["0.0015"]),
        ("3×10⁸", ["300000000"]),
        ("10^5 と 10³", ["100000", "1000"]),
        ("H2O GPT-4 v1.2.3 x_1 5² m²", []),
        (".5 と 0.5", ["0.5", "0.5"]),
        ("No.5", ["5"]),
        ("- 5 apples", ["5"]),
        ("\\boxed{42}", ["42"]),
        ("1\u202f000\u00a0000", ["1000000"]),
        ("", []),
    ],
)
def test_numbers_are_found_and_read_as_people_write_them(text: str, values: list[str]) -> None:
    assert [number.value for number in find_numbers(text)] == [Decimal(value) for value in values]


@pytest.mark.parametrize(
    ("submission", "options", "score"),
    [
        ("答えは42です", {"expected": 42}, 100),
        ("答えは41です", {"expected": 42}, 0),
        # The last number, unless told otherwise.
        ("6 × 7 = 42", {"expected": 42}, 100),
        ("42 = 6 × 7", {"expected": 42}, 0),
        ("42 = 6 × 7", {"expected": 42, "take": "first"}, 100),
        # The first one behind the last marker, in any case and width.
        ("答え: 1\n訂正、答え： 42 (誤差 3)", {"expected": 42, "after": "答え:"}, 100),
        ("ANSWER = 42, checked 3 times", {"expected": 42, "after": "answer ="}, 100),
        ("42", {"expected": 42, "after": "答え:"}, 0),
        # |3.13 - 3.14| = 0.01, exactly
        ("3.13", {"expected": 3.14, "tolerance": 0.01}, 100),
        ("3.1299", {"expected": 3.14, "tolerance": 0.01}, 0),
        # |0.3 - 0.1| = 0.2, which floating point makes a little less or more
        ("0.3", {"expected": 0.1, "tolerance": 0.2}, 100),
        # 1 % of 200 is 2
        ("198", {"expected": 200, "relative_tolerance": 0.01}, 100),
        ("197.9", {"expected": 200, "relative_tolerance": 0.01}, 0),
        ("-198", {"expected": -200, "relative_tolerance": 0.01}, 100),
        # The larger of 5 and 2
        ("195", {"expected": 200, "relative_tolerance": 0.01, "tolerance": 5}, 100),
        ("約３億５,０００万円", {"expected": 350_000_000}, 100),
        ("12.5%", {"expected": 0.125}, 100),
        ("12.5 ％", {"expected": 12.5, "percent": "number"}, 100),
        ("12.5 パーセント", {"expected": 12.5}, 0),
        ("1.2×10^5", {"expected": 120_000}, 100),
        ("わかりません", {"expected": 42}, 0),
        ("0", {"expected": 0, "relative_tolerance": 0.1}, 100),
    ],
)
def test_a_numeric_answer_agrees_with_the_score_computed_by_hand(
    submission: str, options: dict[str, Any], score: int
) -> None:
    assert NumericAnswer(NumericAnswerOptions.model_validate(options)).measure(submission, None).score == score


@pytest.mark.parametrize(
    ("submission", "reference", "score"),
    [("120", "計算すると 30 × 4 = 120", 100), ("30", "計算すると 30 × 4 = 120", 0), ("50%", "0.5", 100)],
)
def test_without_an_expected_number_the_reference_tells_it(submission: str, reference: str, score: int) -> None:
    assert NumericAnswer().measure(submission, reference).score == score


def test_the_comment_names_the_answer_and_not_the_right_number() -> None:
    metric = NumericAnswer(NumericAnswerOptions(expected=42))
    assert metric.measure("3億です", None).comment == "3億 is not right"
    assert metric.measure("42", None).comment == "42 is right"
    assert metric.measure("?", None).comment == "there is no number in it"


def test_a_reference_without_a_number_is_told() -> None:
    assert "holds no number" in str(NumericAnswerOptions().reference_fault("四十二"))
    assert NumericAnswerOptions().reference_fault("42") is None
    assert NumericAnswerOptions(expected=1).reference_fault("四十二") is None
