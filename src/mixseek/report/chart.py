"""The chart of scores by round, as lines and places on a plane; the page's template draws it.

Up to six teams are told apart; of more, the best five stand out and the others are the field they play in. A round
without a score is no point: the line is dashed across it, and a lane below the plot counts such rounds. When no team
played a second round there are no lines to draw, and the chart is one of bars.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import ceil, floor, isfinite, log10
from unicodedata import east_asian_width

from mixseek.report.record import ExecutionRecord, RoundRecord, TeamRecord

__all__ = ["Bar", "Bars", "Line", "Lines", "chart_of", "finite_score", "shorten", "show_score"]

_TOLD_APART = 6
_BEST = 5
_MAX_BARS = 25
_FARTHEST = 1e300
"""Beyond it the distance between two scores may be no number."""


@dataclass(frozen=True)
class Point:
    """One scored round."""

    x: float
    y: float
    round_number: int
    score: float


@dataclass(frozen=True)
class Line:
    """One team's way; ``style`` is 1 to 6 for those that stand out, 0 for the field."""

    team: TeamRecord
    style: int
    points: tuple[Point, ...]

    @property
    def steps(self) -> tuple[tuple[Point, Point, bool], ...]:
        """From point to point, and whether a round between them is missing."""
        return tuple((a, b, b.round_number - a.round_number > 1) for a, b in pairwise(self.points))

    @property
    def best(self) -> float:
        """The best score, which is the team's on the leader board."""
        return max(point.score for point in self.points)

    @property
    def best_words(self) -> str:
        """The best score as it stands beside the end of the line, which may lie elsewhere."""
        return f"{'' if self.points[-1].score == self.best else 'best '}{show_score(self.best)}"


@dataclass(frozen=True)
class Label:
    """What is written beside the end of a line: its team and the team's best score, as on the leader board."""

    x: float
    y: float
    style: int
    text: str


@dataclass(frozen=True)
class Tick:
    """A place on an axis, and what is written there."""

    at: float
    text: str


@dataclass(frozen=True)
class Lines:
    """Scores by round."""

    width: int
    height: int
    left: float
    right: float
    top: float
    bottom: float
    lines: tuple[Line, ...]
    """The field first, the best last: what is drawn later lies above."""
    labels: tuple[Label, ...]
    scores: tuple[Tick, ...]
    rounds: tuple[Tick, ...]
    unscored: tuple[Tick, ...]
    """By round, how many teams have no score."""


@dataclass(frozen=True)
class Bar:
    """One team's only score."""

    team: TeamRecord
    style: int
    y: float
    x: float
    width: float
    name: str
    score: float


@dataclass(frozen=True)
class Bars:
    """The scores of the only round; ``more`` teams have no room."""

    width: int
    height: int
    bars: tuple[Bar, ...]
    zero: float
    more: int


def chart_of(record: ExecutionRecord, width: int) -> Lines | Bars | None:
    """The chart in a room so wide; None when nothing was scored. In a narrow room lines have no labels."""
    scored = [team for team in record.teams if any(finite_score(each) is not None for each in team.rounds)]
    if not scored:
        return None
    last = max(each.round_number for team in record.teams for each in team.rounds)
    return _bars(scored, width) if last == 1 else _lines(record, scored, width, last)


def finite_score(played: RoundRecord) -> float | None:
    """The round's score, if it is one."""
    return played.score if played.score is not None and isfinite(played.score) else None


def show_score(score: float | None) -> str:
    """A score for people.

    >>> [show_score(score) for score in (84.256, None, 1e12)]
    ['84.26', 'unscored', '1e+12']
    """
    if score is None or not isfinite(score):
        return "unscored"
    return f"{score:.2f}" if abs(score) < 1e7 else f"{score:.4g}"


def _styles(teams: Sequence[TeamRecord]) -> list[int]:
    shown = len(teams) if len(teams) <= _TOLD_APART else _BEST
    return [place if place <= shown else 0 for place in range(1, len(teams) + 1)]


# --- lines ------------------------------------------------------------------------------------------------------------


def _lines(record: ExecutionRecord, teams: Sequence[TeamRecord], width: int, last: int) -> Lines:
    unscored = _count_unscored(record)
    is_wide = width >= 600
    top, left, right = 14.0, 46.0, width - (190.0 if is_wide else 14.0)
    bottom = top + (300.0 if is_wide else 230.0)
    marks = _marks([score for team in teams for each in team.rounds if (score := finite_score(each)) is not None])
    plane = _Plane(left + 14, right - 14, top, bottom, last, marks[0], marks[-1])
    lines = [_line(team, style, plane) for team, style in zip(teams, _styles(teams), strict=True)]
    return Lines(
        width=width,
        height=int(bottom) + (58 if unscored else 40),
        left=left,
        right=right,
        top=top,
        bottom=bottom,
        lines=tuple(sorted(lines, key=lambda line: -line.style if line.style else -99)),
        labels=_labels([line for line in lines if line.style], right, top, bottom) if is_wide else (),
        scores=tuple(Tick(plane.y(mark), _show_mark(mark)) for mark in marks),
        rounds=tuple(Tick(plane.x(number), str(number)) for number in _numbers(last)),
        unscored=tuple(Tick(plane.x(number), str(count)) for number, count in sorted(unscored.items())),
    )


@dataclass(frozen=True)
class _Plane:
    """Where a round and a score lie."""

    left: float
    right: float
    top: float
    bottom: float
    last: int
    low: float
    high: float

    def x(self, number: int) -> float:
        return round(self.left + (self.right - self.left) * (number - 1) / (self.last - 1), 1)

    def y(self, score: float) -> float:
        return round(self.bottom - (self.bottom - self.top) * (_near(score) - self.low) / (self.high - self.low), 1)


def _line(team: TeamRecord, style: int, plane: _Plane) -> Line:
    scores = [(each.round_number, finite_score(each)) for each in team.rounds]
    points = [Point(plane.x(number), plane.y(score), number, score) for number, score in scores if score is not None]
    return Line(team=team, style=style, points=tuple(points))


def _count_unscored(record: ExecutionRecord) -> dict[int, int]:
    rounds = [each.round_number for team in record.teams for each in team.rounds if finite_score(each) is None]
    return {number: rounds.count(number) for number in set(rounds)}


def _marks(scores: Sequence[float]) -> list[float]:
    """Round numbers that hold all scores between them, at even distances."""
    low, high = _near(min(scores)), _near(max(scores))
    step = _even(max(high - low, abs(high) / 1e6, 4.0) / 4)
    first, last = floor(low / step), ceil(high / step)
    return [number * step for number in range(first, max(last, first + 1) + 1)]


def _even(step: float) -> float:
    unit = 10.0 ** floor(log10(step))
    return next(unit * factor for factor in (1, 2, 5, 10) if unit * factor >= step)


def _near(score: float) -> float:
    return max(-_FARTHEST, min(_FARTHEST, score))


def _show_mark(mark: float) -> str:
    return f"{mark:g}"


def _numbers(last: int) -> range:
    """The rounds that are named, at most 20 of them."""
    return range(1, last + 1, ceil(last / 20))


def _labels(lines: Sequence[Line], right: float, top: float, bottom: float) -> tuple[Label, ...]:
    """Beside the ends of the lines, moved apart where they would lie on each other."""
    distance = 17.0
    ends = sorted(lines, key=lambda line: (line.points[-1].y, line.style))
    heights: list[float] = []
    for line in ends:
        heights.append(max(line.points[-1].y, heights[-1] + distance if heights else top))
    for place in range(len(heights) - 1, -1, -1):
        heights[place] = min(heights[place], bottom - distance * (len(heights) - 1 - place))
    return tuple(
        Label(right + 4, round(height + 4, 1), line.style, _label(line))
        for line, height in zip(ends, heights, strict=True)
    )


def _label(line: Line) -> str:
    score = line.best_words
    return f"{shorten(line.team.team_name, 22 - len(score))} {score}"


def shorten(text: str, width: int) -> str:
    """As much of the text as has room, a wide letter counted twice; no more than one line.

    >>> shorten("生成AIの導入", 8)
    '生成AI…'
    """
    line = " ".join(text.split())
    room = width
    for place, letter in enumerate(line):
        room -= 2 if east_asian_width(letter) in "WF" else 1
        if room < 0 or (room == 0 and place + 1 < len(line)):
            return line[:place] + "…"
    return line


# --- bars -------------------------------------------------------------------------------------------------------------


def _bars(teams: Sequence[TeamRecord], width: int) -> Bars:
    shown = teams[:_MAX_BARS]
    scores = [score for team in shown for each in team.rounds if (score := finite_score(each)) is not None]
    low, high = min(0.0, _near(min(scores))), max(0.0, _near(max(scores)))
    left, right = width * 0.3, width - 66.0
    scale = (right - left) / ((high - low) or 1.0)
    zero = left - low * scale
    bars = [
        Bar(
            team=team,
            style=style,
            y=8.0 + 24.0 * place,
            x=round(min(zero, zero + _near(score) * scale), 1),
            width=round(max(1.0, abs(_near(score) * scale)), 1),
            name=shorten(team.team_name, width // 28),
            score=score,
        )
        for place, (team, style, score) in enumerate(zip(shown, _styles(teams), scores, strict=False))
    ]
    return Bars(width, 16 + 24 * len(bars), tuple(bars), round(zero, 1), len(teams) - len(shown))
