"""Members that run code: in a whole round, at the tool handed to the model, and with each of their settings."""

import os
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from pydantic_ai import Agent, ModelMessage, ModelResponse, TextPart
from pydantic_ai.models import ModelRequestParameters
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.native_tools import CodeExecutionTool
from pydantic_ai.settings import ModelSettings

from mixseek.agents.member import MemberAgentFactory
from mixseek.agents.member.code_execution import CodeExecutionMemberAgent
from mixseek.config import ConfigurationManager
from mixseek.config.schema import MemberAgentConfig
from mixseek.errors import ConfigurationError
from mixseek.events import Event, ToolFinished
from mixseek.llm import ModelHub
from mixseek.orchestrator import Orchestrator, load_orchestrator_settings
from mixseek.sandbox import bubblewrap_is_missing
from mixseek.testing import Match, ModelCall, ModelServer, ToolCall, scripted, write_workspace

# One test says what is missing, in tests/sandbox/test_sandboxes.py.
needs_bubblewrap = pytest.mark.skipif(bubblewrap_is_missing() is not None, reason=str(bubblewrap_is_missing()))
BUBBLEWRAP = pytest.param("bubblewrap", marks=needs_bubblewrap)

PRIMES = "print([n for n in range(2, 30) if all(n % d for d in range(2, n))])"


@pytest.fixture
async def server() -> AsyncIterator[ModelServer]:
    async with ModelServer() as running:
        yield running


def _workspace(root: Path, server: ModelServer, settings: str) -> Path:
    file = write_workspace(root, teams=1, max_rounds=1, base_url=server.base_url)
    team = root / "configs" / "agents" / "team-a.toml"
    member = '[[team.members]]\nname = "coder"\ntype = "code_execution"\nmodel = "loopback:coder"\n'
    team.write_text(team.read_text() + member + settings)
    return file


def _member(model: str = "scripted:m", **settings: Any) -> CodeExecutionMemberAgent:
    fields = {"name": "m", "type": "code_execution", "model": model}
    config = MemberAgentConfig.model_validate({**fields, "tool_settings": {"code_execution": settings}})
    member = MemberAgentFactory.create_agent(config)
    assert isinstance(member, CodeExecutionMemberAgent)
    return member


async def _told(code: str, **settings: Any) -> str:
    """What the model of a member reads when it runs this code."""
    told: list[str] = []

    def answer(call: ModelCall) -> ToolCall | str:
        if not call.tool_results:
            return ToolCall("run_python", {"code": code})
        told.extend(str(result) for result in call.tool_results)
        return "done"

    with scripted() as script:
        script.on(Match("m"), answer)
        assert (await _member(**settings).execute("compute")).content == "done"
    [inside] = re.findall(r'<data id="\w+">\n(.*)\n</data id="\w+">', told[0], re.DOTALL)
    return str(inside)


@pytest.mark.parametrize("backend", ["auto", "monty", BUBBLEWRAP])
async def test_a_member_runs_code_in_a_whole_round_and_its_model_reads_the_result(
    backend: str, tmp_path: Path, server: ModelServer
) -> None:
    settings = f'[team.members.tool_settings.code_execution]\nbackend = "{backend}"\n'
    config = _workspace(tmp_path, server, settings)
    server.on("leader-a", [ToolCall("delegate_to_coder", {"task": "Which primes are below 30?"}), "the submission"])
    server.on("coder", [ToolCall("run_python", {"code": PRIMES})])
    server.on("coder", lambda call: f"They are {call.tool_results[-1]}" if call.tool_results else None)
    told: list[Event] = []
    orchestrator = Orchestrator(load_orchestrator_settings(config, tmp_path), save_db=False, listeners=[told.append])
    summary = await orchestrator.execute("task")
    assert summary.best_team_id == "a"
    assert [event.tool for event in told if isinstance(event, ToolFinished)] == ["run_python"]
    heard = [request for request in server.requests if request.model == "leader-a"][-1]
    assert "[2, 3, 5, 7, 11, 13, 17, 19, 23, 29]" in str(heard.body["messages"])


# --- each setting ---------------------------------------------------------------------------------------------------


@needs_bubblewrap
async def test_the_chosen_sandbox_runs_the_code() -> None:
    code = "import sys\nprint(sys.version)\nimport sqlite3\nprint('full')"
    assert "full" in await _told(code, backend="bubblewrap")
    assert "No module named 'sqlite3'" in await _told(code, backend="monty")
    assert "No module named 'sqlite3'" in await _told(code)


@pytest.mark.parametrize("backend", ["monty", BUBBLEWRAP])
async def test_the_limit_of_time_is_the_settings(backend: str) -> None:
    told = await _told("while True: pass", backend=backend, timeout_seconds=1)
    assert told.endswith("(時間の上限(1秒)に達したため、実行を打ち切りました。)")


@pytest.mark.parametrize("backend", ["monty", BUBBLEWRAP])
async def test_the_limit_of_memory_is_the_settings(backend: str) -> None:
    assert await _told("print(len('a' * 100_000_000))", backend=backend, memory_mb=400) == "100000000"
    assert "MemoryError" in await _told("print(len('a' * 1_000_000_000))", backend=backend, memory_mb=64)


@pytest.mark.parametrize("backend", ["monty", BUBBLEWRAP])
async def test_the_limit_of_output_is_the_settings(backend: str) -> None:
    told = await _told("print('x' * 1000)", backend=backend, output_chars=200)
    assert told == "x" * 200 + "\n(出力は最初の200文字だけです)"
    assert len(await _told("print('x' * 90_000)", backend=backend, output_chars=100_000)) == 90_000


async def test_a_model_is_told_of_errors_and_of_silence() -> None:
    assert await _told("pass") == "(出力はありません)"
    assert (await _told("1 / 0")).endswith("ZeroDivisionError: division by zero\n(終了コード 1)")


async def test_keys_that_others_read_stay_allowed() -> None:
    assert _member(sandbox="mine", timeout_seconds=5).config.tool_settings is not None


# --- the provider's own tool ----------------------------------------------------------------------------------------


class _Coder(FunctionModel):
    """A model whose provider runs code itself; keeps what it is handed."""

    def __init__(self) -> None:
        super().__init__(_answer)
        self.handed: list[ModelRequestParameters] = []

    @classmethod
    def supported_native_tools(cls) -> frozenset[type[Any]]:
        return frozenset({CodeExecutionTool})

    async def request(
        self,
        messages: list[ModelMessage],
        model_settings: ModelSettings | None,
        model_request_parameters: ModelRequestParameters,
    ) -> ModelResponse:
        _, parameters = self.prepare_request(model_settings, model_request_parameters)
        self.handed.append(parameters)
        return ModelResponse(parts=[TextPart("done")])


def _answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    return ModelResponse(parts=[TextPart("done")])


@pytest.mark.parametrize(
    ("backend", "own", "local"),
    [("auto", 1, 0), ("provider", 1, 0), ("monty", 0, 1), ("bubblewrap", 0, 1)],
)
async def test_a_model_that_runs_code_itself_is_handed_its_own_tool_unless_a_sandbox_is_chosen(
    backend: str, own: int, local: int
) -> None:
    model = _Coder()
    await Agent(model, capabilities=_member(backend=backend).own_tools()).run("task")
    assert [type(tool) for tool in model.handed[0].native_tools] == [CodeExecutionTool] * own
    assert [tool.name for tool in model.handed[0].function_tools] == ["run_python"] * local


RESPONSES = {"OPENAI_API_KEY": "k"}


def test_a_member_whose_model_runs_code_itself_needs_no_sandbox() -> None:
    hub = ModelHub(environ=RESPONSES)
    _member("openai:gpt-5", backend="provider").check_model(hub)
    _member("openai:gpt-5").check_model(hub)
    _member("openai-chat:gpt-5").check_model(hub)


def test_the_providers_own_tool_is_refused_where_the_provider_has_none() -> None:
    hub = ModelHub(environ=RESPONSES)
    told = "'openai-chat:gpt-5' cannot run code itself: choose another backend"
    with pytest.raises(ConfigurationError, match=told):
        _member("openai-chat:gpt-5", backend="provider").check_model(hub)


async def test_the_providers_own_tool_is_refused_before_any_call_of_a_run(tmp_path: Path, server: ModelServer) -> None:
    config = _workspace(tmp_path, server, '[team.members.tool_settings.code_execution]\nbackend = "provider"\n')
    settings = load_orchestrator_settings(config, tmp_path)
    told = (
        r"team-a.toml: team.members\[0\].tool_settings.code_execution.backend: 'loopback:coder' cannot run code itself"
    )
    with pytest.raises(ConfigurationError, match=told):
        await Orchestrator(settings, save_db=False).execute("task")
    assert server.bill.total.requests == 0


# --- a machine without bubblewrap -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("table", "key"),
    [
        ("tool_settings", "team.members[0].tool_settings.code_execution.backend"),
        ("metadata.tool_settings", "team.members[0].metadata.tool_settings.code_execution.backend"),
    ],
)
async def test_bubblewrap_that_is_not_there_is_told_with_its_key_and_keeps_a_run_from_starting(
    table: str, key: str, tmp_path: Path, server: ModelServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = _workspace(tmp_path, server, f'[team.members.{table}.code_execution]\nbackend = "bubblewrap"\n')
    monkeypatch.setenv("PATH", os.devnull)
    bubblewrap_is_missing.cache_clear()
    try:
        manager = ConfigurationManager(tmp_path, environ={})
        report = manager.validate(config, complete=False)
        assert report.problems == ()
        assert [note.key for note in report.notes if "apt-get install bubblewrap" in note.message] == [key]
        with pytest.raises(ConfigurationError, match="apt-get install bubblewrap"):
            manager.load_run_settings(config, for_a_run=True)
    finally:
        bubblewrap_is_missing.cache_clear()
