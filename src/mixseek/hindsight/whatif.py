"""What stopping earlier would have kept and saved, from the record of an execution alone.

Rounds are gone through as they were played. After each the rules that are asked about say whether the team would have
stopped; what it played afterwards counts as saved. What remains is as it was recorded: a team that would have seen
another ranking might have answered otherwise, and nobody can tell.
"""

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Final

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from mixseek.config.layers import show_path
from mixseek.config.problems import faults_of
from mixseek.config.schema import JudgmentSettings
from mixseek.errors import ConfigurationError, Problem
from mixseek.judgment import decide_by_rule
from mixseek.records import ExitReason, ModelUsage, Record, RoundState, Standing, order_standings
from mixseek.report.record import ExecutionRecord, RoundRecord, Status, TeamRecord

__all__ = ["Consumed", "StopRule", "TeamOutcome", "WhatIf", "WhatIfReport", "what_if"]

_NO_LIMIT: Final = 10**9
_IN_ORDER: Final = ("target_score_reached", "max_rounds_reached", "score_plateau")
"""Rules, as one comes before another when a round is over."""
_UNPRICED: Final = "prices that stand in [prices] of the orchestrator file when it is played are kept with the record"
_UNCOUNTED: Final = "an answer came without the number of its tokens, so that no price but 0 tells what it cost"
_WHY_UNKNOWN: Final = (_UNPRICED, _UNCOUNTED)
_LONG_AGO: Final = datetime.fromisoformat("2000-01-01T00:00:00+00:00")


class StopRule(BaseModel):
    """When a team stops: the rules of a judgment, and a limit on what all teams may cost together."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    min_rounds: int | None = Field(default=None, ge=1, le=10, description="No other rule holds before this round.")
    max_rounds: int | None = Field(default=None, ge=1, le=10, description="The last round.")
    target_score: float | None = Field(
        default=None, ge=0, le=100, description="Stop when a round has reached this score, from min_rounds on."
    )
    plateau_rounds: int | None = Field(
        default=None, ge=1, le=10, description="Stop after so many rounds without a gain."
    )
    plateau_min_gain: float | None = Field(
        default=None,
        ge=0,
        le=100,
        description="A gain is more than this; absent: more than 0. Only with plateau_rounds.",
    )
    budget: float | None = Field(default=None, ge=0, description="US dollars for all teams together.")

    @classmethod
    def parse(cls, text: str) -> "StopRule":
        """A rule as it is written on a command line: ``max_rounds=2`` or ``plateau_rounds=2,plateau_min_gain=1``."""
        pairs = [part.partition("=") for part in text.split(",")]
        where = f"--stop-rule {text!r}"
        if not all(name.strip() and value.strip() for name, _, value in pairs):
            known = ", ".join(cls.model_fields)
            raise ConfigurationError(Problem(f"is no rule: write NAME=NUMBER, where NAME is one of {known}", where))
        names = [name.strip() for name, _, _ in pairs]
        if twice := next((name for name in names if names.count(name) > 1), None):
            raise ConfigurationError(Problem("is given twice: give it once, or --stop-rule twice", where, twice))
        try:
            rule = cls.model_validate({name.strip(): value.strip() for name, _, value in pairs})
        except ValidationError as error:
            faults = faults_of(error, cls)
            raise ConfigurationError(
                [Problem(fault, where, show_path(path) or None) for path, fault in faults]
            ) from None
        if rule.plateau_min_gain is not None and rule.plateau_rounds is None:
            raise ConfigurationError(
                Problem("has no meaning without plateau_rounds: give both", where, "plateau_min_gain")
            )
        return rule

    def __str__(self) -> str:
        return ", ".join(f"{name}={value:g}" for name, value in self if value is not None)

    @property
    def judgment(self) -> JudgmentSettings:
        """Its part that a judgment decides by."""
        return JudgmentSettings(
            model="none",
            target_score=self.target_score,
            plateau_rounds=self.plateau_rounds,
            plateau_min_gain=self.plateau_min_gain,
        )


class Consumed(Record):
    """What rounds took."""

    rounds: int = 0
    requests: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cost_usd: float | None = 0.0
    """None where a price is not known."""
    seconds: float | None = None
    """None where it is not known: of rounds that did not end, or without the journal of one that had pauses."""


class TeamOutcome(Record):
    """What a team would have come to."""

    team_id: str
    team_name: str
    rank: int | None = None
    best_score: float | None = None
    best_round: int | None = None
    exit_reason: ExitReason | None = None
    stopped_early: bool = False
    """Whether the rule ends it before its last recorded round."""
    kept: Consumed
    saved: Consumed


class WhatIf(Record):
    """What an execution would have come to under a rule; without a rule, what it came to."""

    rule: str | None = None
    winner: str | None = None
    """The team's id; None: no team has a scored round."""
    winner_name: str | None = None
    best_score: float | None = None
    kept: Consumed
    saved: Consumed
    held_until_round: int | None = None
    """The ``min_rounds`` without which the rule would have ended a team earlier; None where it made no difference."""
    teams: tuple[TeamOutcome, ...]
    """By rank; after them those without one, by id."""


class WhatIfReport(Record):
    """An execution as it was played, and under each rule that was asked about."""

    execution_id: str
    user_prompt: str
    status: Status
    has_unknown_pauses: bool = False
    """Whether it had pauses, or may have had some, of which only a journal that is gone could tell: how long its rounds
    were played is not known then."""
    recorded: WhatIf
    rules: tuple[WhatIf, ...]


def what_if(record: ExecutionRecord, rules: Sequence[StopRule]) -> WhatIfReport:
    """What stopping by each of the rules would have kept and saved."""
    ends = {team.team_id: _End(rounds=len(team.rounds), reason=team.exit_reason) for team in record.teams}
    return WhatIfReport(
        execution_id=record.execution_id,
        user_prompt=record.user_prompt,
        status=record.status,
        has_unknown_pauses=record.has_unknown_pauses,
        recorded=_outcome(record, ends, None),
        rules=tuple(_under(record, rule) for rule in rules),
    )


def _under(record: ExecutionRecord, rule: StopRule) -> WhatIf:
    outcome = _outcome(record, _ends(record, rule), str(rule))
    at_once = _outcome(record, _ends(record, rule.model_copy(update={"min_rounds": 1})), str(rule))
    held_until = _min_rounds(record, rule) if outcome.saved != at_once.saved else None
    return outcome.model_copy(update={"held_until_round": held_until})


class _End(Record):
    """After how many of its recorded rounds a team ends, and why."""

    rounds: int
    reason: ExitReason | None
    asks_nobody: bool = False
    """Whether no model is asked after the last of them whether to go on."""


def _ends(record: ExecutionRecord, rule: StopRule) -> dict[str, _End]:
    ends = {team.team_id: _end(record, team, rule) for team in record.teams}
    return ends if rule.budget is None else _within_budget(record, ends, rule.budget)


def _min_rounds(record: ExecutionRecord, rule: StopRule) -> int:
    return rule.min_rounds or _recorded(record, "orchestrator", "min_rounds") or 1


def _recorded(record: ExecutionRecord, part: str, name: str) -> int | None:
    """A setting the execution was played with, if it is known."""
    settings = record.configuration.get(part) if isinstance(record.configuration, dict) else None
    value = settings.get(name) if isinstance(settings, dict) else None
    return value if isinstance(value, int) else None


def _end(record: ExecutionRecord, team: TeamRecord, rule: StopRule) -> _End:
    max_rounds = rule.max_rounds or _NO_LIMIT
    min_rounds = min(_min_rounds(record, rule), max_rounds)
    history: list[RoundState] = []
    for each in team.rounds:
        if not each.is_finished:  # nothing is decided after it
            break
        history.append(_state(each))
        decision = decide_by_rule(history, rule.judgment, min_rounds=min_rounds, max_rounds=max_rounds)
        reason = decision.exit_reason
        if reason is None or (each is team.rounds[-1] and _comes_before(team.exit_reason, reason)):
            continue
        return _End(rounds=len(history), reason=reason, asks_nobody=not _asks_all_the_same(record, reason))
    return _End(rounds=len(team.rounds), reason=team.exit_reason)


def _comes_before(recorded: ExitReason | None, reason: ExitReason) -> bool:
    """Whether the rule that ended a team is looked at no later than one that would end it after the same round."""
    return recorded in _IN_ORDER and _IN_ORDER.index(recorded) <= _IN_ORDER.index(reason)


def _asks_all_the_same(record: ExecutionRecord, reason: ExitReason) -> bool:
    """Whether a model is asked although it is decided, for the record alone: after the last round, by default."""
    return reason == "max_rounds_reached" and _recorded(record, "judgment", "judge_on_final_round") is not False


def _state(one: RoundRecord) -> RoundState:
    return RoundState(
        round_number=one.round_number,
        submission_content=one.submission or "",
        evaluation_score=one.score,
        round_started_at=one.started_at or _LONG_AGO,
        round_ended_at=one.ended_at or _LONG_AGO,
    )


# --- the budget -------------------------------------------------------------------------------------------------------


def _within_budget(record: ExecutionRecord, ends: dict[str, _End], budget: float) -> dict[str, _End]:
    """Rounds are paid for in the order in which they ended; a team ends before the one the purse cannot pay."""
    left, within = budget, dict(ends)
    rounds = {team.team_id: team.rounds for team in record.teams}
    _require_costs(record, ends)
    for team_id, place, one in _in_order(record):
        end = within[team_id]
        if place >= end.rounds:
            continue
        cost = _cost(_billed(one, end, is_last=place == end.rounds - 1))
        if cost > left + 1e-12:
            within[team_id] = _End(rounds=place, reason="budget_exhausted", asks_nobody=True)
            # The judgment after the round before was paid for when it seemed that the team goes on.
            left += _cost(line for line in rounds[team_id][place - 1].bill if line.role == "judgment") if place else 0.0
        else:
            left -= cost
    return within


def _cost(lines: Iterable[ModelUsage]) -> float:
    return sum(line.cost_usd or 0.0 for line in lines)


def _in_order(record: ExecutionRecord) -> list[tuple[str, int, RoundRecord]]:
    """Rounds in the order in which they ended; those of a team in their own, whatever a clock said meanwhile."""
    newest = max((one.ended_at for team in record.teams for one in team.rounds if one.ended_at), default=_LONG_AGO)
    found: list[tuple[datetime, int, str, RoundRecord]] = []
    for team in record.teams:
        latest = _LONG_AGO
        for place, one in enumerate(team.rounds):
            # A round that did not end is the last of its team.
            latest = max(latest, one.ended_at or newest)
            found.append((latest, place, team.team_id, one))
    return [(team_id, place, one) for _, place, team_id, one in sorted(found, key=lambda each: each[:3])]


def _require_costs(record: ExecutionRecord, ends: dict[str, _End]) -> None:
    """All models without a price are told at once: whoever adds prices has to play again."""
    rounds = [one for team in record.teams for one in team.rounds[: ends[team.team_id].rounds]]
    unknown = [line for one in rounds for line in one.bill if line.cost_usd is None]
    found = {why: sorted({line.model for line in unknown if _why_unknown(line) == why}) for why in _WHY_UNKNOWN}
    problems = [
        Problem(f"what {', '.join(models)} cost is not known, so nothing can be said about a budget: {why}")
        for why, models in found.items()
        if models
    ]
    if problems:
        raise ConfigurationError(problems)


def _why_unknown(line: ModelUsage) -> str:
    has_tokens = line.input_tokens or line.output_tokens
    return _UNPRICED if has_tokens and not line.known_usd else _UNCOUNTED


# --- what it comes to -------------------------------------------------------------------------------------------------


def _outcome(record: ExecutionRecord, ends: dict[str, _End], rule: str | None) -> WhatIf:
    teams = _ranked([_team(record, team, ends[team.team_id]) for team in record.teams])
    first = next((team for team in teams if team.rank == 1), None)
    last = [team.rounds[ends[team.team_id].rounds - 1] for team in record.teams if ends[team.team_id].rounds]
    seconds = record.seconds
    if rule is not None and any(team.stopped_early for team in teams):
        if record.has_unknown_pauses:
            seconds = None
        else:
            seconds = _longest(record, teams) if record.was_resumed else _until(record, last)
    saved = None if seconds is None or record.seconds is None else max(0.0, record.seconds - seconds)
    return WhatIf(
        rule=rule,
        winner=first.team_id if first else None,
        winner_name=first.team_name if first else None,
        best_score=first.best_score if first else None,
        kept=_sum([team.kept for team in teams], seconds),
        saved=_sum([team.saved for team in teams], saved),
        teams=teams,
    )


def _longest(record: ExecutionRecord, teams: Sequence[TeamOutcome]) -> float | None:
    """As long as the team took that took longest: by the clock, pauses between processes would count."""
    known = [team.kept.seconds for team in teams if team.kept.seconds is not None]
    if len(known) < len(teams):
        return None
    return max(known) if record.seconds is None else min(max(known), record.seconds)


def _until(record: ExecutionRecord, last: Sequence[RoundRecord]) -> float | None:
    """From the start to the end of the last round that is kept, and no longer than all processes together took."""
    moments = [one.ended_at for one in last if one.ended_at is not None]
    if record.started_at is None or not moments:
        return None if last else 0.0
    seconds = (max(moments) - record.started_at).total_seconds()
    return seconds if record.seconds is None else min(seconds, record.seconds)


def _team(record: ExecutionRecord, team: TeamRecord, end: _End) -> TeamOutcome:
    kept, saved = team.rounds[: end.rounds], team.rounds[end.rounds :]
    scored = [(one.score, one.round_number) for one in kept if one.score is not None]
    best_score, best_round = max(scored, default=(None, None))
    lines = [line for one in kept for line in _billed(one, end, is_last=one is kept[-1])]
    spared = [line for line in (line for one in team.rounds for line in one.bill) if line not in lines]
    return TeamOutcome(
        team_id=team.team_id,
        team_name=team.team_name,
        best_score=best_score,
        best_round=best_round,
        exit_reason=end.reason,
        stopped_early=bool(saved),
        kept=_consumed(record, kept, lines),
        saved=_consumed(record, saved, spared),
    )


def _billed(one: RoundRecord, end: _End, *, is_last: bool) -> list[ModelUsage]:
    """What a round costs: after the last one a model may not be asked whether to go on."""
    return [line for line in one.bill if not (is_last and end.asks_nobody and line.role == "judgment")]


def _consumed(record: ExecutionRecord, rounds: Sequence[RoundRecord], bill: Sequence[ModelUsage]) -> Consumed:
    costs = [line.cost_usd for line in bill]
    # Nobody knows how long a round took that did not end, and its calls are counted all the same.
    seconds = [one.seconds if one.is_finished and not record.has_unknown_pauses else None for one in rounds]
    return Consumed(
        rounds=sum(one.is_finished for one in rounds),
        requests=sum(line.requests for line in bill),
        input_tokens=sum(line.input_tokens for line in bill),
        output_tokens=sum(line.output_tokens for line in bill),
        cost_usd=None if None in costs else sum(cost for cost in costs if cost is not None),
        seconds=None if None in seconds else sum(each for each in seconds if each is not None),
    )


def _sum(parts: Sequence[Consumed], seconds: float | None) -> Consumed:
    costs = [part.cost_usd for part in parts]
    return Consumed(
        rounds=sum(part.rounds for part in parts),
        requests=sum(part.requests for part in parts),
        input_tokens=sum(part.input_tokens for part in parts),
        output_tokens=sum(part.output_tokens for part in parts),
        cost_usd=None if None in costs else sum(cost for cost in costs if cost is not None),
        seconds=seconds,
    )


def _ranked(teams: Sequence[TeamOutcome]) -> tuple[TeamOutcome, ...]:
    standings = order_standings(
        Standing(
            team_id=team.team_id,
            team_name=team.team_name,
            best_score=team.best_score,
            latest_round=team.kept.rounds,
            total_rounds=team.kept.rounds,
        )
        for team in teams
        if team.best_score is not None
    )
    ranks = {standing.team_id: standing.rank for standing in standings}
    ranked = [team.model_copy(update={"rank": ranks.get(team.team_id)}) for team in teams]
    return tuple(sorted(ranked, key=lambda team: (team.rank is None, team.rank or 0, team.team_id)))
