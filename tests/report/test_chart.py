"""The chart of scores: where lines, labels and bars lie, whatever the scores are."""

from collections.abc import Sequence
from itertools import pairwise
from math import inf, isfinite, nan

import pytest

from mixseek.report.chart import Bars, Lines, chart_of, shorten, show_score
from tests.report.execution_records import make_record, make_team


def lines_of(*scores: Sequence[float | None], width: int = 860) -> Lines:
    chart = chart_of(make_record(*(make_team(f"t{place}", each) for place, each in enumerate(scores))), width)
    assert isinstance(chart, Lines)
    return chart


@pytest.mark.parametrize(
    "scores",
    [
        [0.0, 0.0],
        [1e308, -1e308],
        [5e-324, 0.0],
        [1e15, 1e15 + 1],
        [-12.5, -12.5],
        [99.999, 100.0],
        [nan, 3.0],
        [inf, 3.0],
        [None, 3.0],
    ],
)
@pytest.mark.parametrize("width", [860, 340])
def test_all_scores_lie_inside_the_plot(scores: list[float | None], width: int) -> None:
    chart = lines_of(scores, width=width)
    for point in chart.lines[0].points:
        assert chart.left <= point.x <= chart.right
        assert chart.top <= point.y <= chart.bottom
    assert 2 <= len(chart.scores) <= 12
    assert [tick.at for tick in chart.scores] == sorted((tick.at for tick in chart.scores), reverse=True)


def test_higher_scores_lie_higher_and_later_rounds_farther_to_the_right() -> None:
    first, second, third = lines_of([10.0, 30.0, 20.0]).lines[0].points
    assert second.y < third.y < first.y
    assert first.x < second.x < third.x


def test_a_round_without_a_score_is_counted_and_not_a_zero() -> None:
    chart = lines_of([50.0, None, 60.0, 70.0], [None, None, 55.0], [nan, 40.0])
    assert [tick.text for tick in chart.unscored] == ["2", "2"]
    [line] = [each for each in chart.lines if each.team.team_id == "t0"]
    assert [point.round_number for point in line.points] == [1, 3, 4]
    assert [is_gap for _, _, is_gap in line.steps] == [True, False]


@pytest.mark.parametrize(("teams", "told_apart"), [(1, 1), (6, 6), (7, 5), (50, 5)])
def test_of_many_teams_the_best_stand_out_and_are_drawn_last(teams: int, told_apart: int) -> None:
    chart = lines_of(*([90.0 - place, 80.0 - place] for place in range(teams)))
    styles = [line.style for line in chart.lines]
    assert styles == [0] * (teams - told_apart) + list(range(told_apart, 0, -1))
    assert len(chart.labels) == told_apart


def test_labels_do_not_lie_on_each_other_nor_outside() -> None:
    for end in (0.0, 50.0, 100.0):
        chart = lines_of(*([0.0, end] for _ in range(5)), [100.0, end])
        heights = sorted(label.y for label in chart.labels)
        assert min(b - a for a, b in pairwise(heights)) >= 17
        assert chart.top <= heights[0] <= heights[-1] <= chart.bottom + 5


def test_beside_a_line_stands_the_teams_best_score_wherever_it_ends() -> None:
    chart = lines_of([70.0, 90.0, None, 80.0], [50.0, 60.0])
    assert {label.text for label in chart.labels} == {"Team t0 best 90.00", "Team t1 60.00"}


def test_a_narrow_chart_has_no_labels_beside_its_lines() -> None:
    assert lines_of([1.0, 2.0], width=340).labels == ()


@pytest.mark.parametrize("scores", [[80.0, 60.0], [-5.0, 5.0], [0.0, 0.0], [1e308, -1e308], [-3.0, -7.0]])
def test_bars_start_at_zero_and_are_as_long_as_their_scores(scores: list[float]) -> None:
    chart = chart_of(make_record(*(make_team(str(score), [score]) for score in scores)), 860)
    assert isinstance(chart, Bars)
    for bar, score in zip(chart.bars, scores, strict=True):
        assert isfinite(bar.x)
        assert 0 <= bar.x <= bar.x + bar.width <= chart.width
        start = bar.x + bar.width if score < 0 else bar.x
        assert start == pytest.approx(chart.zero, abs=1.5)


def test_of_many_bars_the_first_are_drawn_and_the_others_counted() -> None:
    chart = chart_of(make_record(*(make_team(f"t{n}", [float(n)]) for n in range(40))), 860)
    assert isinstance(chart, Bars)
    assert (len(chart.bars), chart.more) == (25, 15)


def test_nothing_scored_is_no_chart() -> None:
    assert chart_of(make_record(), 860) is None
    assert chart_of(make_record(make_team("a", [None, nan])), 860) is None


def test_names_are_cut_by_the_room_they_take() -> None:
    assert shorten("a  b\nc", 10) == "a b c"
    assert shorten("abcdefghij", 10) == "abcdefghij"
    assert shorten("abcdefghijk", 10) == "abcdefghi…"
    assert shorten("生成AIの推進を担う部署", 10) == "生成AIの…"


def test_scores_are_written_for_people() -> None:
    assert [show_score(score) for score in (0.0, 85.5749, -3.0, 1e12, None, nan)] == [
        "0.00",
        "85.57",
        "-3.00",
        "1e+12",
        "unscored",
        "unscored",
    ]
