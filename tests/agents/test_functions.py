"""Python functions as tools of members, in whole rounds on a loopback model server."""

import asyncio
import json
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from mixseek.agents.member import MemberAgentFactory
from mixseek.agents.member.tools import MAX_RESULT_CHARS, function_tools
from mixseek.config.manager import ConfigurationManager
from mixseek.config.schema import FunctionSettings, MemberAgentConfig
from mixseek.errors import PluginError
from mixseek.events import Event, ToolCalled, ToolFinished
from mixseek.records import OrchestratorTask
from mixseek.round_controller import RoundController
from mixseek.testing import Match, ModelServer, ToolCall, scripted
from mixseek.workspace import Workspace
from tests.agents.tool_rounds import FUNCTIONS, arena_with, submission_of, uses, using


@pytest.fixture
async def server() -> AsyncIterator[ModelServer]:
    async with ModelServer() as running:
        yield running


def functions(*names: str) -> str:
    return "functions = " + json.dumps([f"shop_functions:{name}" for name in names])


async def test_functions_are_tools_of_a_member_and_every_use_is_recorded(tmp_path: Path, server: ModelServer) -> None:
    calls = [ToolCall("price", {"item": "tea", "count": 2}), ToolCall("stock", {"items": ["tea"]})]
    arena = arena_with(tmp_path, server, functions("price", "stock"), *calls)
    played = await arena.play()
    submission = submission_of(played)
    assert submission.status == "SUCCESS"
    assert "2 x tea: 240 yen" in submission.content
    assert submission.usage.tool_calls == 2
    kept = await uses(arena, played)
    assert [(use.tool, use.arguments, use.occurrence) for use in kept] == [
        ("price", {"item": "tea", "count": 2}, 0),
        ("stock", {"items": ["tea"]}, 0),
    ]
    assert [use.result["content"] for use in kept if isinstance(use.result, dict)] == ["2 x tea: 240 yen", '{"tea":3}']
    assert {(use.scope.team_id, use.scope.agent_name, use.scope.round_number) for use in kept} == {("alpha", "m1", 1)}
    assert all(use.started_at <= use.ended_at for use in kept)


async def test_the_result_of_a_team_counts_the_uses_of_tools(tmp_path: Path, server: ModelServer) -> None:
    calls = [ToolCall("price", {"item": "tea"}), ToolCall("refuse", {"reason": "closed"})]
    arena = arena_with(tmp_path, server, functions("price", "refuse"), *calls)
    run = ConfigurationManager(tmp_path).load_run_settings("configs/orchestrator.toml")
    team = tmp_path / "configs" / "agents" / "0.toml"
    task = OrchestratorTask(user_prompt="task", team_configs=[team], timeout_seconds=60, max_rounds=1, min_rounds=1)
    controller = RoundController(team, tmp_path, task, run.evaluator, run.judgment, run.prompt_builder)
    result = await controller.run_round_with_timeout("task", 60)
    assert (result.usage.tool_calls, result.team_id) == (2, arena.teams[0].word)


async def test_the_model_is_told_how_to_use_a_function(tmp_path: Path, server: ModelServer) -> None:
    await arena_with(tmp_path, server, functions("price")).play()
    [tool] = next(request for request in server.requests if request.model == "member-alpha").body["tools"]
    assert tool["function"]["description"] == "What so many of an item cost."
    described = tool["function"]["parameters"]["properties"]
    assert described["item"] == {"description": "what is bought", "type": "string"}
    assert described["count"]["default"] == 1


async def test_a_tool_has_the_name_that_the_file_gives_it(tmp_path: Path, server: ModelServer) -> None:
    (tmp_path / "oddly_named.py").write_text(
        "def wrapper(item: str) -> str:\n    return item\nprice = lambda item: '1'\ncost = wrapper\n"
    )
    arena = arena_with(tmp_path, server, 'functions = ["oddly_named:price", "oddly_named:cost"]')
    await arena.play()
    (asked,) = [request for request in server.requests if request.model == "member-alpha"]
    assert [tool["function"]["name"] for tool in asked.body["tools"]] == ["price", "cost"]


async def test_each_use_is_told_when_it_begins_and_ends(tmp_path: Path, server: ModelServer) -> None:
    calls = [ToolCall("price", {"item": "tea"}), ToolCall("refuse", {"reason": "closed"})]
    played = await arena_with(tmp_path, server, functions("price", "refuse"), *calls).play()
    told = [event for event in played.events if isinstance(event, ToolCalled | ToolFinished)]
    assert [(event.kind, event.tool) for event in told] == [
        ("ToolCalled", "price"),
        ("ToolFinished", "price"),
        ("ToolCalled", "refuse"),
        ("ToolFinished", "refuse"),
    ]
    first, second, _, failed = told
    assert isinstance(first, ToolCalled)
    assert isinstance(failed, ToolFinished)
    assert first.arguments == {"item": "tea"}
    assert (first.agent_name, first.round_number, first.call_id) == ("m1", 1, second.call_id)
    assert failed.error == "ValueError: refused: closed"


async def test_identical_calls_are_told_apart_by_the_names_the_model_gives_them(
    tmp_path: Path, server: ModelServer
) -> None:
    calls = [ToolCall("price", {"item": "tea"})] * 2
    arena = arena_with(tmp_path, server, functions("price"), *calls, rounds=2)
    kept = await uses(arena, await arena.play())
    assert [(use.scope.round_number, use.occurrence) for use in kept] == [(1, 0), (1, 0), (2, 0), (2, 0)]
    assert len({use.key for use in kept}) == 4


FAILING = [
    ("refuse", {"reason": "closed"}, "ValueError: refused: closed"),
    ("leave", {}, "it tried to end the program"),
    ("give_up", {}, "it gave up its own work"),
    ("panic", {}, "Panic: index out of bounds"),
    ("cancel_the_task", {}, "it gave up its own work"),
    ("close", {}, "GeneratorExit"),
    ("close_in_a_thread", {}, "GeneratorExit"),
    ("refuse_without_words", {}, "HasNoWordsError"),
    ("hang", {}, "it took longer than 1 s and was given up"),
    ("hang_politely", {}, "it took longer than 1 s and was given up"),
]


@pytest.mark.parametrize(("name", "arguments", "words"), FAILING, ids=[name for name, _, _ in FAILING])
async def test_a_function_that_fails_becomes_words_and_the_member_goes_on(
    tmp_path: Path, server: ModelServer, name: str, arguments: dict[str, Any], words: str
) -> None:
    limit = "\n[team.members.tool_settings.functions]\ntimeout_seconds = 1"
    arena = arena_with(tmp_path, server, functions(name) + limit, ToolCall(name, arguments))
    played = await arena.play()
    submission = submission_of(played)
    assert submission.status == "SUCCESS"
    assert f"Tool {name!r} failed." in submission.content
    assert words in submission.content
    assert submission.usage.tool_calls == 1
    [use] = await uses(arena, played)
    assert isinstance(use.result, dict)
    assert use.result["error"] == words


async def test_arguments_a_function_cannot_take_are_recorded_and_asked_for_again(
    tmp_path: Path, server: ModelServer
) -> None:
    calls = [ToolCall("price", {"count": "many"}), ToolCall("price", '{"item": '), ToolCall("price", {"item": "tea"})]
    arena = arena_with(tmp_path, server, functions("price"), *calls)
    played = await arena.play()
    assert "1 x tea: 120 yen" in submission_of(played).content
    kept = await uses(arena, played)
    assert [use.arguments for use in kept] == [
        {"count": "many"},
        {"INVALID_JSON": '{"item": '},
        {"item": "tea"},
    ]
    assert ["error" in use.result for use in kept if isinstance(use.result, dict)] == [True, True, False]
    assert submission_of(played).usage.tool_calls == 3


async def test_a_number_that_is_none_in_the_arguments_does_not_take_the_member_down(
    tmp_path: Path, server: ModelServer
) -> None:
    arena = arena_with(tmp_path, server, functions("price"), ToolCall("price", '{"item": "tea", "count": NaN}'))
    played = await arena.play()
    assert submission_of(played).status == "SUCCESS"
    [use] = await uses(arena, played)
    assert use.arguments == {"item": "tea", "count": "NaN"}


async def test_a_member_whose_model_calls_tools_without_end_fails_in_our_own_words(
    tmp_path: Path, server: ModelServer
) -> None:
    calls = [ToolCall("price", {"item": f"tea {number}"}) for number in range(60)]
    submission = submission_of(await arena_with(tmp_path, server, functions("price"), *calls).play())
    words = "loop:member-alpha: no usable answer: the model was asked 50 times and still called tools"
    assert submission.error_message == words
    assert (submission.usage.requests, submission.usage.tool_calls) == (50, 50)


async def test_a_leader_that_calls_members_without_end_fails_in_our_own_words(
    tmp_path: Path, server: ModelServer
) -> None:
    arena = arena_with(tmp_path, server, "")
    server.on("leader-alpha", lambda call: ToolCall("delegate_to_m1", {"task": f"task {len(call.tool_results)}"}))
    [failed] = (await arena.play()).told("RoundFailed")
    words = "the leader gave no usable answer: the model was asked 50 times and still called tools"
    assert failed.reason == words


async def test_a_leader_that_knows_no_tool_is_told_without_advice_it_cannot_follow(
    tmp_path: Path, server: ModelServer
) -> None:
    arena = arena_with(tmp_path, server, "")
    server.on("leader-alpha", lambda _: ToolCall("nobody", {}))
    [failed] = (await arena.play()).told("RoundFailed")
    assert failed.reason.startswith("the leader gave no usable answer: Tool 'nobody' exceeded max retries count of 3")
    assert "onsider" not in failed.reason


async def test_a_member_that_fails_has_used_what_was_counted_for_it(tmp_path: Path, server: ModelServer) -> None:
    arena = arena_with(tmp_path, server, functions("price"))
    server.on("member-alpha", lambda call: "" if call.tool_results else ToolCall("price", {"item": "tea"}))
    submission = submission_of(await arena.play())
    [line] = [row for row in arena.rows("model_usage") if row["role"] == "member"]
    assert submission.status == "ERROR"
    assert (submission.usage.requests, submission.usage.input_tokens) == (line["requests"], line["input_tokens"])
    assert (submission.usage.tool_calls, line["requests"] > 1) == (1, True)


async def test_a_result_without_end_is_cut_for_the_model_and_the_journal(tmp_path: Path, server: ModelServer) -> None:
    arena = arena_with(tmp_path, server, functions("huge"), ToolCall("huge"))
    [use] = await uses(arena, await arena.play())
    assert isinstance(use.result, dict)
    kept = str(use.result["content"])
    assert kept.endswith("[cut here: 4000000 characters in all]")
    assert len(kept) < MAX_RESULT_CHARS + 100
    assert max(len(json.dumps(request.body)) for request in server.requests) < 10 * MAX_RESULT_CHARS


async def test_a_result_is_data_with_the_nonce_that_is_kept(tmp_path: Path, server: ModelServer) -> None:
    arena = arena_with(tmp_path, server, functions("forge", "odd"), ToolCall("forge"), ToolCall("odd"))
    played = await arena.play()
    forged, odd = await uses(arena, played)
    assert isinstance(forged.result, dict)
    assert isinstance(odd.result, dict)
    heard = str(server.requests[-3].body) + submission_of(played).content
    assert f'<data id="{forged.result["nonce"]}">' in heard
    assert '\n</data id="0">' not in submission_of(played).content
    assert odd.result["content"] == '["NaN","Infinity"]'


async def test_cancelling_a_run_in_the_middle_of_a_function_ends_it_at_once(
    tmp_path: Path, server: ModelServer
) -> None:
    for name in ("hang", "hang_politely"):
        root = tmp_path / name
        root.mkdir()
        begun, tasks_before = asyncio.Event(), asyncio.all_tasks()
        arena = arena_with(root, server, functions(name), ToolCall(name))
        execution: list[str] = []

        def listen(event: Event, begun: asyncio.Event = begun, execution: list[str] = execution) -> None:
            execution.append(event.execution_id)
            if isinstance(event, ToolCalled):
                begun.set()

        running = asyncio.create_task(arena.build(listeners=[listen]).execute("task"))
        await asyncio.wait_for(begun.wait(), 20)
        await asyncio.sleep(0.05)
        started = time.monotonic()
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        assert time.monotonic() - started < 5
        await asyncio.sleep(0)
        assert asyncio.all_tasks() <= tasks_before
        async with arena.journal() as journal:
            kept = [use for use in await journal.tool_results(execution[0]) if use.scope.role == "member"]
        assert [use.result["error"] for use in kept if isinstance(use.result, dict)] == ["cancelled"]


def test_a_function_that_hangs_does_not_keep_the_program_from_ending() -> None:
    program = (
        "import asyncio\nfrom mixseek.agents.member.threads import Threads\nimport time\n"
        "async def main():\n"
        "    try:\n"
        "        async with asyncio.timeout(0.2): await Threads().run(time.sleep, 60)\n"
        "    except TimeoutError: print('given up')\n"
        "asyncio.run(main())\n"
    )
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=30, check=False)
    assert (ran.returncode, ran.stdout.strip(), ran.stderr) == (0, "given up", "")


async def test_functions_that_hang_again_and_again_do_not_fill_the_process_with_threads() -> None:
    let_go = threading.Event()
    before = threading.active_count()
    from mixseek.agents.member.threads import Threads

    threads = Threads()
    waiting = [asyncio.create_task(threads.run(let_go.wait, 20)) for _ in range(30)]
    await asyncio.sleep(0.1)
    assert threading.active_count() - before <= 16
    let_go.set()
    done = await asyncio.gather(*waiting, return_exceptions=True)
    assert done.count(True) == 16
    assert await threads.run(let_go.wait)


async def test_a_member_used_on_its_own_has_its_functions_too(tmp_path: Path) -> None:
    shutil.copy(FUNCTIONS, tmp_path / "shop_functions.py")
    fields = {"name": "m", "type": "plain", "model": "scripted:m", "functions": ["shop_functions:price"]}
    with scripted() as script:
        script.on(Match("m"), using(ToolCall("price", {"item": "tea"})))
        config = MemberAgentConfig.model_validate(fields)
        member = MemberAgentFactory.create_agent(config, workspace=Workspace(tmp_path))
        result = await member.execute("buy tea")
    assert "1 x tea: 120 yen" in result.content


# --- what files may say -----------------------------------------------------------------------------------------------


MEMBER = '[agent]\nname = "m"\ntype = "plain"\nmodel = "loop:m"\n'


@pytest.fixture
def problems(tmp_path: Path) -> Callable[..., list[str]]:
    (tmp_path / "configs").mkdir()
    (tmp_path / "configs" / "providers.toml").write_text('[providers.loop]\nbase_url = "http://127.0.0.1:9"\n')
    shutil.copy(FUNCTIONS, tmp_path / "shop_functions.py")
    (tmp_path / "broken.py").write_text("1 / 0\n")
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "inner.py").write_text('print("loading")\ndef find(what: str) -> str:\n    "Finds."\n')
    (tmp_path / "package" / "__init__.py").write_text('def here() -> str:\n    "Where."\n    return "here"\n')

    def found(*names: str, no_plugins: bool = False) -> list[str]:
        (tmp_path / "configs" / "m.toml").write_text(MEMBER + f"functions = {json.dumps(names)}\n")
        manager = ConfigurationManager(tmp_path, environ={}, no_plugins=no_plugins)
        return [str(problem) for problem in manager.validate("configs/m.toml").problems]

    return found


WRONG = [
    ("shop_functions:nothing", "'shop_functions' has no function 'nothing'"),
    ("shop_functions:answer", "'shop_functions' has no function 'answer'"),
    ("no_such_module:f", "module 'no_such_module' cannot be imported: ModuleNotFoundError: No module named"),
    ("broken:f", "broken.py' cannot be imported: ZeroDivisionError: division by zero"),
    ("shop_functions:wire", "'shop_functions:wire' cannot be a tool: Unable to generate pydantic-core schema for"),
]


@pytest.mark.parametrize(("name", "words"), WRONG, ids=[name for name, _ in WRONG])
def test_a_function_that_cannot_be_a_tool_is_told_when_files_are_read(
    problems: Callable[..., list[str]], name: str, words: str
) -> None:
    [problem] = problems(name)
    assert problem.startswith("configs/m.toml: agent.functions[0]: ")
    assert words in problem
    assert problems(name, no_plugins=True) == []


@pytest.mark.parametrize("name", ["価格", "p" * 65])
def test_a_function_whose_name_no_tool_can_have_is_told_so(
    problems: Callable[..., list[str]], tmp_path: Path, name: str
) -> None:
    (tmp_path / "oddly_named.py").write_text(f"def {name}(item: str) -> str: ...\n", encoding="utf-8")
    words = f"'{name}' cannot be the name of a tool: rename it, to at most 64 of A-Z, a-z, 0-9 and _"
    assert problems(f"oddly_named:{name}") == [f"configs/m.toml: agent.functions[0]: {words}"]


def test_two_functions_of_one_name_are_told_without_loading_them(problems: Callable[..., list[str]]) -> None:
    [problem] = problems("broken:price", "shop_functions:price", no_plugins=True)
    assert problem == (
        "configs/m.toml: agent.functions[1]: 'shop_functions:price' and 'broken:price' would be tools of the same name:"
        " rename one, or take it out"
    )


def test_functions_come_from_the_workspace_and_from_everywhere_else(
    problems: Callable[..., list[str]], capsys: pytest.CaptureFixture[str]
) -> None:
    assert problems("shop_functions:price", "package.inner:find", "package:here", "textwrap:dedent") == []
    assert capsys.readouterr().out == ""


def test_a_function_that_is_not_there_cannot_be_made_a_tool(tmp_path: Path) -> None:
    with pytest.raises(PluginError, match="cannot be imported"):
        function_tools(["no_such_module:f"], FunctionSettings(), root=tmp_path)
