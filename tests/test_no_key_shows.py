"""Canary keys through runs, faults, kills and every command: not one byte of them in any file or output."""

from pathlib import Path

from soak.secrets import CANARIES, Scenario, leaks, parrot, play


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
