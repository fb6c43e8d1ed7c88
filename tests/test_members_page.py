"""The page on members: its files are right, and the tools it shows serve a member in a round."""

import re
import sys
from pathlib import Path

import pytest

from mixseek.agents.member.tools import MAX_RESULT_CHARS
from mixseek.events import Event, ToolFinished
from mixseek.orchestrator import Orchestrator, load_orchestrator_settings
from mixseek.testing import ModelServer, ToolCall, write_workspace

PAGE = (Path(__file__).parent.parent / "docs" / "members.md").read_text(encoding="utf-8")


def write_the_pages_files(root: Path) -> None:
    for name, text in re.findall(r"```(?:toml|python)\n# (\S+)\n(.*?)```", PAGE, re.DOTALL):
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


async def test_the_functions_and_servers_of_the_page_serve_a_member(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(Path(sys.executable).parent), prepend=":")
    monkeypatch.setenv("STOCK_TOKEN", "an-example-of-a-token")
    told: list[Event] = []
    async with ModelServer() as server:
        file = write_workspace(tmp_path, teams=1, max_rounds=1, base_url=server.base_url)
        write_the_pages_files(tmp_path)
        file.write_text(file.read_text().replace("team-a.toml", "shop.toml"))
        server.on("leader", [ToolCall("delegate_to_clerk", {"task": "Buy tea."}), "the submission"])
        server.on("clerk", [ToolCall("price", {"item": "tea"}), ToolCall("stock_left", {"item": "tea"}), "bought"])
        settings = load_orchestrator_settings(file, tmp_path)
        summary = await Orchestrator(settings, listeners=[told.append], save_db=False).execute("task")
        heard = str([request.body for request in server.requests if request.model == "clerk"][-1])
    assert summary.best_team_id == "shop"
    finished = [event for event in told if isinstance(event, ToolFinished)]
    assert [(event.tool, event.error) for event in finished] == [("price", None), ("stock_left", None)]
    assert "1 x tea: 120 yen" in heard
    assert "3 of tea left" in heard


def test_the_page_tells_the_limit_of_results() -> None:
    assert f"at most {MAX_RESULT_CHARS:,} characters" in PAGE
