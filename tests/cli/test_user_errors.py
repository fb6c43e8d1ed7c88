"""What people see when something is wrong: the words and the exit code, kept as they are in transcripts.

Each mistake is made for real and its transcript compared with ``transcripts/errors/<name>.txt``. After a change that is
meant, ``make transcripts`` writes them anew; read what changed before you keep it.
"""

import asyncio
import logging
import os
import re
import resource
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import duckdb
import pytest

from mixseek.cli import logs, main
from mixseek.orchestrator import Orchestrator, load_orchestrator_settings
from mixseek.testing import ModelServer, scripted, write_workspace

TRANSCRIPTS = Path(__file__).parent / "transcripts" / "errors"
WRITES = os.environ.get("MIXSEEK_WRITE_TRANSCRIPTS") == "1"
SAFETY_SECONDS = 60
EXEC = ("exec", "the task", "-c", "configs/orchestrator.toml")
_VOLATILE = (
    (re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"), "ID"),
    (re.compile(r"127\.0\.0\.1:\d+"), "127.0.0.1:PORT"),
    (re.compile(r"\bprocess \d+ \([^)]*\)( since \S+)?|\bPID \d+[^)\n]*"), "PID"),
    (re.compile(r"\b\d+\.\d s\b"), "N s"),
)


@dataclass
class Place:
    """Where a mistake is made."""

    root: Path
    server: ModelServer
    environ: pytest.MonkeyPatch
    shows_answer: bool = True
    """Whether the transcript has what stands on standard output; an answer is there even when a mistake is made."""
    in_child: bool = False
    largest_file: int | None = None
    children: list[subprocess.Popen[str]] = field(default_factory=list)

    def write(self, file: str, text: str) -> None:
        path = self.root / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")

    def change(self, file: str, old: str, new: str) -> None:
        text = (self.root / file).read_text(encoding="utf-8")
        assert old in text, (file, old)
        self.write(file, text.replace(old, new))

    def add(self, file: str, text: str) -> None:
        self.write(file, f"{(self.root / file).read_text(encoding='utf-8')}{text}")


Mistake = Callable[[Place], tuple[str, ...] | None]
MISTAKES: dict[str, tuple[tuple[str, ...], Mistake]] = {}


def mistake(*arguments: str) -> Callable[[Mistake], Mistake]:
    """Name a mistake by its function, which makes it; what it returns are further arguments."""

    def keep(make: Mistake) -> Mistake:
        MISTAKES[make.__name__] = arguments, make
        return make

    return keep


TEAM, EVALUATOR, JUDGMENT = "configs/agents/team-a.toml", "configs/evaluator.toml", "configs/judgment.toml"
ORCHESTRATOR, PROVIDERS = "configs/orchestrator.toml", "configs/providers.toml"

# --- models -----------------------------------------------------------------------------------------------------------


@mistake(*EXEC)
def no_key(place: Place) -> None:
    place.environ.delenv("OPENAI_API_KEY", raising=False)
    place.environ.delenv("OPENAI_BASE_URL", raising=False)
    place.change(TEAM, "loopback:leader-a", "openai:gpt-5")


@mistake(*EXEC)
def wrong_key(place: Place) -> None:
    place.server.fault(401)


@mistake(*EXEC)
def unknown_model(place: Place) -> None:
    place.server.fault(404, model="leader-a")


@mistake(*EXEC)
def unknown_provider(place: Place) -> None:
    place.change(TEAM, "loopback:leader-a", "opnai:gpt-5")


@mistake(*EXEC)
def model_without_provider(place: Place) -> None:
    place.change(TEAM, "loopback:leader-a", "gpt-5")


@mistake(*EXEC)
def extra_missing(place: Place) -> None:
    place.environ.setenv("GROQ_API_KEY", "a-key-for-groq-models")
    place.environ.setitem(sys.modules, "groq", None)
    place.change(TEAM, "loopback:leader-a", "groq:llama-3")


@mistake(*EXEC)
def port_closed(place: Place) -> None:
    place.change(PROVIDERS, place.server.base_url, "http://127.0.0.1:9/v1")
    place.add(TEAM, "max_retries = 0\n")
    place.change(ORCHESTRATOR, "max_rounds = 1", "max_rounds = 1\nmax_retries_per_team = 0")


@mistake("models", "pull", "smollm3")
def pull_of_an_unknown_model(place: Place) -> tuple[str, ...]:
    return ("--without-workspace",)


@mistake("models", "check", "opnai:gpt-5")
def check_of_an_unknown_provider(place: Place) -> None: ...


@mistake("models", "check")
def check_without_a_key(place: Place) -> None:
    place.server.fault(401)


@mistake("models", "check")
def check_where_no_model_is_named(place: Place) -> None:
    for file in (TEAM, EVALUATOR, JUDGMENT, ORCHESTRATOR):
        (place.root / file).unlink()


@mistake("models", "check")
def check_of_a_broken_file(place: Place) -> None:
    place.write(TEAM, "[team\n")


# --- the workspace ----------------------------------------------------------------------------------------------------


@mistake("exec", "the task", "-c", "configs/orchestrator.toml")
def no_workspace(place: Place) -> tuple[str, ...]:
    return ("--without-workspace",)


@mistake(*EXEC)
def workspace_is_a_file(place: Place) -> tuple[str, ...]:
    place.write("file", "")
    return ("-w", str(place.root / "file"))


@mistake(*EXEC)
def workspace_is_not_there(place: Place) -> tuple[str, ...]:
    return ("-w", str(place.root / "nowhere"))


@mistake("config", "init")
def workspace_that_cannot_be_made(place: Place) -> tuple[str, ...]:
    return ("-w", "/proc/nowhere")


@mistake(*EXEC)
def full_disk(place: Place) -> None:
    place.in_child, place.largest_file = True, 8192


# --- files ------------------------------------------------------------------------------------------------------------


@mistake(*EXEC)
def bad_toml(place: Place) -> None:
    place.write(TEAM, "[team\nteam_id = 'a'\n")


@mistake(*EXEC)
def unknown_key(place: Place) -> None:
    place.change(ORCHESTRATOR, "max_rounds", "max_round")


@mistake(*EXEC)
def wrong_type(place: Place) -> None:
    place.change(ORCHESTRATOR, "max_rounds = 1", 'max_rounds = "many"')


@mistake(*EXEC)
def out_of_range(place: Place) -> None:
    place.change(ORCHESTRATOR, "max_rounds = 1", "max_rounds = 99")


@mistake("exec", "the task", "-c", "configs/orchestra.toml")
def missing_orchestrator_file(place: Place) -> None: ...


@mistake("exec", "the task", "-c", TEAM)
def wrong_kind_of_file(place: Place) -> None: ...


@mistake(*EXEC)
def missing_team_file(place: Place) -> None:
    (place.root / TEAM).unlink()


@mistake(*EXEC)
def duplicate_team_ids(place: Place) -> None:
    place.write("configs/agents/team-b.toml", (place.root / TEAM).read_text())
    place.add(ORCHESTRATOR, '\n[[orchestrator.teams]]\nconfig = "configs/agents/team-b.toml"\n')


@mistake(*EXEC)
def no_teams(place: Place) -> None:
    place.write(ORCHESTRATOR, "[orchestrator]\nmax_rounds = 1\n")


@mistake(*EXEC)
def missing_member_file(place: Place) -> None:
    place.add(TEAM, '\n[[team.members]]\nconfig = "configs/agents/nobody.toml"\n')


@mistake(*EXEC)
def metric_typo(place: Place) -> None:
    place.add(EVALUATOR, '\n[[metrics]]\nname = "Relevence"\n')


@mistake(*EXEC)
def metric_typo_beside_a_missing_key(place: Place) -> None:
    place.environ.delenv("OPENAI_API_KEY", raising=False)
    place.environ.delenv("OPENAI_BASE_URL", raising=False)
    place.write(EVALUATOR, 'default_model = "openai:gpt-5"\n[[metrics]]\nname = "Relevence"\n')


@mistake(*EXEC)
def weights_that_do_not_add_up(place: Place) -> None:
    place.add(
        EVALUATOR, '\n[[metrics]]\nname = "Relevance"\nweight = 0.7\n[[metrics]]\nname = "Coverage"\nweight = 0.7\n'
    )


@mistake(*EXEC)
def plugin_that_raises(place: Place) -> None:
    place.write("broken.py", "raise RuntimeError('no luck')\n")
    place.add(EVALUATOR, '[[metrics]]\nname = "Mine"\n[custom_metrics.Mine]\npath = "broken.py"\nclass = "Mine"\n')


@mistake(*EXEC)
def template_mistake(place: Place) -> None:
    place.write("configs/prompt_builder.toml", '[prompt_builder]\nteam_user_prompt = "{{ user_promt }}"\n')


@mistake(*EXEC)
def variable_typo(place: Place) -> None:
    place.environ.setenv("MIXSEEK_MAX_ROUND", "3")


# --- members ----------------------------------------------------------------------------------------------------------

_MEMBER = '\n[[team.members]]\nname = "m"\ntype = "plain"\nmodel = "loopback:m"\ndescription = "Helps."\n'


@mistake(*EXEC)
def mcp_server_with_command_and_url(place: Place) -> None:
    server = '[team.members.mcp_servers.files]\ncommand = "server"\nurl = "http://127.0.0.1:1/mcp"\n'
    place.add(TEAM, f"{_MEMBER}{server}")


@mistake(*EXEC)
def private_host_that_is_a_network(place: Place) -> None:
    settings = '[team.members.tool_settings.web_fetch]\nallowed_private_hosts = ["10.0.0.0/8"]\n'
    place.add(TEAM, f"{_MEMBER.replace('plain', 'web_fetch')}{settings}")


@mistake(*EXEC)
def function_typo(place: Place) -> None:
    place.write("tools.py", "def look_up(word: str) -> str:\n    '''Look up.'''\n    return word\n")
    place.add(TEAM, f'{_MEMBER}functions = ["tools:lookup"]\n')


@mistake(*EXEC)
def function_module_that_raises(place: Place) -> None:
    place.write("half.py", "def look_up(word: str) -> str:\n    return word\n\nraise RuntimeError('no luck')\n")
    place.add(TEAM, f'{_MEMBER}functions = ["half:look_up", "half:other"]\n')


@mistake(*EXEC)
def unknown_member_type(place: Place) -> None:
    place.add(TEAM, _MEMBER.replace('"plain"', '"web-serch"'))


# --- the command line -------------------------------------------------------------------------------------------------


@mistake("exce", "the task")
def unknown_command(place: Place) -> None: ...


@mistake("attack")
def missing_option(place: Place) -> None: ...


@mistake(*EXEC, "--time-out", "10")
def unknown_option(place: Place) -> None: ...


@mistake(*EXEC, "--log-level", "loud")
def bad_option_value(place: Place) -> None: ...


@mistake(*EXEC, "-f", "yaml")
def wrong_format(place: Place) -> None: ...


@mistake(*EXEC, "--timeout", "5")
def timeout_out_of_range(place: Place) -> None: ...


@mistake("exec", "  ", "-c", "configs/orchestrator.toml")
def empty_prompt(place: Place) -> None: ...


@mistake("exec", "--prompt-file", "nothing.md")
def prompt_file_missing(place: Place) -> None: ...


@mistake("exec", "the task", "--prompt-file", "task.md")
def two_prompts(place: Place) -> None: ...


@mistake(*EXEC, "--file", "nothing.csv")
def attachment_missing(place: Place) -> None: ...


@mistake(*EXEC, "--file", "large.bin")
def attachment_too_large(place: Place) -> None:
    with (place.root / "large.bin").open("wb") as file:
        file.truncate(200 * 1024 * 1024)


@mistake(*EXEC, "--output", "nowhere/answer.md")
def output_without_directory(place: Place) -> None:
    place.environ.chdir(place.root)


@mistake(*EXEC, "--output", "/dev/full")
def output_on_a_full_disk(place: Place) -> None:
    place.shows_answer = False


@mistake(*EXEC, "--otel", "--logfire")
def two_places_for_spans(place: Place) -> None: ...


@mistake(*EXEC, "--logfire")
def no_logfire_token(place: Place) -> None:
    place.environ.delenv("LOGFIRE_TOKEN", raising=False)
    place.environ.chdir(place.root)


@mistake(*EXEC, "-f", "json")
def a_mistake_as_json(place: Place) -> None:
    place.change(ORCHESTRATOR, "max_rounds", "max_round")


@mistake("config", "show", "teem")
def unknown_kind(place: Place) -> None: ...


# --- starting ---------------------------------------------------------------------------------------------------------


@mistake("init", "new", "--template", "reserch")
def unknown_template(place: Place) -> tuple[str, ...]:
    return ("--without-workspace",)


@mistake("init")
def init_where_files_are(place: Place) -> tuple[str, ...]:
    return (str(place.root), "--without-workspace")


@mistake("team", "the task", "-c", "configs/agents/nobody.toml")
def team_file_missing(place: Place) -> None: ...


@mistake("member", "the task")
def no_member_named(place: Place) -> None: ...


@mistake("evaluate", "the question", " ")
def nothing_to_evaluate(place: Place) -> None: ...


# --- executions -------------------------------------------------------------------------------------------------------


def _played(place: Place, *ids: str) -> None:
    async def play() -> None:
        settings = load_orchestrator_settings("configs/orchestrator.toml", place.root)
        for execution_id in ids:
            await Orchestrator(settings, journal=False).execute("the task", execution_id=execution_id)

    asyncio.run(play())


@mistake("show", "0badcafe")
def unknown_id(place: Place) -> None:
    _played(place, "11111111-0000-4000-8000-000000000001")


@mistake("show", "1111")
def ambiguous_id(place: Place) -> None:
    _played(place, "11111111-0000-4000-8000-000000000001", "11112222-0000-4000-8000-000000000002")


@mistake("show")
def nothing_played_yet(place: Place) -> None: ...


@mistake("export", "last", "--format", "pdf")
def wrong_export_format(place: Place) -> None: ...


@mistake("delete", "last")
def delete_without_a_yes(place: Place) -> None:
    _played(place, "11111111-0000-4000-8000-000000000001")


@mistake("history")
def history_of_a_damaged_database(place: Place) -> None:
    (place.root / "mixseek.db").write_bytes(b"no database at all")


# --- what is stored ---------------------------------------------------------------------------------------------------


@mistake(*EXEC)
def database_damaged(place: Place) -> None:
    (place.root / "mixseek.db").write_bytes(b"no database at all")


@mistake(*EXEC)
def journal_damaged(place: Place) -> None:
    (place.root / "journal.db").write_bytes(b"no journal at all")


@mistake(*EXEC)
def database_held(place: Place) -> None:
    database = place.root / "mixseek.db"
    duckdb.connect(database).close()
    place.add(ORCHESTRATOR, "\n[storage]\nlock_wait_seconds = 1\n")
    code = "import duckdb, sys; c = duckdb.connect(sys.argv[1]); print('held', flush=True); sys.stdin.read()"
    child = subprocess.Popen(
        [sys.executable, "-c", code, str(database)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    place.children.append(child)
    assert child.stdout is not None
    assert child.stdout.readline() == "held\n"


# --- the test ---------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def server() -> Iterator[ModelServer]:
    with ModelServer() as running:
        yield running


@pytest.fixture
def place(tmp_path: Path, server: ModelServer, monkeypatch: pytest.MonkeyPatch) -> Iterator[Place]:
    server.clear_faults()
    for name in [name for name in os.environ if name.startswith("MIXSEEK_") and name != "MIXSEEK_ONLY_LOOPBACK"]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("COLUMNS", "80")
    root = tmp_path / "workspace"
    root.mkdir()
    write_workspace(root, teams=1, max_rounds=1, base_url=server.base_url)
    levels = {name: logging.getLogger(name).level for name in ("root", "mixseek", "opentelemetry")}
    made = Place(root, server, monkeypatch)
    yield made
    for child in made.children:
        child.communicate(timeout=SAFETY_SECONDS)
    logs._exchange([])
    for name, level in levels.items():
        logging.getLogger(name).setLevel(level)


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_told_as_its_transcript_says(name: str, place: Place, capsys: pytest.CaptureFixture[str]) -> None:
    arguments, make = MISTAKES[name]
    arguments = (*arguments, *(make(place) or ()))
    told = _transcript(place, arguments, capsys)
    kept = TRANSCRIPTS / f"{name}.txt"
    if WRITES:
        kept.parent.mkdir(parents=True, exist_ok=True)
        kept.write_text(told, encoding="utf-8")
    assert told == kept.read_text(encoding="utf-8")
    assert "Traceback" not in told
    assert "pydantic.dev" not in told


def test_there_is_no_transcript_of_a_mistake_that_nobody_makes() -> None:
    assert {path.stem for path in TRANSCRIPTS.glob("*.txt")} == set(MISTAKES)
    assert len(MISTAKES) >= 30


def _transcript(place: Place, arguments: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> str:
    shown = tuple(word for word in arguments if word != "--without-workspace")
    given = shown if "-w" in shown or shown != arguments else (*shown, "-w", str(place.root))
    code, out, err = _in_child(place, given) if place.in_child else _here(given, capsys)
    line = " ".join(word if re.fullmatch(r"[\w./=-]+", word) else f'"{word}"' for word in shown)
    text = f"$ mixseek {line}\n{out if place.shows_answer else ''}{err}exit code {code}\n".replace(
        str(place.root), "WORKSPACE"
    )
    for pattern, replacement in _VOLATILE:
        text = pattern.sub(replacement, text)
    return text


def _here(arguments: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> tuple[int | str | None, str, str]:
    capsys.readouterr()
    with scripted(), pytest.raises(SystemExit) as ended:
        main(list(arguments))
    told = capsys.readouterr()
    return ended.value.code, told.out, told.err


def _in_child(place: Place, arguments: tuple[str, ...]) -> tuple[int, str, str]:
    def bound() -> None:
        if place.largest_file is not None:
            resource.setrlimit(resource.RLIMIT_FSIZE, (place.largest_file, place.largest_file))

    ran = subprocess.run(
        [sys.executable, "-m", "mixseek", *arguments],
        capture_output=True,
        text=True,
        preexec_fn=bound,
        timeout=SAFETY_SECONDS,
        check=False,
    )
    return ran.returncode, ran.stdout, ran.stderr


def test_what_the_page_of_troubles_quotes_is_what_people_see() -> None:
    """The first column of its tables, in the words of the transcripts."""
    page = (Path(__file__).parents[2] / "docs" / "troubleshooting.md").read_text(encoding="utf-8")
    seen = "\n".join(path.read_text(encoding="utf-8") for path in TRANSCRIPTS.glob("*.txt"))
    rows = [line.split("|")[1] for line in page.splitlines() if line.startswith("| `")]
    quotes = [quote for row in rows for quote in re.findall(r"`([^`]+)`", row)]
    assert len(quotes) >= 30
    assert [quote for quote in quotes if quote not in seen] == []
