"""Keys from a keyring, in real processes: found last, asked for only what models need, and never in the way."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from mixseek.keys import Environment, find_key, source_of_key
from mixseek.testing import ModelServer, write_workspace
from soak import forked

SAFETY_SECONDS = 180
KEY = "canary-of-the-keyring-5e1f"
BACKEND = """
import json, os, time
from pathlib import Path
from keyring.backend import KeyringBackend
from keyring.errors import KeyringLocked

class Keyring(KeyringBackend):
    priority = 1

    def set_password(self, service, username, password):
        raise NotImplementedError

    def get_password(self, service, username):
        with Path(os.environ["ASKED_FOR"]).open("a") as asked:
            asked.write(f"{service} {username}\\n")
        kept = os.environ["KEPT"]
        if kept == "locked":
            raise KeyringLocked("canary in an error")
        if kept == "broken":
            raise SystemError("canary in an error")
        while kept == "hangs":
            time.sleep(1)
        return json.loads(kept).get(username)
"""


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    root = tmp_path / "workspace"
    root.mkdir()
    write_workspace(root, teams=1, members=0, max_rounds=1, base_url="http://127.0.0.1:9/v1")
    with (root / "configs" / "providers.toml").open("a") as providers:
        providers.write('api_key_env = "LOOP_KEY"\n')
        providers.write('[providers.unused]\nbase_url = "http://127.0.0.1:9/v1"\napi_key_env = "UNUSED_KEY"\n')
    (tmp_path / "own_keyring.py").write_text(BACKEND)
    return root


def _run(workspace: Path, *arguments: str, kept: str, **environ: str) -> subprocess.CompletedProcess[str]:
    place = workspace.parent
    around = os.environ | {
        "PYTHONPATH": os.pathsep.join([str(place), *sys.path]),
        "PYTHON_KEYRING_BACKEND": "own_keyring.Keyring",
        "ASKED_FOR": str(place / "asked"),
        "KEPT": kept,
    }
    return forked.run(
        [sys.executable, "-m", "mixseek", *arguments, "-w", str(workspace)],
        env=around | environ,
        capture_output=True,
        text=True,
        timeout=SAFETY_SECONDS,
        check=False,
    )


def _asked(workspace: Path) -> list[str]:
    file = workspace.parent / "asked"
    return file.read_text().splitlines() if file.exists() else []


def _models(ran: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    assert ran.returncode == 0, ran.stderr
    return {one["model"]: one for one in json.loads(ran.stdout)["models"]}


def test_a_key_of_the_keyring_is_found_and_told_by_its_place_alone(workspace: Path) -> None:
    ran = _run(workspace, "models", "list", "-f", "json", kept=json.dumps({"LOOP_KEY": KEY}))
    models = _models(ran)
    assert {one["key"] for one in models.values()} == {"LOOP_KEY is in the keyring"}
    assert all(one["ready"] for one in models.values())
    assert KEY not in ran.stdout + ran.stderr
    # Once, and for nothing that no model needs.
    assert _asked(workspace) == ["mixseek LOOP_KEY"]


@pytest.mark.parametrize("where", ["the environment", ".env"])
def test_the_keyring_is_not_asked_for_what_stands_elsewhere(workspace: Path, where: str) -> None:
    given = {"LOOP_KEY": "from-elsewhere"}
    if where == ".env":
        (workspace / ".env").write_text("LOOP_KEY=from-elsewhere\n")
        given = {}
    ran = _run(workspace, "models", "list", "-f", "json", kept=json.dumps({"LOOP_KEY": KEY}), **given)
    assert {one["key"] for one in _models(ran).values()} == {f"LOOP_KEY is in {where}"}
    assert _asked(workspace) == []


@pytest.mark.parametrize(
    ("kept", "told"),
    [("locked", "it is locked"), ("broken", "it failed: SystemError"), ("hangs", "it did not answer within 5 s")],
)
def test_a_keyring_that_cannot_be_asked_is_a_note_and_holds_nothing_up(workspace: Path, kept: str, told: str) -> None:
    ran = _run(workspace, "models", "list", kept=kept)
    assert ran.returncode == 0
    assert f"mixseek: the keyring was asked for a key, but {told}" in ran.stderr
    missing = "no key for the models of 'loopback': set LOOP_KEY in the environment or in .env of the workspace"
    assert f"{missing}; the keyring" in ran.stdout
    assert "canary" not in ran.stdout + ran.stderr
    assert "Traceback" not in ran.stderr
    assert _asked(workspace) == ["mixseek LOOP_KEY"]


def test_doctor_tells_of_a_keyring_that_is_not_there(workspace: Path) -> None:
    ran = _run(workspace, "doctor", "-f", "json", kept="{}", PYTHON_KEYRING_BACKEND="keyring.backends.fail.Keyring")
    told = [one for one in json.loads(ran.stdout)["findings"] if "keyring was asked" in one["message"]]
    assert [one["state"] for one in told] == ["warn"]
    assert "there is none on this machine" in told[0]["message"]
    assert "unlock it, or set the variables" in told[0]["remedy"]


def test_doctor_says_where_a_key_is(workspace: Path) -> None:
    ran = _run(workspace, "doctor", kept=json.dumps({"LOOP_KEY": KEY}))
    assert "LOOP_KEY is in the keyring" in ran.stdout
    assert KEY not in ran.stdout + ran.stderr


def test_a_run_uses_the_key_and_takes_it_out_of_what_it_keeps(workspace: Path) -> None:
    with ModelServer() as server:
        providers = workspace / "configs" / "providers.toml"
        providers.write_text(providers.read_text().replace("http://127.0.0.1:9/v1", server.base_url))
        server.on("leader-a", lambda _: f"I heard {KEY}")
        ran = _run(
            workspace,
            *("exec", "task", "-c", "configs/orchestrator.toml", "-v"),
            kept=json.dumps({"LOOP_KEY": KEY}),
        )
    assert ran.returncode == 0, ran.stderr
    assert "I heard [redacted]" in ran.stdout
    assert KEY not in ran.stdout + ran.stderr
    files = [file for file in workspace.rglob("*") if file.is_file()]
    assert len(files) > 3
    assert [file.name for file in files if KEY.encode() in file.read_bytes()] == []


def test_without_the_extra_nothing_is_asked(workspace: Path) -> None:
    hidden = "import sys; sys.modules['keyring'] = None; from mixseek.keys import *; "
    told = "print(find_key(Environment({}, {}), 'LOOP_KEY'), keyring_fault())"
    around = os.environ | {"PYTHONPATH": os.pathsep.join([str(workspace.parent), *sys.path])}
    ran = subprocess.run(
        [sys.executable, "-c", hidden + told],
        env=around | {"PYTHON_KEYRING_BACKEND": "own_keyring.Keyring"},
        capture_output=True,
        text=True,
        timeout=SAFETY_SECONDS,
        check=True,
    )
    assert ran.stdout.split() == ["None", "None"]


def test_a_plain_mapping_is_all_there_is() -> None:
    assert find_key({"A_KEY": "x"}, "A_KEY") == "x"
    assert find_key({}, "A_KEY") is None
    assert source_of_key({"A_KEY": "x"}, "A_KEY") == "environment"
    both = Environment({"A_KEY": "x"}, {"A_KEY": "y", "B_KEY": "z"})
    assert (find_key(both, "A_KEY"), source_of_key(both, "A_KEY")) == ("x", "environment")
    assert (find_key(both, "B_KEY"), source_of_key(both, "B_KEY")) == ("z", ".env")
