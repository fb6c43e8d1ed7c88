"""Canary keys in environment, ``.env`` and a keyring, through everything that can go wrong: nothing may show a byte.

The server here repeats what it is sent: in refusals, in errors, and in answers. Teams play on it, are killed and go on,
and every command that shows or writes something is run, with logs of everything. Then each file of the workspace, each
table and each byte that was printed is searched for the keys, as they are and as they are usually spelt.
``python -m soak.secrets`` kills at more places than the test.
"""

import argparse
import asyncio
import base64
import json
import os
import signal
import sqlite3
import sys
import tempfile
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

import duckdb

from mixseek.crash_points import CRASH_AT
from mixseek.storage.journal import Journal
from soak import forked

__all__ = ["CANARIES", "Scenario", "leaks", "parrot"]

CANARIES: Final = {
    "ENVIRONMENT_KEY": "canary/environment+7f3c9a1b2d4e6f80",
    "DOTENV_KEY": "canary-dotenv-93d05ce8b7a1f264",
    "KEYRING_KEY": "canary_keyring_c15a7e3f9b20d846",
    "DOOR_OF_TOOLS": "canary-tools-5be0927f41c8d36a",
}
KILLS: Final = (
    "call.before_request:3",
    "call.after_answer:4",
    "journal.after_commit:9",
    "round.kept",
    "team.before_end",
)
_SAFETY_SECONDS: Final = 300
_BACKEND = """
import json, os
from keyring.backend import KeyringBackend

class Keyring(KeyringBackend):
    priority = 1

    def set_password(self, service, username, password):
        raise NotImplementedError

    def get_password(self, service, username):
        return json.loads(os.environ["KEPT_" + "IN_KEYRING"]).get(username) if service == "mixseek" else None
"""


# --- a server that repeats what it hears ------------------------------------------------------------------------------


class _Parrot(BaseHTTPRequestHandler):
    """Its models are named by what it does: ``refuses``, ``fails``, ``repeats``, ``works`` and ``judges``.

    Whoever takes it for a server of tools is refused.
    """

    heard: set[str]

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        key = (self.headers["Authorization"] or "").removeprefix("Bearer ")
        self.heard.add(key)
        does = str(body.get("model", "refuses")).partition("-")[0]
        told = f"Incorrect API key provided: {key}. You sent {dict(self.headers)!r} for {quote(key, safe='')}"
        if does in ("refuses", "fails"):
            self._send(401 if does == "refuses" else 500, {"error": {"message": told, "code": key, "param": [key]}})
        else:
            self._send(200, _completion(body, _answer(does, key)))

    def _send(self, status: int, value: dict[str, Any]) -> None:
        content = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.send_header("x-request-id", self.headers["Authorization"] or "")
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  # the name the library gives it
        """Print nothing."""


def _answer(does: str, key: str) -> str:
    spelt = base64.b64encode(f"Authorization: Bearer {key}".encode()).decode()
    if does == "judges":
        return json.dumps({"evaluator_comment": f"it says {key}", "score": 50})
    return f"the key is {key}, or {spelt}, or {quote(key)}" if does == "repeats" else "an honest answer"


def _completion(body: dict[str, Any], text: str) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "content": text}
    named = [tool["function"]["name"] for tool in body.get("tools", [])]
    asked = [one for one in body["messages"] if one["role"] == "tool"]
    if named and (named[0] == "final_result" or not asked):
        arguments = text if named[0] == "final_result" else json.dumps({"task": text})
        call = {"id": "c1", "type": "function", "function": {"name": named[0], "arguments": arguments}}
        message = {"role": "assistant", "content": None, "tool_calls": [call]}
    return {
        "id": "x",
        "object": "chat.completion",
        "created": 0,
        "model": body["model"],
        "choices": [{"index": 0, "message": message, "finish_reason": "tool_calls" if named and not asked else "stop"}],
        "usage": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2},
    }


@contextmanager
def parrot() -> Iterator[tuple[str, set[str]]]:
    """The address of such a server, and the keys it has heard."""
    heard: set[str] = set()
    handler = type("Handler", (_Parrot,), {"heard": heard})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/v1", heard
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


# --- a workspace, and commands in it ----------------------------------------------------------------------------------


@dataclass
class Scenario:
    """A workspace whose teams have keys from three places, and all that was printed by commands in it."""

    place: Path
    base_url: str
    printed: list[bytes] = field(default_factory=list)

    @property
    def root(self) -> Path:
        """The workspace; what surrounds it is not searched."""
        return self.place / "workspace"

    def write(self) -> None:
        """Make the files of the workspace, and the keyring."""
        (self.place / "canary_keyring.py").write_text(_BACKEND)
        for name, text in self._files().items():
            file = self.root / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text, encoding="utf-8")

    def _files(self) -> dict[str, str]:
        servers = {"env": "ENVIRONMENT_KEY", "dot": "DOTENV_KEY", "ring": "KEYRING_KEY"}
        providers = "".join(
            f'[providers.{name}]\nbase_url = "{self.base_url}"\napi_key_env = "{variable}"\n'
            for name, variable in servers.items()
        )
        teams = {
            "honest": ("ring:works", "env:works"),
            "chatty": ("dot:repeats", "ring:repeats"),
            "burnt": ("env:refuses", "dot:refuses"),
            "flaky": ("ring:fails", "dot:fails"),
            "unlucky": ("dot:works", "env:fails"),
        }
        listed = "".join(f'[[orchestrator.teams]]\nconfig = "configs/agents/{name}.toml"\n' for name in teams)
        return {
            ".env": f"DOTENV_KEY='{CANARIES['DOTENV_KEY']}'\n",
            "configs/providers.toml": providers,
            "configs/evaluator.toml": 'default_model = "env:judges"\nmax_retries = 1\n',
            "configs/other.toml": 'default_model = "dot:judges"\nmax_retries = 0\n',
            "configs/broken.toml": 'default_model = "ring:refuses"\nmax_retries = 0\n',
            "configs/judgment.toml": 'model = "dot:fails"\nmax_retries = 0\n',
            "configs/orchestrator.toml": f"[orchestrator]\nmax_rounds = 2\nmax_retries_per_team = 1\n{listed}",
            **{f"configs/agents/{name}.toml": _team(name, *models) for name, models in teams.items()},
            "configs/agents/tools.toml": self._tools(),
        }

    def _tools(self) -> str:
        """A member whose server of tools wants a key in a header."""
        return (
            '[agent]\nname = "tools"\ntype = "plain"\nmodel = "env:works"\ndescription = "has tools"\nmax_retries = 0\n'
            f'[agent.mcp_servers.shop]\nurl = "{self.base_url}"\n'
            'headers = { Authorization = "Bearer ${DOOR_OF_TOOLS}" }\n'
        )

    def run(self, *arguments: str, crash_at: str = "") -> int:
        """Run a command in the workspace and keep what it prints."""
        ran = forked.run(
            [sys.executable, "-m", "mixseek", *arguments],
            cwd=self.place,
            env=os.environ | self._environ(crash_at),
            capture_output=True,
            timeout=_SAFETY_SECONDS,
        )
        self.printed += [ran.stdout, ran.stderr]
        return ran.returncode

    def _environ(self, crash_at: str) -> dict[str, str]:
        return {
            CRASH_AT: crash_at,
            # The keyring is beside the workspace.
            "PYTHONPATH": os.pathsep.join([str(self.place), *filter(None, sys.path)]),
            "ENVIRONMENT_KEY": CANARIES["ENVIRONMENT_KEY"],
            "DOOR_OF_TOOLS": CANARIES["DOOR_OF_TOOLS"],
            "KEPT_IN_KEYRING": json.dumps({"KEYRING_KEY": CANARIES["KEYRING_KEY"]}),
            "PYTHON_KEYRING_BACKEND": "canary_keyring.Keyring",
            "MIXSEEK_WORKSPACE": str(self.root),
            "MIXSEEK_LOG_LEVEL": "DEBUG",
        }


def _team(name: str, leader: str, member: str) -> str:
    return (
        f'[team]\nteam_id = "{name}"\nteam_name = "Team {name}"\n'
        f'[team.leader]\nmodel = "{leader}"\nmax_retries = 1\n'
        f'[[team.members]]\nname = "m"\ntype = "plain"\nmodel = "{member}"\ndescription = "helps"\nmax_retries = 0\n'
    )


def play(scenario: Scenario, kills: Sequence[str]) -> list[str]:
    """A run, runs that are killed and go on, and every command over them; returns what went otherwise."""
    faults = [] if scenario.run("exec", "task", "-v", "--report") == 1 else ["exec did not end with 1"]
    for place in kills:
        if scenario.run("exec", "task", "-v", crash_at=place) != -signal.SIGKILL:
            faults.append(f"exec was not killed at {place}")
        scenario.run("resume", "-v")
    return [*faults, *(f"{' '.join(each)} was killed" for each in _commands() if scenario.run(*each) < 0)]


def _commands() -> Iterator[Sequence[str]]:
    """All that shows or writes something."""
    for output in ("html", "md", "json", "csv"):
        yield "export", "last", "-f", output, "--output", f"workspace/export.{output}"
    yield from (("history",), ("show", "last"), ("show", "last", "-f", "json"), ("board", "last"), ("board",))
    yield from (("models", "list"), ("models", "list", "-f", "json"), ("models", "check", "--timeout", "20"))
    yield from (("doctor",), ("config", "show"), ("config", "validate"))
    yield "member", "task", "-c", "configs/agents/burnt.toml", "-v"
    yield "member", "task", "-c", "configs/agents/tools.toml", "-v"
    yield "team", "task", "-c", "configs/agents/chatty.toml", "-v"
    yield "evaluate", "query", "submission", "-c", "configs/broken.toml", "-v"
    for evaluator in ("other", "broken"):
        yield "rejudge", "last", "--evaluator", f"configs/{evaluator}.toml", "-v"
    yield "whatif", "last", "--stop-rule", "max_rounds=1"
    yield from (("replay", "last"), ("journal", "calls", "last", "-f", "json"), ("journal", "verify"))
    yield from (("prune", "--dry-run"), ("rebuild",))


# --- the search -------------------------------------------------------------------------------------------------------


def leaks(scenario: Scenario) -> list[str]:
    """Where a key shows, in a file, in a table or in what was printed; ``.env`` is where the user wrote one."""
    found = [f"printed: {name}" for text in scenario.printed for name in _shown_in(text)]
    for file in sorted(scenario.root.rglob("*")):
        if file.is_file() and file.name != ".env":
            found += [f"{file.relative_to(scenario.root)}: {name}" for name in _shown_in(file.read_bytes())]
    for table, text in (*_results(scenario.root), *asyncio.run(_journal(scenario.root))):
        found += [f"{table}: {name}" for name in _shown_in(text.encode("utf-8", "replace"))]
    return sorted(set(found))


def _shown_in(content: bytes) -> Iterator[str]:
    for name, key in CANARIES.items():
        if any(spelling in content for spelling in _spellings(key)):
            yield name


def _spellings(key: str) -> set[bytes]:
    """A key as it is, in part, in a URL, and in base64 wherever it begins."""
    whole = [key, key[:16], key[-12:], quote(key, safe=""), quote(key)]
    shifted = [base64.b64encode(b"\0" * offset + key.encode()).decode()[4:-4] for offset in range(3)]
    return {text.encode() for text in (*whole, *shifted)}


def _results(root: Path) -> Iterator[tuple[str, str]]:
    """The tables as they read: a file may be compressed."""
    with duckdb.connect(str(root / "mixseek.db"), read_only=True) as connection:
        for (table,) in connection.execute("SELECT table_name FROM duckdb_tables()").fetchall():
            yield f"table {table}", str(connection.execute(f'SELECT * FROM "{table}"').fetchall())


async def _journal(root: Path) -> list[tuple[str, str]]:
    with sqlite3.connect(root / "journal.db") as connection:
        ids = [row[0] for row in connection.execute("SELECT DISTINCT execution_id FROM calls")]
        tables = [row[0] for row in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        plain = [(f"journal {name}", str(connection.execute(f'SELECT * FROM "{name}"').fetchall())) for name in tables]
    connection.close()
    async with Journal(root / "journal.db") as journal:
        read = [str(await journal.calls(each)) + str(await journal.prompts(each)) for each in ids]
        read += [str(await journal.tool_results(each)) for each in ids] + [str(await journal.events())]
    return [*plain, *(("journal as it is read", text) for text in read)]


def main() -> None:
    """Kill at every place and look; ends with exit code 1 if a key shows."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=len(KILLS))
    kills = KILLS[: parser.parse_args().kills]
    with tempfile.TemporaryDirectory() as directory, parrot() as (base_url, heard):
        scenario = Scenario(Path(directory), base_url)
        scenario.write()
        faults = [*play(scenario, kills), *leaks(scenario)]
        faults += [f"{name} was never sent" for name, key in CANARIES.items() if key not in heard]
        files = [file for file in scenario.root.rglob("*") if file.is_file()]
        size = sum(file.stat().st_size for file in files) + sum(map(len, scenario.printed))
    print(f"{len(scenario.printed) // 2} commands, {len(kills)} kills, {len(files)} files, {size:,} bytes searched")
    print(*(faults or ["no key shows"]), sep="\n")
    sys.exit(1 if faults else 0)


if __name__ == "__main__":
    main()
