"""MCP servers are looked at when files are read: what they lack here is an error before a run, otherwise a note."""

import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from mixseek.config.manager import ConfigurationManager
from mixseek.errors import ConfigurationError
from mixseek.testing import write_workspace

MEMBER = '[[team.members]]\nname = "m"\ntype = "plain"\nmodel = "scripted:m"\n'
PATH = {"PATH": str(Path(sys.executable).parent)}


def workspace_with(root: Path, servers: str) -> Path:
    file = write_workspace(root, teams=1)
    team = root / "configs" / "agents" / "team-a.toml"
    team.write_text(team.read_text() + MEMBER + servers)
    return file


def notes(root: Path, servers: str, environ: Mapping[str, str]) -> list[str]:
    workspace_with(root, servers)
    report = ConfigurationManager(root, environ=environ).validate("configs/agents/team-a.toml")
    assert report.problems == ()
    return [str(note).removeprefix("configs/agents/team-a.toml: team.members[0].") for note in report.notes]


def server(**fields: str) -> str:
    return "[team.members.mcp_servers.x]\n" + "".join(f"{name} = {value}\n" for name, value in fields.items())


def test_a_program_that_is_not_there_is_told_before_a_run_and_noted_otherwise(tmp_path: Path) -> None:
    missing = "mcp_servers.x.command: there is no program 'no-such-program': install it, or give its path"
    servers = server(command='"no-such-program"')
    assert notes(tmp_path, servers, PATH) == [missing]
    manager = ConfigurationManager(tmp_path, environ=PATH)
    with pytest.raises(ConfigurationError, match="there is no program 'no-such-program'"):
        manager.load_run_settings("configs/orchestrator.toml", for_a_run=True)


def test_a_program_is_found_on_the_path_and_in_the_workspace(tmp_path: Path) -> None:
    program = tmp_path / "servers" / "mine"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    assert notes(tmp_path, server(command='"python"'), PATH) == []
    assert notes(tmp_path, server(command='"servers/mine"'), PATH) == []
    assert notes(tmp_path, server(command='"servers/other"'), PATH) != []


def test_every_variable_that_is_not_set_is_told_where_it_stands(tmp_path: Path) -> None:
    servers = server(
        command='"python"', args='["--id", "${SHOP_ID}"]', env='{TOKEN = "${SHOP_TOKEN}", LANG = "C"}'
    ) + server(url='"https://host/${SHOP_ID}"', headers='{Authorization = "Bearer ${SHOP_TOKEN}"}').replace("x]", "y]")
    told = [f"the variable {name} is not set: set it, or write it into .env" for name in ("SHOP_ID", "SHOP_TOKEN")]
    assert sorted(notes(tmp_path, servers, PATH)) == [
        f"mcp_servers.x.args[1]: {told[0]}",
        f"mcp_servers.x.env.TOKEN: {told[1]}",
        f"mcp_servers.y.headers.Authorization: {told[1]}",
        f"mcp_servers.y.url: {told[0]}",
    ]
    (tmp_path / ".env").write_text("SHOP_TOKEN=t\n")
    assert notes(tmp_path, servers, {**PATH, "SHOP_ID": "7"}) == []


def test_a_missing_package_is_told_with_the_extra_that_brings_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "fastmcp", None)
    told = notes(tmp_path, server(command='"python"'), PATH)
    assert told == ['mcp_servers: needs a package: pip install "mixseek[mcp]"']
    assert notes(tmp_path, "", PATH) == []
