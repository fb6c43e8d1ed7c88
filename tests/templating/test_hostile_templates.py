"""Every hostile template is tried in a process of its own; the product itself renders in process."""

import json
import os
import runpy
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

PROGRAM = Path(__file__).with_name("hostile_templates.py")
CORPUS = {hostile.id: hostile for hostile in runpy.run_path(str(PROGRAM))["HOSTILE"]}
MAX_SECONDS = 1.0
MAX_GROWTH_KB = 64 * 1024
MAX_TEXT = 16 * 1024 * 1024


def run_program(*arguments: str, canary: Path) -> str:
    environment = {**os.environ, "MIXSEEK_CANARY": str(canary)}
    command = [sys.executable, str(PROGRAM), *arguments]
    return subprocess.run(command, env=environment, check=True, capture_output=True, text=True, timeout=300).stdout


@pytest.fixture(scope="module")
def canary(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("canary") / "MIXSEEK_CANARY"


@pytest.fixture(scope="module")
def rendered(canary: Path) -> dict[str, dict[str, Any]]:
    lines = run_program("render", canary=canary).splitlines()
    return {result["id"]: result for result in map(json.loads, lines)}


@pytest.fixture(scope="module")
def checked(canary: Path) -> dict[str, dict[str, Any]]:
    lines = run_program("check", canary=canary).splitlines()
    return {result["id"]: result for result in map(json.loads, lines)}


def assert_bounded(result: dict[str, Any]) -> None:
    # Processor time, so that a busy machine fails no test; it runs in one thread and never waits.
    assert result["cpu"] < MAX_SECONDS
    assert result["grown_kb"] < MAX_GROWTH_KB
    assert result["length"] <= MAX_TEXT
    assert result["system"] == []
    assert not result["leaks"]


OUTCOMES = {"refused": {"refused"}, "harmless": {"text"}, "either": {"refused", "text"}}


@pytest.mark.parametrize("name", CORPUS)
def test_hostile_template_is_refused_or_ends_in_harmless_text(
    name: str, rendered: dict[str, dict[str, Any]], canary: Path
) -> None:
    result = rendered[name]
    assert result["outcome"] in OUTCOMES[CORPUS[name].expectation], result["text"]
    assert_bounded(result)
    assert not canary.exists()


@pytest.mark.parametrize("name", CORPUS)
def test_checking_a_hostile_template_is_harmless_too(name: str, checked: dict[str, dict[str, Any]]) -> None:
    assert checked[name]["outcome"] == "text", checked[name]["text"]
    assert_bounded(checked[name])


def test_refusals_are_told_in_the_words_of_template_errors(rendered: dict[str, dict[str, Any]]) -> None:
    for result in rendered.values():
        if result["outcome"] == "refused":
            words = result["text"].partition(": ")[2]
            assert words.startswith(("Jinja2 template error: ", "Jinja2 template syntax error at line "))


def test_the_corpus_is_large_and_its_names_are_unique() -> None:
    assert len(CORPUS) == len(runpy.run_path(str(PROGRAM))["HOSTILE"]) >= 250


def test_values_are_printed_as_they_are_even_if_they_look_like_templates(rendered: dict[str, dict[str, Any]]) -> None:
    trap = "{{ 7 * 7 }}{% include 'x' %}{# c #}"
    text = rendered["reach: a value that looks like a template"]["text"]
    assert text.startswith(trap + trap.upper() + trap + trap)


@pytest.mark.parametrize(
    ("source", "finding"),
    [
        ("{{ 'x' * 100000000 }}", lambda result: result["grown_kb"] > MAX_GROWTH_KB),
        (
            "{% for i in range(9999) %}{% for j in range(9999) %}{% endfor %}{% endfor %}",
            lambda result: result["cpu"] > 1,
        ),
        ("{{ vault.undocumented }}", lambda result: result["leaks"]),
        ("{% include 'x' %}", lambda result: result["outcome"] == "escaped"),
    ],
)
def test_the_program_would_notice_what_plain_jinja_lets_through(
    source: str, finding: Any, tmp_path: Path, canary: Path
) -> None:
    template = tmp_path / "template"
    template.write_text(source)
    assert finding(json.loads(run_program("plain jinja", str(template), canary=canary)))
