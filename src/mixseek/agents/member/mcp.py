"""The tools of MCP servers: each server is connected to once per run and let go of at its end.

A connection lives in a task of its own, for its scopes have to be left in the task that entered them, while members are
made ready, asked and cleaned up in others. A server that ended, or does not answer any more, is connected to again
before the next use; the use during which it ended is told to the model and not repeated, as it may have had an effect.

Tools are named ``<server>_<tool>``, so that no two servers can have the same, and adding a server renames nothing. What
a server writes to its standard error goes to the log, at level DEBUG, and into the error of a server that cannot start.
"""

import asyncio
import logging
import os
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from pydantic_ai import RunContext
from pydantic_ai.toolsets import AbstractToolset, ToolsetTool

from mixseek.config.references import fill, references
from mixseek.config.schema import McpServerSettings, server_tool_name
from mixseek.errors import ConfigurationError, ToolError
from mixseek.llm.transport import ONLY_LOOPBACK, is_loopback, only_loopback
from mixseek.redaction import MIN_SECRET_LENGTH, register_secret

if TYPE_CHECKING:
    from pydantic_ai.mcp import MCPToolset

__all__ = ["McpServer", "start_all", "stop_all"]

logger = logging.getLogger(__name__)

_MOST_STARTS = 4
# A server that was asked to end has this long, then it is made to.
_CLOSING_SECONDS = 10.0
# Whichever tells more clearly that time is up comes first, and the other is for when it cannot: of a use that is the
# library's time limit, of a start it is ours.
_GRACE_SECONDS = 2.0
_STILL_THERE_SECONDS = 5.0
_KEPT_OF_STDERR = 2000
# Codes of errors that a client gives itself: nothing came back from the server.
_CONNECTION_CLOSED, _REQUEST_TIMED_OUT = -32000, -32001


class McpServer(AbstractToolset[Any]):
    """The tools of one server, for any number of tasks of one member."""

    def __init__(
        self,
        name: str,
        settings: McpServerSettings,
        *,
        environ: Mapping[str, str] = os.environ,
        directory: Path | None = None,
    ) -> None:
        self._name = name
        self._settings = _filled(name, settings, environ)
        self._directory = directory
        self._connection: _Connection | None = None
        self._starting = asyncio.Lock()
        self._starts = 0
        self._tools: dict[str, ToolsetTool[Any]] = {}
        self._own_names: dict[str, str] = {}

    @property
    def id(self) -> str:
        """The server's name."""
        return self._name

    @property
    def tool_names(self) -> list[str]:
        """The names its tools have for the model."""
        return list(self._own_names)

    async def start(self) -> None:
        """Connect; a server that cannot be had is a :class:`~mixseek.errors.ToolError`."""
        await self._connected()

    async def stop(self) -> None:
        """Let go of the server; one that was started here ends."""
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.close()

    async def get_tools(self, ctx: RunContext[Any]) -> dict[str, ToolsetTool[Any]]:
        """The tools as the server described them last."""
        if self._connection is not None:
            described = await self._connection.tools(ctx)
            self._tools = {self._name_of(tool): self._renamed(tool) for tool in described} or self._tools
        return self._tools

    async def call_tool(
        self, name: str, tool_args: dict[str, Any], ctx: RunContext[Any], tool: ToolsetTool[Any]
    ) -> Any:
        """Use a tool of the server."""
        connection = await self._connected()
        try:
            return await connection.use(self._own_names[name], tool_args)
        except _GoneError as error:
            if self._connection is connection:
                await self.stop()
            raise ToolError(f"MCP server {self._name!r} {error}; it may have done what was asked of it") from error

    async def _connected(self) -> "_Connection":
        async with self._starting:
            if self._connection is None:
                self._connection = await self._connect()
            return self._connection

    async def _connect(self) -> "_Connection":
        if self._starts >= _MOST_STARTS:
            raise ToolError(f"MCP server {self._name!r} was lost {_MOST_STARTS} times and is not used any more")
        if self._settings.url and only_loopback() and not is_loopback(urlsplit(self._settings.url).hostname or ""):
            raise ToolError(f"MCP server {self._name!r} is not on this machine, and {ONLY_LOOPBACK} is set")
        self._starts += 1
        connection = _Connection(self._name, self._settings, self._directory)
        for own_name in await connection.open():
            self._own_names[server_tool_name(self._name, own_name)] = own_name
        return connection

    def _name_of(self, tool: ToolsetTool[Any]) -> str:
        name = server_tool_name(self._name, tool.tool_def.name)
        self._own_names[name] = tool.tool_def.name
        return name

    def _renamed(self, tool: ToolsetTool[Any]) -> ToolsetTool[Any]:
        return replace(tool, toolset=self, tool_def=replace(tool.tool_def, name=self._name_of(tool)))


def _filled(name: str, settings: McpServerSettings, environ: Mapping[str, str]) -> McpServerSettings:
    """The settings with the variables they refer to, which are never shown or written down from now on."""
    texts = [*settings.args, *settings.env.values(), *settings.headers.values(), settings.url or ""]
    for variable in {each for text in texts for each in references(text)}:
        if variable not in environ:
            raise ConfigurationError(f"MCP server {name!r} needs the variable {variable}, which is not set")
        if len(environ[variable]) >= MIN_SECRET_LENGTH:
            register_secret(environ[variable])
    return settings.model_copy(
        update={
            "args": [fill(text, environ) for text in settings.args],
            "env": {key: fill(text, environ) for key, text in settings.env.items()},
            "headers": {key: fill(text, environ) for key, text in settings.headers.items()},
            "url": settings.url and fill(settings.url, environ),
        }
    )


async def start_all(servers: Sequence[McpServer]) -> None:
    """Start servers side by side; the first that cannot be had is told, whatever the others do."""
    started = await asyncio.gather(*(server.start() for server in servers), return_exceptions=True)
    for failure in started:
        if failure is not None:
            raise failure


async def stop_all(servers: Sequence[McpServer]) -> None:
    """Stop servers side by side."""
    await asyncio.gather(*(server.stop() for server in servers))


# --- one connection ---------------------------------------------------------------------------------------------------


class _GoneError(Exception):
    """Nothing comes back from the server; the words go on after its name."""


class _Connection:
    """One connection to a server, from its start to its end."""

    def __init__(self, name: str, settings: McpServerSettings, directory: Path | None) -> None:
        self._name = name
        self._seconds = settings.timeout_seconds
        _import_client()
        self._said = _Tail(name)
        self._client = _client(settings, self._said, directory)
        self._over = asyncio.Event()
        self._ready: asyncio.Future[list[str]] = asyncio.get_running_loop().create_future()
        self._keeper = asyncio.create_task(self._keep(), name=f"mcp server {name}")

    async def open(self) -> list[str]:
        """Wait until the server is there; the names of its tools."""
        try:
            async with asyncio.timeout(self._seconds):
                return await self._ready
        except BaseException as error:
            await self.close()
            if not isinstance(error, Exception):
                raise
            slow = isinstance(error, TimeoutError)
            words = f"it did not answer within {self._seconds} s" if slow else _words(error)
            raise ToolError(f"MCP server {self._name!r} cannot be used: {words}{self._said}") from error

    async def _keep(self) -> None:
        try:
            async with self._client:
                self._ready.set_result([tool.name for tool in await self._client.list_tools()])
                await self._over.wait()
        except Exception as error:  # a server may end in any way at all; whoever waits for it hears of it
            logger.debug("MCP server %r ended", self._name, exc_info=True)
            if not self._ready.done():
                self._ready.set_exception(error)
        finally:
            # Here too: whoever closes may be cancelled while it waits.
            self._said.close()

    async def close(self) -> None:
        """Ask the server to end, and make it end if it does not."""
        self._over.set()
        if not self._ready.done() or self._ready.cancelled():
            self._keeper.cancel()
        await asyncio.wait({self._keeper}, timeout=_CLOSING_SECONDS)
        self._keeper.cancel()
        await asyncio.wait({self._keeper}, timeout=_CLOSING_SECONDS)
        self._said.close()

    async def tools(self, ctx: RunContext[Any]) -> list[ToolsetTool[Any]]:
        """What the server offers; nothing if it cannot be asked, which is found out when a tool is used."""
        try:
            async with asyncio.timeout(self._seconds):
                return list((await self._client.get_tools(ctx)).values())
        except Exception:
            logger.debug("MCP server %r did not list its tools", self._name, exc_info=True)
            return []

    async def use(self, name: str, arguments: dict[str, Any]) -> Any:
        """What a tool gives; a :class:`ToolError` if it refuses, a :class:`_GoneError` if the server is lost."""
        from fastmcp.exceptions import ToolError as RefusedError

        try:
            async with asyncio.timeout(self._seconds + _GRACE_SECONDS):
                return await self._client.direct_call_tool(name, arguments)
        except RefusedError as error:
            raise ToolError(str(error)) from error
        except Exception as error:
            slow = isinstance(error, TimeoutError) or _code(error) == _REQUEST_TIMED_OUT
            if not await self._is_there(error):
                raise _GoneError("does not answer any more" if slow else "ended or cannot be reached") from error
            raise ToolError(f"no answer within {self._seconds} s" if slow else _words(error)) from error

    async def _is_there(self, after: Exception) -> bool:
        """Whether the server answers at all; that it does not know the question is an answer too."""
        if _code(after) == _CONNECTION_CLOSED:
            return False
        try:
            async with asyncio.timeout(_STILL_THERE_SECONDS):
                return await self._client.client.ping()
        except Exception as error:
            logger.debug("MCP server %r was asked whether it is there", self._name, exc_info=True)
            return _code(error) not in (None, _CONNECTION_CLOSED, _REQUEST_TIMED_OUT)


def _code(error: BaseException) -> int | None:
    code = getattr(getattr(error, "error", None), "code", None)
    return code if isinstance(code, int) else None


def _words(error: BaseException) -> str:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return str(error) or type(error).__name__


def _client(settings: McpServerSettings, said: "_Tail", directory: Path | None) -> "MCPToolset[Any]":
    from fastmcp.client.transports import StdioTransport, StreamableHttpTransport
    from pydantic_ai.mcp import MCPToolset

    transport: StdioTransport | StreamableHttpTransport
    if settings.command is not None:
        transport = StdioTransport(
            settings.command,
            settings.args,
            env=settings.env,
            cwd=None if directory is None else str(directory),
            keep_alive=False,
            log_file=said.file,
        )
    else:
        transport = StreamableHttpTransport(settings.url or "", headers=settings.headers)
    seconds = settings.timeout_seconds
    return MCPToolset(
        transport, tool_error_behavior="error", init_timeout=seconds + _GRACE_SECONDS, read_timeout=seconds
    )


def _import_client() -> None:
    """Import the MCP client, which sets up a log of its own on the terminal when it is loaded."""
    if "fastmcp" in sys.modules:
        return
    try:
        import pydantic_ai.mcp  # noqa: F401
    except ImportError as error:
        raise ConfigurationError('MCP servers need a package: pip install "mixseek[mcp]"') from error
    logging.getLogger("fastmcp").handlers.clear()
    for name in ("fastmcp", "mcp"):
        its_log = logging.getLogger(name)
        its_log.propagate = True
        # What a server sends that is no message is logged as an error, with all of its words.
        its_log.setLevel(logging.NOTSET if logger.isEnabledFor(logging.DEBUG) else logging.CRITICAL)


class _Tail:
    """The end of what a program writes to its standard error."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._kept = b""
        self._end, writing = os.pipe()
        self.file = os.fdopen(writing, "w")
        os.set_blocking(self._end, False)
        asyncio.get_running_loop().add_reader(self._end, self._take)

    def _take(self) -> None:
        said = os.read(self._end, 65536)
        logger.debug("MCP server %r: %s", self._name, said.decode("utf-8", "replace").rstrip())
        self._kept = (self._kept + said)[-_KEPT_OF_STDERR:]

    def close(self) -> None:
        if not self.file.closed:
            with suppress(BlockingIOError):
                self._take()
            asyncio.get_running_loop().remove_reader(self._end)
            os.close(self._end)
            self.file.close()

    def __str__(self) -> str:
        words = self._kept.decode("utf-8", "replace").strip()
        return f"; it said: {words}" if words else ""
