"""Whatever stands in a file: it is read, or every problem is told; nothing else happens."""

import datetime
import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import tomli

from mixseek.config.kinds import KINDS
from mixseek.config.layers import KeyPath
from mixseek.config.manager import ConfigurationManager
from mixseek.config.starter import starter_text

MORE: dict[str, Any] = {
    "orchestrator": {"budget": {"max_tokens": 1}, "prices": {"a:b": {"input_usd_per_million": 1}}},
    "member": {"agent": {"plugin": {"path": "x.py"}, "mcp_servers": {"a": {"command": "x"}}, "functions": ["a:b"]}},
    "team": {"team": {"members": [{"config": "configs/agents/member.toml"}, {"agent_name": "x"}]}},
    "evaluator": {"custom_metrics": {"A": {"module": "m", "class": "C"}}, "llm_default": {"model": "a:b"}},
    "prompt_builder": {"prompt_builder": {"round_prompt": {"submission_preview_chars": 3}}},
}
JUNK: list[Any] = [
    *(0, -1, 1.5, True, "", " ", "x", "\x00", "日本", "{% if %}", "~nobody/x", "a" * 5000),
    *([], [1], [[]], {}, {"a": 1}, [{}], [{"name": []}], {"text": 3}, {"": {}}, {"a": {"b": [{}]}}),
    *(float("nan"), float("inf"), 10**30, datetime.date(2020, 1, 1), datetime.time(1)),
]
KEYS = ["x", "", "a.b", "name", "agent_name", "config", "tool_settings", "metadata", "instructions", "plugin"]


def _toml(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(key)} = {_toml(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_toml, value)) + "]"
    if isinstance(value, datetime.date | datetime.time):
        return value.isoformat()
    return str(value) if isinstance(value, float) else json.dumps(value)


def _document(value: dict[str, Any]) -> str:
    return "".join(f"{json.dumps(key)} = {_toml(item)}\n" for key, item in value.items())


def _paths(value: Any, above: KeyPath = ()) -> Iterator[KeyPath]:
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in items:
        yield (*above, key)
        yield from _paths(item, (*above, key))


def _spoil(document: dict[str, Any], chance: random.Random) -> None:
    path = chance.choice(list(_paths(document)) or [("x",)])
    holder: Any = document
    for part in path[:-1]:
        holder = holder[part]
    junk = json.loads(json.dumps(found)) if isinstance(found := chance.choice(JUNK), dict | list) else found
    way = chance.random()
    if way < 0.6 or isinstance(holder, list):
        holder[path[-1]] = junk
    elif way < 0.8:
        holder.pop(path[-1], None)
    else:
        holder[chance.choice(KEYS)] = junk


@pytest.mark.parametrize("kind", KINDS)
def test_a_spoiled_file_is_read_or_told(kind: str, workspace: Path) -> None:
    for one in KINDS.values():
        (workspace / "configs" / one.file).write_text(starter_text(one))
    file = workspace / "configs" / KINDS[kind].file
    manager = ConfigurationManager(workspace, environ={}, no_plugins=True)
    spoiled = 0
    for seed in range(40):
        chance = random.Random(f"{kind} {seed}")
        document = tomli.loads(starter_text(KINDS[kind]))
        for table, more in MORE.get(kind, {}).items():
            document[table] = {**document.get(table, {}), **more}
        for _ in range(chance.randint(1, 4)):
            _spoil(document, chance)
        file.write_text(_document(document))
        report = manager.validate(file)
        assert all(problem.message and problem.file for problem in report.problems), seed
        spoiled += bool(report.problems)
    assert spoiled > 20
