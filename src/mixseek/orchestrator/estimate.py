"""What a run may take, told before it begins: calls, tokens and money, low and high, with what is assumed.

Nobody knows how long models will answer or how often leaders ask their members; so there are two courses of a run, a
short one and a long one, and each says what it assumes. Runs that end well hardly ever take less than the short one;
the long one is no bound: a budget is.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple

from mixseek.agents.member import MemberAgentFactory
from mixseek.agents.member.plain import PlainMemberAgent
from mixseek.amounts import amount_words, counted, limit_words
from mixseek.config.checks import is_known_judge
from mixseek.config.manager import RunSettings, problems_within
from mixseek.config.schema import BudgetSettings, EvaluatorSettings, MemberAgentConfig, MetricSettings, TeamSettings
from mixseek.errors import ConfigurationError, Problem
from mixseek.llm import ModelHub
from mixseek.llm.providers_tools import PROVIDERS_TOOL_TOKENS, has_tool
from mixseek.llm.purse import DEFAULT_MAX_OUTPUT_TOKENS
from mixseek.records import AgentType

__all__ = ["Course", "Estimate", "Taken", "estimate", "estimate_judging", "first_round", "unpayable_judges"]

_TOOL_TOKENS: Final = 1_000
_UNKNOWN_TASK_BYTES: Final = 1_000
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
    models = set(_models(settings))
    told = counted(size, "byte")
    known = f"a task of {told}" if task_bytes is None else f"the task has {told}"
    return Estimate(
        low,
        high,
        (
            f"low: {_LOW.words}",
            f"high: {_HIGH.words}",
            *_words_of_tools(settings, hub),
            f"both: {known}, prompts carry all rounds before them, no call is tried again",
        ),
        _unpriced(models, hub),
        settings.unused_prices,
        tuple(_against_budgets(settings, size, hub)),
    )


def estimate_judging(evaluator: EvaluatorSettings, calls: Sequence[tuple[str, int]], hub: ModelHub) -> Estimate:
    """What calls of judges may take: for each the name of its metric, and the bytes of what is judged."""
    metrics = {metric.name: metric for metric in evaluator.metrics}
    low, high = (
        _taken([_judge(evaluator, metrics[name], course.tokens(size), course) for name, size in calls], course, hub)
        for course in (_LOW, _HIGH)
    )
    models = {_judge(evaluator, metrics[name], 0, _LOW).model for name, _ in calls}
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
        (),
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
    wordy = replace(_LOW, answer_tokens=longest, comment_tokens=longest)
    judges = list(_judges(settings.evaluator, 0, wordy))
    problems: list[Problem] = []
    for whose in (settings.orchestrator, team):
        for limit in ("max_cost_usd", "max_tokens") if whose.budget else ():
            allowed = getattr(whose.budget, limit)
            for judge in judges if allowed is not None else ():
                taken = Taken(1, 0, judge.said, hub.prices.estimate(judge.model, 0, judge.said)).of(limit) or 0
                if taken > allowed:
                    error = ConfigurationError(
                        f"{limit_words(limit, allowed)} cannot pay for one answer of {judge.model!r}, which judges: "
                        f"with {judge.said:,} tokens it may take {amount_words(limit, taken)}; allow more, or set "
                        "max_output_tokens here or max_tokens of the judge"
                    )
                    problems += problems_within(whose, ("budget", limit), error)
    return problems


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
    return _Asked(metric.model or default, read + course.prompt_tokens + told, course.comment(longest))


def _judgment(settings: RunSettings, number: int, read: int, course: Course) -> Iterator[_Asked]:
    orchestrator, judgment = settings.orchestrator, settings.judgment
    if not course.plays_all_rounds and (judgment.target_score is not None or judgment.plateau_rounds is not None):
        return  # a rule stops the team before the model is asked
    is_last = number == orchestrator.max_rounds
    if judgment.model != "none" and (judgment.judge_on_final_round if is_last else number >= orchestrator.min_rounds):
        told = course.prompt_tokens + course.instruction(judgment.system_instruction)
        yield _Asked(judgment.model, read + told, course.comment(judgment.max_tokens))


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


def _against_budgets(settings: RunSettings, task_bytes: int, hub: ModelHub) -> Iterator[str]:
    run = settings.orchestrator.budget
    yield from _against(run, "", settings, settings.teams, task_bytes, hub)
    for team in settings.teams:
        whose = f" of {team.team_name}"
        yield from _against(team.budget, whose, settings, [team], task_bytes, hub)


def _against(
    budget: BudgetSettings | None,
    whose: str,
    settings: RunSettings,
    teams: Sequence[TeamSettings],
    task_bytes: int,
    hub: ModelHub,
) -> Iterator[str]:
    """How a budget that pays for these teams stands to each course."""
    if budget is None:
        return
    low, high = (_run(settings, teams, task_bytes, course, hub) for course in (_LOW, _HIGH))
    # The first round has to fit for any result, the longest one for all of them.
    least, most = (
        _reserved(budget, settings, teams, number, task_bytes, course, hub)
        for number, course in ((1, _SET_ASIDE), (settings.orchestrator.max_rounds, _HIGH))
    )
    for limit in ("max_cost_usd", "max_tokens", "max_requests"):
        allowed = getattr(budget, limit)
        if allowed is not None:
            stands = _stands(limit, low.of(limit), high.of(limit), least[limit], most[limit], allowed)
            yield f"{limit_words(limit, allowed)}{whose}: {stands}"
    if budget.max_seconds is not None:
        yield f"{limit_words('max_seconds', budget.max_seconds)}{whose}: how long models take is not estimated"


def _reserved(
    budget: BudgetSettings,
    settings: RunSettings,
    teams: Sequence[TeamSettings],
    number: int,
    task_bytes: int,
    course: Course,
    hub: ModelHub,
) -> dict[str, float]:
    """The most that one call of a round sets aside until its answer is there: a token a byte, and a longest answer."""
    run = settings.orchestrator.budget
    most = budget.max_output_tokens or (run and run.max_output_tokens) or DEFAULT_MAX_OUTPUT_TOKENS
    wordy = replace(course, answer_tokens=most, comment_tokens=most)
    bounds = [
        (one.model, one.read * course.bytes_a_token + one.found, longest.said)
        for team in teams
        for one, longest in zip(
            *(_asked(settings, team, number, task_bytes, each, hub) for each in (course, wordy)), strict=True
        )
    ]
    return {
        "max_cost_usd": max(hub.prices.estimate(*bound) or 0.0 for bound in bounds),
        "max_tokens": max(read + said for _, read, said in bounds),
        "max_requests": 0,
    }


def _stands(limit: str, low: float | None, high: float | None, least: float, most: float, allowed: float) -> str:
    if low is None or high is None:
        return "a price is not known"
    if high + most <= allowed:
        return "enough for the high estimate"
    if low + least <= allowed:
        return "enough for the low estimate, not for the high one: teams may stop early with their best round"
    if low <= allowed:
        return (
            f"enough for the low estimate, but not beside the {amount_words(limit, least)} that a call sets aside "
            "for a long answer, or for what a provider's own tools read: teams will stop early, and some may have no "
            "result; max_output_tokens, or tools of this machine, make it less"
        )
    return "less than the low estimate: teams will stop early, and some may have no result"
