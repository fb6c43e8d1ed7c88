"""What a run may take, told before it begins: calls, tokens and money, low and high, with what is assumed.

Nobody knows how long models will answer or how often leaders ask their members; so there are two courses of a run, a
short one and a long one, and each says what it assumes. Runs that end well hardly ever take less than the short one;
the long one is no bound: a budget is.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate
from typing import Any, Final, NamedTuple

from mixseek.agents.member import MemberAgentFactory
from mixseek.agents.member.plain import PlainMemberAgent
from mixseek.amounts import amount_words, counted, larger_limit_words, limit_words
from mixseek.config.checks import is_known_judge
from mixseek.config.manager import RunSettings, problems_within
from mixseek.config.schema import (
    BudgetSettings,
    EvaluatorSettings,
    MemberAgentConfig,
    MetricSettings,
    OrchestratorSettings,
    TeamSettings,
)
from mixseek.errors import ConfigurationError, Problem
from mixseek.llm import ModelHub
from mixseek.llm.providers_tools import PROVIDERS_TOOL_TOKENS, has_tool
from mixseek.llm.purse import DEFAULT_MAX_OUTPUT_TOKENS, NOTHING, Limit, Spend
from mixseek.records import AgentType

__all__ = [
    "Course",
    "Estimate",
    "Taken",
    "estimate",
    "estimate_judging",
    "first_round",
    "unpayable_answers",
    "unpayable_judges",
]

_TOOL_TOKENS: Final = 1_000
_UNKNOWN_TASK_BYTES: Final = 1_000
_FORM_BYTES: Final = 1_500
"""What the form of an answer adds to what a request sets aside, at least."""
_LIMITS: Final[tuple[Limit, ...]] = ("max_cost_usd", "max_tokens", "max_requests")
_WITH_PROVIDERS_TOOLS: Final = (AgentType.CODE_EXECUTION, AgentType.WEB_SEARCH, AgentType.WEB_FETCH)


@dataclass(frozen=True)
class Course:
    """How a run is thought to go."""

    plays_all_rounds: bool
    asks: int
    """How often a leader asks each member in a round."""
    tools: int
    """How many tools a member uses for an answer."""
    answer_tokens: int
    comment_tokens: int
    """A judge's comment, the reason of a judgment, or a leader's question to its members."""
    prompt_tokens: int
    """What templates and forms add to a prompt."""
    instruction_tokens: int
    """An instruction that comes with MixSeek."""
    bytes_a_token: int

    def answer(self, max_tokens: int | None) -> int:
        """How long an answer is."""
        return self.answer_tokens if max_tokens is None else min(self.answer_tokens, max_tokens)

    def comment(self, max_tokens: int | None) -> int:
        """How long a comment is."""
        return self.comment_tokens if max_tokens is None else min(self.comment_tokens, max_tokens)

    def tokens(self, size: int) -> int:
        """How many tokens a text of so many bytes has."""
        return size // self.bytes_a_token

    def instruction(self, text: str | None) -> int:
        """How long an instruction is."""
        return self.instruction_tokens if text is None else self.tokens(len(text.encode()))

    @property
    def words(self) -> str:
        """What it assumes, for people."""
        rounds = "every team plays all its rounds" if self.plays_all_rounds else "every team stops as soon as it may"
        asked = f"each member is asked {self.asks} times a round and uses {self.tools} tools each time"
        return (
            f"{rounds}, {asked if self.asks else 'no member is asked'}, answers have {self.answer_tokens:,} tokens, "
            f"fewer where max_tokens is less, {self.bytes_a_token} bytes a token"
        )


_LOW: Final = Course(
    plays_all_rounds=False,
    asks=0,
    tools=0,
    answer_tokens=10,
    comment_tokens=15,
    prompt_tokens=25,
    instruction_tokens=25,
    bytes_a_token=5,
)
# What is set aside goes by the bytes of a request, its form included, and for members, too, where they are asked.
_SET_ASIDE: Final = replace(_LOW, asks=1, prompt_tokens=40, instruction_tokens=300)
_HIGH: Final = Course(
    plays_all_rounds=True,
    asks=2,
    tools=2,
    answer_tokens=2_000,
    comment_tokens=200,
    prompt_tokens=400,
    instruction_tokens=300,
    bytes_a_token=4,
)


_ENOUGH_FOR_HIGH: Final = "enough for the high estimate"
_WORST: Final = "worst case of a budget: as high, but every answer is as long as max_tokens or max_output_tokens allows"


@dataclass(frozen=True)
class Taken:
    """What a course takes; money is None where a price is not known."""

    calls: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cost_usd: float | None = 0.0

    def __add__(self, other: "Taken") -> "Taken":
        unknown = self.cost_usd is None or other.cost_usd is None
        return Taken(
            self.calls + other.calls,
            self.input_tokens + other.input_tokens,
            self.output_tokens + other.output_tokens,
            None if unknown else (self.cost_usd or 0.0) + (other.cost_usd or 0.0),
        )

    @property
    def tokens(self) -> int:
        """In and out together."""
        return self.input_tokens + self.output_tokens

    def of(self, limit: str) -> float | None:
        """The amount that a limit of a budget is about; None if it is not known."""
        return {"max_cost_usd": self.cost_usd, "max_tokens": self.tokens, "max_requests": self.calls}[limit]


@dataclass(frozen=True)
class Estimate:
    """A run between its short and its long course."""

    low: Taken
    high: Taken
    assumptions: tuple[str, ...]
    unpriced: tuple[str, ...]
    """Models without a known price."""
    unused_prices: Mapping[str, str | None]
    """Names in ``[prices]`` that no model of these settings has, each with the model that may be meant."""
    against_budget: tuple[str, ...]
    """How it stands to each limit of the budget."""

    def as_json(self) -> dict[str, Any]:
        """The estimate for programs."""
        unused = list(self.unused_prices)
        return {**vars(self), "low": vars(self.low), "high": vars(self.high), "unused_prices": unused}


def estimate(settings: RunSettings, task_bytes: int | None, hub: ModelHub) -> Estimate:
    """What a run by these settings may take for a task of so many bytes, what comes with it included."""
    size = _UNKNOWN_TASK_BYTES if task_bytes is None else task_bytes
    low, high = (_run(settings, settings.teams, size, course, hub) for course in (_LOW, _HIGH))
    models, budgets = set(_models(settings)), list(_budgets(settings))
    told = counted(size, "byte")
    known = f"a task of {told}" if task_bytes is None else f"the task has {told}"
    return Estimate(
        low,
        high,
        (
            f"low: {_LOW.words}",
            f"high: {_HIGH.words}",
            *_words_of_tools(settings, hub),
            *([_WORST] if budgets else []),
            f"both: {known}, prompts carry all rounds before them, no call is tried again",
        ),
        _unpriced(models, hub),
        settings.unused_prices,
        tuple(words for budget in budgets for words in _against(budget, settings, size, hub)),
    )


def estimate_judging(
    evaluator: EvaluatorSettings,
    calls: Sequence[tuple[str, int]],
    hub: ModelHub,
    budget: BudgetSettings | None = None,
    used: Spend = NOTHING,
) -> Estimate:
    """What calls of judges may take: for each the name of its metric, and the bytes of what is judged.

    They are paid from ``budget``, of which so much is ``used``.
    """
    metrics = {metric.name: metric for metric in evaluator.metrics}

    def asked(course: Course) -> list[_Asked]:
        return [_judge(evaluator, metrics[name], course.tokens(size), course) for name, size in calls]

    low, high = (_taken(asked(course), course, hub) for course in (_LOW, _HIGH))
    models = {one.model for one in asked(_LOW)}
    against: list[str] = []
    if budget is not None and calls:
        longest = budget.max_output_tokens or DEFAULT_MAX_OUTPUT_TOKENS
        wordy = _with_answers_of(longest, _HIGH)
        short, long = (
            [
                _step(one, most.said, hub)
                for one, most in zip(asked(course), asked(_with_answers_of(longest, course)), strict=True)
            ]
            for course in (_LOW, wordy)
        )
        against += _judging_against(budget, used, short, long)
    return Estimate(
        low,
        high,
        (
            *(
                f"{name}: a judge's comment has {course.comment_tokens} tokens, fewer where max_tokens is less, "
                f"{course.bytes_a_token} bytes a token"
                for name, course in (("low", _LOW), ("high", _HIGH))
            ),
            "both: no call is tried again",
        ),
        _unpriced(models, hub),
        {},
        tuple(against),
    )


def first_round(settings: RunSettings, team: TeamSettings, task_bytes: int, hub: ModelHub) -> Taken:
    """What the first round of a team may take in a long course."""
    return _round(settings, team, 1, task_bytes, _HIGH, hub)


def unpayable_judges(settings: RunSettings, team: TeamSettings, longest: int, hub: ModelHub) -> list[Problem]:
    """Judges whose answer alone, with ``longest`` tokens, may take more than a whole budget.

    No submission could be scored, and that would be known only when its team was paid.
    """
    if not settings.is_scored:
        return []
    both = (settings.orchestrator, team)
    return [one for whose in both for one in unpayable_answers(whose, settings.evaluator, longest, hub)]


def unpayable_answers(
    whose: OrchestratorSettings | TeamSettings, evaluator: EvaluatorSettings, longest: int, hub: ModelHub
) -> list[Problem]:
    """The same of the one budget that these settings have."""
    problems: list[Problem] = []
    for limit, words in _unpayable(whose.budget, evaluator, longest, hub):
        error = ConfigurationError(f"{limit_words(limit, getattr(whose.budget, limit))} {words}")
        problems += problems_within(whose, ("budget", limit), error)
    return problems


def _unpayable(
    budget: BudgetSettings | None, evaluator: EvaluatorSettings, longest: int, hub: ModelHub
) -> Iterator[tuple[Limit, str]]:
    """The limits that one answer of a judge may exceed, and how."""
    judges = list(_judges(evaluator, 0, _with_answers_of(longest, _LOW)))
    for limit in _LIMITS:
        allowed: float | None = getattr(budget, limit, None)
        if allowed is None or limit == "max_requests":
            continue
        for judge in judges:
            taken = _spend(judge.model, 0, judge.said, hub).of(limit)
            if taken > allowed:
                yield (
                    limit,
                    f"cannot pay for one answer of {judge.model!r}, which judges: with {judge.said:,} tokens it may "
                    f"take {amount_words(limit, taken)}; allow more, or set max_output_tokens here or max_tokens of "
                    "the judge",
                )


# --- the course of a run ----------------------------------------------------------------------------------------------


def _run(settings: RunSettings, teams: Iterable[TeamSettings], task_bytes: int, course: Course, hub: ModelHub) -> Taken:
    orchestrator = settings.orchestrator
    rounds = orchestrator.max_rounds if course.plays_all_rounds else orchestrator.min_rounds
    taken = Taken()
    for team in teams:
        for number in range(1, rounds + 1):
            taken += _round(settings, team, number, task_bytes, course, hub)
    return taken


def _round(
    settings: RunSettings, team: TeamSettings, number: int, task_bytes: int, course: Course, hub: ModelHub
) -> Taken:
    return _taken(_asked(settings, team, number, task_bytes, course, hub), course, hub)


def _taken(asked: Iterable["_Asked"], course: Course, hub: ModelHub) -> Taken:
    taken = Taken()
    for one in asked:
        read = one.read + (one.found if course.tools else 0)
        taken += Taken(1, read, one.said, hub.prices.estimate(one.model, read, one.said))
    return taken


class _Asked(NamedTuple):
    """A model, what it reads and what it answers."""

    model: str
    read: int
    said: int
    found: int = 0
    """What tools of its provider may bring beside, where it uses them."""
    form_bytes: int = 0
    """What the form of its answer adds to what is set aside for it."""
    is_of_judgment: bool = False
    """Whether the round counts already, and it is only asked for another."""


def _asked(
    settings: RunSettings, team: TeamSettings, number: int, task_bytes: int, course: Course, hub: ModelHub
) -> Iterator[_Asked]:
    task, answer = course.tokens(task_bytes), course.answer(team.leader.max_tokens)
    carried = (number - 1) * (answer + course.comment_tokens)
    yield from _leader(team, task + carried, course)
    yield from _members(team, task, course, hub)
    if settings.is_scored:
        yield from _judges(settings.evaluator, task + answer, course)
    yield from _judgment(settings, number, task + carried + answer, course)


def _leader(team: TeamSettings, read: int, course: Course) -> Iterator[_Asked]:
    leader, answer = team.leader, course.answer(team.leader.max_tokens)
    read += course.prompt_tokens + course.instruction(leader.system_instruction)
    read += course.instruction(leader.system_prompt or "")
    heard = 0
    # It asks for its members in one answer, hears all of them, and asks again or writes its submission.
    for _ in range(course.asks if team.members else 0):
        yield _Asked(leader.model, read + heard, course.comment(leader.max_tokens))
        heard += sum(course.answer(member.max_tokens) for member in team.members)
    yield _Asked(leader.model, read + heard, answer)


def _members(team: TeamSettings, task: int, course: Course, hub: ModelHub) -> Iterator[_Asked]:
    for member in team.members:
        read = course.prompt_tokens + task + course.instruction(member.system_instruction)
        found = PROVIDERS_TOOL_TOKENS if _has_providers_tool(member, hub) else 0
        for _ in range(course.asks):
            for used in range(course.tools + 1):
                is_last = used == course.tools
                yield _Asked(
                    member.model,
                    read + used * _TOOL_TOKENS,
                    course.answer(member.max_tokens),
                    found if is_last else 0,
                )


def _has_providers_tool(member: MemberAgentConfig, hub: ModelHub) -> bool:
    """Whether the provider of a member's model uses a tool of its own for it."""
    if member.type not in _WITH_PROVIDERS_TOOLS:
        return False
    agent = MemberAgentFactory.create_agent(member)
    tool = agent.providers_tool if isinstance(agent, PlainMemberAgent) else None
    try:
        return tool is not None and has_tool(hub.model(member.model), tool)
    except ConfigurationError:
        return True  # for want of a key it cannot be told, and without one nothing is played


def _words_of_tools(settings: RunSettings, hub: ModelHub) -> Iterator[str]:
    with_tools = [one for team in settings.teams for one in team.members if _has_providers_tool(one, hub)]
    if with_tools:
        names = ", ".join(dict.fromkeys(one.name for one in with_tools))
        yield f"high: the provider's own tools read {PROVIDERS_TOOL_TOKENS:,} tokens for each answer of {names}"


def _judges(evaluator: EvaluatorSettings, read: int, course: Course) -> Iterator[_Asked]:
    for metric in evaluator.metrics:
        if is_known_judge(metric, evaluator):
            yield _judge(evaluator, metric, read, course)


def _judge(evaluator: EvaluatorSettings, metric: MetricSettings, read: int, course: Course) -> _Asked:
    default = evaluator.llm_default.model or evaluator.default_model
    told = course.instruction(metric.system_instruction)
    longest = metric.max_tokens or evaluator.llm_default.max_tokens
    read += course.prompt_tokens + told
    return _Asked(metric.model or default, read, course.comment(longest), form_bytes=_FORM_BYTES)


def _judgment(settings: RunSettings, number: int, read: int, course: Course) -> Iterator[_Asked]:
    orchestrator, judgment = settings.orchestrator, settings.judgment
    if not course.plays_all_rounds and (judgment.target_score is not None or judgment.plateau_rounds is not None):
        return  # a rule stops the team before the model is asked
    is_last = number == orchestrator.max_rounds
    if judgment.model != "none" and (judgment.judge_on_final_round if is_last else number >= orchestrator.min_rounds):
        told = course.prompt_tokens + course.instruction(judgment.system_instruction)
        said = course.comment(judgment.max_tokens)
        yield _Asked(judgment.model, read + told, said, form_bytes=_FORM_BYTES, is_of_judgment=True)


def _unpriced(models: Iterable[str], hub: ModelHub) -> tuple[str, ...]:
    return tuple(sorted(model for model in models if hub.prices.estimate(model, 1, 1) is None))


def _models(settings: RunSettings) -> Iterator[str]:
    for team in settings.teams:
        yield from (team.leader.model, *team.leader.fallback_models)
        for member in team.members:
            yield from (member.model, *member.fallback_models)
    yield from (one.model for one in (_judges(settings.evaluator, 0, _LOW) if settings.is_scored else ()))
    if settings.judgment.model != "none":
        yield settings.judgment.model


# --- and the budget ---------------------------------------------------------------------------------------------------


class _Step(NamedTuple):
    """A call of a round: what it takes in the end, and what it sets aside before."""

    asked: _Asked
    longest: int
    taken: Spend
    bound: Spend


def _step(one: _Asked, longest: int, hub: ModelHub) -> _Step:
    # A call sets a token aside for each byte.
    most_read = one.read * _LOW.bytes_a_token + one.form_bytes + one.found
    taken = _spend(one.model, one.read + one.found, one.said, hub)
    return _Step(one, longest, taken, _spend(one.model, most_read, longest, hub))


@dataclass(frozen=True)
class _Rounds:
    """The calls of every round, if a run goes by a course."""

    settings: RunSettings
    task_bytes: int
    course: Course
    hub: ModelHub
    is_wordy: bool = False
    """Whether answers are as long as they may be."""
    _known: dict[tuple[str, int], list[_Step]] = field(default_factory=dict)
    """By team and round: every limit is held against the same calls."""

    def steps(self, team: TeamSettings, number: int) -> list[_Step]:
        """The calls of one round, in their order."""
        place = team.team_id, number
        if place not in self._known:
            self._known[place] = self._steps(team, number)
        return self._known[place]

    def _steps(self, team: TeamSettings, number: int) -> list[_Step]:
        wordy = _with_answers_of(_longest_answer(self.settings, team), self.course)
        asked, longest = (
            _asked(self.settings, team, number, self.task_bytes, course, self.hub)
            for course in (wordy if self.is_wordy else self.course, wordy)
        )
        return [_step(one, most.said, self.hub) for one, most in zip(asked, longest, strict=True)]

    def needed_for_firsts(self, limit: Limit, teams: Iterable[TeamSettings]) -> tuple[float, _Step]:
        """How much first rounds of these teams need, and the call that needs the most."""
        steps = [step for team in teams for step in self._scored(team)]
        used = accumulate((step.taken for step in steps), initial=NOTHING)
        needs = (((before + step.bound).of(limit), step) for before, step in zip(used, steps, strict=False))
        return max(needs, key=lambda each: each[0])

    def fewest(self, limit: Limit, allowed: float, teams: Sequence[TeamSettings]) -> int:
        """How many rounds a limit pays for, if all these teams play on."""
        paying = _Paying(limit, allowed)
        for number in self._numbers:
            ahead = _sum(paying.expected.values())
            for team in teams:
                if not paying.plays(team.team_id, self.steps(team, number), ahead):
                    return number - 1
                ahead = ahead.less(paying.expected[team.team_id])
        return self._numbers[-1]

    def most(self, limit: Limit, allowed: float, teams: Iterable[TeamSettings]) -> int:
        """How many rounds of any of these teams a limit pays for, if the others end after their first."""
        firsts = [(team, _sum(step.taken for step in self._scored(team))) for team in teams]
        of_all = _sum(first for _, first in firsts)
        return max(self._alone(_Paying(limit, allowed, of_all.less(first)), team) for team, first in firsts)

    def least(self, limit: Limit, teams: Iterable[TeamSettings]) -> float:
        """What the rounds take after which all these teams may stop; what is said after the last one ends nobody's."""
        orchestrator = self.settings.orchestrator
        return _sum(
            step.taken
            for team in teams
            for number in range(1, orchestrator.min_rounds + 1)
            for step in self.steps(team, number)
            if number < orchestrator.max_rounds or not step.asked.is_of_judgment
        ).of(limit)

    def _alone(self, paying: "_Paying", team: TeamSettings) -> int:
        for number in self._numbers:
            if not paying.plays(team.team_id, self.steps(team, number), paying.expected.get(team.team_id, NOTHING)):
                return number - 1
        return self._numbers[-1]

    @property
    def _numbers(self) -> range:
        return range(1, self.settings.orchestrator.max_rounds + 1)

    def _scored(self, team: TeamSettings) -> list[_Step]:
        """The calls of a first round until it counts."""
        return [step for step in self.steps(team, 1) if not step.asked.is_of_judgment]


@dataclass
class _Paying:
    """Decides about rounds as a purse does, before anything is paid."""

    limit: Limit
    allowed: float
    used: Spend = NOTHING
    largest: Spend = NOTHING
    expected: dict[str, Spend] = field(default_factory=dict)
    """Of each team that has a round, what another one may take."""

    def plays(self, team_id: str, steps: Iterable[_Step], ahead: Spend) -> bool:
        """Pay for the calls of a round; False where it is not begun, or broken off.

        ``ahead`` is what this round and those of others beside it may take; a first one is begun in any case.
        """
        before, expected = self.used, self.expected.get(team_id)
        if expected is not None and not self._has_room_for(self.largest + ahead):
            return False
        for step in steps:
            if not self._has_room_for(step.bound):
                if not step.asked.is_of_judgment:
                    return False
                break  # the round counts, and is the last
            self.used += step.taken
            self.largest = self.largest.at_least(replace(step.bound, requests=0))
        self.expected[team_id] = self.used.less(before).grown().at_least(expected or NOTHING)
        return True

    def _has_room_for(self, more: Spend) -> bool:
        return (self.used + more).of(self.limit) <= self.allowed


class _Budget(NamedTuple):
    """A budget, and the teams it pays for."""

    limits: BudgetSettings
    whose: str
    teams: Sequence[TeamSettings]


def _budgets(settings: RunSettings) -> Iterator[_Budget]:
    if settings.orchestrator.budget is not None:
        yield _Budget(settings.orchestrator.budget, "", settings.teams)
    for team in settings.teams:
        if team.budget is not None:
            yield _Budget(team.budget, f" of {team.team_name}", [team])


def _against(budget: _Budget, settings: RunSettings, task_bytes: int, hub: ModelHub) -> Iterator[str]:
    """How a budget stands to each course."""
    refused = {
        limit: words
        for team in budget.teams
        if settings.is_scored
        for limit, words in _unpayable(budget.limits, settings.evaluator, _longest_answer(settings, team), hub)
    }
    short, long = _Rounds(settings, task_bytes, _LOW, hub), _Rounds(settings, task_bytes, _HIGH, hub, is_wordy=True)
    for limit in _LIMITS:
        allowed = getattr(budget.limits, limit)
        if allowed is not None:
            is_refused = limit in refused
            stands = (
                f"refused: it {refused[limit]}" if is_refused else _stands(limit, allowed, budget.teams, short, long)
            )
            yield f"{limit_words(limit, allowed)}{budget.whose}: {stands}"
    if budget.limits.max_seconds is not None:
        yield _words_of_time(budget.limits.max_seconds, budget.whose)


def _words_of_time(seconds: float, whose: str = "") -> str:
    return f"{limit_words('max_seconds', seconds)}{whose}: how long models take is not estimated"


def _judging_against(
    limits: BudgetSettings, used: Spend, short: Sequence[_Step], long: Sequence[_Step]
) -> Iterator[str]:
    """How a budget stands to calls of judges in both courses."""
    for limit in _LIMITS:
        allowed = getattr(limits, limit)
        if allowed is None:
            continue
        gone = used.of(limit)
        are = "is" if gone == 1 else "are"
        before = f", of which {amount_words(limit, gone)} {are} used" if gone else ""
        yield f"{limit_words(limit, allowed)}{before}: {_judging_stands(limit, allowed - gone, short, long)}"
    if limits.max_seconds is not None:
        yield _words_of_time(limits.max_seconds)


def _judging_stands(limit: Limit, left: float, short: Sequence[_Step], long: Sequence[_Step]) -> str:
    most, fewest = _answers(limit, left, short, at_most=True), _answers(limit, left, long, at_most=False)
    if not most:
        smallest = min(short, key=lambda step: step.bound.of(limit))
        needed = _words_of_need(limit, smallest.bound.of(limit), smallest)
        remedy = larger_limit_words([f"({limit} of [budget])"])
        return f"cannot pay for one call: {needed}; anything is answered only {remedy}"
    of_all = f"of {counted(len(short), 'call')}"
    if most < len(short):
        otherwise = f" at most, in the worst case after {fewest or 'none'}" if fewest < most else ""
        return f"will end the judging after {most} {of_all}{otherwise}"
    if fewest < len(short):
        return f"may end the judging early, in the worst case after {fewest or 'none'} {of_all}"
    worst = "" if limit == "max_requests" else " in the worst case"
    return f"enough for all {counted(len(short), 'call')}{worst}"


def _answers(limit: Limit, left: float, steps: Sequence[_Step], *, at_most: bool) -> int:
    """How many of these calls, made in whatever order, a limit pays for.

    They leave at once, but one that has no room waits for what others give back: it needs as much as if it were last.
    """
    taken = sorted((step.taken.of(limit) for step in steps), reverse=not at_most)
    given_back = [step.bound.of(limit) - step.taken.of(limit) for step in steps]
    room = min(given_back) if at_most else max(given_back)
    return sum(used + room <= left for used in accumulate(taken))


def _stands(limit: Limit, allowed: float, teams: Sequence[TeamSettings], short: _Rounds, long: _Rounds) -> str:
    settings, task_bytes, hub = short.settings, short.task_bytes, short.hub
    low, high = (_run(settings, teams, task_bytes, course, hub).of(limit) for course in (_LOW, _HIGH))
    if low is None or high is None:
        return "refused: a price is not known"
    if short.needed_for_firsts(limit, teams)[0] > allowed:
        return _too_little(limit, allowed, teams, short)
    # The first round has to fit for any result, the longest one for all of them.
    least_bound, most_bound = (
        _reserved(settings, teams, number, task_bytes, course, hub)[limit]
        for number, course in ((1, _SET_ASIDE), (settings.orchestrator.max_rounds, _HIGH))
    )
    rounds, fewest = settings.orchestrator.max_rounds, long.fewest(limit, allowed, teams)
    courses = _courses(limit, low, high, least_bound, most_bound, allowed)
    if fewest == rounds:
        # The high estimate may be more than the worst case, for it does not know max_output_tokens.
        estimated = f"{_ENOUGH_FOR_HIGH}, and" if courses == _ENOUGH_FOR_HIGH else "enough"
        return f"{estimated} for {counted(rounds, 'round')} of every team in the worst case"
    most = short.most(limit, allowed, teams)
    # One team may have all its rounds where the others pay for it with theirs.
    will = most < rounds or allowed < short.least(limit, teams)
    return f"{courses}: {_words_of_rounds(fewest, most, rounds, will=will)}"


def _too_little(limit: Limit, allowed: float, teams: Sequence[TeamSettings], rounds: _Rounds) -> str:
    """What to say of a limit that does not pay for first rounds of all these teams, even if they answer briefly."""
    what, result = "one round", "there is a result"
    needed, step = min((rounds.needed_for_firsts(limit, [team]) for team in teams), key=lambda each: each[0])
    if needed <= allowed:
        what, result = "a first round of every team", "all have a result"
        needed, step = rounds.needed_for_firsts(limit, teams)
    return (
        f"cannot pay for {what}: {_words_of_need(limit, needed, step)}; "
        f"{result} only {larger_limit_words([f'({limit} of [budget])'])}"
    )


def _words_of_need(limit: Limit, needed: float, step: _Step) -> str:
    room = "" if limit == "max_requests" else f", with {step.longest:,} tokens for an answer of {step.asked.model}"
    return f"at least {amount_words(limit, needed)} would be needed{room}"


def _words_of_rounds(fewest: int, most: int, rounds: int, *, will: bool) -> str:
    of_all = f"of {counted(rounds, 'round')}"
    do = "will" if will else "may"
    if not fewest:
        at_most = f" after {most} {of_all} at most" if most < rounds else ""
        return f"teams {do} stop early{at_most}, and some may have no result in the worst case"
    if fewest == most:
        return f"teams {do} stop early after {most} {of_all}"
    otherwise = f", else after {most}" if most < rounds else ""
    return f"teams {do} stop early, in the worst case after {fewest} {of_all}{otherwise}"


def _courses(limit: Limit, low: float, high: float, least: float, most: float, allowed: float) -> str:
    if high + most <= allowed:
        return _ENOUGH_FOR_HIGH
    if low + least <= allowed:
        return "enough for the low estimate, not for the high one"
    if low <= allowed:
        return (
            f"enough for the low estimate, but not beside the {amount_words(limit, least)} that a call sets aside "
            "for a long answer, or for what a provider's own tools read (max_output_tokens, or tools of this machine, "
            "make it less)"
        )
    return "less than the low estimate"


def _reserved(
    settings: RunSettings,
    teams: Sequence[TeamSettings],
    number: int,
    task_bytes: int,
    course: Course,
    hub: ModelHub,
) -> dict[str, float]:
    """The most that one call of a round sets aside until its answer is there: a token a byte, and a longest answer."""
    rounds = _Rounds(settings, task_bytes, course, hub)
    bounds = [step.bound for team in teams for step in rounds.steps(team, number)]
    return {
        "max_cost_usd": max(bound.usd for bound in bounds),
        "max_tokens": max(bound.tokens for bound in bounds),
        "max_requests": 0,
    }


def _sum(spends: Iterable[Spend]) -> Spend:
    return sum(spends, start=NOTHING)


def _longest_answer(settings: RunSettings, team: TeamSettings) -> int:
    """The longest answer of a model whose settings do not bound it."""
    budgets = (team.budget, settings.orchestrator.budget)
    given = (budget.max_output_tokens for budget in budgets if budget is not None)
    return next((one for one in given if one is not None), DEFAULT_MAX_OUTPUT_TOKENS)


def _with_answers_of(tokens: int, course: Course) -> Course:
    return replace(course, answer_tokens=tokens, comment_tokens=tokens)


def _spend(model: str, read: int, said: int, hub: ModelHub) -> Spend:
    """What one call takes; no money where its price is not known."""
    return Spend(hub.prices.estimate(model, read, said) or 0.0, read + said, 1)
