"""``mixseek init``: every template in both languages is valid and plays; nothing that is there is overwritten."""

import json
import os
import re
import shlex
import tomllib
from pathlib import Path

import pytest

from mixseek.cli import main
from mixseek.cli.starters import Lang, Starter, Template
from mixseek.config import ConfigurationManager
from mixseek.evaluator import EvaluationRequest, Evaluator
from mixseek.llm import ModelHub
from mixseek.orchestrator import Orchestrator, load_orchestrator_settings
from mixseek.sandbox import bubblewrap_is_missing
from mixseek.testing import ModelCall, ModelServer

JAPANESE = re.compile("[\u3040-\u30ff\u4e00-\u9fff]")
EVERY = [(template, lang) for template in Template for lang in Lang]
COMPETITIONS = [
    pytest.param(
        template,
        lang,
        # One test says what is missing, in tests/sandbox/test_sandboxes.py.
        marks=pytest.mark.skipif(
            template is Template.CODING and bubblewrap_is_missing() is not None, reason="needs bubblewrap"
        ),
    )
    for template, lang in EVERY
    if template is not Template.JUDGE_ONLY
]
PROGRAM = """\
import collections, sys
words = collections.Counter(sys.stdin.read().lower().split())
for word, count in sorted(words.items(), key=lambda each: (-each[1], each[0])):
    print(word, count)
"""


@pytest.fixture(autouse=True)
def _nothing_in_the_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in list(os.environ):
        if name.endswith("_API_KEY") or (name.startswith("MIXSEEK_") and name != "MIXSEEK_ONLY_LOOPBACK"):
            monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)


def _run(*arguments: str) -> int:
    with pytest.raises(SystemExit) as ended:
        main(list(arguments))
    assert isinstance(ended.value.code, int)
    return ended.value.code


def _init(template: Template, lang: Lang) -> Path:
    assert _run("init", "workspace", "--template", template.value, "--lang", lang.value) == 0
    return Path("workspace").absolute()


def _use_server(root: Path, base_url: str) -> None:
    """All providers at one address; every other file stays as it is."""
    prefixes = ("openai", "anthropic", "google-gla", "local")
    servers = "".join(f'[providers.{prefix}]\nbase_url = "{base_url}"\n' for prefix in prefixes)
    (root / "configs" / "providers.toml").write_text(servers)


@pytest.mark.parametrize(("template", "lang"), EVERY)
def test_every_template_is_valid_and_speaks_its_language(
    template: Template, lang: Lang, capsys: pytest.CaptureFixture[str]
) -> None:
    root = _init(template, lang)
    assert _run("config", "validate", "-w", str(root)) == 0
    capsys.readouterr()
    # Looking at a workspace loads its metrics, which leaves bytecode behind.
    written = [path for path in root.rglob("*") if path.is_file() and path.suffix != ".pyc"]
    texts = {path: path.read_text() for path in written if path.name != ".gitignore"}
    for path, text in texts.items():
        assert bool(JAPANESE.search(text)) == (lang is Lang.JA), path
    prompts = tomllib.loads(texts[root / "configs" / "prompt_builder.toml"])
    assert prompts["prompt_builder"]["language"] == lang


def _answer(call: ModelCall) -> str | None:
    """Members do not go out into the world; leaders hand in a program once their members have answered."""
    if any(tool.name in ("web_search", "web_fetch") for tool in call.tools):
        return "Found it: https://example.com"
    waits = call.output is not None or (call.tools and not call.tool_results)
    return None if waits else f"```python\n{PROGRAM}```"


@pytest.mark.parametrize(("template", "lang"), COMPETITIONS)
async def test_every_competition_plays(template: Template, lang: Lang) -> None:
    root = _init(template, lang)
    starter = Starter(template, lang.value)
    async with ModelServer() as server:
        server.on("*", _answer)
        _use_server(root, server.base_url)
        settings = load_orchestrator_settings("configs/orchestrator.toml", root)
        summary = await Orchestrator(settings, save_db=False).execute(starter.task)
        said = [json.dumps(request.body, ensure_ascii=False) for request in server.requests]
    assert summary.failed_teams_info == []
    assert summary.completed_teams == summary.total_teams >= 2
    if template is Template.CODING:
        assert summary.best_score == 100
    assert {bool(JAPANESE.search(body)) for body in said} == {lang is Lang.JA}


@pytest.mark.parametrize("lang", Lang)
async def test_the_judges_of_judge_only_judge(lang: Lang) -> None:
    root = _init(Template.JUDGE_ONLY, lang)
    async with ModelServer() as server:
        _use_server(root, server.base_url)
        manager = ConfigurationManager(root)
        async with ModelHub(manager.get_providers_settings(), environ={}) as hub:
            evaluator = Evaluator(
                manager.get_evaluator_settings(), manager.get_prompt_builder_settings(), hub=hub, workspace=root
            )
            result = await evaluator.evaluate(
                EvaluationRequest(user_query="When?", submission="At 10:00, see 3 pages.")
            )
        said = [json.dumps(request.body, ensure_ascii=False) for request in server.requests]
    assert result.overall_score is not None
    assert {metric.metric_name: metric.score for metric in result.metrics}["Concrete"] == 100
    assert {bool(JAPANESE.search(body)) for body in said} == {lang is Lang.JA}


@pytest.mark.parametrize("lang", Lang)
def test_what_judge_only_says_to_run_runs(lang: Lang, capsys: pytest.CaptureFixture[str]) -> None:
    root = _init(Template.JUDGE_ONLY, lang)
    with ModelServer() as server:
        _use_server(root, server.base_url)
        for command in Starter(Template.JUDGE_ONLY, lang.value).commands:
            words = shlex.split(command)[1:]
            # The judges of the server are not fooled by any of the attacks; so many of them are not all of them.
            assert _run(*words, "-w", str(root)) == 0, capsys.readouterr()
    told = capsys.readouterr().out
    assert "Overall " in told
    assert "Concrete 100.00" in told


@pytest.mark.parametrize("template", Template)
def test_the_keys_that_are_named_are_those_that_are_needed(template: Template) -> None:
    root = _init(template, Lang.EN)
    starter = Starter(template, "en")
    example = (root / ".env.example").read_text()
    assert all(f"\n{key}=\n" in example for key in starter.keys)
    (root / ".env").write_text(example.replace("=\n", "=a-key\n"))
    manager = ConfigurationManager(root)
    notes = [str(note) for file in manager.files() for note in manager.validate(file).notes]
    assert [note for note in notes if "no key" in note] == []
    (root / ".env").unlink()
    missing = [str(note) for file in manager.files() for note in ConfigurationManager(root).validate(file).notes]
    assert {key for key in starter.keys if any(key in note for note in missing)} == set(starter.keys)


def test_it_says_what_to_run_next(capsys: pytest.CaptureFixture[str]) -> None:
    _init(Template.RESEARCH, Lang.EN)
    printed = capsys.readouterr().out
    root = Path("workspace").absolute()
    assert f"  cd {root}\n  cp .env.example .env    # and set in it: OPENAI_API_KEY\n" in printed
    task = Starter(Template.RESEARCH, "en").task
    assert f"  mixseek exec '{task}' --dry-run -w .\n  mixseek exec '{task}' -w .\n" in printed


def test_a_directory_beside_this_one_is_told_by_its_own_name(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    here = Path.cwd()
    (here / "deep").mkdir()
    monkeypatch.chdir(here / "deep")
    assert _run("init", "../beside") == 0
    told = capsys.readouterr().out.splitlines()
    assert f"A workspace for demo is in {here.resolve() / 'beside'}." in told
    assert f"  cd {here.resolve() / 'beside'}" in told


def test_without_a_directory_it_is_this_one() -> None:
    assert _run("init") == 0
    assert Path("configs/orchestrator.toml").is_file()


def test_a_variable_may_name_the_directory_and_the_argument_is_stronger(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MIXSEEK_WORKSPACE", "named")
    assert _run("init") == 0
    assert _run("init", "other") == 0
    assert all(Path(name, "configs").is_dir() for name in ("named", "other"))


def test_two_directories_are_one_too_many(capsys: pytest.CaptureFixture[str]) -> None:
    assert _run("init", "one", "-w", "two") == 2
    assert "two directories are given" in capsys.readouterr().err
    assert not Path("one").exists()


def test_a_second_time_nothing_is_written(capsys: pytest.CaptureFixture[str]) -> None:
    root = _init(Template.DEMO, Lang.EN)
    mine = root / "configs" / "agents" / "steady.toml"
    mine.write_text("# mine\n")
    (root / "configs" / "judgment.toml").unlink()
    capsys.readouterr()
    assert _run("init", str(root), "--template", "research") == 2
    told = capsys.readouterr()
    assert told.out == ""
    assert "configs/evaluator.toml: exists already: use --force" in told.err
    assert not (root / "configs" / "judgment.toml").exists()
    assert mine.read_text() == "# mine\n"


def test_force_writes_the_template_anew_but_never_over_a_gitignore() -> None:
    root = _init(Template.DEMO, Lang.EN)
    (root / ".gitignore").write_text("mine\n")
    (root / "configs" / "judgment.toml").write_text("# mine\n")
    assert _run("init", str(root), "--force") == 0
    assert "target_score" in (root / "configs" / "judgment.toml").read_text()
    assert (root / ".gitignore").read_text() == "mine\n"


def test_a_directory_that_cannot_be_made_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    Path("file").write_text("")
    assert _run("init", "file/below") == 2
    assert "cannot be created" in capsys.readouterr().err


def test_a_file_that_cannot_be_written_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    Path("workspace").mkdir()
    Path("workspace/configs").write_text("a file where a directory should be")
    assert _run("init", "workspace") == 2
    assert capsys.readouterr().err.startswith("mixseek: configs/agents/")


def test_keys_and_results_are_kept_out_of_git() -> None:
    ignored = (_init(Template.DEMO, Lang.EN) / ".gitignore").read_text().split("\n")
    assert {".env", "mixseek.db*", "journal.db*", "logs/", "reports/", "attachments/"} <= set(ignored)
