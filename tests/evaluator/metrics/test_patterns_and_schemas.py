"""Regular expressions and JSON schemas: scores by hand, and bounds that hold."""

import asyncio
import json
import time
from fractions import Fraction
from math import isnan
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from mixseek.evaluator.metrics.base import CodeMetric
from mixseek.evaluator.metrics.json_schema import JsonSchema, JsonSchemaOptions
from mixseek.evaluator.metrics.regular_expression import RegularExpression, RegularExpressionOptions
from mixseek.workspace import Workspace

CITY = {
    "type": "object",
    "required": ["city", "population"],
    "properties": {"city": {"type": "string"}, "population": {"type": "integer", "minimum": 1}},
    "additionalProperties": False,
}
TOKYO = '{"city": "東京", "population": 14000000}'


@pytest.mark.parametrize(
    ("submission", "options", "score"),
    [
        ("注文番号 AB-123", {"pattern": r"[A-Z]{2}-\d{3}"}, 100),
        ("注文番号 ab-123", {"pattern": r"[A-Z]{2}-\d{3}"}, 0),
        ("注文番号 ab-123", {"pattern": r"(?i)[A-Z]{2}-\d{3}"}, 100),
        # 2 of 3 matches
        ("[1] と [2]", {"pattern": r"\[\d+\]", "minimum": 3}, Fraction(200, 3)),
        ("[1] と [2]", {"pattern": r"\[\d+\]", "minimum": 1, "maximum": 2}, 100),
        # At most 1, 2 are there
        ("[1] と [2]", {"pattern": r"\[\d+\]", "maximum": 1}, 50),
        ("お客様", {"pattern": "様", "maximum": 0}, 0),
        ("お客さま", {"pattern": "様", "maximum": 0}, 100),
        ("  東京都\n", {"pattern": r"\p{Han}+", "whole": True}, 100),
        ("東京タワー", {"pattern": r"\p{Han}+", "whole": True}, 0),
        ("- a\n- b\n- c", {"pattern": r"(?m)^- ", "minimum": 3}, 100),
        ("", {"pattern": "x"}, 0),
        # Nothing is required and nothing is too much.
        ("", {"pattern": "x", "minimum": 0}, 100),
    ],
)
def test_a_regular_expression_agrees_with_the_score_computed_by_hand(
    submission: str, options: dict[str, Any], score: Fraction | int
) -> None:
    measured = RegularExpression(RegularExpressionOptions(**options)).measure(submission, None)
    assert measured.score == pytest.approx(float(score), abs=1e-9)


def test_a_pattern_that_takes_too_long_leaves_the_submission_unscored() -> None:
    options = RegularExpressionOptions(pattern=r"^(?:(a|aa)+)+(b|c)\1d$", timeout_seconds=0.2)
    started = time.monotonic()
    measured = RegularExpression(options).measure("a" * 5000 + "b", None)
    assert isnan(measured.score)
    assert measured.comment == "the pattern could not be searched for within 0.2 s: write it shorter"
    assert time.monotonic() - started < 20


SLOW = r"^(?:(a|aa)+)+(b|c)\1d$"
SLOW_METRICS = {
    "a pattern": (RegularExpression(RegularExpressionOptions(pattern=SLOW, timeout_seconds=0.8)), "a" * 300 + "b"),
    "a schema": (
        JsonSchema(JsonSchemaOptions.model_validate({"schema": {"type": "string", "pattern": SLOW}})),
        f'"{"a" * 300}b"',
    ),
}


@pytest.mark.parametrize(("metric", "submission"), SLOW_METRICS.values(), ids=SLOW_METRICS)
async def test_others_go_on_while_a_pattern_is_searched_for_in_a_short_text(
    metric: CodeMetric[Any], submission: str
) -> None:
    searching = asyncio.create_task(metric.evaluate("task", submission))
    turns = 0
    while not searching.done():
        await asyncio.sleep(0.01)
        turns += 1
    assert "within" in (await searching).evaluator_comment
    assert turns > 5


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"pattern": "("}, "'(' is no regular expression: missing )"),
        ({"pattern": "x", "minimum": 3, "maximum": 2}, "minimum (3) must be <= maximum (2)"),
        ({"pattern": "x", "whole": True, "minimum": 2}, "the whole submission matches at most once"),
    ],
)
def test_a_wrong_pattern_is_told(options: dict[str, Any], told: str) -> None:
    with pytest.raises(ValidationError) as error:
        RegularExpressionOptions(**options)
    assert told in str(error.value)


def test_a_team_is_told_the_pattern_or_what_its_author_wrote() -> None:
    plain = RegularExpression(RegularExpressionOptions(pattern="x", maximum=2))
    assert plain.measure("", None).comment == "pattern 'x': wanted at least 1 and at most 2; found: 0"
    worded = RegularExpression(RegularExpressionOptions(pattern="x", message="出典を書く"))
    assert worded.measure("", None).comment == "出典を書く; found: 0"


@pytest.mark.parametrize("message", ["Cite three sources as [1].", "出典を書く。"])
def test_the_full_stop_of_a_message_does_not_stand_in_the_middle_of_the_comment(message: str) -> None:
    worded = RegularExpression(RegularExpressionOptions(pattern="x", message=message))
    assert worded.measure("", None).comment == f"{message[:-1]}; found: 0"


@pytest.mark.parametrize(
    ("submission", "options", "score"),
    [
        (TOKYO, {}, 100),
        (f"```json\n{TOKYO}\n```", {}, 100),
        (f"答え:\n```json\n{TOKYO}\n```\nです。", {}, 0),
        (f"答え:\n```json\n{TOKYO}\n```\nです。", {"inside_text": True}, 100),
        (f'```json\n{{"city": 1}}\n```\n訂正:\n```\n{TOKYO}\n```', {"inside_text": True}, 100),
        (f"```python\nx\n```\n{TOKYO}", {"inside_text": True, "partial": 10}, 0),
        (f"```python\nx\n```\n答え:\n```json\n{TOKYO}\n```", {"inside_text": True}, 100),
        (f"```json\n{TOKYO}\n```\n使い方:\n```sh\na\n```\n```sh\nb\n```", {"inside_text": True}, 100),
        ('{"city": "東京"}', {}, 0),
        ('{"city": "東京"}', {"partial": 40}, 40),
        ('{"city": "東京", "population": "many"}', {"partial": 40}, 40),
        ('{"city": "東京", "population": 1, "mayor": "x"}', {"partial": 40}, 40),
        ('{"city": "東京", "population": 0}', {"partial": 40}, 40),
        ('{"city": "東京", "population": 1.0}', {}, 100),
        ("東京", {"partial": 40}, 0),
        ('{"city": "東京", "population": NaN}', {"partial": 40}, 0),
        ("[" * 100_000, {"partial": 40}, 0),
        ("", {"partial": 40}, 0),
    ],
)
def test_a_json_schema_agrees_with_the_score_computed_by_hand(
    submission: str, options: dict[str, Any], score: int
) -> None:
    made = JsonSchemaOptions.model_validate({"schema": CITY, **options})
    assert JsonSchema(made).measure(submission, None).score == score


def test_a_team_is_told_where_its_json_is_wrong() -> None:
    metric = JsonSchema(JsonSchemaOptions.model_validate({"schema": CITY}))
    assert (
        metric.measure('{"city": "東京", "population": "x"}', None).comment
        == "population: 'x' is not of type 'integer'"
    )
    assert metric.measure("東京", None).comment.startswith("the submission is not JSON: ")


def test_a_schema_may_be_a_file_of_the_workspace(tmp_path: Path) -> None:
    (tmp_path / "city.json").write_text(json.dumps(CITY), encoding="utf-8")
    context = {"workspace": Workspace(tmp_path)}
    made = JsonSchemaOptions.model_validate({"schema": "city.json"}, context=context)
    assert JsonSchema(made).measure(TOKYO, None).score == 100
    with pytest.raises(ValidationError, match=r"'town\.json' does not exist"):
        JsonSchemaOptions.model_validate({"schema": "town.json"}, context=context)


def test_nothing_outside_the_schema_is_fetched() -> None:
    with pytest.raises(ValidationError, match="nothing is fetched"):
        JsonSchemaOptions.model_validate({"schema": {"$ref": "http://127.0.0.1:9/schema.json"}})
