"""Every named place is somewhere a run comes by, and a process that is to die there dies there."""

import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

import pytest

from mixseek.crash_points import CRASH_AT, CRASH_POINTS, _chosen, reach
from mixseek.errors import ConfigurationError
from mixseek.testing import ModelServer
from soak.arena import Arena, Team

ROOT = Path(__file__).parent.parent
WATCHED_ONLY_WHEN_CHOSEN = {"call.request_sent"}


@contextmanager
def reached_points() -> Iterator[set[str]]:
    """The points that are reached inside, by this thread and those begun inside."""
    points = set[str]()

    def look(frame: FrameType, event: str, _: object) -> None:
        if event == "call" and frame.f_code is reach.__code__:
            points.add(frame.f_locals["point"])

    threading.setprofile(look)
    sys.setprofile(look)
    try:
        yield points
    finally:
        sys.setprofile(None)
        threading.setprofile(None)


async def test_a_run_comes_by_every_named_point_and_by_no_other(tmp_path: Path) -> None:
    async with ModelServer() as server:
        arena = Arena(tmp_path, server.base_url, [Team("alpha")])
        arena.script(server)
        with reached_points() as points:
            await arena.play()
    assert points == set(CRASH_POINTS) - WATCHED_ONLY_WHEN_CHOSEN


def die_at(point: str, workspace: Path, base_url: str) -> int:
    Arena(workspace, base_url, [Team("alpha", members=0)])
    command = [sys.executable, "-m", "mixseek", "exec", "-w", str(workspace), "Name a city."]
    ran = subprocess.run(command, env={**os.environ, CRASH_AT: point}, capture_output=True, text=True, timeout=60)
    return ran.returncode


def test_a_process_dies_when_its_request_has_left(tmp_path: Path) -> None:
    with ModelServer(latency=0.5) as server:
        assert die_at("call.request_sent:2", tmp_path, server.base_url) == -signal.SIGKILL
        assert server.bill.total.requests == 2


def test_a_name_that_is_none_is_refused_with_those_there_are() -> None:
    code = "from mixseek.crash_points import reach"
    environ = {**os.environ, CRASH_AT: "journal.befor_commit"}
    ran = subprocess.run([sys.executable, "-c", code], env=environ, capture_output=True, text=True)
    assert ran.returncode == 1
    assert "MIXSEEK_CRASH_AT is 'journal.befor_commit', which names no crash point" in ran.stderr


@pytest.mark.parametrize("told", ["journal.before_commit:x", ":3", "journal.before_commit:-1"])
def test_a_time_that_is_none_is_refused(told: str) -> None:
    with pytest.raises(ConfigurationError):
        _chosen(told)


def test_the_page_lists_the_points_there_are() -> None:
    page = (ROOT / "docs" / "testing.md").read_text(encoding="utf-8")
    assert dict(re.findall(r"^\| `(\w+\.\w+)` \| (.*) \|$", page, re.MULTILINE)) == CRASH_POINTS
