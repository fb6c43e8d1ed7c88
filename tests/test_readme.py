"""README.md and README.ja.md say the same, each in its own language, and leave no command out."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from mixseek.cli.app import COMMANDS
from mixseek.cli.starters import Starter, Template
from mixseek.testing import ModelServer

ROOT = Path(__file__).parent.parent
ENGLISH, JAPANESE = ((ROOT / name).read_text(encoding="utf-8") for name in ("README.md", "README.ja.md"))


def _headings(text: str) -> list[str]:
    outside = re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE)
    return re.findall(r"^(#+) ", outside, re.MULTILINE)


def _links(text: str) -> list[str]:
    found = re.findall(r"(?<!!)\[[^]]*\]\(([^)]+)\)", text)
    return [link for link in found if not link.startswith("README")]


def _commands(text: str) -> list[str]:
    """The first column of the table of commands."""
    return re.findall(r"^\| `(mixseek .*?)` \|", text, re.MULTILINE)


def test_both_have_the_same_sections() -> None:
    assert _headings(ENGLISH) == _headings(JAPANESE)


def test_both_have_the_same_blocks() -> None:
    blocks = [re.findall(r"^```.*?^```", text, re.DOTALL | re.MULTILINE) for text in (ENGLISH, JAPANESE)]
    assert blocks[0] == blocks[1]


def test_both_have_the_same_pictures_and_lead_to_the_same_pages() -> None:
    pictures = [re.findall(r"!\[[^]]+\]\(([^)]+)\)", text) for text in (ENGLISH, JAPANESE)]
    assert pictures[0] == pictures[1] != []
    assert _links(ENGLISH) == _links(JAPANESE)
    assert "(README.ja.md)" in ENGLISH
    assert "(README.md)" in JAPANESE


def test_both_have_every_command() -> None:
    assert _commands(ENGLISH) == _commands(JAPANESE)
    assert [line.split()[1] for line in _commands(ENGLISH)] == list(COMMANDS)


# --- the transcript ---------------------------------------------------------------------------------------------------


@pytest.mark.long
def test_the_demonstration_says_what_the_transcript_shows(tmp_path: Path) -> None:
    """The answer and all numbers aside; the models are those of a server, the words those of the command."""
    [shown] = re.findall(r"^```text\n(making a workspace.*?)^```", ENGLISH, re.DOTALL | re.MULTILINE)
    said = {_stable(line) for line in _said(tmp_path).splitlines()}
    answer = shown.partition("Best answer:")[2].partition("\nthe report")[0].splitlines()[1:]
    lines = [line for line in shown.splitlines() if line not in answer and line != "…"]
    assert [line for line in lines if _stable(line) not in said] == []


def _said(place: Path) -> str:
    root = place / "mixseek-demo"
    for name, text in Starter(Template.DEMO, "en").files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text, encoding="utf-8")
    with ModelServer() as server:
        (root / "configs" / "providers.toml").write_text(f'[providers.local]\nbase_url = "{server.base_url}"\n')
        ran = subprocess.run(
            [sys.executable, "-m", "mixseek", "demo"],
            cwd=place,
            env={name: value for name, value in os.environ.items() if not name.startswith("MIXSEEK_")},
            capture_output=True,
            text=True,
            check=True,
            timeout=120,
        )
    return f"making a workspace in {root}\n{ran.stderr}{ran.stdout}"


def _stable(line: str) -> str:
    """A line without its numbers, bars, places and ids, and with one word for all teams, reasons and costs."""
    line = re.sub(r"\S*/(?=mixseek-demo)|[0-9a-f]{8}-[-0-9a-f]+", "", line)
    line = re.sub(r"\b(steady|pair|lively)\b", "TEAM", line, flags=re.IGNORECASE)
    line = re.sub(r"(target_score|max_rounds)_reached", "REASON", line)
    line = re.sub(r"[\d.]+ USD|cost not known", "COST", line)
    return " ".join(re.findall(r"[A-Za-z]{2,}", line))
