"""Every code block of every page runs: Python and commands are run, files are checked, queries find something.

A block that begins with a comment that is a path (``# configs/evaluator.toml``) is a file of the workspace its page is
about; JSON, which has no comments, has the path behind the language. All other Python is a program, and all other TOML
a part of a file. In a block of language ``console`` a line after ``$`` is a command.
"""

import asyncio
import json
import os
import re
import runpy
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import duckdb
import pydantic_ai.models
import pytest
from markdown_it import MarkdownIt

from mixseek.config.manager import ConfigurationManager
from mixseek.orchestrator import Orchestrator, load_orchestrator_settings
from mixseek.testing import ModelServer, write_workspace
from soak import forked

ROOT = Path(__file__).parent.parent
# README.ja.md has the blocks of README.md, as test_readme.py sees to.
PAGES = sorted({*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")} - {ROOT / "README.ja.md"})
# Pictures and what a program printed; there is nothing in them to run.
SHOWN = {"text", "mermaid"}
# Blocks that are not run here, each with the reason. A place is a page and the heading above the block.
NOT_RUN = {
    "docs/metrics.md#ExitCode check.py": "wants a submission beside it; evaluator/metrics/test_exit_code.py runs it",
}
# Blocks that show a part of a file of this project.
QUOTED = {"docs/architecture.md#The walk of one task": "src/mixseek/round_controller/controller.py"}
# What a program is started with; {id} is the execution that was played in the workspace.
ARGUMENTS = {
    "docs/python.md#With the files of a workspace": [".", "Name the capital of Japan."],
    "docs/python.md#Stopping a run": [".", "Name the capital of Japan."],
    "docs/rejudge.md#From Python": ["{id}"],
    "docs/rejudge.md#Judging again from Python": ["{id}"],
    "docs/report.md#From Python": ["{id}"],
    "docs/results.md#The journal": ["{id}"],
    "docs/resume.md#From Python": ["{id}"],
}
_TEAM = '[team]\nteam_id = "t"\nteam_name = "T"\n[team.leader]\nmodel = "ollama:llama3"\n'
_MEMBER = '[[team.members]]\nname = "m"\ntype = "plain"\nmodel = "ollama:llama3"\n'
_ORCHESTRATOR = '[orchestrator]\n[[orchestrator.teams]]\nconfig = "configs/agents/team-a.toml"\n'
# What stands above a part of a file, and where the whole is written, by how the part begins.
WHOLE = {
    "[[team.members]]": ("configs/agents/page.toml", _TEAM),
    "[team.members.": ("configs/agents/page.toml", _TEAM + _MEMBER),
    "[team.budget]": ("configs/agents/page.toml", _TEAM),
    "[team.leader]": ("configs/agents/page.toml", '[team]\nteam_id = "t"\nteam_name = "T"\n'),
    "[team": ("configs/agents/page.toml", ""),
    "[agent": ("configs/agents/page.toml", ""),
    "[orchestrator": ("configs/page.toml", ""),
    "[prices": ("configs/page.toml", _ORCHESTRATOR),
    "[budget": ("configs/page.toml", _ORCHESTRATOR),
    "[storage": ("configs/page.toml", _ORCHESTRATOR),
    "[[metrics]]": ("configs/evaluator.toml", ""),
    "[providers": ("configs/providers.toml", ""),
    "[prompt_builder": ("configs/prompt_builder.toml", ""),
}
# Pages whose commands begin with nothing are run in an empty directory, all others in a workspace that was played.
FROM_NOTHING = {"README.md", "docs/quickstart.md"}
# Programs of commands that are not run: they would set up, test or demonstrate this project, or install something.
LEFT_OUT = ("make", "git", "pip", "python", "pre-commit", "apt-get")
SAFETY_SECONDS = 300


@dataclass(frozen=True)
class Block:
    """A fenced block of a page."""

    page: Path
    heading: str
    language: str
    text: str
    file: str | None

    @property
    def place(self) -> str:
        """Where a reader finds it."""
        return f"{self.page.relative_to(ROOT)}#{self.heading}" + (f" {self.file}" if self.file else "")


def _blocks(page: Path) -> Iterator[Block]:
    tokens = MarkdownIt().parse(page.read_text(encoding="utf-8"))
    heading = ""
    for number, token in enumerate(tokens):
        if token.type == "heading_open":
            heading = tokens[number + 1].content
        if token.type == "fence":
            language, _, file = token.info.partition(" ")
            yield Block(page, heading, language, token.content, file or _file_of(token.content))


def _file_of(text: str) -> str | None:
    first = re.match(r"(?:# |\{# )([\w./-]+\.\w+)(?: #\})?\n", text)
    return first[1] if first else None


BLOCKS = [block for page in PAGES for block in _blocks(page)]


def _in(*languages: str) -> "pytest.MarkDecorator":
    chosen = [block for block in BLOCKS if block.language in languages and block.place not in {*NOT_RUN, *QUOTED}]
    return pytest.mark.parametrize("block", chosen, ids=lambda block: block.place)


@dataclass(frozen=True)
class Played:
    """A workspace in which two teams have played two rounds on a server that still answers."""

    root: Path
    execution_id: str
    server: ModelServer


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Played]:
    root = tmp_path_factory.mktemp("played")
    with ModelServer() as server:
        file = write_workspace(root, teams=2, members=1, max_rounds=2, base_url=server.base_url)
        summary = asyncio.run(
            Orchestrator(load_orchestrator_settings(file, root)).execute("Name the capital of Japan.")
        )
        yield Played(root, summary.execution_id, server)


@pytest.fixture
def workspace(played: Played, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the played workspace as the current directory; well-known models are those of the server."""
    root = tmp_path / "my-workspace"
    shutil.copytree(played.root, root)
    monkeypatch.chdir(root)
    monkeypatch.setenv("OLLAMA_BASE_URL", played.server.base_url)
    monkeypatch.setenv("LOGFIRE_BASE_URL", played.server.url)
    for name, value in played.server.environment.items():
        monkeypatch.setenv(name, value)
    return root


def _write_files_of(page: Path, root: Path) -> None:
    for block in BLOCKS:
        if block.page == page and block.file:
            _write(root / block.file, block.text)


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def test_every_block_says_in_which_language_it_is() -> None:
    known = {"python", "toml", "json", "sql", "jinja", "console", "bash", *SHOWN}
    assert [block.place for block in BLOCKS if block.language not in known] == []


def test_what_is_not_run_is_there() -> None:
    assert {*NOT_RUN, *QUOTED, *ARGUMENTS} <= {block.place for block in BLOCKS}


@_in("python")
def test_python_runs(block: Block, workspace: Path, played: Played, monkeypatch: pytest.MonkeyPatch) -> None:
    _write_files_of(block.page, workspace)
    arguments = [argument.format(id=played.execution_id) for argument in ARGUMENTS.get(block.place, [])]
    monkeypatch.setattr(sys, "argv", ["program.py", *arguments])
    # The page on testing has agents of pydantic-ai speak to a server of this machine.
    monkeypatch.setattr(pydantic_ai.models, "ALLOW_MODEL_REQUESTS", True)
    program = workspace / (block.file or "program.py")
    _write(program, block.text)
    made = runpy.run_path(str(program), run_name=program.stem if block.file else "__main__")
    for test in [value for name, value in made.items() if name.startswith("test_")]:
        test()


@pytest.mark.parametrize("block", [block for block in BLOCKS if block.place in QUOTED], ids=lambda block: block.place)
def test_a_quotation_is_what_the_file_says(block: Block) -> None:
    source = [line.strip() for line in (ROOT / QUOTED[block.place]).read_text(encoding="utf-8").splitlines()]
    quoted = [line.partition("  #")[0].strip() for line in block.text.splitlines()]
    assert [line for line in quoted if line not in source] == []


@_in("toml")
def test_a_file_is_right(block: Block, workspace: Path) -> None:
    _write_files_of(block.page, workspace)
    name, above = (block.file, "") if block.file else _whole(block)
    _write(workspace / name, above + block.text)
    report = ConfigurationManager(workspace, environ={}).validate(name)
    assert report.problems == ()


def _whole(block: Block) -> tuple[str, str]:
    begins = next(line for line in block.text.splitlines() if line and not line.startswith("#"))
    return next(where for beginning, where in WHOLE.items() if begins.startswith(beginning))


@_in("jinja")
def test_a_template_is_right(block: Block, workspace: Path) -> None:
    _write_files_of(block.page, workspace)
    assert block.file is not None
    assert ConfigurationManager(workspace, environ={}).validate(Path(block.file).parent).problems == ()


@_in("json")
def test_json_is_json(block: Block) -> None:
    json.loads(block.text)


@_in("sql")
def test_a_query_finds_something(block: Block, played: Played) -> None:
    with duckdb.connect(str(played.root / "mixseek.db"), read_only=True) as db:
        assert db.sql(block.text).fetchall()


# --- commands ---------------------------------------------------------------------------------------------------------


def _script(page: Path) -> str:
    return "\n".join(_commands(block) for block in BLOCKS if block.page == page)


def _commands(block: Block) -> str:
    """What a reader would type: a ``bash`` block, what stands after ``$`` in a ``console`` block, and a file."""
    if block.language == "bash":
        return block.text
    if block.file:
        return f"mkdir -p {Path(block.file).parent}\ncat > {block.file} <<'END OF FILE'\n{block.text}END OF FILE"
    lines = re.sub(r"\\\n(> )?", " ", block.text).splitlines()
    return "\n".join(line[2:] for line in lines if line.startswith("$ ")) if block.language == "console" else ""


def _program(path: Path, text: str) -> None:
    _write(path, f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)


TYPED = sorted({block.page for block in BLOCKS if block.language in {"bash", "console"} and "mixseek" in block.text})


@pytest.mark.parametrize("page", TYPED, ids=lambda page: page.name)
def test_the_commands_of_a_page_run(page: Path, workspace: Path, tmp_path: Path) -> None:
    place = workspace
    if str(page.relative_to(ROOT)) in FROM_NOTHING:
        place = tmp_path / "clone"
    else:
        (workspace / "my-workspace").symlink_to(workspace)
    programs = tmp_path / "programs"
    for name in LEFT_OUT:
        _program(programs / name, ":")
    _program(programs / "mixseek", f'{forked.shell_command("-m", "mixseek")} "$@"')
    _write(place / ".venv/bin/activate", "")
    ran = subprocess.run(
        ["bash", "-e", "-o", "pipefail", "-c", _script(page)],
        cwd=place,
        env=os.environ | {"HOME": str(tmp_path), "PATH": f"{programs}:{os.environ['PATH']}"} | _where(place, workspace),
        capture_output=True,
        text=True,
        timeout=SAFETY_SECONDS,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr


def _where(place: Path, workspace: Path) -> dict[str, str]:
    """Leaders of a workspace that a page makes answer by the server: the embedded model has tests of its own."""
    if place == workspace:
        return {"MIXSEEK_WORKSPACE": str(workspace)}
    return {"MIXSEEK_TEAM__LEADER__MODEL": "openai:any"}
