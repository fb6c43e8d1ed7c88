"""What the examples and the pages show is what happens, and links lead somewhere."""

import re
import struct
import sys
from pathlib import Path

import pytest

from mixseek.events import Event
from mixseek.testing import ModelServer
from soak import forked

ROOT = Path(__file__).parent.parent


def run(*arguments: str | Path, cwd: Path | None = None) -> str:
    ran = forked.run([sys.executable, *arguments], capture_output=True, text=True, check=True, cwd=cwd)
    return str(ran.stdout)


def test_the_example_of_a_competition_ends_with_its_board_answer_and_bill() -> None:
    printed = run(ROOT / "examples" / "competition.py")
    board = re.findall(r"│ (\d) +│ (Team \w) +│ ([\d.]+) │ (\d) +│", printed)
    assert board == [("1", "Team A", "84.00", "3"), ("2", "Team B", "83.00", "2"), ("3", "Team C", "74.00", "3")]
    ending = printed.partition("Best answer (Team A):\n")[2]
    assert re.fullmatch(r"  Take stock, .*\n69 calls, \d+ tokens in, \d+ out\n", ending)


def test_the_example_of_prompts_ends_with_the_leader_board() -> None:
    assert run(ROOT / "examples" / "three_rounds.py").endswith(
        "**#1 Alpha (あなたのチーム) - スコア: 84.25/100 (ラウンド数: 3)**\n"
        "#2 Beta - スコア: 83.50/100 (ラウンド数: 3)\n"
        "#3 Gamma - スコア: 74.00/100 (ラウンド数: 3)\n"
    )


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


def test_the_index_leads_to_every_page() -> None:
    index = (ROOT / "docs" / "README.md").read_text(encoding="utf-8")
    pages = {page.name for page in (ROOT / "docs").glob("*.md")} - {"README.md"}
    assert pages - set(re.findall(r"\]\((\S+?)\)", index)) == set()


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


@pytest.mark.long
def test_the_example_of_a_picture_of_the_progress_makes_one(tmp_path: Path) -> None:
    run(ROOT / "examples" / "progress_picture.py", "progress.png", cwd=tmp_path)
    picture = (tmp_path / "progress.png").read_bytes()
    assert picture.startswith(b"\x89PNG")
    width, height = struct.unpack(">II", picture[16:24])
    assert (width, height > 200) == (1060, True)
