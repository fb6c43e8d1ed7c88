"""``mixseek demo``: a competition for whoever has no key, on the embedded model."""

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from mixseek.cli.starters import Starter, Template
from mixseek.testing import ModelServerProcess
from soak import forked

FILES = Starter(Template.DEMO, "en").files


class Ran(NamedTuple):
    code: int
    out: str
    err: str


def _demo(*arguments: str, cwd: Path, **variables: str) -> Ran:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("MIXSEEK_")}
    ran = forked.run(
        [sys.executable, "-m", "mixseek", "demo", *arguments],
        capture_output=True,
        text=True,
        cwd=cwd,
        env={**kept, **variables},
        timeout=500,
        check=False,
    )
    return Ran(ran.returncode, ran.stdout, ran.stderr)


@pytest.fixture(scope="module")
def base_url() -> Iterator[str]:
    with ModelServerProcess() as server:
        yield server.base_url


def _served(root: Path, base_url: str) -> Path:
    """A workspace of the demonstration whose model is a server."""
    for name, text in FILES.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    (root / "configs" / "providers.toml").write_text(f'[providers.local]\nbase_url = "{base_url}"\n')
    return root


@pytest.mark.long
def test_it_plays_on_the_embedded_model_and_tells_how_to_go_on(tmp_path: Path) -> None:
    # Short answers: what they say is not looked at.
    short = {"MIXSEEK_TEAM__LEADER__MAX_TOKENS": "24"}
    if "MIXSEEK_CACHE" in os.environ:
        short["MIXSEEK_CACHE"] = os.environ["MIXSEEK_CACHE"]
    ran = _demo("--rounds", "1", cwd=tmp_path, **short)
    root = tmp_path / "mixseek-demo"
    assert (ran.code, [name for name in FILES if not (root / name).is_file()]) == (0, []), ran.err
    assert f"making a workspace in {root}\n" in ran.err
    assert all(part in ran.out for part in ("Leader board\n", "Scores by round\n", "Best answer: "))
    [report] = (root / "reports").glob("*.html")
    assert f"the report is in {report}" in ran.err
    steady = (root / "configs" / "agents" / "steady.toml").read_text().splitlines()
    [line] = [number for number, text in enumerate(steady, 1) if text.startswith("model =")]
    assert f'{root}/configs/agents/steady.toml, line {line}: model = "openai:gpt-5-mini"' in ran.err
    assert "not how good an answer can be" in ran.err


def test_a_second_time_the_workspace_is_used_as_it_is(tmp_path: Path, base_url: str) -> None:
    root = _served(tmp_path / "mine", base_url)
    (root / "configs" / "judgment.toml").write_text('model = "none"\n')
    ran = _demo("Why do cats purr?", "-w", "mine", "--rounds", "2", "-f", "json", cwd=tmp_path)
    summary = json.loads(ran.out)
    assert (ran.code, summary["user_prompt"], summary["total_teams"]) == (0, "Why do cats purr?", 3)
    assert {entry["exit_reason"] for entry in summary["team_results"]} == {"max_rounds_reached"}
    assert "making a workspace" not in ran.err
    assert (root / "configs" / "judgment.toml").read_text() == 'model = "none"\n'


def test_without_an_embedded_model_nothing_is_said_of_switching(tmp_path: Path, base_url: str) -> None:
    root = _served(tmp_path / "mine", base_url)
    (root / "configs" / "providers.toml").write_text(f'[providers.own]\nbase_url = "{base_url}"\n')
    for file in (root / "configs" / "agents").iterdir():
        file.write_text(file.read_text().replace("local:smollm2-135m", "own:model"))
    ran = _demo("-w", "mine", "--rounds", "1", cwd=tmp_path)
    assert ran.code == 0
    assert "OPENAI_API_KEY" not in ran.err


def test_the_workspace_of_the_environment_is_left_alone(tmp_path: Path, base_url: str) -> None:
    (tmp_path / "real").mkdir()
    _served(tmp_path / "mixseek-demo", base_url)
    assert _demo("--rounds", "1", cwd=tmp_path, MIXSEEK_WORKSPACE=str(tmp_path / "real")).code == 0
    assert list((tmp_path / "real").iterdir()) == []


def test_another_workspace_is_not_played_in(tmp_path: Path) -> None:
    (tmp_path / "configs").mkdir()
    (tmp_path / "configs" / "orchestrator.toml").write_text("# somebody's own, and maybe expensive\n")
    ran = _demo("-w", str(tmp_path), cwd=tmp_path)
    assert ran == Ran(2, "", f"mixseek: {str(tmp_path)!r} is another workspace: name a new directory with -w\n")


def test_what_cannot_be_played_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    assert _demo("--rounds", "11", cwd=tmp_path).code == 2
    assert _demo(" ", cwd=tmp_path).code == 2
    assert list(tmp_path.iterdir()) == []
