"""Canary keys through runs, faults, kills and every command: not one byte of them in any file or output."""

from pathlib import Path

import pytest

from mixseek.testing import write_workspace
from soak.secrets import CANARIES, Scenario, leaks, parrot, play
from tests.commands import run_here

KEY = "canary-of-a-door-88d1"


@pytest.mark.long
def test_no_key_shows_in_any_file_table_or_output(tmp_path: Path) -> None:
    with parrot() as (base_url, heard):
        scenario = Scenario(tmp_path, base_url)
        scenario.write()
        assert play(scenario, ["call.after_answer:4"]) == []
        assert set(CANARIES.values()) <= heard
        assert leaks(scenario) == []


def test_a_key_that_shows_is_found(tmp_path: Path) -> None:
    with parrot() as (base_url, _):
        scenario = Scenario(tmp_path, base_url)
        scenario.write()
        scenario.run("exec", "task", "--no-log-file")
        (scenario.root / "leak.txt").write_text(f"x{CANARIES['KEYRING_KEY']}y")
        assert leaks(scenario) == ["leak.txt: KEYRING_KEY"]


@pytest.mark.parametrize(
    "command",
    [
        ("exec", "task", "-c", f"{KEY}.toml"),
        ("rejudge", "last", "--evaluator", f"{KEY}.toml"),
        ("whatif", "last", "--stop-rule", f"{KEY}=1"),
        ("team", "task", "-c", f"{KEY}.toml"),
    ],
)
def test_a_key_of_a_variable_that_sounds_like_none_is_in_no_error(tmp_path: Path, command: tuple[str, ...]) -> None:
    write_workspace(tmp_path, base_url="http://127.0.0.1:9/v1")
    with (tmp_path / "configs" / "providers.toml").open("a") as providers:
        providers.write('api_key_env = "FRONT_DOOR"\ncolour = "a mistake"\n')
    ran = run_here(*command, "-w", str(tmp_path), variables={"FRONT_DOOR": KEY})
    assert ran.returncode == 2
    assert "[redacted]" in ran.stderr
    assert KEY not in ran.stdout + ran.stderr
