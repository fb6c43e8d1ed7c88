"""Tables for spreadsheets: whatever a text holds, it is no formula and steers nothing, and numbers are numbers."""

import csv
import io
import random

import pytest

from mixseek.records import MetricScore
from mixseek.report.record import ExecutionRecord, RoundRecord, TeamRecord
from mixseek.report.tabular import csv_text, round_table

FORMULA_STARTS = "=+-@＝＋－＠"
PIECES = [
    *FORMULA_STARTS,
    "\t",
    "\r",
    "\n",
    "\x1b[2J",
    "\x00",
    "\u202e",
    "\ufeff",
    ";",
    ",",
    '"',
    "'",
    " ",
    "a",
    "1",
    "cmd|",
    "日",
]


def read(text: str) -> list[list[str]]:
    return list(csv.reader(io.StringIO(text, newline="")))


@pytest.mark.parametrize(
    "attack",
    [
        "=1+1",
        "+1",
        "-2+3",
        "@SUM(A1)",
        "\t=1",
        "\r=1",
        " =1",
        "\x1b=1",
        "＝1",
        "\n-1",
        "=cmd|' /C calc'!A0",
        "\u202e=1",
    ],
)
def test_a_text_is_never_a_formula(attack: str) -> None:
    [[cell]] = read(csv_text([attack], []))
    assert cell.startswith("'")
    assert cell.isprintable()


def test_any_text_is_harmless_in_any_reader() -> None:
    chance = random.Random(7)
    for _ in range(1000):
        texts = ["".join(chance.choices(PIECES, k=chance.randint(0, 12))) for _ in range(3)]
        written = csv_text(texts, [texts])
        rows = read(written)
        assert [len(row) for row in rows] == [3, 3], "every text is one cell"
        for cell in rows[0]:
            # A program that takes a semicolon for the end of a cell finds no formula behind it either.
            assert all(part.lstrip()[:1] not in FORMULA_STARTS for part in cell.split(";") if part.strip()), cell
            assert cell.isprintable(), cell


def test_numbers_stay_numbers_and_what_is_none_is_empty() -> None:
    [header, row] = read(csv_text(["a", "b", "c", "d", "e", "f"], [[-5, -2.5, True, None, float("nan"), 0.1 + 0.2]]))
    assert header == ["a", "b", "c", "d", "e", "f"]
    assert row == ["-5", "-2.5", "true", "", "", "0.3"]


def test_a_metric_may_have_the_name_of_another_column() -> None:
    metrics = (MetricScore(metric_name="score", score=1.5), MetricScore(metric_name="=evil", score=2.5))
    team = TeamRecord(team_id="a", team_name="A", rounds=(RoundRecord(round_number=1, score=9.0, metrics=metrics),))
    record = ExecutionRecord(execution_id="e", user_prompt="task", status="completed", teams=(team,))
    header, row = read(csv_text(*round_table(record)))
    told = dict(zip(header, row, strict=True))
    assert (told["score"], told["metric score"], told["'=evil"]) == ("9.0", "1.5", "2.5")


@pytest.mark.parametrize("metrics", [("score", "metric score"), ("metric score", "score")])
def test_no_two_columns_have_one_title(metrics: tuple[str, ...]) -> None:
    scores = tuple(MetricScore(metric_name=name, score=number) for number, name in enumerate(metrics))
    team = TeamRecord(team_id="a", team_name="A", rounds=(RoundRecord(round_number=1, metrics=scores),))
    header, [row] = round_table(ExecutionRecord(execution_id="e", user_prompt="t", status="completed", teams=(team,)))
    assert len(set(header)) == len(header)
    told = dict(zip(header, row, strict=True))
    assert told["metric score"] == metrics.index("metric score")
    assert told["metric metric score"] == metrics.index("score")
