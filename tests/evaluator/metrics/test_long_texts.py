"""No text keeps a metric busy for long: what would take a quadratic time is tried at a length where it would show."""

import time
from math import isnan
from typing import Any

import pytest

from mixseek import plugins
from mixseek.config.checks import options_model

LENGTH = 200_000
OPTIONS: dict[str, dict[str, Any]] = {
    "Length": {"minimum": 1},
    "Terms": {"required": ["art", "東京"], "forbidden": ["a b"]},
    "Similarity": {},
    "Readability": {},
    "Structure": {"headings": {"minimum": 1}, "links": {"minimum": 1}},
    "JsonSchema": {"schema": {"type": "object"}, "inside_text": True},
    "RegularExpression": {"pattern": r"(\w+\s?)+x"},
    "NumericAnswer": {"expected": 1},
}
TEXTS = {
    "brackets": "[",
    "half a link": "[x](",
    "half an image": "![a](",
    "backticks": "`a",
    "items": "- a\n",
    "quotes": "> ",
    "cells": "|-",
    "fences": "```json\n",
    "digits": "1",
    "groups of digits": "1,111",
    "units": "1万",
    "stars": "*a",
    "Japanese": "東京は晴れ。",
    "marks of ends": '!"',
}


@pytest.mark.parametrize("name", OPTIONS)
def test_every_metric_comes_to_an_end_on_long_texts(name: str) -> None:
    found = plugins.metrics.get(name)
    model = options_model(found)
    assert model is not None
    metric = found(model.model_validate(OPTIONS[name]))
    for told, part in TEXTS.items():
        text = part * (LENGTH // len(part))
        started = time.monotonic()
        score = metric.measure(text, text[::-1]).score
        assert time.monotonic() - started < 60, told
        assert isnan(score) or 0 <= score <= 100, told
