"""From files, environment and command line to settings: who wins, where it came from, and what is told."""

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from mixseek.config import ConfigurationManager
from mixseek.config.kinds import KINDS
from mixseek.config.layers import TraceInfo
from mixseek.config.manager import load_orchestrator_settings, read_prompt_builder_settings
from mixseek.config.schema import (
    EvaluatorSettings,
    JudgmentSettings,
    PromptBuilderSettings,
    ProvidersSettings,
    RoundPromptConfig,
)
from mixseek.errors import ConfigurationError
from mixseek.templating import DEFAULT_TEAM_USER_PROMPT

TEAM = """\
[team]
team_id = "{id}"
team_name = "Team {id}"
[team.leader]
model = "openai:from-toml"
temperature = 0.1
"""
ORCHESTRATOR = """\
[orchestrator]
max_rounds = 4
[[orchestrator.teams]]
config = "configs/agents/a.toml"
[[orchestrator.teams]]
config = "configs/agents/b.toml"
"""
PROMPTS = """\
[prompt_builder]
team_user_prompt = "team {{ user_prompt }}"
evaluator_user_prompt = "evaluator {{ submission }}"
judgment_user_prompt = "judgment {{ submission_history }}"
"""


def _write(workspace: Path, name: str, text: str) -> Path:
    path = workspace / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def _competition(workspace: Path) -> Path:
    for team in ("a", "b"):
        _write(workspace, f"configs/agents/{team}.toml", TEAM.format(id=team))
    return _write(workspace, "configs/orchestrator.toml", ORCHESTRATOR)


def _manager(workspace: Path, environ: Mapping[str, str] | None = None, **options: Any) -> ConfigurationManager:
    return ConfigurationManager(workspace, environ=environ or {}, **options)


def _problems(error: pytest.ExceptionInfo[ConfigurationError]) -> list[str]:
    return [str(problem) for problem in error.value.problems]


# --- precedence -----------------------------------------------------------------------------------------------------


LAYERS = [
    ("default", "google-gla:gemini-2.5-flash-lite", "default"),
    ("toml", "openai:from-toml", "TOML configs/agents/a.toml: team.leader.model"),
    (".env", "openai:from-dotenv", ".env: MIXSEEK_TEAM__LEADER__MODEL"),
    ("environment", "openai:from-environment", "environment MIXSEEK_TEAM__LEADER__MODEL"),
    ("command line", "openai:from-command-line", "command line team.leader.model"),
]


@pytest.mark.parametrize("height", range(len(LAYERS)), ids=lambda height: LAYERS[height][0])
def test_the_highest_layer_wins_and_is_named(height: int, workspace: Path) -> None:
    variable = "MIXSEEK_TEAM__LEADER__MODEL"
    text = TEAM.format(id="a")
    path = _write(workspace, "configs/agents/a.toml", text if height >= 1 else text.replace("model =", "# model ="))
    if height >= 2:
        _write(workspace, ".env", f"{variable}=openai:from-dotenv\n")
    environ = {variable: "openai:from-environment"} if height >= 3 else {}
    overrides = {"team": {"leader": {"model": "openai:from-command-line"}}} if height >= 4 else {}
    manager = _manager(workspace, environ, overrides=overrides)

    team = manager.load_team_settings(path)
    trace = manager.get_trace_info(team, "leader.model")

    assert team.leader.model == trace.value == LAYERS[height][1]
    assert str(trace) == LAYERS[height][2]
    assert [str(origin) for origin in trace.overrode] == [where for _, _, where in reversed(LAYERS[:height])]
    assert [origin.value for origin in trace.overrode] == [value for _, value, _ in reversed(LAYERS[:height])]
    # The merge is deep: the other key of the same table stays as the file has it.
    assert team.leader.temperature == 0.1


@pytest.mark.parametrize(
    ("kind", "variable", "text", "field", "value"),
    [
        ("orchestrator", "MIXSEEK_MAX_ROUNDS", "7", "max_rounds", 7),
        ("orchestrator", "MIXSEEK_TIMEOUT_PER_TEAM_SECONDS", "60", "timeout_per_team_seconds", 60),
        ("orchestrator", "MIXSEEK_STORAGE__LOCK_WAIT_SECONDS", "1.5", "storage.lock_wait_seconds", 1.5),
        ("orchestrator", "MIXSEEK_BUDGET__MAX_TOKENS", "5", "budget.max_tokens", 5),
        ("team", "MIXSEEK_TEAM__TEAM_NAME", "X", "team_name", "X"),
        ("team", "MIXSEEK_TEAM__LEADER__STOP_SEQUENCES", '["END"]', "leader.stop_sequences", ["END"]),
        ("team", "MIXSEEK_TEAM__ANSWER_SCHEMA", '{"type": "object"}', "answer_schema", {"type": "object"}),
        ("evaluator", "MIXSEEK_EVALUATOR__DEFAULT_MODEL", "ollama:b", "default_model", "ollama:b"),
        ("evaluator", "MIXSEEK_EVALUATOR__LLM_DEFAULT__TOP_P", "0.5", "llm_default.top_p", 0.5),
        ("judgment", "MIXSEEK_JUDGMENT__JUDGE_ON_FINAL_ROUND", "false", "judge_on_final_round", False),
        ("judgment", "MIXSEEK_JUDGMENT__MODEL", "none", "model", "none"),
        ("prompt_builder", "MIXSEEK_PROMPT_BUILDER__TEAM_USER_PROMPT", "long", "team_user_prompt", "long"),
        ("prompt_builder", "MIXSEEK_TEAM_USER_PROMPT", "short", "team_user_prompt", "short"),
        ("prompt_builder", "MIXSEEK_JUDGMENT_USER_PROMPT", "short", "judgment_user_prompt", "short"),
    ],
)
def test_a_variable_sets_its_field(
    kind: str, variable: str, text: str, field: str, value: object, workspace: Path
) -> None:
    _competition(workspace)
    _write(workspace, "configs/prompt_builder.toml", PROMPTS)
    files = {"orchestrator": "configs/orchestrator.toml", "team": "configs/agents/a.toml"}
    manager = _manager(workspace, {variable: text})
    trace = manager.get_trace_info(manager.load(KINDS[kind], files.get(kind)), field)
    assert (trace.value, str(trace)) == (value, f"environment {variable}")


def test_a_list_of_a_higher_layer_replaces_the_whole_list(workspace: Path) -> None:
    _write(workspace, "configs/evaluator.toml", '[[metrics]]\nname = "Coverage"\n[[metrics]]\nname = "Relevance"\n')
    manager = _manager(workspace, {"MIXSEEK_EVALUATOR__METRICS": '[{"name": "Coverage"}]'})
    assert [metric.name for metric in manager.get_evaluator_settings().metrics] == ["Coverage"]


def test_members_of_a_variable_are_traced_to_it(workspace: Path) -> None:
    path = _write(workspace, "configs/agents/a.toml", TEAM.format(id="a"))
    members = '[{"name": "x", "type": "plain", "model": "ollama:b"}]'
    manager = _manager(workspace, {"MIXSEEK_TEAM__MEMBERS": members})
    team = manager.load_team_settings(path)
    assert str(manager.get_trace_info(team, "members[0].model")) == "environment MIXSEEK_TEAM__MEMBERS[0].model"


def test_a_table_of_any_shape_is_traced_to_its_place(workspace: Path) -> None:
    text = TEAM.format(id="a") + '[team.answer_schema]\ntype = "object"\nrequired = ["x"]\n'
    path = _write(workspace, "configs/agents/a.toml", text)
    manager = _manager(workspace)
    trace = manager.get_trace_info(manager.load_team_settings(path), "answer_schema")
    assert str(trace) == "TOML configs/agents/a.toml: team.answer_schema"


def test_a_table_of_several_places_names_the_strongest_first(workspace: Path) -> None:
    text = TEAM.format(id="a") + '[team.answer_schema]\ntype = "object"\n'
    path = _write(workspace, "configs/agents/a.toml", text)
    manager = _manager(workspace, {"MIXSEEK_TEAM__ANSWER_SCHEMA": '{"minProperties": 2}'})
    settings = manager.load_team_settings(path)
    assert settings.answer_schema == {"type": "object", "minProperties": 2}
    trace = manager.get_trace_info(settings, "answer_schema")
    assert str(trace) == "environment MIXSEEK_TEAM__ANSWER_SCHEMA"
    assert [str(origin) for origin in trace.overrode if origin.source != "default"] == [
        "TOML configs/agents/a.toml: team.answer_schema"
    ]


def test_a_value_of_the_wrong_type_names_its_variable(workspace: Path) -> None:
    environ = {
        "MIXSEEK_JUDGMENT__TIMEOUT_SECONDS": "soon",
        "MIXSEEK_JUDGMENT__TEMPERATURE": "9",
        "MIXSEEK_JUDGMENT__STOP_SEQUENCES": "END",
    }
    with pytest.raises(ConfigurationError) as caught:
        _manager(workspace, environ).get_judgment_settings()
    assert sorted(_problems(caught)) == [
        "MIXSEEK_JUDGMENT__STOP_SEQUENCES: 'END' is not a list, each text: write JSON, as in [\"END\"]",
        "MIXSEEK_JUDGMENT__TEMPERATURE: 9.0 is not allowed: must be a number from 0 to 2",
        "MIXSEEK_JUDGMENT__TIMEOUT_SECONDS: 'soon' is not a whole number from 1 up",
    ]


def test_a_variable_for_a_list_of_tables_is_shown_one(workspace: Path) -> None:
    with pytest.raises(ConfigurationError) as caught:
        _manager(workspace, {"MIXSEEK_EVALUATOR__METRICS": "Coverage"}).get_evaluator_settings()
    assert _problems(caught) == [
        "MIXSEEK_EVALUATOR__METRICS: 'Coverage' is not a list, each a table: "
        'write JSON, as in [{"name": "Coverage"}]',
    ]


def test_a_wrong_line_and_a_wrong_value_in_dotenv_are_told(workspace: Path) -> None:
    _write(workspace, ".env", "MIXSEEK_JUDGMENT__TEMPERATURE=9\nMIXSEEK_JUDGMENT__TEMPRATURE=1\n")
    with pytest.raises(ConfigurationError) as caught:
        _manager(workspace).get_judgment_settings()
    assert sorted(_problems(caught)) == [
        ".env: MIXSEEK_JUDGMENT__TEMPERATURE: 9.0 is not allowed: must be a number from 0 to 2",
        ".env: MIXSEEK_JUDGMENT__TEMPRATURE: unknown variable; did you mean MIXSEEK_JUDGMENT__TEMPERATURE?",
    ]


def test_a_wrong_value_of_the_command_line_is_told(workspace: Path) -> None:
    with pytest.raises(ConfigurationError) as caught:
        _manager(workspace, overrides={"judgment": {"seed": 1.5, "sed": 1}}).get_judgment_settings()
    assert _problems(caught) == [
        "judgment.seed: 1.5 is not allowed: must be a whole number",
        'judgment.sed: unknown key; did you mean "seed"?',
    ]


def test_a_slip_in_a_variable_is_told_with_the_nearest(workspace: Path) -> None:
    file = _competition(workspace)
    environ = {
        "MIXSEEK_MAX_ROUND": "3",
        "MIXSEEK_EVALUATOR__DEFAULT_MODLE": "a:b",
        "MIXSEEK_TEAM__LEADER__MODLE": "a:b",
        "MIXSEEK_PROMPT_BUILDER__TEAM_PROMPT": "x",
        "MIXSEEK_WORKSPACE_PATH": "/srv",
        "MIXSEEK_WORKSPACE": "/srv",
        "MIXSEEK_LOG_LEVEL": "debug",
    }
    with pytest.raises(ConfigurationError) as caught:
        _manager(workspace, environ).load_orchestrator_settings(file)
    assert _problems(caught) == [
        "MIXSEEK_TEAM__LEADER__MODLE: unknown variable; did you mean MIXSEEK_TEAM__LEADER__MODEL?",
        "MIXSEEK_EVALUATOR__DEFAULT_MODLE: unknown variable; did you mean MIXSEEK_EVALUATOR__DEFAULT_MODEL?",
        "MIXSEEK_PROMPT_BUILDER__TEAM_PROMPT: unknown variable; did you mean MIXSEEK_PROMPT_BUILDER__TEAM_USER_PROMPT?",
        "MIXSEEK_MAX_ROUND: unknown variable; did you mean MIXSEEK_MAX_ROUNDS?",
    ]


@pytest.mark.parametrize(
    ("variable", "told"),
    [
        ("MIXSEEK_ORCHESTRATOR__MAX_ROUNDS", "unknown variable; did you mean MIXSEEK_MAX_ROUNDS?"),
        ("MIXSEEK_ORCHESTRATOR_MAX_ROUNDS", "unknown variable; did you mean MIXSEEK_MAX_ROUNDS?"),
        ("MIXSEEK_TEAM_LEADER_MODEL", "unknown variable; did you mean MIXSEEK_TEAM__LEADER__MODEL?"),
        ("MIXSEEK_JUDGEMENT__MODEL", "unknown variable; did you mean MIXSEEK_JUDGMENT__MODEL?"),
        (
            "MIXSEEK_ZEBRA__CROSSING",
            "unknown variable; those of MixSeek start with MIXSEEK_, MIXSEEK_TEAM__, MIXSEEK_EVALUATOR__, "
            "MIXSEEK_JUDGMENT__, MIXSEEK_PROMPT_BUILDER__",
        ),
    ],
)
@pytest.mark.parametrize("in_dotenv", [False, True])
def test_a_variable_that_can_only_be_meant_for_us_is_told_whatever_is_read(
    in_dotenv: bool, variable: str, told: str, workspace: Path
) -> None:
    if in_dotenv:
        _write(workspace, ".env", f"{variable}=x\n")
    with pytest.raises(ConfigurationError) as caught:
        _manager(workspace, {} if in_dotenv else {variable: "x"}).get_providers_settings()
    assert _problems(caught) == [f"{'.env: ' if in_dotenv else ''}{variable}: {told}"]


@pytest.mark.parametrize("name", ["MIXSEEK_LOG_LEVEL", "MIXSEEK_X", "MIXSEEK_BUDGET", "MIXSEEK_WORKSPACE", "OTHER__X"])
def test_other_variables_are_left_alone(name: str, workspace: Path) -> None:
    assert _manager(workspace, {name: "{}"}).get_providers_settings().providers == {}


def test_a_problem_inside_the_json_of_a_variable_names_the_item_and_its_key(workspace: Path) -> None:
    path = _write(workspace, "configs/agents/a.toml", TEAM.format(id="a"))
    members = '[{"name": "x", "type": "plain", "model": "ollama:b"}, {"name": "y", "type": "plain", "model": "b"}]'
    with pytest.raises(ConfigurationError, match=r"^MIXSEEK_TEAM__MEMBERS\[1\]\.model: 'b' does not name a model"):
        _manager(workspace, {"MIXSEEK_TEAM__MEMBERS": members}).load_team_settings(path)


@pytest.mark.parametrize(
    ("name", "value"),
    [("MEMBERS", '{"name": "x"}'), ("LEADER__FALLBACK_MODELS", '{"a": {"b": 1}}'), ("MEMBERS", '{"a": 1, "b": 2}')],
)
def test_a_table_in_a_variable_where_none_belongs_is_blamed_on_the_variable(
    name: str, value: str, workspace: Path
) -> None:
    path = _write(workspace, "configs/agents/a.toml", TEAM.format(id="a"))
    with pytest.raises(ConfigurationError) as caught:
        _manager(workspace, {f"MIXSEEK_TEAM__{name}": value}).load_team_settings(path)
    [told] = str(caught.value).splitlines()
    assert told.startswith(f"MIXSEEK_TEAM__{name}: {{")


def test_a_wrong_line_in_dotenv_hides_no_other_mistake(workspace: Path) -> None:
    _write(workspace, ".env", "no variable at all\nMIXSEEK_JUDGMENT__TEMPERATURE=9\n")
    with pytest.raises(ConfigurationError) as caught:
        _manager(workspace).get_judgment_settings()
    assert _problems(caught) == [
        ".env: line 1 is not NAME=value",
        ".env: MIXSEEK_JUDGMENT__TEMPERATURE: 9.0 is not allowed: must be a number from 0 to 2",
    ]


# --- traces ---------------------------------------------------------------------------------------------------------


def test_a_trace_follows_into_lists_and_member_files(workspace: Path) -> None:
    _write(workspace, "configs/agents/m.toml", '[agent]\nagent_name = "m"\ntype = "plain"\nmodel = "ollama:b"\n')
    members = '[[team.members]]\nname = "x"\ntype = "plain"\nmodel = "ollama:d"\n'
    referred = '[[team.members]]\nconfig = "configs/agents/m.toml"\ntool_name = "ask"\n'
    path = _write(workspace, "configs/agents/a.toml", TEAM.format(id="a") + members + referred)
    manager = _manager(workspace)
    team = manager.load_team_settings(path)

    def where(settings: Any, field: str) -> str:
        return str(manager.get_trace_info(settings, field))

    assert where(team, "members[0].model") == "TOML configs/agents/a.toml: team.members[0].model"
    assert where(team, "members.1.model") == "TOML configs/agents/m.toml: agent.model"
    assert where(team, "members[1].tool_name") == "TOML configs/agents/a.toml: team.members[1].tool_name"
    assert where(team, "members[1].max_retries") == "default"
    assert where(team.members[1], "model") == "TOML configs/agents/m.toml: agent.model"
    assert where(team.leader, "temperature") == "TOML configs/agents/a.toml: team.leader.temperature"
    assert where(team.leader, "top_p") == "default"


def test_a_trace_knows_a_field_whose_key_is_spelled_differently(workspace: Path) -> None:
    _write(workspace, "metrics/m.py", "from mixseek.evaluator.metrics.coverage import Coverage as M\n")
    metric = '[custom_metrics."a.b"]\npath = "metrics/m.py"\nclass = "M"\n'
    _write(workspace, "configs/evaluator.toml", metric)
    manager = _manager(workspace)
    trace = manager.get_trace_info(manager.get_evaluator_settings(), 'custom_metrics."a.b".class_name')
    assert str(trace) == 'TOML configs/evaluator.toml: custom_metrics."a.b".class'


def test_settings_made_directly_have_arguments_and_defaults(workspace: Path) -> None:
    manager = _manager(workspace)
    settings = JudgmentSettings(model="ollama:b")
    assert manager.get_trace_info(settings, "model").source == "argument"
    assert manager.get_trace_info(settings, "seed") == TraceInfo("seed", None, "default")


def test_a_trace_of_an_unknown_field_is_refused(workspace: Path) -> None:
    with pytest.raises(AttributeError, match=r"JudgmentSettings has no field 'model\.x'"):
        _manager(workspace).get_trace_info(JudgmentSettings(), "model.x")


def test_where_settings_come_from_does_not_make_them_differ(workspace: Path) -> None:
    _write(workspace, "configs/judgment.toml", 'model = "ollama:b"\n')
    assert _manager(workspace).get_judgment_settings() == JudgmentSettings(model="ollama:b")


# --- loading --------------------------------------------------------------------------------------------------------


def test_a_competition_is_loaded_with_all_it_refers_to(workspace: Path) -> None:
    file = _competition(workspace)
    run = _manager(workspace).load_run_settings(file)
    assert run.orchestrator.workspace_path == workspace
    assert (run.orchestrator.max_rounds, run.orchestrator.min_rounds) == (4, 2)
    assert [team.team_id for team in run.teams] == ["a", "b"]
    assert run.evaluator == EvaluatorSettings()
    assert run.judgment == JudgmentSettings()
    assert run.prompt_builder == PromptBuilderSettings()
    assert run.providers == ProvidersSettings()


def test_the_function_loads_what_the_manager_loads(workspace: Path) -> None:
    file = _competition(workspace)
    assert load_orchestrator_settings(file, workspace) == _manager(workspace).load_orchestrator_settings(file)


def test_a_file_is_looked_for_in_the_current_directory_and_then_in_the_workspace(
    workspace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _write(workspace, "j.toml", 'model = "ollama:in-workspace"\n')
    monkeypatch.chdir(tmp_path)
    assert _manager(workspace).get_judgment_settings("j.toml").model == "ollama:in-workspace"
    _write(tmp_path, "j.toml", 'model = "ollama:in-directory"\n')
    assert _manager(workspace).get_judgment_settings("j.toml").model == "ollama:in-directory"


@pytest.mark.parametrize(
    "method",
    [
        "load_orchestrator_settings",
        "load_team_settings",
        "load_member_settings",
        "get_evaluator_settings",
        "get_judgment_settings",
        "get_prompt_builder_settings",
        "get_providers_settings",
    ],
)
def test_a_file_that_is_named_has_to_exist(method: str, workspace: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"nowhere\.toml: does not exist") as caught:
        getattr(_manager(workspace), method)("nowhere.toml")
    assert isinstance(caught.value, ConfigurationError)


def test_a_missing_workspace_is_told(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="does not exist"):
        ConfigurationManager(tmp_path / "nowhere")


def test_problems_of_all_files_come_together(workspace: Path) -> None:
    file = _competition(workspace)
    _write(workspace, "configs/agents/a.toml", TEAM.format(id="a").replace("0.1", "3"))
    _write(workspace, "configs/agents/b.toml", "[team\n")
    _write(workspace, "configs/evaluator.toml", "max_retries = -1\n")
    _write(workspace, "configs/judgment.toml", "target_score = 101\n")
    _write(workspace, "configs/prompt_builder.toml", PROMPTS.replace("{{ submission }}", "{{ nothing }}"))
    _write(workspace, "configs/providers.toml", "[providers.x]\n")
    with pytest.raises(ConfigurationError) as caught:
        _manager(workspace, {"TZ": "Mars/Olympus"}).load_orchestrator_settings(file)
    assert [(problem.file, problem.key) for problem in caught.value.problems] == [
        ("configs/agents/a.toml", "team.leader.temperature"),
        ("configs/agents/b.toml", None),
        ("configs/evaluator.toml", "max_retries"),
        ("configs/judgment.toml", "target_score"),
        ("configs/prompt_builder.toml", "prompt_builder.evaluator_user_prompt"),
        ("configs/providers.toml", "providers.x.base_url"),
        (None, "TZ"),
    ]


def test_two_teams_of_one_id_are_told_even_when_the_id_comes_from_a_variable(workspace: Path) -> None:
    file = _competition(workspace)
    with pytest.raises(ConfigurationError, match="team_id 'same' is also that of"):
        _manager(workspace, {"MIXSEEK_TEAM__TEAM_ID": "same"}).load_orchestrator_settings(file)


def test_a_wrong_time_zone_is_found_when_files_are_read(workspace: Path) -> None:
    with pytest.raises(ConfigurationError) as caught:
        _manager(workspace, {"TZ": "Nowhere"}).get_judgment_settings()
    assert _problems(caught) == [
        "TZ: Invalid timezone in TZ environment variable: Nowhere."
        " Valid examples: 'UTC', 'Asia/Tokyo', 'America/New_York'"
    ]
    _manager(workspace, {"TZ": ""}).get_judgment_settings()


def test_one_of_the_two_template_files_is_not_enough(workspace: Path) -> None:
    file = _competition(workspace)
    _write(workspace, "configs/prompt_templates/initial_prompt.jinja2", "{{ user_query }}")
    with pytest.raises(ConfigurationError) as caught:
        _manager(workspace).load_orchestrator_settings(file)
    assert _problems(caught) == [
        "configs/prompt_templates: initial_prompt.jinja2 is there but continuation_prompt.jinja2 is not:"
        " add it, or take the other away"
    ]
    continuation = _write(workspace, "configs/prompt_templates/continuation_prompt.jinja2", "{{ round_number }}")
    _manager(workspace).load_orchestrator_settings(file)
    continuation.write_text("{% if %}")
    with pytest.raises(ConfigurationError, match=r"continuation_prompt\.jinja2: .*syntax error at line 1"):
        _manager(workspace).load_orchestrator_settings(file)


def test_a_member_that_cannot_be_read_does_not_shift_the_others(workspace: Path) -> None:
    gone = '[[team.members]]\nconfig = "configs/agents/gone.toml"\n'
    wrong = '[[team.members]]\nname = "x"\ntype = "plain"\nmodel = "wrong"\n'
    path = _write(workspace, "configs/agents/a.toml", TEAM.format(id="a") + gone + wrong)
    with pytest.raises(ConfigurationError) as caught:
        _manager(workspace).load_team_settings(path)
    assert [problem.key for problem in caught.value.problems] == ["team.members[0].config", "team.members[1].model"]


# --- plugins --------------------------------------------------------------------------------------------------------


CUSTOM = """\
[agent]
name = "mine"
type = "custom"
model = "ollama:b"
plugin = {path = "agents/mine.py", agent_class = "Mine"}
"""


def test_a_plugin_is_loaded_unless_it_must_not_be(workspace: Path) -> None:
    member = _write(workspace, "configs/agents/m.toml", CUSTOM)
    marker = workspace / "loaded"
    _write(workspace, "agents/mine.py", f"open({str(marker)!r}, 'w').close()\nclass Mine: pass\n")

    assert _manager(workspace, no_plugins=True).load_member_settings(member).name == "mine"
    assert not marker.exists()

    with pytest.raises(ConfigurationError, match="must be a subclass of BaseMemberAgent"):
        _manager(workspace).load_member_settings(member)
    assert marker.exists()


def test_without_plugins_unknown_names_are_taken_on_trust(workspace: Path) -> None:
    text = TEAM.format(id="a") + '[[team.members]]\nname = "x"\ntype = "registered_elsewhere"\nmodel = "ollama:b"\n'
    path = _write(workspace, "configs/agents/a.toml", text)
    _manager(workspace, no_plugins=True).load_team_settings(path)
    with pytest.raises(ConfigurationError, match="unknown member type 'registered_elsewhere'"):
        _manager(workspace).load_team_settings(path)


def test_a_name_with_an_instruction_is_a_metric(workspace: Path) -> None:
    _write(workspace, "configs/evaluator.toml", '[[metrics]]\nname = "Tone"\nsystem_instruction = "Be strict."\n')
    assert _manager(workspace).get_evaluator_settings().metrics[0].type == "Tone"


# --- prompt builder -------------------------------------------------------------------------------------------------


def test_no_prompt_builder_file_is_worth_a_line_of_information(
    workspace: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, logger="mixseek.config.manager"):
        assert _manager(workspace).get_prompt_builder_settings() == PromptBuilderSettings()
    assert [(record.levelname, record.message) for record in caplog.records] == [
        ("INFO", "no prompt builder file: the default templates are used")
    ]


def test_a_missing_prompt_is_its_default_with_a_warning_and_an_error_of_validate(
    workspace: Path, caplog: pytest.LogCaptureFixture
) -> None:
    _write(workspace, "configs/prompt_builder.toml", PROMPTS.replace("team_user_prompt", "# team_user_prompt"))
    with caplog.at_level(logging.INFO, logger="mixseek.config.manager"):
        settings = _manager(workspace).get_prompt_builder_settings()
    assert settings.team_user_prompt == DEFAULT_TEAM_USER_PROMPT
    assert settings.evaluator_user_prompt == "evaluator {{ submission }}"
    assert [(record.levelname, record.message) for record in caplog.records] == [
        (
            "WARNING",
            "configs/prompt_builder.toml: prompt_builder.team_user_prompt is missing: the default template is used",
        )
    ]
    report = _manager(workspace).validate("configs/prompt_builder.toml")
    assert [str(problem) for problem in report.problems] == [
        "configs/prompt_builder.toml: prompt_builder.team_user_prompt: is required: a template"
    ]


def test_a_missing_prompt_that_a_variable_brings_is_not_warned_about(
    workspace: Path, caplog: pytest.LogCaptureFixture
) -> None:
    _write(workspace, "configs/prompt_builder.toml", PROMPTS.replace("team_user_prompt", "# team_user_prompt"))
    with caplog.at_level(logging.INFO, logger="mixseek.config.manager"):
        settings = _manager(workspace, {"MIXSEEK_TEAM_USER_PROMPT": "x"}).get_prompt_builder_settings()
    assert settings.team_user_prompt == "x"
    assert caplog.records == []


def test_the_limits_of_a_prompt_are_a_table(workspace: Path) -> None:
    table = "[prompt_builder.round_prompt]\nsubmission_preview_chars = 50\n"
    _write(workspace, "configs/prompt_builder.toml", PROMPTS + table)
    environ = {"MIXSEEK_PROMPT_BUILDER__ROUND_PROMPT__ESTIMATED_PROMPT_TOKENS": "99"}
    settings = _manager(workspace, environ).get_prompt_builder_settings()
    assert settings.round_prompt == RoundPromptConfig(submission_preview_chars=50, estimated_prompt_tokens=99)


def test_the_managers_environment_is_the_only_one_it_reads(workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MIXSEEK_TEAM_USER_PROMPT", "of the process")
    assert _manager(workspace).get_prompt_builder_settings().team_user_prompt == DEFAULT_TEAM_USER_PROMPT


def test_the_builders_reader_raises_pydantics_error_and_leaves_templates_alone(workspace: Path) -> None:
    file = _write(workspace, "configs/prompt_builder.toml", PROMPTS.replace("team {{ user_prompt }}", " "))
    with pytest.raises(ValidationError, match="team_user_prompt cannot be empty"):
        read_prompt_builder_settings(workspace)
    file.write_text(PROMPTS.replace("team {{ user_prompt }}", "{% if %}"))
    assert read_prompt_builder_settings(workspace).team_user_prompt == "{% if %}"
    with pytest.raises(ConfigurationError, match="syntax error at line 1"):
        _manager(workspace).get_prompt_builder_settings()


# --- reference answers ----------------------------------------------------------------------------------------------


JUDGED = '[[metrics]]\nname = "Coverage"\nuse_reference = true\n[[metrics]]\nname = "Relevance"\n'
WITHOUT = (
    "configs/evaluator.toml: metrics[0]: 'Coverage' needs a reference answer: "
    "set reference in the orchestrator file, or give it with the task"
)
KEYS = {"OPENAI_API_KEY": "k", "GOOGLE_API_KEY": "k"}


@pytest.mark.parametrize(
    ("written", "text"),
    [
        ("answers/a.md", "模範解答\n"),
        ("my answers/b 1.txt", "of b"),
        ("答えは42です。", "答えは42です。"),
        # Nothing stands there, and it may well be a text.
        ("See page 3 of notes.md", "See page 3 of notes.md"),
    ],
)
def test_a_reference_is_a_text_or_a_file_of_the_workspace(workspace: Path, written: str, text: str) -> None:
    file = _competition(workspace)
    _write(workspace, "answers/a.md", "模範解答\n")
    _write(workspace, "my answers/b 1.txt", "of b")
    file.write_text(ORCHESTRATOR.replace("[orchestrator]\n", f'[orchestrator]\nreference = "{written}"\n'))
    assert _manager(workspace).load_run_settings(file).reference == text


def test_a_metric_without_the_reference_it_needs_is_a_note_and_before_a_run_a_problem(workspace: Path) -> None:
    file = _competition(workspace)
    _write(workspace, "configs/evaluator.toml", JUDGED)
    manager = _manager(workspace, KEYS)
    assert [str(note) for note in manager.validate(file).notes] == [WITHOUT]
    with pytest.raises(ConfigurationError) as told:
        manager.load_run_settings(file, for_a_run=True)
    assert [str(problem) for problem in told.value.problems] == [WITHOUT]
    settings = manager.load_orchestrator_settings(file)
    with pytest.raises(ConfigurationError, match="needs a reference answer"):
        manager.complete(settings)
    assert manager.complete(settings, reference="with the task").reference == "with the task"


def test_a_reference_given_with_the_task_wins_over_the_one_of_the_file(workspace: Path) -> None:
    file = _competition(workspace)
    settings = _manager(workspace, {"MIXSEEK_REFERENCE": "of the environment"}).load_orchestrator_settings(file)
    assert _manager(workspace, KEYS).complete(settings).reference == "of the environment"
    assert _manager(workspace, KEYS).complete(settings, reference="with the task").reference == "with the task"


# --- notes ----------------------------------------------------------------------------------------------------------


def test_an_older_spelling_of_the_instruction_is_noted(workspace: Path) -> None:
    text = '[agent]\nname = "a"\ntype = "plain"\nmodel = "ollama:b"\n[agent.instructions]\ntext = "Be brief."\n'
    file = _write(workspace, "configs/agents/m.toml", text)
    assert _manager(workspace).load_member_settings(file).system_instruction == "Be brief."
    assert [str(note) for note in _manager(workspace).validate(file).notes] == [
        'configs/agents/m.toml: agent.instructions: older spelling: write system_instruction = "..."'
    ]


@pytest.mark.parametrize(("kind", "told"), [("web_fetch", 1), ("custom", 0)])
def test_a_slip_in_a_table_of_tool_settings_is_told_where_nobody_else_reads_it(
    kind: str, told: int, workspace: Path
) -> None:
    file = workspace / "member.toml"
    plugin = 'plugin = {agent_module = "no_such_module", agent_class = "Own"}\n' if kind == "custom" else ""
    settings = "[agent.tool_settings.web_fech]\nmax_uses = 1\n"
    file.write_text(f'[agent]\nname = "m"\ntype = "{kind}"\nmodel = "openai:m"\n{plugin}{settings}')
    report = ConfigurationManager(workspace, environ={}, no_plugins=True).validate(file)
    slips = [problem for problem in report.problems if 'did you mean "web_fetch"?' in problem.message]
    assert len(slips) == told


def test_an_answer_schema_of_a_wrong_type_is_told_in_one_line(workspace: Path) -> None:
    (workspace / "team.toml").write_text('[team]\nteam_id = "a"\nteam_name = "A"\nanswer_schema = 3\n')
    report = ConfigurationManager(workspace, environ={}).validate(workspace / "team.toml")
    told = [str(problem) for problem in report.problems if "answer_schema" in str(problem)]
    assert len(told) == 1
    assert "must be a table, or the path of a JSON file" in told[0]
