"""Who answers what: rules that tests add, and a default that plays a whole competition without any.

By default a leader calls each of its tools once, in parallel, and then writes an answer; a member writes an answer; a
request for structured output gets a valid value. Every answer follows from the conversation and the seed alone, not
from the order in which calls arrive, so two runs of one competition end the same.
"""

from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from inspect import isawaitable
from typing import TypeAlias

from mixseek.testing.answers import Answer, AnswerLike, ToolCall, as_answer
from mixseek.testing.calls import ModelCall, OfferedTool, Role, without_volatile
from mixseek.testing.schemas import example_value

__all__ = ["Match", "Responder", "Script", "default_answer"]

Responder: TypeAlias = Callable[[ModelCall], AnswerLike | Awaitable[AnswerLike]] | Sequence[AnswerLike]
"""A function from a call to its answer, or a list of answers, one for each call."""


@dataclass(frozen=True, slots=True)
class Match:
    """Which calls are meant; all that is given must hold, and nothing given means every call."""

    model: str = "*"
    """A model name, or a pattern such as ``"leader-*"``."""
    role: Role | None = None
    contains: str | None = None
    """Text that stands anywhere in the conversation: an agent's name, a phrase of the task."""
    tool: str | None = None
    """The name of a tool on offer."""
    output: str | None = None
    """A property of the structured output that is asked for."""

    def __call__(self, call: ModelCall) -> bool:
        """Whether ``call`` is meant."""
        return (
            (self.model == "*" or fnmatchcase(call.model, self.model))
            and self.role in (None, call.role)
            and (self.contains is None or self.contains in call.text)
            and (self.tool is None or any(tool.name == self.tool for tool in call.tools))
            and (self.output is None or _asks_for(self.output, call))
        )


@dataclass
class _Rule:
    match: Match
    responder: Responder
    given: int = 0
    """How many answers of a list are spent."""


@dataclass
class Script:
    """Rules, the newest first, over the default answer.

    >>> script = Script()
    >>> script.on(Match("leader-a"), ["the first answer", "the second"])
    """

    seed: int = 0
    _rules: list[_Rule] = field(default_factory=list)

    def on(self, match: Match, responder: Responder) -> None:
        """Let ``responder`` answer the calls ``match`` means; where it gives None, older rules and the default do."""
        if isinstance(responder, str):
            raise TypeError("a script is a function or a list of answers: write [text] for a single text")
        if not callable(responder):
            responder = [as_answer(like) for like in responder]
        self._rules.insert(0, _Rule(match, responder))

    def clear(self) -> None:
        """Forget all rules."""
        self._rules.clear()

    @property
    def models(self) -> Iterable[str]:
        """The model names and patterns there are rules for."""
        return [rule.match.model for rule in self._rules]

    async def answer(self, call: ModelCall, *, keep: bool = False) -> Answer:
        """The answer to ``call``; with ``keep`` an answer of a list is not spent, for the call will not get it."""
        for rule in list(self._rules):
            if rule.match(call):
                given = _next_of(rule, keep) if not callable(rule.responder) else rule.responder(call)
                answer = as_answer(await given if isawaitable(given) else given)
                if answer is not None:
                    return answer
        return default_answer(call, self.seed)


def default_answer(call: ModelCall, seed: int = 0) -> Answer:
    """What a model says that nobody scripted."""
    digest = call.digest(seed)
    if uncalled := call.uncalled_tools:
        chosen = uncalled if call.parallel_tool_calls else uncalled[:1]
        return Answer(tool_calls=tuple(_call_of(tool, call, digest) for tool in chosen))
    if call.output is not None:
        return Answer(value=example_value(call.output.schema, digest))
    return Answer(text=_text(call, digest))


def _next_of(rule: _Rule, keep: bool) -> AnswerLike:
    answers = rule.responder
    if callable(answers) or rule.given >= len(answers):
        return None
    answer = answers[rule.given]
    rule.given += not keep
    return answer


def _call_of(tool: OfferedTool, call: ModelCall, digest: str) -> ToolCall:
    arguments = example_value(tool.schema, digest + tool.name, optional=False)
    if "task" in tool.schema.get("properties", ()):
        arguments["task"] = f"Your part as {tool.name}: {_excerpt(call.prompt)}"
    return ToolCall(tool.name, arguments)


def _text(call: ModelCall, digest: str) -> str:
    parts = [f"Answer {digest} of {call.model} to: {_excerpt(call.prompt)}"]
    parts += [f"- {_excerpt(result)}" for result in call.tool_results]
    return "\n".join(parts)


def _excerpt(text: str) -> str:
    return " ".join(without_volatile(text[:1000]).split())[:200]


def _asks_for(name: str, call: ModelCall) -> bool:
    return call.output is not None and name in call.output.schema.get("properties", ())
