"""ExitCode: what the command says of the submission, each option by its effect, and a whole round."""

import os
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from mixseek.config import ConfigurationManager
from mixseek.errors import ConfigurationError
from mixseek.evaluator.metrics.exit_code import ExitCode, ExitCodeOptions, first_code_block
from mixseek.orchestrator import Orchestrator, load_orchestrator_settings
from mixseek.records import MetricScore
from mixseek.sandbox import bubblewrap_is_missing
from mixseek.testing import Match, scripted, write_workspace
from mixseek.workspace import Workspace

# One test says what is missing, in tests/sandbox/test_sandboxes.py.
needs_bubblewrap = pytest.mark.skipif(bubblewrap_is_missing() is not None, reason=str(bubblewrap_is_missing()))

ANSWER = "答え:\n```python\ndef double(n):\n    return 2 * n\n```\n以上です。"
CHECK = "import answer\nassert answer.double(21) == 42, 'wrong'\n"


async def _score(submission: str, workspace: Path | None = None, **options: Any) -> MetricScore:
    context = {"workspace": Workspace(workspace)} if workspace else None
    return await ExitCode(ExitCodeOptions.model_validate(options, context=context)).evaluate("task", submission)


@needs_bubblewrap
@pytest.mark.parametrize(
    ("submission", "options", "score"),
    [
        ("hello", {"command": ["true"]}, 100),
        ("hello", {"command": ["false"]}, 0),
        ("hello", {"command": ["grep", "-q", "ell", "submission.txt"]}, 100),
        ("hello", {"command": ["grep", "-q", "xyz", "submission.txt"]}, 0),
        ("東京は首都です", {"command": ["grep", "-q", "首都", "submission.txt"]}, 100),
        ("hello", {"command": ["sh", "-c", "exit 3"], "fail_score": 25}, 25),
        ("hello", {"command": ["true"], "pass_score": 80}, 80),
        ("hello", {"command": ["test", "-f", "answers/a.txt"], "submission_file": "answers/a.txt"}, 100),
        ("print(1)", {"command": ["python3", "submission.txt"]}, 100),
        ("print(", {"command": ["python3", "submission.txt"]}, 0),
        (ANSWER, {"command": ["python3", "a.py"], "submission_file": "a.py"}, 0),
        (ANSWER, {"command": ["python3", "a.py"], "submission_file": "a.py", "code_block": True}, 100),
        ("no block", {"command": ["true"], "code_block": True}, 0),
        ("hello", {"command": ["sleep", "60"], "timeout_seconds": 1}, 0),
        ("hello", {"command": ["python3", "-c", "'a' * 100_000_000"], "memory_mb": 400}, 100),
        ("hello", {"command": ["python3", "-c", "'a' * 1_000_000_000"], "memory_mb": 64}, 0),
        ("hello", {"command": ["no-such-program"]}, 0),
        ("\ud800", {"command": ["test", "-s", "submission.txt"]}, 100),
    ],
)
async def test_the_score_follows_from_the_commands_end(submission: str, options: dict[str, Any], score: float) -> None:
    scored = await _score(submission, **options)
    assert (scored.metric_name, scored.score) == ("ExitCode", score)


@needs_bubblewrap
async def test_files_of_the_workspace_stand_beside_the_submission(tmp_path: Path) -> None:
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "check.py").write_text(CHECK)
    options: dict[str, Any] = {
        "command": ["python3", "check.py"],
        "submission_file": "answer.py",
        "code_block": True,
        "files": ["tests/check.py"],
    }
    assert (await _score(ANSWER, tmp_path, **options)).score == 100
    assert (await _score(ANSWER.replace("2 *", "3 *"), tmp_path, **options)).score == 0


@needs_bubblewrap
async def test_the_comment_tells_the_end_and_what_was_printed_only_if_that_is_wanted() -> None:
    command = ["sh", "-c", "echo the secret test failed; exit 4"]
    assert (await _score("x", command=command)).evaluator_comment == "the command ended with exit code 4"
    told = (await _score("x", command=command, output_chars=10)).evaluator_comment
    assert told == "the command ended with exit code 4; it printed:\nthe secret"
    late = await _score("x", command=["sleep", "60"], timeout_seconds=1)
    assert late.evaluator_comment == "the command was ended: too much time"


@needs_bubblewrap
async def test_a_submission_gets_at_nothing_while_it_is_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEST_API_KEY", "secret")
    spy = f"import os\nassert 'TEST_API_KEY' not in os.environ\nopen({str(tmp_path / 'new')!r}, 'w')"
    scored = await _score(spy, command=["python3", "submission.txt"], output_chars=2000)
    assert "FileNotFoundError" in scored.evaluator_comment
    assert os.listdir(tmp_path) == []  # noqa: PTH208


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({}, "Field required"),
        ({"command": []}, "at least 1 item"),
        ({"command": "true"}, "valid list"),
        ({"command": ["true"], "submission_file": "../x"}, "leads out of the directory"),
        ({"command": ["true"], "submission_file": "/etc/x"}, "leads out of the directory"),
        ({"command": ["true"], "files": ["none.py"]}, "'none.py' does not exist"),
        ({"command": ["true"], "files": ["a/x.py", "b/x.py"]}, "two files are named 'x.py'"),
        ({"command": ["true"], "files": ["a/x.py"], "submission_file": "x.py"}, "would be written over"),
        ({"command": ["true"], "timeout_seconds": 0}, "greater than or equal to 1"),
        ({"command": ["true"], "pass_score": 101}, "less than or equal to 100"),
        ({"command": ["true"], "shell": True}, "not permitted"),
    ],
)
def test_options_that_cannot_work_are_told_when_the_file_is_read(
    options: dict[str, Any], told: str, tmp_path: Path
) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "x.py").touch()
    with pytest.raises(ValidationError, match=told):
        ExitCodeOptions.model_validate(options, context={"workspace": Workspace(tmp_path)})


@pytest.mark.parametrize(
    ("text", "block"),
    [
        ("```\na\n```", "a\n"),
        ("```py\na\n```\n```\nb\n```", "a\n"),
        ("x\n  ~~~ js\na\n```\nb\n~~~", "a\n```\nb\n"),
        ("```\nleft open", "left open"),
        ("```\n```", ""),
        ("none", None),
        ("", None),
    ],
)
def test_the_first_code_block_is_found(text: str, block: str | None) -> None:
    assert first_code_block(text) == block


PAGE = (Path(__file__).parents[3] / "docs" / "metrics.md").read_text(encoding="utf-8").partition("## ExitCode")[2]
EVALUATOR = PAGE.partition("```toml\n")[2].partition("```")[0]
PAGES_CHECK = PAGE.partition("```python\n# check.py\n")[2].partition("```")[0]


@needs_bubblewrap
async def test_the_example_of_the_manual_scores_a_whole_round(tmp_path: Path) -> None:
    (tmp_path / "check.py").write_text(PAGES_CHECK)
    config = write_workspace(tmp_path, teams=3, max_rounds=1, evaluator=EVALUATOR)
    with scripted() as script:
        script.on(Match("leader-a"), ["no code at all"])
        script.on(Match("leader-b"), ["```python\nprint(2 * int(input()))\n```"])
        script.on(Match("leader-c"), ["```python\nimport os\nos._exit(0)\n```"])
        settings = load_orchestrator_settings(config, tmp_path)
        summary = await Orchestrator(settings, save_db=False).execute("Read a number, print its double.")
    assert {result.team_id: result.score for result in summary.team_results} == {"a": 0, "b": 100, "c": 0}


def test_a_machine_without_bubblewrap_is_told_before_anything_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "check.py").write_text(CHECK)
    config = write_workspace(tmp_path, teams=1, evaluator=EVALUATOR)
    monkeypatch.setenv("PATH", os.devnull)
    bubblewrap_is_missing.cache_clear()
    try:
        manager = ConfigurationManager(tmp_path, environ={})
        report = manager.validate(config, complete=False)
        assert report.problems == ()
        assert [note.key for note in report.notes if "apt-get" in note.message] == ["metrics[0].type"]
        with pytest.raises(ConfigurationError, match="apt-get install bubblewrap"):
            manager.load_run_settings(config, for_a_run=True)
        with pytest.raises(ConfigurationError, match="apt-get install bubblewrap"):
            ExitCode(ExitCodeOptions(command=["true"]))
    finally:
        bubblewrap_is_missing.cache_clear()
