"""Halves of surrogate pairs: found wherever a value holds them, and nothing else is touched."""

import pytest

from mixseek.surrogates import whole_json, whole_text, whole_value


@pytest.mark.parametrize(
    ("given", "whole"),
    [
        ("cut \ud83d", "cut \ufffd"),
        ("\ude00 cut", "\ufffd cut"),
        ("\ud83d\ud83d", "\ufffd\ufffd"),
        ("\ud83d\ude00", "😀"),
        ("猫 \ud83d 😀", "猫 \ufffd 😀"),
    ],
)
def test_each_half_is_one_replacement_and_two_halves_are_one_character(given: str, whole: str) -> None:
    assert whole_text(given) == whole
    assert whole_value([{"a": [given]}, {given: 1}]) == [{"a": [whole]}, {whole: 1}]


@pytest.mark.parametrize("value", ["plain", "猫😀", [{"猫": ["😀", 1, None]}], 3, ("\ud83d",)])
def test_what_is_whole_stays_the_same_object(value: object) -> None:
    assert whole_value(value) is value


@pytest.mark.parametrize(
    ("given", "whole"),
    [
        (r'"\ud83d"', r'"\ufffd"'),
        (r'"\uDE00 x"', r'"\ufffd x"'),
        (r'"\ud83d\ude00"', r'"\ud83d\ude00"'),
        (r'"\ud83d\ud83d\ude00"', r'"\ufffd\ud83d\ude00"'),
        (r'"\\ud83d"', r'"\\ud83d"'),
        (r'"\\\ud83d"', r'"\\\ufffd"'),
        ('"\ud83d \\"', '"\ufffd \\"'),
    ],
)
def test_halves_may_be_written_as_escapes_in_json(given: str, whole: str) -> None:
    assert whole_json(given) == whole
