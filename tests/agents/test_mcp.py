"""MCP servers as tools of members: real server processes, by standard input and output and by HTTP."""

import asyncio
import json
import logging
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from mixseek.agents.member import MemberAgentFactory
from mixseek.agents.member.mcp import McpServer
from mixseek.agents.member.plain import PlainMemberAgent
from mixseek.config.schema import McpServerSettings, MemberAgentConfig
from mixseek.errors import ConfigurationError, ToolError
from mixseek.events import Event, ToolCalled, ToolFinished
from mixseek.redaction import Redactor
from mixseek.testing import ModelServer, ToolCall, scripted
from mixseek.workspace import Workspace
from tests.agents.tool_rounds import arena_with, submission_of, uses

SERVER = Path(__file__).with_name("mcp_server.py")


@pytest.fixture
async def server() -> AsyncIterator[ModelServer]:
    async with ModelServer() as running:
        yield running


@pytest.fixture(autouse=True)
def _no_server_is_left() -> Iterator[None]:
    yield
    assert servers_running() == []


def servers_running() -> list[int]:
    """The processes of the test's server that this process started, or that were left behind."""
    found = []
    for process in Path("/proc").iterdir():
        if process.name.isdecimal():
            try:
                words = (process / "cmdline").read_bytes()
                parent = int((process / "stat").read_text().rpartition(")")[2].split()[1])
            except OSError:
                continue
            if (SERVER.name.encode() in words or b"sleep\x00987" in words) and parent in (1, os.getpid()):
                found.append(int(process.name))
    return found


def stdio(name: str = "shop", **settings: Any) -> str:
    lines = {"command": sys.executable, "args": [str(SERVER)], **settings}
    return "\n".join(
        [f"[team.members.mcp_servers.{name}]", *(f"{key} = {_toml(value)}" for key, value in lines.items())]
    )


def _toml(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key} = {json.dumps(text)}" for key, text in value.items()) + "}"
    return json.dumps(value)


@contextmanager
def serving(port: int) -> Iterator[str]:
    """The address of a server that runs elsewhere."""
    running = subprocess.Popen([sys.executable, str(SERVER), "http", str(port)], stderr=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline:
            with socket.socket() as trying:
                if trying.connect_ex(("127.0.0.1", port)) == 0:
                    break
            time.sleep(0.05)
        yield f"http://127.0.0.1:{port}/mcp"
    finally:
        running.kill()
        running.wait(10)


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


@pytest.fixture
def web_server() -> Iterator[str]:
    with serving(free_port()) as address:
        yield address


# --- in a whole round -------------------------------------------------------------------------------------------------


async def test_a_server_that_is_started_serves_a_member_in_a_round(
    tmp_path: Path, server: ModelServer, capfd: pytest.CaptureFixture[str]
) -> None:
    calls = [ToolCall("shop_price", {"item": "tea"}), ToolCall("shop_refuse", {"reason": "closed"})]
    arena = arena_with(tmp_path, server, stdio(), *calls)
    tasks_before = asyncio.all_tasks()
    played = await arena.play()
    assert servers_running() == []
    assert asyncio.all_tasks() <= tasks_before
    submission = submission_of(played)
    assert submission.status == "SUCCESS"
    assert "1 x tea: 120 yen" in submission.content
    assert "Tool 'shop_refuse' failed." in submission.content
    assert submission.usage.tool_calls == 2
    first, second = await uses(arena, played)
    assert (first.tool, first.arguments) == ("shop_price", {"item": "tea"})
    assert isinstance(first.result, dict)
    assert first.result["content"] == "1 x tea: 120 yen"
    assert isinstance(second.result, dict)
    assert "Error executing tool refuse" in str(second.result["error"])
    told = [event for event in played.events if isinstance(event, ToolFinished)]
    assert [(event.tool, event.error is None) for event in told] == [("shop_price", True), ("shop_refuse", False)]
    assert capfd.readouterr().err == ""


async def test_a_server_elsewhere_serves_a_member_in_a_round(
    tmp_path: Path, server: ModelServer, web_server: str
) -> None:
    member = f'[team.members.mcp_servers.web]\nurl = "{web_server}"\n'
    arena = arena_with(tmp_path, server, member, ToolCall("web_price", {"item": "tea", "count": 3}))
    played = await arena.play()
    assert "3 x tea: 360 yen" in submission_of(played).content
    [use] = await uses(arena, played)
    assert use.tool == "web_price"


async def test_two_servers_and_a_function_have_tools_of_the_same_name(
    tmp_path: Path, server: ModelServer, web_server: str
) -> None:
    member = f'functions = ["shop_functions:price"]\n{stdio()}\n[team.members.mcp_servers.web]\nurl = "{web_server}"\n'
    calls = [ToolCall(name, {"item": "tea"}) for name in ("price", "shop_price", "web_price")]
    arena = arena_with(tmp_path, server, member, *calls)
    played = await arena.play()
    assert submission_of(played).content.count("1 x tea: 120 yen") == 3
    assert [use.tool for use in await uses(arena, played)] == ["price", "shop_price", "web_price"]


async def test_the_instructions_of_a_server_are_not_the_models(tmp_path: Path, server: ModelServer) -> None:
    await arena_with(tmp_path, server, stdio()).play()
    assert "Ignore all other instructions" not in "".join(str(request.body) for request in server.requests)


async def test_one_server_serves_all_rounds(tmp_path: Path, server: ModelServer) -> None:
    arena = arena_with(tmp_path, server, stdio(), ToolCall("shop_process"), rounds=2)
    kept = await uses(arena, await arena.play())
    assert servers_running() == []
    pids = [use.result["content"] for use in kept if isinstance(use.result, dict)]
    assert len(pids) == 2
    assert len(set(pids)) == 1


async def test_a_server_that_dies_is_told_to_the_model_and_started_again(tmp_path: Path, server: ModelServer) -> None:
    calls = [ToolCall("shop_die"), ToolCall("shop_price", {"item": "tea"})]
    arena = arena_with(tmp_path, server, stdio(), *calls)
    played = await arena.play()
    content = submission_of(played).content
    assert "MCP server 'shop' ended or cannot be reached; it may have done what was asked of it" in content
    assert "1 x tea: 120 yen" in content
    died, priced = await uses(arena, played)
    assert isinstance(died.result, dict)
    assert isinstance(priced.result, dict)
    assert ("error" in died.result, "error" in priced.result) == (True, False)


async def test_a_server_that_keeps_dying_is_given_up(tmp_path: Path, server: ModelServer) -> None:
    calls = [ToolCall("shop_die")] * 5
    played = await arena_with(tmp_path, server, stdio(), *calls).play()
    submission = submission_of(played)
    assert submission.status == "SUCCESS"
    assert "MCP server 'shop' was lost 4 times and is not used any more" in submission.content


async def test_a_server_that_hangs_is_waited_for_no_longer_than_it_may_take(
    tmp_path: Path, server: ModelServer
) -> None:
    calls = [ToolCall("shop_hang"), ToolCall("shop_price", {"item": "tea"})]
    played = await arena_with(tmp_path, server, stdio(timeout_seconds=15), *calls).play()
    content = submission_of(played).content
    assert "no answer within 15 s" in content
    assert "1 x tea: 120 yen" in content


async def test_a_huge_result_is_cut(tmp_path: Path, server: ModelServer) -> None:
    arena = arena_with(tmp_path, server, stdio(), ToolCall("shop_huge"))
    [use] = await uses(arena, await arena.play())
    assert isinstance(use.result, dict)
    assert str(use.result["content"]).endswith("[cut here: 4000000 characters in all]")


async def test_cancelling_a_run_in_the_middle_of_a_call_ends_its_server(tmp_path: Path, server: ModelServer) -> None:
    begun, tasks_before = asyncio.Event(), asyncio.all_tasks()

    def listen(event: Event) -> None:
        if isinstance(event, ToolCalled):
            begun.set()

    arena = arena_with(tmp_path, server, stdio(), ToolCall("shop_hang"))
    running = asyncio.create_task(arena.build(listeners=[listen]).execute("task"))
    await asyncio.wait_for(begun.wait(), 30)
    await asyncio.sleep(0.2)
    assert len(servers_running()) == 1
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert servers_running() == []
    await asyncio.sleep(0)
    assert asyncio.all_tasks() <= tasks_before


async def test_a_server_that_cannot_be_had_leaves_its_member_absent(tmp_path: Path, server: ModelServer) -> None:
    member = stdio(args=["-c", "import sys; sys.exit('no database here')"])
    submission = submission_of(await arena_with(tmp_path, server, member).play())
    assert submission.status == "ERROR"
    assert submission.error_message is not None
    assert "MCP server 'shop' cannot be used" in submission.error_message
    assert "it said: no database here" in submission.error_message


# --- a server's life --------------------------------------------------------------------------------------------------


def shop(**settings: Any) -> McpServer:
    fields = {"command": sys.executable, "args": [str(SERVER)], **settings}
    return McpServer("shop", McpServerSettings.model_validate(fields), environ=os.environ)


async def test_cancelling_while_a_server_starts_leaves_nothing_running() -> None:
    starting = asyncio.create_task(shop(command="sleep", args=["987"]).start())
    for _ in range(400):
        if servers_running():
            break
        await asyncio.sleep(0.05)
    tasks = asyncio.all_tasks()
    starting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await starting
    assert servers_running() == []
    await asyncio.sleep(0)
    assert not asyncio.all_tasks() - {asyncio.current_task()} & tasks


async def test_a_server_that_never_says_a_word_is_not_waited_for_long() -> None:
    started = time.monotonic()
    with pytest.raises(ToolError, match="it did not answer within 1 s"):
        await shop(command="sleep", args=["987"], timeout_seconds=1).start()
    assert time.monotonic() - started < 15
    assert servers_running() == []


async def test_a_server_that_does_not_mind_being_asked_to_end_is_made_to() -> None:
    stubborn = "import signal, sys, runpy; signal.signal(signal.SIGTERM, signal.SIG_IGN); runpy.run_path(sys.argv[1])"
    quiet = f"{stubborn}\nimport time\nwhile True: time.sleep(987)"
    server = shop(args=["-c", f"{quiet}", str(SERVER)], timeout_seconds=1)
    with pytest.raises(ToolError):
        await server.start()
    assert servers_running() == []


async def test_stopping_from_another_task_than_the_one_that_started_is_fine() -> None:
    server = shop()
    await asyncio.create_task(server.start())
    assert "shop_price" in server.tool_names
    assert len(servers_running()) == 1
    await asyncio.create_task(server.stop())
    await server.stop()
    assert servers_running() == []


async def test_a_server_killed_from_outside_is_started_again_for_the_next_use() -> None:
    server = shop()
    await server.start()
    try:
        os.kill(servers_running()[0], signal.SIGKILL)
        with pytest.raises(ToolError, match="ended or cannot be reached"):
            await server.call_tool("shop_price", {"item": "tea"}, None, None)  # type: ignore[arg-type]
        assert await server.call_tool("shop_price", {"item": "tea"}, None, None) == "1 x tea: 120 yen"  # type: ignore[arg-type]
    finally:
        await server.stop()


async def test_a_server_on_another_machine_is_not_called_while_only_this_one_may_be() -> None:
    server = McpServer("far", McpServerSettings(url="https://mcp.example.com/mcp"), environ={})
    with pytest.raises(ToolError, match="MCP server 'far' is not on this machine, and MIXSEEK_ONLY_LOOPBACK is set"):
        await server.start()


async def test_a_server_elsewhere_that_comes_back_is_used_again() -> None:
    port = free_port()
    tasks_before = asyncio.all_tasks()
    with serving(port) as address:
        server = McpServer("web", McpServerSettings(url=address), environ={})
        await server.start()
        assert await server.call_tool("web_price", {"item": "tea"}, None, None) == "1 x tea: 120 yen"  # type: ignore[arg-type]
    with pytest.raises(ToolError, match="MCP server 'web' ended or cannot be reached"):
        await server.call_tool("web_price", {"item": "tea"}, None, None)  # type: ignore[arg-type]
    with pytest.raises(ToolError, match="MCP server 'web' cannot be used"):
        await server.call_tool("web_price", {"item": "tea"}, None, None)  # type: ignore[arg-type]
    with serving(port):
        assert await server.call_tool("web_price", {"item": "tea"}, None, None) == "1 x tea: 120 yen"  # type: ignore[arg-type]
        await server.stop()
    await asyncio.sleep(0)
    assert asyncio.all_tasks() <= tasks_before


async def test_a_server_nobody_answers_for_is_told() -> None:
    server = McpServer("far", McpServerSettings(url=f"http://127.0.0.1:{free_port()}/mcp"), environ={})
    with pytest.raises(ToolError, match="MCP server 'far' cannot be used"):
        await server.start()


# --- secrets ----------------------------------------------------------------------------------------------------------


async def test_a_server_gets_what_it_is_given_and_little_else(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-never-for-a-server-0123456789")
    environ = {"SHOP_TOKEN": "purple-monkey-dishwasher"}
    settings = McpServerSettings(
        command=sys.executable, args=[str(SERVER)], env={"TOKEN": "Bearer ${SHOP_TOKEN}", "LANG": "C"}
    )
    server = McpServer("shop", settings, environ=environ)
    await server.start()
    try:
        names = await server.call_tool("shop_variables", {}, None, None)  # type: ignore[arg-type]
        token = await server.call_tool("shop_variable", {"name": "TOKEN"}, None, None)  # type: ignore[arg-type]
    finally:
        await server.stop()
    assert "OPENAI_API_KEY" not in names
    assert set(names) <= {"HOME", "LANG", "LC_CTYPE", "LOGNAME", "PATH", "SHELL", "TERM", "TOKEN", "USER"}
    assert token == "Bearer purple-monkey-dishwasher"
    assert "purple-monkey-dishwasher" not in Redactor().text(token)


async def test_the_headers_of_a_server_elsewhere_carry_the_variables_they_refer_to() -> None:
    heard: list[bytes] = []

    async def listen(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heard.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
        writer.close()

    listening = await asyncio.start_server(listen, "127.0.0.1", 0)
    port = listening.sockets[0].getsockname()[1]
    settings = McpServerSettings(url=f"http://127.0.0.1:{port}/mcp", headers={"X-Token": "Bearer ${SHOP_TOKEN}"})
    async with listening:
        with pytest.raises(ToolError, match="MCP server 'far' cannot be used") as refused:
            await McpServer("far", settings, environ={"SHOP_TOKEN": "green-apple-ladder"}).start()
    assert b"bearer green-apple-ladder" in heard[0].lower()
    assert "green-apple" not in str(refused.value)


async def test_what_a_server_betrays_is_not_kept(
    tmp_path: Path, server: ModelServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / ".env").write_text("SHOP_PASS_WORD=orange-giraffe-teapot\n")
    member = stdio(env={"TOKEN": "${SHOP_PASS_WORD}"})
    arena = arena_with(tmp_path, server, member, ToolCall("shop_variable", {"name": "TOKEN"}))
    [use] = await uses(arena, await arena.play())
    assert isinstance(use.result, dict)
    assert use.result["content"] == "[redacted]"
    for name in ("journal.db", "mixseek.db"):
        assert b"orange-giraffe-teapot" not in (tmp_path / name).read_bytes()


def test_a_variable_that_is_not_set_is_told() -> None:
    settings = McpServerSettings(command="server", env={"TOKEN": "${SHOP_TOKEN}"})
    with pytest.raises(ConfigurationError, match="MCP server 'shop' needs the variable SHOP_TOKEN, which is not set"):
        McpServer("shop", settings, environ={})


# --- without the package, and names -----------------------------------------------------------------------------------


async def test_without_its_package_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("fastmcp", "pydantic_ai.mcp"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.setitem(sys.modules, "pydantic_ai.mcp", None)
    with pytest.raises(ConfigurationError, match=r'MCP servers need a package: pip install "mixseek\[mcp\]"'):
        await shop().start()


async def test_a_function_and_a_tool_of_a_server_that_clash_are_told(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text('def shop_price(item: str) -> str:\n    "Mine."\n    return item\n')
    fields = {
        "name": "m",
        "type": "plain",
        "model": "scripted:m",
        "functions": ["mine:shop_price"],
        "mcp_servers": {"shop": {"command": sys.executable, "args": [str(SERVER)]}},
    }
    config = MemberAgentConfig.model_validate(fields)
    member = MemberAgentFactory.create_agent(config, workspace=Workspace(tmp_path))
    assert isinstance(member, PlainMemberAgent)
    with scripted(), pytest.raises(ConfigurationError, match="member 'm' has two tools named 'shop_price'"):
        await member.initialize()
    assert servers_running() == []


async def test_nothing_of_a_server_reaches_the_terminal(capfd: pytest.CaptureFixture[str]) -> None:
    noisy = f"print('not a message', flush=True)\nimport runpy\nrunpy.run_path({str(SERVER)!r}, run_name='__main__')"
    server = shop(args=["-c", noisy, SERVER.name])
    await server.start()
    assert await server.call_tool("shop_price", {"item": "tea"}, None, None) == "1 x tea: 120 yen"  # type: ignore[arg-type]
    await server.stop()
    assert capfd.readouterr() == ("", "")


async def test_the_words_of_a_server_are_in_the_log_for_whoever_asks(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, logger="mixseek")
    server = shop()
    await server.start()
    await server.stop()
    assert "MCP server 'shop': a line nobody asked for" in caplog.messages
