"""Where the teams of a run stand, as lines for a terminal of any size.

A :class:`Display` is told of events and gives lines; it knows neither threads nor terminals. Every name in it was made
harmless when it came in.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Literal

from rich.cells import cell_len
from rich.text import Text

from mixseek.amounts import cost_words, usd, usd_digits
from mixseek.cli.chart import arrow, bounds_of, fit, number, sparkline
from mixseek.cli.output import clean
from mixseek.events import (
    Event,
    MemberCalled,
    MemberFinished,
    ModelCalled,
    RoundFailed,
    RoundFinished,
    RoundJudged,
    RoundStarted,
    RunResumed,
    RunStarted,
    SubmissionMade,
    TeamFailed,
    TeamFinished,
    TeamStarted,
)

__all__ = ["Display"]

_State = Literal["waiting", "at work", "finished", "failed"]
_STYLES: dict[_State, str] = {"waiting": "dim", "at work": "cyan", "finished": "green", "failed": "red"}
_OF_INTEREST: list[_State] = ["at work", "failed", "finished", "waiting"]
_USD_WIDTH = 8
_LONGEST_BAR = 30
_LEAST_HEIGHT = 6
_LEAST_WIDTH = 24


@dataclass
class _Team:
    name: str
    state: _State = "waiting"
    phase: str = "waiting"
    round_number: int = 0
    scores: list[float | None] = field(default_factory=list)
    best: float | None = None
    members: list[str] = field(default_factory=list)
    tokens: int = 0
    cost: float | None = 0.0
    started: float | None = None
    ended: float | None = None

    def add(self, score: float | None) -> None:
        self.scores.append(score)
        self.best = max((each for each in (self.best, score) if each is not None), default=None)

    @property
    def is_over(self) -> bool:
        return self.state in ("finished", "failed")

    def seconds(self, now: float) -> float | None:
        return None if self.started is None else (self.ended or now) - self.started


@dataclass(frozen=True)
class _Column:
    title: str
    width: int
    cell: Callable[[_Team], str]
    style: Callable[[_Team], str] = lambda _: ""
    right: bool = False


class Display:
    """The state of a run and how it looks; ``harmless`` takes secrets out of names."""

    def __init__(self, *, harmless: Callable[[str], str] = str) -> None:
        self._harmless = harmless
        self._teams: dict[str, _Team] = {}
        self._max_rounds = 0
        self._began: float | None = None

    # --- what happened ------------------------------------------------------------------------------------------------

    def hear(self, event: Event, at: float) -> None:
        """Take in one event that happened at this time of a clock."""
        self._began = at if self._began is None else self._began
        match event:
            case RunStarted():
                self._max_rounds = event.max_rounds
                self._teams = {team_id: _Team(self._name(name)) for team_id, name in event.team_names.items()}
                if isinstance(event, RunResumed):
                    self._take_up(event)
            case Event(team_id=str(team_id)):
                self._hear_of(self._teams.setdefault(team_id, _Team(self._name(team_id))), event, at)

    def _take_up(self, event: RunResumed) -> None:
        """Put the teams where another process left them."""
        for team_id, team in self._teams.items():
            for _, score in sorted(event.scores.get(team_id, {}).items()):
                team.add(score)
            if team_id in event.finished:
                team.state, team.phase = "finished", "finished"

    def _hear_of(self, team: _Team, event: Event, at: float) -> None:
        if team.started is None:
            team.started, team.state = at, "at work"
        match event:
            case TeamStarted() | RoundStarted():
                team.members.clear()
            case MemberCalled():
                team.members.append(self._name(event.agent_name))
            case MemberFinished():
                _drop(team.members, self._name(event.submission.agent_name))
            case RoundFinished() | RoundFailed():
                team.add(event.entry.score)
            case ModelCalled():
                _charge(team, event)
            case TeamFinished() | TeamFailed():
                team.state, team.ended = ("finished" if isinstance(event, TeamFinished) else "failed"), at
        team.round_number = getattr(event, "round_number", team.round_number)
        team.phase = _phase(team, event)

    def _name(self, name: str) -> str:
        return clean(self._harmless(name))

    # --- how it looks -------------------------------------------------------------------------------------------------

    def lines(self, width: int, height: int, now: float) -> list[Text]:
        """A head, a line for each team that there is room for, and the state of the whole; none is as wide as that."""
        if not self._teams:
            return []
        whole = self.whole(width, now)
        if height < _LEAST_HEIGHT or width < _LEAST_WIDTH:
            return [whole]
        columns = self._columns(width - 1, now)
        shown, hidden = self._chosen(height)
        head = Text(_row(columns, [column.title for column in columns]), style="dim")
        lines = [head, *(self._line(team, columns) for team in shown)]
        if hidden:
            lines.append(Text(fit(self._others(hidden), width - 1).rstrip(), style="dim"))
        return [*lines, whole]

    @property
    def is_over(self) -> bool:
        """Whether every team has come to its end."""
        return all(team.is_over for team in self._teams.values())

    def name_of(self, team_id: str) -> str:
        """What a team is called here."""
        return self._teams[team_id].name if team_id in self._teams else self._name(team_id)

    def whole(self, width: int, now: float) -> Text:
        """One line for all teams: a bar of the rounds that were played, and how it stands."""
        played = sum(len(team.scores) for team in self._teams.values())
        possible = max(1, sum(len(t.scores) if t.is_over else self._max_rounds for t in self._teams.values()))
        words = f" {played} of {possible} rounds · {_counts(self._teams.values())}"
        cost = cost_words(_sum(team.cost for team in self._teams.values()))
        spent = f" · {cost} · {_clock(now - (self._began or now))}"
        # What a terminal echoes of Ctrl-C needs room behind the last line.
        free = width - 3 - cell_len(words) - cell_len(spent)
        size = min(_LONGEST_BAR, free - 1)
        text = Text()
        if size >= 5:
            full = round(size * min(1.0, played / possible))
            text.append(" " + "━" * full, "green").append("─" * (size - full), "dim")
        return text.append(words + spent if free >= 0 else fit(words + spent, max(1, width - 3)).rstrip())

    def _chosen(self, height: int) -> tuple[list[_Team], list[_Team]]:
        """All in their order, or, where there is no room, those that one looks for first."""
        teams = list(self._teams.values())
        # The head, the whole, and a quarter of the screen for what scrolls by.
        room = height - 2 - max(1, height // 4)
        if len(teams) <= room:
            return teams, []
        room -= 1
        teams.sort(key=_best_first)
        teams[1:] = sorted(teams[1:], key=lambda team: _OF_INTEREST.index(team.state))
        return teams[:room], teams[room:]

    def _others(self, teams: Sequence[_Team]) -> str:
        best = max((team.best for team in teams if team.best is not None), default=None)
        words = f" and {len(teams)} more: {_counts(teams)}"
        return words if best is None else f"{words} · best of them {best:.2f}"

    def _columns(self, width: int, now: float) -> list[_Column]:
        """As many as there is room for; what is left over goes to names and phases."""
        longest = max(cell_len(team.name) for team in self._teams.values())
        rounds = max(1, min(self._max_rounds, 5 if width < 100 else 10))
        bounds = bounds_of(team.scores for team in self._teams.values())
        best = bounds and bounds[1]
        digits = _usd_digits([team.cost for team in self._teams.values()])
        fixed = {
            "score": _Column("Score", 7, _score, lambda t: "bold" if t.best == best else "", right=True),
            "round": _Column("Round", 5, lambda team: f"{team.round_number}/{self._max_rounds or '?'}", right=True),
            "time": _Column("Time", 6, lambda team: _clock(team.seconds(now)), right=True),
            "trend": _Column("", rounds + 1, lambda team: self._trend(team, rounds, bounds), _trend_style),
            "tokens": _Column("Tokens", 6, lambda team: _amount(team.tokens), right=True),
            "cost": _Column("USD", _USD_WIDTH, lambda team: usd(team.cost, digits), right=True),
        }
        left = width - 2 - (8 + 10)
        kept = set[str]()
        for name, column in fixed.items():
            if column.width + 1 <= left:
                kept.add(name)
                left -= column.width + 1
        for_name = max(0, min(longest, 40) - 8)
        name_width = 8 + min(for_name, max(0, left) * 2 // 3)
        phase_width = max(0, min(30, width - 2 - name_width - sum(fixed[name].width + 1 for name in kept)))
        order = ["round", "phase", "score", "trend", "tokens", "cost", "time"]
        fixed["phase"] = _Column("Phase", phase_width, lambda team: team.phase, lambda team: _STYLES[team.state])
        if phase_width >= 4:
            kept.add("phase")
        names = _Column("Team", max(1, min(name_width, width - 1)), lambda team: team.name)
        return [names, *(fixed[each] for each in order if each in kept)]

    def _line(self, team: _Team, columns: Sequence[_Column]) -> Text:
        text = Text()
        for column in columns:
            text.append(" ").append(fit(column.cell(team), column.width, right=column.right), column.style(team))
        text.rstrip()
        return text

    def _trend(self, team: _Team, rounds: int, bounds: tuple[float, float] | None) -> str:
        shown = team.scores[-rounds:]
        return arrow(team.scores) + sparkline(shown, bounds)


# --- the parts of a line ----------------------------------------------------------------------------------------------


def _best_first(team: _Team) -> tuple[bool, float]:
    return (team.best is None, -(team.best or 0))


def _phase(team: _Team, event: Event) -> str:
    """What a team is busy with after an event."""
    match event:
        case TeamStarted():
            return f"retry {event.retry}" if event.retry else "prompting"
        case RoundStarted() | MemberCalled() | MemberFinished():
            return _who(team.members)
        case SubmissionMade():
            return "evaluating"
        case RoundFinished() | RoundFailed():
            return "judging"
        case RoundJudged():
            return "prompting" if event.exit_reason is None else "finishing"
        case TeamFinished() | TeamFailed():
            return team.state
    return team.phase


def _who(members: Sequence[str]) -> str:
    if not members:
        return "leader"
    return f"member {members[0]}" if len(members) == 1 else f"{len(members)} members"


def _drop(members: list[str], name: str) -> None:
    if name in members:
        members.remove(name)


def _charge(team: _Team, call: ModelCalled) -> None:
    team.tokens += call.input_tokens + call.output_tokens
    team.cost = None if team.cost is None or call.cost_usd is None else team.cost + call.cost_usd


def _counts(teams: Iterable[_Team]) -> str:
    counted = Counter(team.state for team in teams)
    return ", ".join(f"{counted[state]} {state}" for state in _STYLES if counted[state])


def _sum(costs: Iterable[float | None]) -> float | None:
    """None where any is not known: a part must not pass for the whole."""
    known = list(costs)
    return None if None in known else sum(cost for cost in known if cost is not None)


def _usd_digits(costs: Sequence[float | None]) -> int:
    """Those of the column, or as many as its width leaves to the largest cost.

    >>> [_usd_digits(costs) for costs in ([0.0001, None], [0.0001, 12.5], [0.0001, 1234.5])]
    [6, 4, 2]
    """
    known = usd_digits(costs)
    return next((each for each in (6, 4) if each <= known and _fits(costs, each)), 2)


def _fits(costs: Sequence[float | None], digits: int) -> bool:
    return all(len(usd(cost, digits)) <= _USD_WIDTH for cost in costs)


def _row(columns: Sequence[_Column], cells: Sequence[str]) -> str:
    parts = (fit(cell, column.width, right=column.right) for column, cell in zip(columns, cells, strict=True))
    return (" " + " ".join(parts)).rstrip()


def _score(team: _Team) -> str:
    return "-" if team.best is None else number(team.best)


def _trend_style(team: _Team) -> str:
    return {"↑": "green", "↓": "yellow"}.get(arrow(team.scores), "")


def _amount(count: int) -> str:
    """A count in at most five letters.

    >>> [_amount(count) for count in (0, 999, 1_234, 45_678, 1_234_567)]
    ['0', '999', '1.2k', '46k', '1.2M']
    """
    for size, unit in ((1_000_000_000, "G"), (1_000_000, "M"), (1_000, "k")):
        if count >= size:
            return f"{count / size:.1f}{unit}" if count < 10 * size else f"{count / size:.0f}{unit}"
    return str(count)


def _clock(seconds: float | None) -> str:
    """
    >>> [_clock(seconds) for seconds in (None, 9.9, 75, 3700)]
    ['-', '0:09', '1:15', '1h01']
    """
    if seconds is None:
        return "-"
    minutes, rest = divmod(int(seconds), 60)
    return f"{minutes}:{rest:02}" if minutes < 60 else f"{minutes // 60}h{minutes % 60:02}"
