"""``mixseek config``: what is written, shown, listed and told, and the exit codes."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple, get_args

import pytest
import tomli

from mixseek import providers
from mixseek.cli import main
from mixseek.cli.config import Component
from mixseek.config.kinds import KINDS
from mixseek.config.manager import ConfigurationManager
from mixseek.config.schema import PromptBuilderSettings
from soak import forked

FILES = [f"configs/{kind.file}" for kind in KINDS.values()]
SECRET = "hunter2-hunter2"
MEMBER = f"""\
[agent]
name = "a"
type = "plain"
model = "openai:gpt-5-mini"
[agent.metadata]
db = "postgres://me:{SECRET}@host/db"
nested = [{{ password = "{SECRET}" }}]
[agent.tool_settings.mine]
api_key = "{SECRET}"
[agent.mcp_servers.github]
command = "server"
args = ["--token", "${{GITHUB_TOKEN}}"]
env = {{ GITHUB_TOKEN = "${{GITHUB_TOKEN}}", LANG = "C" }}
[agent.mcp_servers.web]
url = "https://host/mcp"
headers = {{ Authorization = "Bearer ${{GITHUB_TOKEN}}" }}
"""


class Ran(NamedTuple):
    """The end of a command."""

    code: int
    out: str
    err: str


class Run:
    """Runs ``mixseek`` in this process on one workspace."""

    def __init__(self, workspace: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.workspace = workspace
        self.capsys = capsys

    def __call__(self, *arguments: str) -> Ran:
        self.capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            main([*arguments, "--workspace", str(self.workspace)])
        printed = self.capsys.readouterr()
        assert isinstance(ended.value.code, int)
        return Ran(ended.value.code, printed.out, printed.err)


@pytest.fixture(autouse=True)
def _no_settings_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("MIXSEEK_")] + ["TZ"]:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("GOOGLE_API_KEY", "the key of the default models")
    # As if the package of the default models were installed, whichever are.
    monkeypatch.setitem(providers._PACKAGES, "google", "json")


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    root = tmp_path / "workspace"
    root.mkdir()
    return root


@pytest.fixture
def run(workspace: Path, capsys: pytest.CaptureFixture[str]) -> Run:
    return Run(workspace, capsys)


def _write(run: Run, name: str, text: str) -> None:
    path = run.workspace / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def _append(run: Run, name: str, text: str) -> None:
    _write(run, name, (run.workspace / name).read_text() + text)


# --- init -----------------------------------------------------------------------------------------------------------


def test_init_writes_a_file_of_every_kind_and_each_is_valid(run: Run) -> None:
    assert run("config", "init") == Ran(0, "".join(f"wrote {file}\n" for file in [*FILES, ".gitignore"]), "")
    for kind, file in zip(KINDS, FILES, strict=True):
        assert run("config", "validate", file) == Ran(0, f"{file}: ok ({kind})\n", "")
    assert sorted(path.name for path in run.workspace.rglob("*") if path.name.startswith(".")) == [".gitignore"]


@pytest.mark.parametrize("kind", KINDS)
def test_init_of_one_component_writes_what_is_needed_for_it_to_be_valid(kind: str, run: Run) -> None:
    file = f"configs/{KINDS[kind].file}"
    written = run("config", "init", "--component", kind)
    assert written.code == 0
    assert written.out.splitlines()[0] == f"wrote {file}"
    assert run("config", "validate", file).code == 0
    expected = {"orchestrator", "team"} if kind == "orchestrator" else {kind}
    assert {path.stem for path in run.workspace.rglob("*.toml")} == expected


def test_the_components_are_the_kinds_of_files() -> None:
    assert list(get_args(Component)) == list(KINDS)


def test_init_makes_the_workspace_it_is_given(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = Run(tmp_path / "new" / "workspace", capsys)
    assert run("config", "init").code == 0
    assert run("config", "validate", *FILES).code == 0


def test_init_into_a_file_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").write_text("")
    ran = Run(tmp_path / "file", capsys)("config", "init")
    assert (ran.code, ran.out) == (2, "")
    assert "is not a directory" in ran.err


def test_json_stays_json_whatever_stands_in_a_file(run: Run) -> None:
    _write(run, "odd.toml", '[team]\nteam_id = "x"\nteam_name = "y"\n"a\x9b31m\u202e" = 1\n')
    ran = run("config", "validate", "odd.toml", "-f", "json")
    assert ran.code == 2
    assert not {"\x9b", "\u202e"} & set(ran.out)
    assert "a\x9b31m\u202e" in json.loads(ran.out)["error"]["problems"][0]["key"]


def test_init_never_overwrites_unless_it_is_forced(run: Run) -> None:
    _write(run, "configs/judgment.toml", 'model = "none"\n')
    told = "configs/judgment.toml: exists already: use --force to overwrite it"

    assert run("config", "init", "--component", "judgment") == Ran(2, "", f"mixseek: {told}\n")
    assert f"kept {told}\n" in run("config", "init").out
    again = run("config", "init")
    assert (again.code, again.out, len(again.err.splitlines())) == (2, "", len(FILES))
    assert (run.workspace / "configs/judgment.toml").read_text() == 'model = "none"\n'

    assert run("config", "init", "--component", "judgment", "--force") == Ran(0, "wrote configs/judgment.toml\n", "")
    assert 'model = "google-gla:gemini-2.5-flash"' in (run.workspace / "configs/judgment.toml").read_text()


def test_force_of_one_component_spares_the_file_that_is_only_needed_with_it(run: Run) -> None:
    team = '[team]\nteam_id = "mine"\nteam_name = "Mine"\n'
    _write(run, "configs/agents/team.toml", team)
    assert run("config", "init", "--component", "orchestrator", "--force").code == 0
    assert (run.workspace / "configs/agents/team.toml").read_text() == team


def test_the_prompt_builder_file_holds_the_default_templates(run: Run) -> None:
    run("config", "init", "--component", "prompt_builder")
    text = (run.workspace / "configs/prompt_builder.toml").read_text()
    assert text.startswith("# UserPromptBuilder 設定ファイル\n# 生成日時: 20")
    assert "#   - {{ user_prompt }}            : 元のユーザプロンプト\n" in text
    assert tomli.loads(text)["prompt_builder"] == PromptBuilderSettings().model_dump(
        exclude={"language", "round_prompt"}
    )


def test_the_starter_files_state_the_defaults(run: Run) -> None:
    run("config", "init")
    manager = ConfigurationManager(run.workspace, environ={})
    loaded = manager.load_run_settings("configs/orchestrator.toml")
    fields = {"teams", "workspace_path"}
    for settings in (loaded.orchestrator, loaded.evaluator, loaded.judgment):
        for name in type(settings).model_fields.keys() - fields:
            trace = manager.get_trace_info(settings, name)
            assert all(trace.value == origin.value for origin in trace.overrode if origin.value is not None), name


def test_a_place_that_cannot_be_written_is_told(run: Run) -> None:
    _write(run, "configs", "a file where a directory should be")
    ran = run("config", "init", "--component", "team")
    assert ran.code == 2
    assert ran.err == "mixseek: configs/agents/team.toml: cannot be written: Not a directory\n"


# --- validate -------------------------------------------------------------------------------------------------------


def test_validate_answers_in_json(run: Run) -> None:
    _write(run, "configs/judgment.toml", "temprature = 1\n")
    ran = run("config", "validate", "configs/judgment.toml", "-f", "json")
    problem = {
        "file": "configs/judgment.toml",
        "key": "temprature",
        "message": 'unknown key; did you mean "temperature"?',
    }
    message = 'configs/judgment.toml: temprature: unknown key; did you mean "temperature"?'
    assert (ran.code, ran.err) == (2, "")
    assert json.loads(ran.out) == {"error": {"type": "ConfigurationError", "message": message, "problems": [problem]}}
    _write(run, "configs/judgment.toml", "temperature = 1\n")
    ran = run("config", "validate", "configs/judgment.toml", "-f", "json")
    assert (ran.code, json.loads(ran.out)) == (
        0,
        {"files": [{"file": "configs/judgment.toml", "kind": "judgment", "notes": []}]},
    )


def test_validate_without_a_file_checks_the_whole_workspace(run: Run) -> None:
    assert run("config", "validate").err == (
        "mixseek: configs: there is no TOML file in it: mixseek config init writes some to start from\n"
    )
    run("config", "init")
    assert run("config", "validate").out.splitlines() == [f"{file}: ok ({kind})" for kind, file in _in_order()]
    _write(run, "configs/agents/member.toml", "[agent]\n")
    _write(run, "configs/agents/team.toml", "[team\n")
    ran = run("config", "validate")
    assert ran.code == 2
    # The broken team is told once, though the orchestrator file names it too.
    assert [line.split(": ")[1] for line in ran.err.splitlines()] == [*["configs/agents/member.toml"] * 3, TEAM_FILE]
    assert ran.err.endswith("(named in configs/orchestrator.toml: orchestrator.teams[0].config)\n")


TEAM_FILE = "configs/agents/team.toml"


def _in_order() -> list[tuple[str, str]]:
    return sorted(zip(KINDS, FILES, strict=True), key=lambda pair: pair[1].split("/"))


def test_a_note_of_a_file_that_another_names_is_told_once(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GOOGLE_API_KEY")
    run("config", "init", "--component", "orchestrator")
    notes = [line for line in run("config", "validate").out.splitlines() if "team.leader.model: no key" in line]
    assert len(notes) == 1


def test_validate_of_a_directory_checks_the_files_in_it(run: Run) -> None:
    run("config", "init")
    told = run("config", "validate", "configs/agents").out.splitlines()
    assert told == ["configs/agents/member.toml: ok (member)", "configs/agents/team.toml: ok (team)"]
    (run.workspace / "empty").mkdir()
    assert run("config", "validate", "empty").err.startswith("mixseek: empty: there is no TOML file in it")


def test_validate_notes_a_price_of_a_model_that_nobody_names(run: Run) -> None:
    run("config", "init")
    price = "input_usd_per_million = 1\noutput_usd_per_million = 2\n"
    _append(run, "configs/orchestrator.toml", f'\n[prices."google-gla:gemini-2.5-flsh"]\n{price}')
    ran = run("config", "validate", "configs/orchestrator.toml")
    key = 'prices."google-gla:gemini-2.5-flsh"'
    told = "has a price, but nobody here names this model; did you mean 'google-gla:gemini-2.5-flash'?"
    assert ran.out.splitlines()[1:] == [f"  note: configs/orchestrator.toml: {key}: {told}"]


def test_validate_takes_the_file_of_a_competition_as_exec_does(run: Run) -> None:
    run("config", "init")
    assert run("config", "validate", "-c", "configs/orchestrator.toml") == Ran(
        0, "configs/orchestrator.toml: ok (orchestrator)\n", ""
    )
    _write(run, "configs/agents/team.toml", '[team]\nteam_id = "a"\n')
    broken = run("config", "validate", "--config", "configs/orchestrator.toml")
    assert (broken.code, "mixseek: configs/agents/team.toml: team.team_name: is required" in broken.err) == (2, True)


def test_validate_takes_no_other_file_for_that_of_a_competition_and_none_beside_it(run: Run) -> None:
    run("config", "init")
    other = run("config", "validate", "-c", "configs/judgment.toml")
    told = "mixseek: configs/judgment.toml: -c takes an orchestrator file: give this one without -c\n"
    assert other == Ran(2, "", told)
    both = run("config", "validate", "configs/judgment.toml", "-c", "configs/orchestrator.toml")
    assert both == Ran(2, "", "mixseek: -c FILE is the file of a competition: give no other FILE beside it\n")


def test_validate_tells_the_problems_of_all_files(run: Run) -> None:
    _write(run, "configs/judgment.toml", "seed = 1.5\n")
    ran = run("config", "validate", "configs/judgment.toml", "nowhere.toml")
    assert ran.code == 2
    assert ran.err.splitlines() == [
        "mixseek: configs/judgment.toml: seed: 1.5 is not allowed: must be a whole number",
        "mixseek: nowhere.toml: does not exist",
    ]


def test_validate_loads_no_plugins_when_told_so(run: Run) -> None:
    _write(run, "agents/mine.py", 'raise RuntimeError("was loaded")\n')
    plugin = 'plugin = {path = "agents/mine.py", agent_class = "Mine"}\n'
    member = '[agent]\nname = "a"\ntype = "custom"\nmodel = "ollama:b"\n' + plugin
    _write(run, "configs/agents/m.toml", member)
    assert run("config", "validate", "configs/agents/m.toml", "--no-plugins").code == 0
    assert "RuntimeError: was loaded" in run("config", "validate", "configs/agents/m.toml").err


def test_what_a_plugin_prints_stays_out_of_the_json(run: Run) -> None:
    _write(run, "metrics/m.py", "print('hello')\nfrom mixseek.evaluator.metrics.coverage import Coverage as M\n")
    _write(run, "configs/evaluator.toml", '[custom_metrics]\nM = {path = "metrics/m.py", class = "M"}\n')
    ran = run("config", "validate", "configs/evaluator.toml", "-f", "json")
    assert json.loads(ran.out)["files"][0]["kind"] == "evaluator"


def test_validate_notes_an_older_spelling(run: Run) -> None:
    text = '[agent]\nname = "a"\ntype = "plain"\nmodel = "ollama:b"\n[agent.instructions]\ntext = "Be brief."\n'
    _write(run, "configs/agents/m.toml", text)
    ran = run("config", "validate", "configs/agents/m.toml")
    assert "note: configs/agents/m.toml: agent.instructions: older spelling" in ran.out


# --- show -----------------------------------------------------------------------------------------------------------


def test_show_names_the_source_that_won(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    _write(run, "configs/judgment.toml", "temperature = 0.5\nseed = 1\n")
    _write(run, ".env", "MIXSEEK_JUDGMENT__SEED=2\n")
    monkeypatch.setenv("MIXSEEK_JUDGMENT__TEMPERATURE", "0.7")
    lines = run("config", "show", "judgment").out.splitlines()
    assert lines[0] == "# judgment (configs/judgment.toml)"
    over = "over TOML configs/judgment.toml"
    assert f"temperature = 0.7  [environment MIXSEEK_JUDGMENT__TEMPERATURE; {over}: temperature]" in lines
    assert f"seed = 2  [.env: MIXSEEK_JUDGMENT__SEED; {over}: seed]" in lines
    assert "top_p = (not set)  [default]" in lines


def test_show_answers_in_json(run: Run) -> None:
    _write(run, "configs/judgment.toml", "seed = 1\n")
    shown = json.loads(run("config", "show", "configs/judgment.toml", "-f", "json").out)["settings"]
    fields: dict[str, Any] = {field["field"]: field for field in shown[0]["fields"]}
    assert shown[0]["kind"] == "judgment"
    assert fields["seed"] == {
        "field": "seed",
        "value": 1,
        "source": "TOML",
        "where": "configs/judgment.toml: seed",
        "overrode": [{"source": "default", "where": "", "value": None}],
    }


@pytest.mark.parametrize("output", ["text", "json"])
def test_show_masks_secrets_at_any_depth(output: str, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    _write(run, "configs/agents/m.toml", MEMBER)
    team = '[team]\nteam_id = "t"\nteam_name = "T"\n[[team.members]]\nconfig = "configs/agents/m.toml"\n'
    _write(run, "configs/agents/t.toml", team)
    monkeypatch.setenv("GITHUB_TOKEN", SECRET)
    for file in ("configs/agents/m.toml", "configs/agents/t.toml"):
        ran = run("config", "show", file, "-f", output)
        assert ran.code == 0
        assert SECRET not in ran.out + ran.err
        assert "********" in ran.out
        assert "gpt-5-mini" in ran.out
        assert "tool_settings.mine" in ran.out


def test_show_masks_a_secret_that_was_overridden(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    _write(run, "configs/judgment.toml", f'system_instruction = "Bearer {SECRET}"\n')
    monkeypatch.setenv("MIXSEEK_JUDGMENT__SYSTEM_INSTRUCTION", "sk-abcdefghijklmnop")
    shown = run("config", "show", "judgment", "-f", "json").out
    assert SECRET not in shown
    assert "sk-abcdefghijklmnop" not in shown


def test_a_secret_in_the_wrong_place_is_not_repeated(run: Run) -> None:
    _write(run, "configs/judgment.toml", 'model = "sk-abcdefghijklmnop"\napi_key = "sk-abcdefghijklmnop"\n')
    ran = run("config", "validate", "configs/judgment.toml")
    assert ran.code == 2
    assert "abcdefgh" not in ran.err


def test_show_without_a_name_shows_the_whole_competition(run: Run) -> None:
    kinds = ["evaluator", "judgment", "prompt_builder", "providers"]
    assert _headings(run("config", "show")) == [
        f"# {kind} (defaults: there is no configs/{kind}.toml)" for kind in kinds
    ]
    run("config", "init")
    assert _headings(run("config", "show")) == [
        "# orchestrator (configs/orchestrator.toml)",
        "# team team-1 (configs/agents/team.toml)",
        *(f"# {kind} (configs/{kind}.toml)" for kind in kinds),
    ]


def _headings(ran: Ran) -> list[str]:
    return [line for line in ran.out.splitlines() if line.startswith("# ")]


def test_show_of_a_kind_shows_all_its_files_and_nothing_else(run: Run) -> None:
    run("config", "init")
    _write(run, "configs/agents/b.toml", '[team]\nteam_id = "b"\nteam_name = "B"\n')
    _write(run, "configs/strict.toml", "max_retries = 1\ndefault_model = 'ollama:b'\n")
    assert _headings(run("config", "show", "team")) == [
        "# team b (configs/agents/b.toml)",
        "# team team-1 (configs/agents/team.toml)",
    ]
    assert _headings(run("config", "show", "orchestrator")) == ["# orchestrator (configs/orchestrator.toml)"]
    assert _headings(run("config", "show", "evaluator")) == [
        "# evaluator (configs/evaluator.toml)",
        "# evaluator (configs/strict.toml)",
    ]


def test_show_names_keys_as_a_file_has_them(run: Run) -> None:
    _write(run, "configs/agents/t.toml", '[team]\nteam_id = "t"\nteam_name = "T"\n')
    _write(run, "metrics/m.py", "from mixseek.evaluator.metrics.coverage import Coverage as M\n")
    _write(run, "configs/evaluator.toml", '[custom_metrics]\nM = {path = "metrics/m.py", class = "M"}\n')
    assert "team.leader.model = " in run("config", "show", "team").out
    assert "\ncustom_metrics.M.class = 'M'  [TOML" in run("config", "show", "evaluator").out


def test_show_tells_the_class_a_metric_is_really_of(run: Run) -> None:
    metric = '[[metrics]]\nname = "{}"\nsystem_instruction = "x"\n'
    _write(run, "configs/evaluator.toml", metric.format("Tone") + metric.format("Coverage"))
    lines = run("config", "show", "evaluator").out.splitlines()
    assert "metrics[0].type = 'LLMPlain'  [default]" in lines
    assert "metrics[1].type = 'Coverage'  [default]" in lines


def test_show_tells_which_file_is_read_without_being_named(run: Run) -> None:
    run("config", "init", "--component", "orchestrator")
    _write(run, "configs/evaluator.toml", "")
    lines = run("config", "show", "orchestrator").out.splitlines()
    assert "orchestrator.evaluator_config = (not set; configs/evaluator.toml is read)  [default]" in lines
    assert "orchestrator.judgment_config = (not set; the defaults hold)  [default]" in lines


def test_show_writes_truths_as_a_file_does(run: Run) -> None:
    assert "judge_on_final_round = true  [default]" in run("config", "show", "judgment").out.splitlines()


def test_show_of_a_kind_that_has_no_file_is_told(run: Run) -> None:
    ran = run("config", "show", "team")
    told = "there is no team file in the workspace: mixseek config init --component team writes one"
    assert (ran.code, ran.err) == (2, f"mixseek: {told}\n")


@pytest.mark.parametrize("command", ["show", "list"])
def test_what_is_no_kind_is_told_with_the_kinds(command: str, run: Run) -> None:
    ran = run("config", command, "evaluators")
    assert ran.code == 2
    assert ran.err.endswith(f"the kinds are {', '.join(KINDS)}, prompt_templates\n")


@pytest.mark.parametrize("command", ["show", "list"])
def test_the_help_names_the_kinds(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["config", command, "-h"])
    assert f"{', '.join(KINDS)}, prompt_templates." in " ".join(capsys.readouterr().out.split())


# --- prompt templates -----------------------------------------------------------------------------------------------

TEMPLATES = "configs/prompt_templates"


def _write_templates(run: Run, continuation: str = "{{ round_number }}") -> None:
    _write(run, f"{TEMPLATES}/initial_prompt.jinja2", "{{ user_query }}")
    _write(run, f"{TEMPLATES}/continuation_prompt.jinja2", continuation)


def test_validate_checks_the_prompt_templates(run: Run) -> None:
    _write_templates(run)
    for arguments in ([], [TEMPLATES], [f"{TEMPLATES}/initial_prompt.jinja2"]):
        assert run("config", "validate", *arguments) == Ran(0, f"{TEMPLATES}: ok (prompt_templates)\n", "")
    _write_templates(run, "{{ user_prompt }}")
    told = "line 1 of the template: Jinja2 template error: 'user_prompt' is undefined"
    assert run("config", "validate").err.startswith(f"mixseek: {TEMPLATES}/continuation_prompt.jinja2: {told}")
    (run.workspace / TEMPLATES / "initial_prompt.jinja2").unlink()
    assert "continuation_prompt.jinja2 is there but initial_prompt.jinja2 is not" in run("config", "validate").err


def test_a_directory_of_prompt_templates_without_any_is_told(run: Run) -> None:
    (run.workspace / TEMPLATES).mkdir(parents=True)
    told = "holds no template: add initial_prompt.jinja2 and continuation_prompt.jinja2, or take the directory away"
    assert run("config", "validate") == Ran(2, "", f"mixseek: {TEMPLATES}: {told}\n")


def test_list_and_show_tell_of_the_prompt_templates(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    _write_templates(run)
    listed = run("config", "list", "prompt_templates").out
    assert listed.splitlines()[1] == f"{TEMPLATES}  prompt_templates  ok"
    assert "initial_prompt.jinja2  a Jinja2 template of user_query, team_id, team_name" in listed
    for arguments in ([], ["prompt_templates"]):
        shown = run("config", "show", *arguments).out
        assert (
            f"# prompt_templates ({TEMPLATES}; what the teams are told)\ninitial_prompt.jinja2 = '{{{{ user_query"
            in shown
        )
    monkeypatch.setenv("MIXSEEK_TEAM_USER_PROMPT", "{{ user_prompt }}")
    unused = f"# prompt_templates ({TEMPLATES}; not in use: prompt_builder.team_user_prompt is set)"
    assert unused in run("config", "show").out


def test_metrics_of_any_key_can_be_shown(run: Run) -> None:
    _write(run, "metrics/m.py", "from mixseek.evaluator.metrics.coverage import Coverage as M\n")
    metric = '[custom_metrics."a]b.c\\" \\u001b[31m"]\npath = "metrics/m.py"\nclass = "M"\n'
    _write(run, "configs/evaluator.toml", metric)
    ran = run("config", "show", "evaluator")
    assert ran.code == 0
    assert "\x1b" not in ran.out
    assert "custom_metrics" in ran.out


# --- list -----------------------------------------------------------------------------------------------------------


def test_list_shows_files_with_their_state_and_all_settings(run: Run) -> None:
    _write(run, "configs/judgment.toml", "seed = 1.5\ntypo = 1\n")
    _write(run, "configs/evaluator.toml", "")
    _write(run, "configs/notes.toml", "x = 1\n")
    lines = run("config", "list").out.splitlines()
    assert lines[:5] == [
        "# files",
        "configs/evaluator.toml  evaluator  ok",
        "configs/judgment.toml  judgment  2 problems",
        "configs/notes.toml  unknown kind  1 problem",
        "",
    ]
    setting = "orchestrator.max_rounds  a whole number from 1 to 10  default: 5  MIXSEEK_MAX_ROUNDS"
    assert setting in lines


def test_the_name_of_a_file_cannot_steer_the_terminal(run: Run) -> None:
    _write(run, "configs/judgment\x1b[2J\n.toml", "seed = 1\n")
    listed = run("config", "list").out
    assert listed.splitlines()[1] == "configs/judgment\\x1b[2J\\n.toml  judgment  ok"
    assert "\x1b" not in run("config", "list", "-f", "json").out


def test_list_answers_in_json(run: Run) -> None:
    _write(run, "configs/judgment.toml", "seed = 1\n")
    listed = json.loads(run("config", "list", "-f", "json").out)
    assert listed["files"] == [{"file": "configs/judgment.toml", "kind": "judgment", "problems": []}]
    assert list(listed["settings"]) == [*KINDS, "prompt_templates"]


def test_list_of_a_kind_shows_that_kind_only(run: Run) -> None:
    run("config", "init")
    lines = run("config", "list", "judgment").out.splitlines()
    assert lines[:4] == ["# files", "configs/judgment.toml  judgment  ok", "", "# judgment (configs/judgment.toml)"]
    assert all(line.startswith("# files") or "evaluator" not in line for line in lines)


def test_list_tells_defaults_as_they_are(run: Run) -> None:
    lines = run("config", "list").out.splitlines()
    least = (
        "orchestrator.min_rounds  a whole number from 1 to 10  default: 2, or max_rounds if less  MIXSEEK_MIN_ROUNDS"
    )
    assert least in lines
    assert "team.team_id  text  required  MIXSEEK_TEAM__TEAM_ID" in lines


def test_list_says_how_to_see_what_is_wrong(run: Run) -> None:
    _write(run, "configs/judgment.toml", "typo = 1\n")
    assert run("config", "list").out.splitlines()[-1] == "There are problems: mixseek config validate tells them."
    _write(run, "configs/judgment.toml", "")
    assert "mixseek config validate" not in run("config", "list").out


# --- bad input ------------------------------------------------------------------------------------------------------


def test_no_workspace_is_told_in_the_format_that_was_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["config", "show"])
    printed = capsys.readouterr()
    assert (ended.value.code, printed.out) == (2, "")
    assert (
        printed.err == "mixseek: no workspace: give --workspace DIR or set MIXSEEK_WORKSPACE; mixseek init makes one\n"
    )

    with pytest.raises(SystemExit) as ended:
        main(["config", "show", "-f", "json"])
    printed = capsys.readouterr()
    assert (ended.value.code, printed.err) == (2, "")
    assert json.loads(printed.out)["error"]["type"] == "WorkspaceNotFoundError"


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["confg"], "No such command 'confg'. Did you mean 'config'? mixseek --help lists the commands"),
        (["config", "shw"], "No such command 'shw'. Did you mean 'show'? mixseek config --help lists the commands"),
        (["--verson"], "No such option: --verson (Possible options: --version); mixseek --help lists the options"),
        (["attack"], "Missing option '--config' / '-c'; mixseek attack --help lists the options"),
        (["init", "a", "b"], "Got unexpected extra argument(s) (b); mixseek init --help lists the options"),
        (["exec"], "no workspace: give --workspace DIR"),
        (["config", "init", "--component", "x"], "Invalid value for '--component': 'x' is not one of"),
    ],
)
def test_a_wrong_command_line_is_told_in_one_line(
    arguments: list[str], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    printed = capsys.readouterr()
    assert (ended.value.code, printed.err.count("\n")) == (2, 1)
    assert printed.err.startswith(f"mixseek: {told}")


@pytest.mark.parametrize("arguments", [[], ["config"]])
def test_without_a_command_the_help_lists_them_on_lines_of_their_own(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        main([*arguments, "--help"])
    helped = capsys.readouterr().out
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    printed = capsys.readouterr()
    assert (ended.value.code, printed.out, printed.err.rstrip("\n")) == (2, "", helped.rstrip("\n"))


# --- real processes -------------------------------------------------------------------------------------------------


def _process(*arguments: str, **environ: str) -> "subprocess.CompletedProcess[str]":
    return forked.run(
        [sys.executable, "-m", "mixseek", *arguments],
        env={**os.environ, **environ},
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=60,
        check=False,
    )


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("x = [", "not valid TOML: at the end: invalid value"),
        ("a." * 20_000 + "b = 1", "line 1: a key with more than 32 dotted parts; split it into tables"),
        ('"\\u001b[2J" = 1\n', '"\\u001b[2J": unknown key; known are'),
        ("max_tokens = 0\n", "max_tokens: 0 is not allowed: must be a whole number from 1 up"),
    ],
)
def test_a_broken_file_ends_a_process_with_two_and_no_traceback(text: str, told: str, workspace: Path) -> None:
    (workspace / "configs").mkdir()
    (workspace / "configs/judgment.toml").write_text(text)
    ran = _process("config", "validate", "configs/judgment.toml", MIXSEEK_WORKSPACE=str(workspace))
    assert ran.returncode == 2
    assert ran.stdout == ""
    assert ran.stderr.startswith(f"mixseek: configs/judgment.toml: {told}")
    assert "Traceback" not in ran.stderr
    assert "\x1b" not in ran.stderr


def test_a_stream_that_says_it_knows_only_ascii_ends_no_command(workspace: Path) -> None:
    ran = _process("config", "show", "prompt_builder", "-w", str(workspace), PYTHONIOENCODING="ascii")
    assert ran.returncode == 0
    assert "round_prompt = (not set)" in ran.stdout
