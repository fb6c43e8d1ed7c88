"""The tools of members: every use is watched in one place, wherever the tool comes from.

A :class:`ToolWatch` stands around all tools of an agent that run here: functions, those of MCP servers, and those that
a kind of member brings itself. It tells of each use, keeps it in the journal, and hands the model a text: of bounded
size, fenced as data, and in words where the tool failed. A tool never takes its member down.
"""

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextvars import ContextVar
from functools import wraps
from pathlib import Path
from typing import Any

from pydantic import JsonValue, ValidationError
from pydantic_ai import (
    BinaryContent,
    FunctionToolset,
    ModelRetry,
    RunContext,
    Tool,
    ToolCallPart,
    ToolDefinition,
    ToolReturn,
)
from pydantic_ai.capabilities import AbstractCapability, CapabilityOrdering
from pydantic_ai.exceptions import ToolFailed, ToolFailedError, ToolRetryError
from pydantic_ai.toolsets import AbstractToolset
from pydantic_core import from_json, to_json

from mixseek import plugins
from mixseek.agents.member.mcp import McpServer
from mixseek.agents.member.threads import Threads
from mixseek.config.schema import FunctionSettings
from mixseek.errors import ConfigurationError, MixSeekError, ToolError
from mixseek.llm import FinishedToolUse, ToolUse, current_meter, current_scope
from mixseek.prompt_builder.fence import fenced, new_nonce
from mixseek.strangers import alone, in_words, is_for_us
from mixseek.surrogates import whole_text
from mixseek.templating import JAPANESE, Texts

__all__ = ["MAX_RESULT_CHARS", "ToolWatch", "function_tools", "refuse_equal_names", "when_reused"]

MAX_RESULT_CHARS = 50_000
"""The most a model is given of one result, unless its kind of member has tools with a limit of their own."""

logger = logging.getLogger(__name__)

_Handler = Callable[[dict[str, Any]], Awaitable[Any]]


# --- watching ---------------------------------------------------------------------------------------------------------


when_reused: ContextVar[Callable[[str, str | None], None] | None] = ContextVar("when_reused", default=None)
"""Told of a tool that is not used because the journal has its result, and of the result; None: it had failed."""


class ToolWatch(AbstractCapability[Any]):
    """Records every use of a tool, and gives its result as data, ``max_chars`` of it at most."""

    def __init__(self, max_chars: int = MAX_RESULT_CHARS, texts: Texts = JAPANESE) -> None:
        self._max_chars = max_chars
        self._texts = texts

    def get_ordering(self) -> CapabilityOrdering:
        """Around everything else, so that what is kept is what the model reads."""
        return CapabilityOrdering(position="outermost")

    async def on_tool_validate_error(
        self,
        ctx: RunContext[Any],
        *,
        call: ToolCallPart,
        tool_def: ToolDefinition,
        args: str | dict[str, Any],
        error: ValidationError | ModelRetry,
    ) -> dict[str, Any]:
        """Arguments the tool cannot take: the model is asked for others, but it was a call."""
        ctx.usage.tool_calls += 1
        use = _use_of(call)
        if await _known(use) is None:
            _begin(use)
            await _end(use, None, _cut(_words(error), self._max_chars), new_nonce())
        raise error

    async def wrap_tool_execute(
        self,
        ctx: RunContext[Any],
        *,
        call: ToolCallPart,
        tool_def: ToolDefinition,
        args: dict[str, Any],
        handler: _Handler,
    ) -> str:
        """Use the tool; what it raises becomes words. When a run is resumed, what the journal has is not done again."""
        use = _use_of(call)
        known = await _known(use)
        if known is not None:
            return self._as_before(ctx, call, known)
        _begin(use)
        try:
            text = _cut(_as_text(await handler(args)), self._max_chars)
        except BaseException as error:  # the edge where one tool must not take down its member
            if is_for_us(error):
                if isinstance(error, asyncio.CancelledError):
                    await _end(use, None, _CANCELLED, new_nonce())
                raise
            logger.debug("tool %r failed", call.tool_name, exc_info=True)
            return await self._failed(ctx, use, call, _words(error))
        nonce = new_nonce()
        await _end(use, text, None, nonce)
        return fenced(text, nonce, self._texts)

    async def _failed(self, ctx: RunContext[Any], use: ToolUse | None, call: ToolCallPart, words: str) -> str:
        words, nonce = _cut(words, self._max_chars), new_nonce()
        await _end(use, None, words, nonce)
        return self._told_of_failure(ctx, call, words, nonce)

    def _told_of_failure(self, ctx: RunContext[Any], call: ToolCallPart, words: str, nonce: str) -> str:
        # The agent itself counts only those that went well.
        ctx.usage.tool_calls += 1
        return f"Tool {call.tool_name!r} failed.\n{fenced(words, nonce, self._texts)}"

    def _as_before(self, ctx: RunContext[Any], call: ToolCallPart, known: Mapping[str, JsonValue]) -> str:
        nonce = str(known["nonce"])
        if (listener := when_reused.get()) is not None:
            listener(call.tool_name, None if "error" in known else str(known["content"]))
        if "error" in known:
            return self._told_of_failure(ctx, call, str(known["error"]), nonce)
        return fenced(str(known["content"]), nonce, self._texts)


_CANCELLED = "cancelled"


def _use_of(call: ToolCallPart) -> ToolUse | None:
    """None outside of a run: a member may be used on its own."""
    meter, scope = current_meter(), current_scope()
    if meter is None or scope is None:
        return None
    return meter.use_of_tool(scope, call.tool_name, _arguments(call), call_id=call.tool_call_id)


async def _known(use: ToolUse | None) -> Mapping[str, JsonValue] | None:
    """What the journal has of this use; one that was cancelled came to nothing."""
    meter = current_meter()
    if use is None or meter is None:
        return None
    known = await meter.known_result(use)
    if not isinstance(known, dict) or "nonce" not in known or known.get("error") == _CANCELLED:
        return None
    return known


def _begin(use: ToolUse | None) -> None:
    meter = current_meter()
    if use is not None and meter is not None:
        meter.tool_starts(use)


def _arguments(call: ToolCallPart) -> JsonValue:
    """As the model wrote them."""
    # By way of the text: values keep a NaN, which no journal takes.
    arguments: JsonValue = from_json(to_json(call.args_as_dict(), inf_nan_mode="strings"))
    return arguments


async def _end(use: ToolUse | None, content: str | None, error: str | None, nonce: str) -> None:
    """The nonce is kept too: a round that is played again has to give its model the very same text."""
    meter = current_meter()
    if use is not None and meter is not None:
        result: JsonValue = {"content": content, "nonce": nonce} if error is None else {"error": error, "nonce": nonce}
        await meter.tool_ends(FinishedToolUse(use, result, error))


_IN_WORDS = (MixSeekError, ModelRetry, ToolFailed, ToolFailedError, ToolRetryError)


def _words(error: BaseException) -> str:
    if isinstance(error, ValidationError):
        faults = error.errors(include_url=False, include_input=False)
        return "; ".join(f"{'.'.join(map(str, one['loc'])) or 'arguments'}: {one['msg']}" for one in faults)
    return str(error) if isinstance(error, _IN_WORDS) else in_words(error)


def _as_text(result: Any) -> str:
    """What a tool gave, as a text: judges and journals read nothing else."""
    if isinstance(result, ToolReturn):
        result = result.return_value
    if isinstance(result, str):
        return result
    if isinstance(result, list | tuple) and any(isinstance(part, BinaryContent) for part in result):
        return "\n".join(map(_as_text, result))
    if isinstance(result, BinaryContent):
        return f"[{result.media_type}, {len(result.data)} bytes: not shown]"
    return to_json(result, fallback=str, inf_nan_mode="strings").decode()


def _cut(text: str, most: int) -> str:
    whole = whole_text(text)
    if len(whole) <= most:
        return whole
    return f"{whole[:most]}\n[cut here: {len(whole)} characters in all]"


# --- names ------------------------------------------------------------------------------------------------------------


def refuse_equal_names(toolsets: Sequence[AbstractToolset[Any]], member: str) -> None:
    """Two tools of one name would be found out only when the model is asked; it is the user's to rename one."""
    leaves: dict[int, AbstractToolset[Any]] = {}
    for toolset in toolsets:
        toolset.apply(lambda leaf: leaves.update({id(leaf): leaf}))
    seen: set[str] = set()
    for name in (name for leaf in leaves.values() for name in _names(leaf)):
        if name in seen:
            raise ConfigurationError(f"member {member!r} has two tools named {name!r}: rename a function or a server")
        seen.add(name)


def _names(toolset: AbstractToolset[Any]) -> Iterable[str]:
    if isinstance(toolset, McpServer):
        return toolset.tool_names
    return toolset.tools if isinstance(toolset, FunctionToolset) else ()


# --- functions --------------------------------------------------------------------------------------------------------


def function_tools(
    names: Sequence[str], settings: FunctionSettings | None = None, *, root: Path | None = None
) -> FunctionToolset[Any]:
    """Plain Python functions as tools; their docstrings and type hints tell the model how to use them."""
    seconds = (settings or FunctionSettings()).timeout_seconds
    threads = Threads()
    functions = {plugins.name_of_function(name): plugins.load_function(name, root=root) for name in names}
    # Named as in the file: a lambda, or what a decorator made, has a name that providers refuse or that tells nothing.
    tools = [Tool(_guarded(function, seconds, threads), name=name) for name, function in functions.items()]
    return FunctionToolset(tools)


def _guarded(function: Callable[..., Any], seconds: float, threads: Threads) -> Callable[..., Awaitable[Any]]:
    """The function in bounds of time; one that is not asynchronous runs beside the event loop."""
    is_async = inspect.iscoroutinefunction(inspect.unwrap(function))

    @wraps(function)
    async def guarded(*args: Any, **kwargs: Any) -> Any:
        limit = asyncio.timeout(seconds)
        try:
            async with limit:
                if not is_async:
                    return await threads.run(function, *args, **kwargs)
                return await alone(lambda: function(*args, **kwargs), f"tool {function.__name__!r}")
        except TimeoutError as error:
            if not limit.expired():
                raise
            raise ToolError(f"it took longer than {seconds} s and was given up") from error
        except SystemExit as error:
            raise ToolError("it tried to end the program") from error

    return guarded
