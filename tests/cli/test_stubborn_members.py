"""Members that let nothing end them: whatever they do, a command comes to its end and says whom it left."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from mixseek.testing import ModelServer, write_workspace

MEMBERS = """
import asyncio
import time
from mixseek import strangers
from mixseek.agents.member import BaseMemberAgent, readiness
from mixseek.models.member_agent import MemberAgentResult

strangers.LET_GO_SECONDS = readiness.CLEAN_UP_SECONDS = readiness._LAST_SECONDS = 0.2


async def never_end():
    while True:
        try:
            await asyncio.sleep(1000)
        except BaseException:
            pass


class NeverEnds(BaseMemberAgent):
    async def execute(self, task, context=None, **kwargs):
        await never_end()


class HangsInAThread(BaseMemberAgent):
    async def execute(self, task, context=None, **kwargs):
        await asyncio.to_thread(time.sleep, 1000)


class NeverLetsGo(BaseMemberAgent):
    async def execute(self, task, context=None, **kwargs):
        return MemberAgentResult.success("help", self.agent_name, self.agent_type)

    async def cleanup(self):
        await never_end()
"""
MEMBER = """
[[team.members]]
name = "stubborn"
type = "custom"
model = "loopback:member-1"
description = "Does not listen."
timeout_seconds = 1
[team.members.plugin]
path = "stubborn.py"
agent_class = "{name}"
"""
TEAM = "configs/agents/team-a.toml"


@pytest.fixture
def server() -> Iterator[ModelServer]:
    with ModelServer() as running:
        yield running


@pytest.mark.parametrize("name", ["NeverEnds", "NeverLetsGo"])
@pytest.mark.parametrize(
    "command",
    [["exec", "the task"], ["team", "the task", "-c", TEAM], ["member", "the task", "-c", TEAM, "--name", "stubborn"]],
    ids=["exec", "team", "member"],
)
def test_a_command_ends_whatever_a_member_does_and_names_the_member_that_it_left(
    tmp_path: Path, server: ModelServer, command: list[str], name: str
) -> None:
    ran = _run(tmp_path, server, command, name)
    asked_alone = name == "NeverEnds" and command[0] == "member"
    assert ran.returncode == (2 if asked_alone else 0), ran.stderr
    assert "member 'stubborn' does not end although it was cancelled, and is left as it is" in ran.stderr
    _assert_quiet(ran)


def test_a_thread_that_hangs_keeps_no_result_back(tmp_path: Path, server: ModelServer) -> None:
    ran = _run(tmp_path, server, ["exec", "the task"], "HangsInAThread")
    assert (ran.returncode, "Best answer" in ran.stdout) == (0, True), ran.stderr
    assert "left in threads, since nothing ends them: 1 call" in ran.stderr
    _assert_quiet(ran)


def _assert_quiet(ran: subprocess.CompletedProcess[str]) -> None:
    for word in ("Traceback", "destroyed", "nanobind"):
        assert word not in ran.stderr


def _run(tmp_path: Path, server: ModelServer, command: list[str], name: str) -> subprocess.CompletedProcess[str]:
    write_workspace(tmp_path, teams=1, members=0, max_rounds=1, base_url=server.base_url)
    team = tmp_path / TEAM
    team.write_text(team.read_text() + MEMBER.format(name=name))
    (tmp_path / "stubborn.py").write_text(MEMBERS)
    return subprocess.run(
        [sys.executable, "-m", "mixseek", *command, "-w", str(tmp_path)],
        env={**os.environ, "MIXSEEK_ONLY_LOOPBACK": "1"},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
