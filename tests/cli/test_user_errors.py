"""What people see when something is wrong: the words and the exit code, kept as they are in transcripts.

Each mistake is made for real and its transcript compared with ``transcripts/errors/<name>.txt``. After a change that is
meant, ``make transcripts`` writes them anew; read what changed before you keep it.
"""

import asyncio
import logging
import os
import re
import resource
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

import duckdb
import keyring
import pytest
from keyring.errors import KeyringLocked

from mixseek import keys
from mixseek.cli import logs, main
from mixseek.config.manager import ConfigurationManager
from mixseek.events import Event, RoundFinished
from mixseek.orchestrator import Orchestrator, load_orchestrator_settings
from mixseek.storage.journal import Journal
from mixseek.storage.pruning import drop_bodies
from mixseek.testing import ModelServer, scripted, write_workspace
from soak import forked

TRANSCRIPTS = Path(__file__).parent / "transcripts" / "errors"
WRITES = os.environ.get("MIXSEEK_WRITE_TRANSCRIPTS") == "1"
SAFETY_SECONDS = 60
EXEC = ("exec", "the task", "-c", "configs/orchestrator.toml")
_VOLATILE = (
    (re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"), "ID"),
    (re.compile(r"127\.0\.0\.1:\d+"), "127.0.0.1:PORT"),
    (re.compile(r"\bprocess \d+ \([^)]*\)( on \S+)?( since [^\s:]+(:\d\d)*Z?)?|\bPID \d+[^)\n]*"), "PID"),
    (re.compile(r"\b\d+\.\d s\b"), "N s"),
    (re.compile(r"\bon \d{4}-\d\d-\d\d\b"), "on DATE"),
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
    at_the_end: list[Callable[[], None]] = field(default_factory=list)

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

    def start_child(self, code: str, *arguments: str) -> None:
        """Let another process hold something until the test is over; it says ``held`` when it does."""
        command = [sys.executable, "-c", code, *arguments]
        child = forked.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.children.append(child)
        assert child.stdout is not None
        assert child.stdout.readline() == "held\n"


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
def no_address(place: Place) -> None:
    place.environ.delenv("VLLM_BASE_URL", raising=False)
    place.change(TEAM, "loopback:leader-a", "vllm:qwen3")


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


@mistake("exec", "the task", "-c", "configs/evaluator.toml")
def evaluator_file_to_be_played(place: Place) -> None: ...


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
def members_that_cannot_be_made(place: Place) -> None:
    place.write(
        "agents.py",
        "from mixseek.agents.member import BaseMemberAgent\n"
        "class Indexed(BaseMemberAgent):\n"
        "    def __init__(self, config):\n"
        "        super().__init__(config)\n"
        "        self.index = config.metadata['index']\n"
        "    async def execute(self, task, context=None, **kwargs): ...\n"
        "class Exiting(Indexed):\n"
        "    def __init__(self, config):\n"
        "        raise SystemExit('no licence')\n",
    )
    for name in ("Indexed", "Exiting"):
        own = f'plugin = {{ path = "agents.py", agent_class = "{name}" }}'
        place.add(TEAM, f'\n[[team.members]]\nname = "{name}"\ntype = "custom"\nmodel = "loopback:m"\n{own}\n')


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


@mistake("exec", "task", "-c", "the task by mistake " * 20)
def a_text_where_a_file_belongs(place: Place) -> None: ...


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
def database_that_is_a_directory(place: Place) -> None:
    (place.root / "mixseek.db").mkdir()


@mistake(*EXEC, "--file", "notes.md")
def attachments_that_are_a_file(place: Place) -> None:
    place.write("notes.md", "What is known.")
    place.write("attachments", "")


@mistake("config", "validate")
def configs_that_are_a_file(place: Place) -> None:
    (place.root / "configs").rename(place.root / "moved")
    place.write("configs", "")


@mistake(*EXEC)
def journal_that_is_a_directory(place: Place) -> None:
    (place.root / "journal.db").mkdir()


@mistake(*EXEC)
def journal_damaged(place: Place) -> None:
    (place.root / "journal.db").write_bytes(b"no journal at all")


@mistake(*EXEC)
def database_held(place: Place) -> None:
    database = place.root / "mixseek.db"
    duckdb.connect(database).close()
    place.add(ORCHESTRATOR, "\n[storage]\nlock_wait_seconds = 1\n")
    code = "import duckdb, sys; c = duckdb.connect(sys.argv[1]); print('held', flush=True); sys.stdin.read()"
    place.start_child(code, str(database))


# --- going on with an execution ---------------------------------------------------------------------------------------

FIRST, SECOND = "11111111-0000-4000-8000-000000000001", "11112222-0000-4000-8000-000000000002"


def _journaled(place: Place, *ids: str) -> None:
    """Executions that came to their end."""
    asyncio.run(_play_all(place, ids))


async def _play_all(place: Place, ids: Sequence[str]) -> None:
    for execution_id in ids:
        settings = ConfigurationManager(place.root).load_run_settings(place.root / ORCHESTRATOR)
        await Orchestrator(settings).execute("the task", execution_id=execution_id)


def _unfinished(place: Place) -> None:
    """An execution that was stopped after its first round of two."""
    place.change(ORCHESTRATOR, "max_rounds = 1", "max_rounds = 2\nmin_rounds = 2")

    def stop(event: Event) -> None:
        if isinstance(event, RoundFinished):
            orchestrator.stop()

    settings = ConfigurationManager(place.root).load_run_settings(place.root / ORCHESTRATOR)
    orchestrator = Orchestrator(settings, listeners=[stop])
    assert asyncio.run(orchestrator.execute("the task", execution_id=FIRST)).interrupted


def _pruned(place: Place) -> None:
    drop_bodies(place.root / "journal.db", [FIRST])


def _held(place: Place) -> None:
    """Somebody plays the execution: this process, since another would take seconds to begin."""
    journal = Journal(place.root / "journal.db")
    held = asyncio.run(journal.take_place(FIRST, place.root / "mixseek.db"))
    place.at_the_end += [held.end, journal.close]


@mistake("resume", "0badcafe")
def resume_of_an_unknown_id(place: Place) -> None:
    _unfinished(place)


@mistake("resume", "1111")
def resume_of_an_ambiguous_id(place: Place) -> None:
    _journaled(place, FIRST, SECOND)


@mistake("resume")
def resume_where_nothing_was_played(place: Place) -> None: ...


@mistake("resume")
def resume_where_all_is_finished(place: Place) -> None:
    _journaled(place, FIRST)


@mistake("resume", "last")
def resume_of_a_finished_execution(place: Place) -> None:
    _journaled(place, FIRST)


@mistake("resume")
def resume_after_a_change(place: Place) -> None:
    _unfinished(place)
    place.change(TEAM, "loopback:leader-a", "loopback:leader-b")


@mistake("resume", "last")
def resume_of_what_another_process_plays(place: Place) -> None:
    _unfinished(place)
    _held(place)


@mistake("resume", "last")
def resume_of_an_execution_without_a_journal(place: Place) -> None:
    _played(place, FIRST)


@mistake("resume", "last")
def resume_of_a_pruned_execution(place: Place) -> None:
    _unfinished(place)
    _pruned(place)


@mistake("resume")
def resume_without_its_orchestrator_file(place: Place) -> None:
    _unfinished(place)
    (place.root / ORCHESTRATOR).unlink()


@mistake("resume")
def resume_from_a_damaged_journal(place: Place) -> None:
    _unfinished(place)
    _damage_journal(place)


@mistake("resume")
def resume_without_a_workspace(place: Place) -> tuple[str, ...]:
    return ("--without-workspace",)


@mistake("resume", "-f", "json")
def resume_of_nothing_as_json(place: Place) -> None: ...


@mistake(*EXEC, "--resume", "last")
def exec_resume_beside_a_task(place: Place) -> None: ...


@mistake(*EXEC, "--accept-changes")
def accept_changes_without_resume(place: Place) -> None: ...


# --- in hindsight -----------------------------------------------------------------------------------------------------

REJUDGE = ("rejudge", "last", "--evaluator", EVALUATOR)


@mistake("rejudge", "last")
def rejudge_without_an_evaluator(place: Place) -> None: ...


@mistake("rejudge", "last", "--evaluator", "configs/strict.toml")
def rejudge_by_a_missing_file(place: Place) -> None:
    _journaled(place, FIRST)


@mistake("rejudge", "last", "--evaluator", TEAM)
def rejudge_by_a_team_file(place: Place) -> None:
    _journaled(place, FIRST)


@mistake(*REJUDGE)
def rejudge_by_a_metric_that_nobody_knows(place: Place) -> None:
    _journaled(place, FIRST)
    place.add(EVALUATOR, '\n[[metrics]]\nname = "Relevence"\n')


@mistake(*REJUDGE)
def rejudge_where_nothing_was_submitted(place: Place) -> None:
    place.server.fault(401)
    _journaled(place, FIRST)


@mistake(*REJUDGE)
def rejudge_of_what_another_process_plays(place: Place) -> None:
    _unfinished(place)
    _held(place)


@mistake("replay", "last")
def replay_of_an_unfinished_execution(place: Place) -> None:
    _unfinished(place)


@mistake("replay", "last")
def replay_of_a_pruned_execution(place: Place) -> None:
    _journaled(place, FIRST)
    _pruned(place)


@mistake("replay", "last")
def replay_of_an_execution_without_a_journal(place: Place) -> None:
    _played(place, FIRST)


@mistake("replay", "last")
def replay_without_its_team(place: Place) -> None:
    _journaled(place, FIRST)
    place.change(TEAM, 'team_id = "a"', 'team_id = "b"')


@mistake("whatif", "last")
def whatif_without_a_rule(place: Place) -> None: ...


@mistake("whatif", "last", "--stop-rule", "max_round=2")
def whatif_rule_typo(place: Place) -> None: ...


@mistake("whatif", "last", "--stop-rule", "target_score=high")
def whatif_rule_without_a_number(place: Place) -> None: ...


@mistake("whatif", "last", "--stop-rule", "max_rounds=0")
def whatif_rule_out_of_range(place: Place) -> None: ...


@mistake("whatif", "last", "--stop-rule", "budget=0.5")
def whatif_budget_without_prices(place: Place) -> None:
    _journaled(place, FIRST)


# --- the journal ------------------------------------------------------------------------------------------------------


def _damage_journal(place: Place) -> None:
    for file in place.root.glob("journal.db*"):
        file.unlink()
    (place.root / "journal.db").write_bytes(b"no journal at all")


@mistake("journal", "tail", "0badcafe")
def tail_of_an_unknown_id(place: Place) -> None:
    _journaled(place, FIRST)


@mistake("journal", "tail")
def tail_without_a_workspace(place: Place) -> tuple[str, ...]:
    return ("--without-workspace",)


@mistake("journal", "tail")
def tail_where_nothing_was_played(place: Place) -> None: ...


@mistake("journal", "calls")
def calls_where_nothing_was_played(place: Place) -> None: ...


@mistake("journal", "calls", "--role", "juge")
def calls_of_an_unknown_role(place: Place) -> None:
    _journaled(place, FIRST)


@mistake("journal", "calls", "--team", "b")
def calls_of_an_unknown_team(place: Place) -> None:
    _journaled(place, FIRST)


@mistake("journal", "calls")
def calls_of_an_execution_without_a_journal(place: Place) -> None:
    _played(place, FIRST)


@mistake("journal", "calls", "--bodies")
def bodies_in_a_table(place: Place) -> None:
    _journaled(place, FIRST)


@mistake("journal", "calls")
def calls_of_a_damaged_journal(place: Place) -> None:
    _journaled(place, FIRST)
    _damage_journal(place)


@mistake("journal", "verify")
def verify_where_nothing_was_played(place: Place) -> None: ...


@mistake("journal", "verify")
def verify_of_a_damaged_journal(place: Place) -> None:
    _journaled(place, FIRST)
    _damage_journal(place)


@mistake("journal", "verify")
def verify_finds_a_call_missing(place: Place) -> None:
    _journaled(place, FIRST)
    with closing(sqlite3.connect(place.root / "journal.db")) as db, db:
        db.execute("DELETE FROM calls WHERE role = 'leader'")


@mistake("prune", "--older-than", "a month")
def prune_by_no_age(place: Place) -> None: ...


@mistake("prune", "--keep", "-1")
def prune_that_keeps_fewer_than_none(place: Place) -> None: ...


@mistake("prune", "--older-than", "0s")
def prune_of_a_damaged_journal(place: Place) -> None:
    _damage_journal(place)


@mistake("rebuild")
def rebuild_from_nothing(place: Place) -> None: ...


@mistake("rebuild")
def rebuild_from_a_damaged_journal(place: Place) -> None:
    _journaled(place, FIRST)
    _damage_journal(place)


@mistake("delete", "last", "--yes")
def delete_of_what_another_process_plays(place: Place) -> None:
    _unfinished(place)
    _held(place)


# --- budgets ----------------------------------------------------------------------------------------------------------


@mistake(*EXEC)
def budget_below_zero(place: Place) -> None:
    place.add(ORCHESTRATOR, "\n[budget]\nmax_cost_usd = -1\n")


@mistake(*EXEC)
def budget_of_nothing(place: Place) -> None:
    place.add(ORCHESTRATOR, "\n[budget]\nmax_requests = 0\n")


@mistake(*EXEC)
def budget_key_typo(place: Place) -> None:
    place.add(ORCHESTRATOR, "\n[budget]\nmax_cost = 1\n")


@mistake(*EXEC)
def budget_in_the_wrong_table(place: Place) -> None:
    place.change(ORCHESTRATOR, "max_rounds = 1", "max_rounds = 1\nmax_cost_usd = 1")


@mistake(*EXEC)
def team_budget_key_typo(place: Place) -> None:
    place.add(TEAM, "\n[team.budget]\nmax_token = 1\n")


@mistake("config", "validate", ORCHESTRATOR)
def price_of_a_misspelt_model(place: Place) -> None:
    place.add(ORCHESTRATOR, '[prices."loopback:leeder-a"]\ninput_usd_per_million = 1\noutput_usd_per_million = 2\n')
    place.shows_answer = True


@mistake(*EXEC)
def budget_of_money_without_prices(place: Place) -> None:
    place.add(ORCHESTRATOR, "\n[budget]\nmax_cost_usd = 1\n")


@mistake(*EXEC)
def budget_too_small_for_a_round(place: Place) -> None:
    place.add(ORCHESTRATOR, "\n[budget]\nmax_tokens = 8500\n")


@mistake(*EXEC)
def budget_too_small_for_a_judge(place: Place) -> None:
    place.add(ORCHESTRATOR, "\n[budget]\nmax_tokens = 100\n")


# --- keys in a keyring ------------------------------------------------------------------------------------------------


def _needs_a_key(place: Place) -> None:
    place.add(PROVIDERS, 'api_key_env = "LOOP_KEY"\n')


def _empty(service: str, username: str) -> str | None:
    return None


def _locked(service: str, username: str) -> str | None:
    raise KeyringLocked("words of the keyring's own")


def _keyring(place: Place, get_password: Callable[[str, str], str | None]) -> None:
    place.environ.setattr(keys, "_keyring", keys._Keyring())
    place.environ.setattr(keyring, "get_password", get_password)


@mistake(*EXEC)
def key_nowhere(place: Place) -> None:
    _needs_a_key(place)
    _keyring(place, _empty)


@mistake(*EXEC)
def keyring_locked(place: Place) -> None:
    _needs_a_key(place)
    _keyring(place, _locked)


@mistake(*EXEC)
def keyring_not_installed(place: Place) -> None:
    _needs_a_key(place)
    place.environ.setattr(keys, "_keyring", keys._Keyring())
    place.environ.setitem(sys.modules, "keyring", None)


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
    for end in made.at_the_end:
        end()
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
    assert len(MISTAKES) >= 100


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
        # Bytecode would be cut off as well, and so be broken for all that come later.
        env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
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
