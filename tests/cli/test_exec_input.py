"""Where ``mixseek exec`` takes its task from, and where it puts the answer."""

import io
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from mixseek.cli import main
from mixseek.cli.output import rounded
from mixseek.testing import ModelServer, write_workspace


class Ran(NamedTuple):
    """The end of a command."""

    code: int
    out: str
    err: str


Run = Callable[..., Ran]


@pytest.fixture
def workspace(tmp_path: Path, server: ModelServer) -> Path:
    root = tmp_path / "workspace"
    write_workspace(root, teams=1, max_rounds=1, base_url=server.base_url, judgment="judge_on_final_round = false")
    (root / "configs" / "evaluator.toml").write_text('[[metrics]]\nname = "Length"\noptions = {maximum = 1000}\n')
    return root


@pytest.fixture
def run(workspace: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    here = workspace.parent / "here"
    here.mkdir()
    monkeypatch.chdir(here)
    monkeypatch.setenv("MIXSEEK_WORKSPACE", str(workspace))

    def ran(*arguments: str, stdin: bytes | None = None) -> Ran:
        monkeypatch.setattr("sys.stdin", _Stdin(stdin))
        with pytest.raises(SystemExit) as ended:
            main(["exec", *arguments, "--no-log-file"])
        printed = capsys.readouterr()
        assert isinstance(ended.value.code, int)
        return Ran(ended.value.code, printed.out, printed.err)

    return ran


class _Stdin:
    """What comes on standard input; a terminal where nothing does."""

    def __init__(self, content: bytes | None) -> None:
        self.buffer = io.BytesIO(content or b"")
        self._is_terminal = content is None

    def isatty(self) -> bool:
        return self._is_terminal


def _asked(server: ModelServer) -> str:
    [asked] = [request.body["messages"] for request in server.requests if request.model == "leader-a"]
    return json.dumps(asked, ensure_ascii=False)


# --- the task ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("arguments", [["-"], []])
def test_the_task_may_come_on_standard_input(arguments: list[str], run: Run, server: ModelServer) -> None:
    ran = run(*arguments, "-f", "json", stdin="\ufeff竹の使い道は？\n二つ。\r\n".encode())
    assert ran.code == 0, ran.err
    assert json.loads(ran.out)["user_prompt"] == "竹の使い道は？\n二つ。"
    assert "竹の使い道は？" in _asked(server)


def test_the_task_may_stand_in_a_file_here_or_in_the_workspace(run: Run, workspace: Path) -> None:
    Path("task.md").write_text("the task of here\n")
    (workspace / "other.md").write_text("the task of the workspace\n")
    for file, task in (("task.md", "the task of here"), ("other.md", "the task of the workspace")):
        assert json.loads(run("--prompt-file", file, "-f", "json").out)["user_prompt"] == task


@pytest.mark.parametrize(
    ("arguments", "stdin", "told"),
    [
        ([], None, "no prompt: give it as an argument, with --prompt-file FILE, or on standard input"),
        (["-"], None, "no prompt: give it"),
        (["-"], b" \n", "the prompt is empty"),
        (["-"], b"\xff", "the prompt is not UTF-8 text"),
        (["-"], b"a" * 1_000_001, "the prompt on standard input is larger than 1,000,000 bytes"),
        (
            ["a task", "--prompt-file", "t.md"],
            None,
            "the prompt is given twice, as an argument and with --prompt-file: leave one out",
        ),
        (["--prompt-file", "t.md"], None, "--prompt-file 't.md': does not exist in the current directory"),
        (["--prompt-file", "."], None, "--prompt-file '.': is a directory"),
        (["--prompt-file", "x" * 300], None, "is not the name of a file"),
        (["a task", "--reference", "wanted.md"], None, "--reference 'wanted.md': does not exist"),
        (["a task", "--reference", " "], None, "the reference answer is empty"),
        (["a task", "--timeout", "1"], None, "--timeout: 1 is not allowed: must be a whole number from 10 to 3600"),
        (["a task", "-c", "missing.toml"], None, "missing.toml: does not exist"),
    ],
)
def test_what_cannot_be_read_is_told_in_one_line_before_any_call(
    arguments: list[str], stdin: bytes | None, told: str, run: Run, server: ModelServer
) -> None:
    ran = run(*arguments, stdin=stdin)
    assert (ran.code, ran.out) == (2, "")
    [line] = ran.err.splitlines()
    assert line.startswith("mixseek: ")
    assert told in line
    assert json.loads(run(*arguments, "-f", "json", stdin=stdin).out)["error"]["message"] in line
    assert server.requests == []


def test_a_dry_run_needs_no_task_and_waits_for_none(run: Run) -> None:
    ran = run("--dry-run", stdin=b"not read")
    assert ran.code == 0
    assert "1 model call, if every round is played, each member is asked once a round and uses no tool" in ran.out
    assert "the prompt is empty" in run(" ", "--dry-run").err


def test_files_come_with_the_task_by_either_name(run: Run, server: ModelServer) -> None:
    Path("one.txt").write_text("from the first file")
    Path("two.txt").write_text("from the second file")
    assert run("task", "--file", "one.txt", "--attach", "two.txt").code == 0
    assert "from the first file" in _asked(server)
    assert "from the second file" in _asked(server)


@pytest.mark.parametrize("given", ["the capital is Tokyo", "reference.md", "answer"])
def test_a_reference_is_a_text_or_a_file(given: str, run: Run, server: ModelServer, workspace: Path) -> None:
    (workspace / "configs" / "evaluator.toml").write_text('[[metrics]]\nname = "Similarity"\n')
    Path("reference.md").write_text("the capital is Tokyo\n")
    (workspace / "answer").write_text("the capital is Tokyo\n")
    server.on("leader-a", ["The capital is Tokyo"])
    remedy = "set reference in the orchestrator file, or give it with --reference\n"
    assert f"'Similarity' needs a reference answer: {remedy}" in run("task").err
    ran = run("task", "--reference", given, "-f", "json")
    assert json.loads(ran.out)["best_score"] == 100


# --- which file -------------------------------------------------------------------------------------------------------


def test_without_a_file_the_workspaces_own_is_played(run: Run, workspace: Path) -> None:
    assert run("task").code == 0
    (workspace / "configs" / "orchestrator.toml").unlink()
    ran = run("task")
    assert ran.code == 2
    assert "no -c FILE is given, and the workspace has no configs/orchestrator.toml: name one" in ran.err


def test_of_two_files_of_one_name_it_is_said_which_is_used(run: Run, workspace: Path) -> None:
    name = "configs/orchestrator.toml"
    Path("configs").mkdir()
    Path(name).write_text((workspace / name).read_text())
    assert "is used" not in run("task", "-c", name, "--dry-run").err
    Path(name).write_text((workspace / name).read_text().replace("max_rounds = 1", "max_rounds = 3"))
    ran = run("task", "-c", name, "--dry-run")
    assert f"{name}: the file in the current directory is used, not the one in the workspace ({workspace}" in ran.err
    assert "to 3 rounds each" in ran.out


# --- the answer -------------------------------------------------------------------------------------------------------


def test_the_best_answer_is_written_to_a_file_and_replaces_what_was_there(run: Run, server: ModelServer) -> None:
    server.on("leader-a", ["first 答え", "second"])
    ran = run("task", "--output", "answer.md")
    assert (ran.code, Path("answer.md").read_text()) == (0, "first 答え\n")
    assert "the answer is in answer.md" in ran.err
    Path("answer.md").chmod(0o640)
    Path("link.md").symlink_to("answer.md")
    assert run("task", "-o", "link.md", "-f", "json").code == 0
    assert Path("link.md").is_symlink()
    assert Path("answer.md").read_text() == "second\n"
    assert Path("answer.md").stat().st_mode & 0o777 == 0o640
    assert sorted(file.name for file in Path().iterdir()) == ["answer.md", "link.md"]


def test_a_pipe_takes_the_answer_as_it_is(run: Run, server: ModelServer) -> None:
    server.on("leader-a", ["through the pipe"])
    reading, writing = os.pipe()
    assert run("task", "--output", f"/dev/fd/{writing}").code == 0
    os.close(writing)
    with os.fdopen(reading) as pipe:
        assert pipe.read() == "through the pipe\n"


@pytest.mark.parametrize(
    ("given", "why"),
    [
        (".", "it is a directory"),
        ("missing/answer.md", "there is no directory"),
        ("task.txt/answer.md", "there is no directory"),
        ("x" * 300, "File name too long"),
        ("-", "name a file"),
    ],
)
def test_a_place_that_takes_no_answer_is_refused_before_any_call(
    given: str, why: str, run: Run, server: ModelServer
) -> None:
    Path("task.txt").write_text("")
    ran = run("task", "--output", given)
    assert (ran.code, ran.out) == (2, "")
    assert f"mixseek: --output {given!r}: " in ran.err
    assert why in ran.err
    assert server.requests == []


def test_without_a_result_the_file_stays_as_it_was(run: Run, server: ModelServer) -> None:
    Path("answer.md").write_text("yesterday's")
    server.fault(401, model="leader-a")
    ran = run("task", "--output", "answer.md")
    assert ran.code == 2
    assert "there is no answer: answer.md is left as it was" in ran.err
    assert Path("answer.md").read_text() == "yesterday's"


def test_an_answer_that_can_no_longer_be_written_is_printed_and_told(run: Run, server: ModelServer) -> None:
    Path("there").mkdir()

    def answer(_call: Any) -> str:
        Path("there").rmdir()
        return "the answer"

    server.on("leader-a", answer)
    ran = run("task", "--output", "there/answer.md")
    assert ran.code == 1
    assert ran.out.endswith("\nthe answer\n")
    assert "mixseek: --output 'there/answer.md' cannot be written: No such file or directory" in ran.err


def test_numbers_have_as_many_digits_as_anyone_reads() -> None:
    assert rounded([1 / 3, 100 / 3, -1e-9 / 3, 7, True, "1.23456789", None]) == [
        0.333333, 33.3333, -3.33333e-10, 7, True, "1.23456789", None
    ]  # fmt: skip
    assert rounded({"a": [float("inf")]}) == {"a": [None]}
