"""What the README and the examples show is what happens."""

import asyncio
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")


def without_clock(text: str) -> str:
    return re.sub(r"現在日時: \S+", "現在日時: …", text)


def test_the_example_prints_what_the_readme_shows() -> None:
    ran = subprocess.run(
        [sys.executable, ROOT / "examples" / "three_rounds.py"], capture_output=True, text=True, check=True
    )
    [transcript] = re.findall(r"The end of what it prints:\n\n```\n(.*?)```", README, re.DOTALL)
    assert without_clock(ran.stdout).endswith(without_clock(transcript))


def test_the_readmes_python_builds_a_prompt(tmp_path: Path) -> None:
    [block] = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    names: dict[str, Any] = {}
    exec(block, names)
    prompt = asyncio.run(names["first_prompt"](tmp_path))
    assert prompt.startswith("# ユーザから指定されたタスク\nデータ分析タスク\n")


def test_the_readmes_workspace_transcript_is_what_config_init_prints(tmp_path: Path) -> None:
    [shown] = re.findall(r"\$ \.venv/bin/mixseek config init -w my-workspace\n(.*?)```", README, re.DOTALL)
    ran = subprocess.run(
        [sys.executable, "-m", "mixseek", "config", "init", "-w", "my-workspace"],
        capture_output=True,
        text=True,
        check=True,
        cwd=tmp_path,
    )
    assert ran.stdout == shown


def test_every_link_between_documents_leads_somewhere() -> None:
    pages = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md", *(ROOT / "docs").rglob("*.md")]
    broken = [
        f"{page.relative_to(ROOT)}: {target}"
        for page in pages
        for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8"))
        if not (page.parent / target).exists()
    ]
    assert broken == []
