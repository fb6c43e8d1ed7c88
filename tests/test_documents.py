"""What the README and the examples show is what happens."""

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from mixseek.events import Event
from mixseek.testing import ModelServer, scripted, write_workspace

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")


def run(*arguments: str | Path, cwd: Path | None = None) -> str:
    ran = subprocess.run([sys.executable, *arguments], capture_output=True, text=True, check=True, cwd=cwd)
    return ran.stdout


def test_the_demo_prints_what_the_readme_shows() -> None:
    [transcript] = re.findall(r"```text\n(Task: .*?)```", README, re.DOTALL)
    start, end = without_counts(transcript).split("…\n")
    printed = without_counts(run(ROOT / "examples" / "competition.py"))
    assert printed.startswith(start)
    assert printed.endswith(end)


def without_counts(text: str) -> str:
    """A prompt shows the teams that were on the board at its moment, so its length differs from run to run."""
    lines = "\n".join(line.rstrip() for line in text.splitlines()) + "\n"
    return re.sub(r"\d+ tokens in, \d+ out", "… tokens", lines)


def test_the_example_of_prompts_ends_with_the_leader_board() -> None:
    assert run(ROOT / "examples" / "three_rounds.py").endswith(
        "**#1 Alpha (あなたのチーム) - スコア: 84.25/100 (ラウンド数: 3)**\n"
        "#2 Beta - スコア: 83.50/100 (ラウンド数: 3)\n"
        "#3 Gamma - スコア: 74.00/100 (ラウンド数: 3)\n"
    )


async def test_the_readmes_python_plays_a_competition(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    [block] = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    names: dict[str, Any] = {}
    exec(block, names)
    write_workspace(tmp_path, teams=2, max_rounds=1)
    with scripted():
        summary = await names["compete"](tmp_path, "task")
    assert summary.total_teams == 2
    assert capsys.readouterr().out.count("max_rounds_reached") == 2


def test_the_readmes_workspace_transcript_is_what_config_init_prints(tmp_path: Path) -> None:
    [shown] = re.findall(r"\$ mixseek config init -w my-workspace\n(.*?)```", README, re.DOTALL)
    assert run("-m", "mixseek", "config", "init", "-w", "my-workspace", cwd=tmp_path) == shown


def test_the_page_on_architecture_names_every_part() -> None:
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    parts = [path.name + "/" * path.is_dir() for path in (ROOT / "src" / "mixseek").glob("[a-z]*")]
    assert [part for part in parts if part not in page and part != "py.typed"] == []


PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])


def test_every_link_between_documents_leads_somewhere() -> None:
    links = [
        (page, link) for page in PAGES for link in re.findall(r"\]\(([^)\s]+)\)", page.read_text(encoding="utf-8"))
    ]
    within = [(page, link) for page, link in links if "://" not in link]
    assert [f"{page.relative_to(ROOT)}: {link}" for page, link in within if not leads_somewhere(page, link)] == []


def leads_somewhere(page: Path, link: str) -> bool:
    target, _, anchor = link.partition("#")
    there = page.parent / target if target else page
    return there.exists() and (not anchor or anchor in anchors(there.read_text(encoding="utf-8")))


def anchors(text: str) -> set[str]:
    """What can be linked to: headings, spelled as on GitHub."""
    headings = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_the_page_on_python_tells_every_event() -> None:
    page = (ROOT / "docs" / "python.md").read_text(encoding="utf-8")
    told = set(re.findall(r"^\| `(\w+)` \| .* \| .* \|$", page, re.MULTILINE))
    assert {event.__name__ for event in Event.__subclasses__()} <= told


def test_the_page_on_python_plays_without_files_and_tells_of_teams_that_fail(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = (ROOT / "docs" / "python.md").read_text(encoding="utf-8")
    block, *_ = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    with ModelServer() as server:
        for name, value in {**server.environment, "OLLAMA_BASE_URL": server.base_url}.items():
            monkeypatch.setenv(name, value)
        (tmp_path / "compete.py").write_text(block, encoding="utf-8")
        assert re.findall(r"^\d", run("compete.py", cwd=tmp_path), re.MULTILINE) == ["1", "2"]
        assert [file.name for file in tmp_path.iterdir()] == ["compete.py"]
        server.fault(401)
        told = run("compete.py", cwd=tmp_path)
    assert sorted(re.findall(r"^\w+ failed: ", told, re.MULTILINE)) == ["Alpha failed: ", "Beta failed: "]


def test_the_example_without_files_prints_a_leader_board() -> None:
    assert run(ROOT / "examples" / "from_python.py") == (
        "1. Throwers: [1, 6, 5] (100 points)\n2. Guessers: [6, 1] (70 points)\n"
    )


def test_the_example_of_a_report_writes_one(tmp_path: Path) -> None:
    assert run(ROOT / "examples" / "report.py", "told.html", cwd=tmp_path) == "the report is in told.html\n"
    assert "<h2>Leader board</h2>" in (tmp_path / "told.html").read_text(encoding="utf-8")
