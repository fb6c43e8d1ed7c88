# ruff: noqa: E501  # messages are quoted whole, as a user sees them
"""Providers and keys are looked at when files are read: unknown ones are errors, missing keys only before a run."""

import re
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from mixseek.config.manager import ConfigurationManager
from mixseek.config.schema import OrchestratorSettings
from mixseek.errors import ConfigurationError
from mixseek.testing import write_workspace

TEAM = '[team]\nteam_id = "t"\nteam_name = "T"\n'
OPENAI = "no key for the models of 'openai': set OPENAI_API_KEY in the environment or in .env of the workspace"
GOOGLE = "no key for the models of 'google-gla': set GOOGLE_API_KEY or GEMINI_API_KEY in the environment or in .env of the workspace"
UNKNOWN = "unknown model provider 'opena'; did you mean 'openai'?"
METRIC = """\
from mixseek.evaluator.metrics.base import BaseMetric, LLMJudgeMetric

class Length(BaseMetric):
    async def evaluate(self, user_query, submission, **context):
        raise NotImplementedError

class Taste(LLMJudgeMetric):
    def get_instruction(self):
        return "Is it good?"
"""


def _write(workspace: Path, name: str, text: str) -> None:
    (workspace / name).parent.mkdir(parents=True, exist_ok=True)
    (workspace / name).write_text(text)


def _problems(
    workspace: Path, file: str, environ: Mapping[str, str] | None = None, *, no_plugins: bool = False
) -> list[str]:
    manager = ConfigurationManager(workspace, environ=environ or {}, no_plugins=no_plugins)
    return [str(problem) for problem in manager.validate(file).problems]


def _notes(workspace: Path, file: str, environ: Mapping[str, str] | None = None) -> list[str]:
    report = ConfigurationManager(workspace, environ=environ or {}).validate(file)
    assert report.problems == ()
    return [str(note) for note in report.notes]


def _competition(workspace: Path, leader: str = "openai:gpt-5") -> str:
    _write(workspace, "configs/agents/team.toml", f'{TEAM}[team.leader]\nmodel = "{leader}"\n')
    _write(workspace, "configs/evaluator.toml", 'default_model = "ollama:judge"\n')
    _write(workspace, "configs/judgment.toml", 'model = "none"\n')
    _write(workspace, "configs/run.toml", '[[orchestrator.teams]]\nconfig = "configs/agents/team.toml"\n')
    return "configs/run.toml"


# --- unknown providers ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("file", "text", "key"),
    [
        ("agents/t.toml", TEAM + '[team.leader]\nmodel = "opena:x"\n', "team.leader.model"),
        (
            "agents/t.toml",
            TEAM + '[team.leader]\nfallback_models = ["ollama:x", "opena:x"]\n',
            "team.leader.fallback_models[1]",
        ),
        (
            "agents/t.toml",
            TEAM + '[[team.members]]\nname = "a"\ntype = "plain"\nmodel = "opena:x"\n',
            "team.members[0].model",
        ),
        ("agents/m.toml", '[agent]\nname = "a"\ntype = "plain"\nmodel = "opena:x"\n', "agent.model"),
        ("evaluator.toml", 'default_model = "opena:x"\n', "default_model"),
        ("evaluator.toml", '[llm_default]\nmodel = "opena:x"\n', "llm_default.model"),
        ("evaluator.toml", '[[metrics]]\nname = "Coverage"\nmodel = "opena:x"\n', "metrics[0].model"),
        ("judgment.toml", 'model = "opena:x"\n', "model"),
    ],
)
def test_an_unknown_provider_is_an_error_wherever_a_model_is_named(
    file: str, text: str, key: str, workspace: Path
) -> None:
    _write(workspace, f"configs/{file}", text)
    assert _problems(workspace, f"configs/{file}") == [f"configs/{file}: {key}: {UNKNOWN}"]


def test_a_price_is_for_a_model_of_a_known_provider(workspace: Path) -> None:
    file = _competition(workspace)
    price = '[prices."opena:x"]\ninput_usd_per_million = 1\noutput_usd_per_million = 2\n'
    _write(workspace, file, (workspace / file).read_text() + price)
    assert _problems(workspace, file) == [f'configs/run.toml: prices."opena:x": {UNKNOWN}']


def test_the_key_of_a_member_file_is_named_and_not_that_of_the_team(workspace: Path) -> None:
    _write(workspace, "configs/agents/m.toml", '[agent]\nname = "a"\ntype = "plain"\nmodel = "opena:x"\n')
    _write(workspace, "configs/agents/t.toml", TEAM + '[[team.members]]\nconfig = "configs/agents/m.toml"\n')
    assert _problems(workspace, "configs/agents/t.toml") == [f"configs/agents/m.toml: agent.model: {UNKNOWN}"]


def test_a_provider_named_by_a_variable_is_told_with_the_variable(workspace: Path) -> None:
    _write(workspace, "configs/judgment.toml", "")
    told = _problems(workspace, "configs/judgment.toml", {"MIXSEEK_JUDGMENT__MODEL": "opena:x"})
    assert told == [f"MIXSEEK_JUDGMENT__MODEL: {UNKNOWN}"]


def test_rules_alone_name_no_provider(workspace: Path) -> None:
    _write(workspace, "configs/judgment.toml", 'model = "none"\n')
    assert _notes(workspace, "configs/judgment.toml") == []


def test_a_server_of_the_workspace_is_known_even_if_its_table_is_wrong(workspace: Path) -> None:
    _write(workspace, "configs/providers.toml", '[providers.opena]\nbase_url = "nowhere"\n')
    _write(workspace, "configs/judgment.toml", 'model = "opena:x"\n')
    assert _problems(workspace, "configs/judgment.toml") == []
    assert _problems(workspace, "configs/providers.toml") != []


def test_a_broken_providers_file_is_told_once_and_no_provider_is_called_unknown(workspace: Path) -> None:
    file = _competition(workspace, leader="mine:x")
    _write(workspace, "configs/providers.toml", "[providers.mine\n")
    (told,) = _problems(workspace, file)
    assert told.startswith("configs/providers.toml: not valid TOML")


def test_without_plugins_a_provider_may_be_one_of_theirs(workspace: Path) -> None:
    _write(workspace, "configs/judgment.toml", 'model = "opena:x"\n')
    assert _problems(workspace, "configs/judgment.toml", no_plugins=True) == []


# --- keys -------------------------------------------------------------------------------------------------------------


def test_validate_only_notes_a_missing_key(workspace: Path) -> None:
    file = _competition(workspace)
    assert _notes(workspace, file) == [f"configs/agents/team.toml: team.leader.model: {OPENAI}"]
    assert ConfigurationManager(workspace, environ={}).load_run_settings(file).teams[0].team_id == "t"


def test_a_run_is_refused_for_every_missing_key_and_all_else_at_once(workspace: Path) -> None:
    file = _competition(workspace)
    _write(workspace, "configs/judgment.toml", "temperature = 3.0\n")
    with pytest.raises(ConfigurationError) as error:
        ConfigurationManager(workspace, environ={}).load_run_settings(file, for_a_run=True)
    told = [str(problem) for problem in error.value.problems]
    assert f"configs/agents/team.toml: team.leader.model: {OPENAI}" in told
    assert f"configs/judgment.toml: model: {GOOGLE}" in told
    assert any("temperature" in line for line in told)


def test_settings_that_are_made_already_need_their_keys_too(workspace: Path) -> None:
    _competition(workspace)
    settings = OrchestratorSettings.model_validate({"teams": [{"config": "configs/agents/team.toml"}]})
    with pytest.raises(ConfigurationError, match="OPENAI_API_KEY"):
        ConfigurationManager(workspace, environ={}).complete(settings)
    assert ConfigurationManager(workspace, environ={"OPENAI_API_KEY": "k"}).complete(settings).teams


def test_a_key_may_stand_in_the_env_file_below_the_environment(workspace: Path) -> None:
    file = _competition(workspace)
    _write(workspace, ".env", "OPENAI_API_KEY=from-the-file\nOTHER=x\n")
    manager = ConfigurationManager(workspace, environ={"OTHER": "y"})
    assert manager.load_run_settings(file, for_a_run=True).teams
    assert manager.environ == {"OPENAI_API_KEY": "from-the-file", "OTHER": "y"}


def test_the_key_of_a_server_of_ones_own_is_asked_for_by_its_variable(workspace: Path) -> None:
    file = _competition(workspace, leader="mine:x")
    _write(workspace, "configs/providers.toml", '[providers.mine]\nbase_url = "http://x/v1"\napi_key_env = "MINE"\n')
    assert _notes(workspace, file) == [
        "configs/agents/team.toml: team.leader.model: no key for the models of 'mine': set MINE in the environment or in .env of the workspace"
    ]
    assert _notes(workspace, file, {"MINE": "k"}) == []


def test_the_default_models_need_a_key_as_well(workspace: Path) -> None:
    _write(workspace, "configs/agents/t.toml", TEAM)
    assert _notes(workspace, "configs/agents/t.toml") == [f"configs/agents/t.toml: team.leader.model: {GOOGLE}"]
    _write(workspace, "configs/evaluator.toml", "")
    assert _notes(workspace, "configs/evaluator.toml") == [f"configs/evaluator.toml: default_model: {GOOGLE}"]


@pytest.mark.parametrize(
    ("text", "asked"),
    [
        ('[[metrics]]\nname = "Length"\n', []),
        ('[[metrics]]\nname = "Taste"\n', [f"configs/evaluator.toml: default_model: {GOOGLE}"]),
        ('[[metrics]]\nname = "Taste"\nmodel = "ollama:x"\n', []),
        (
            '[[metrics]]\nname = "Coverage"\n[llm_default]\nmodel = "openai:x"\n',
            [f"configs/evaluator.toml: llm_default.model: {OPENAI}"],
        ),
        (
            '[[metrics]]\nname = "Wit"\nsystem_instruction = "Is it funny?"\n',
            [f"configs/evaluator.toml: default_model: {GOOGLE}"],
        ),
    ],
)
def test_the_evaluator_needs_the_keys_of_the_models_its_metrics_ask(
    text: str, asked: list[str], workspace: Path
) -> None:
    _write(workspace, "metrics.py", METRIC)
    custom = "".join(
        f'[custom_metrics.{name}]\npath = "metrics.py"\nclass = "{name}"\n' for name in ("Length", "Taste")
    )
    _write(workspace, "configs/evaluator.toml", text + custom)
    assert _notes(workspace, "configs/evaluator.toml") == asked


def test_a_custom_member_may_do_without_the_key_of_its_model(workspace: Path) -> None:
    code = "from mixseek.agents.member.base import BaseMemberAgent as B\nclass M(B):\n    execute = None\n"
    _write(workspace, "m.py", code)
    custom = 'type = "custom"\nplugin = {path = "m.py", agent_class = "M"}\n'
    _write(workspace, "configs/agents/m.toml", f'[agent]\nname = "a"\nmodel = "openai:x"\n{custom}')
    assert _notes(workspace, "configs/agents/m.toml") == []


def test_a_default_without_a_file_is_told_by_the_kind_of_file_it_would_stand_in(workspace: Path) -> None:
    file = _competition(workspace)
    (workspace / "configs/evaluator.toml").unlink()
    assert f"evaluator defaults: default_model: {GOOGLE}" in _notes(workspace, file)


def test_an_address_that_is_missing_is_told_before_a_run_with_file_and_key(workspace: Path) -> None:
    file = _competition(workspace, "vllm:qwen3")
    told = (
        "configs/agents/team.toml: team.leader.model: no address for the models of 'vllm': set VLLM_BASE_URL in the environment or in .env of the workspace, "
        "or give [providers.vllm] a base_url in configs/providers.toml"
    )
    assert _notes(workspace, file) == [told]
    with pytest.raises(ConfigurationError) as refused:
        ConfigurationManager(workspace, environ={}).load_run_settings(file, for_a_run=True)
    assert str(refused.value) == told
    assert _notes(workspace, file, {"VLLM_BASE_URL": "http://127.0.0.1:9/v1"}) == []
    _write(workspace, "configs/providers.toml", '[providers.vllm]\nbase_url = "http://127.0.0.1:9/v1"\n')
    assert _notes(workspace, file) == []


def test_beside_a_metric_of_ones_own_a_price_of_nobody_is_told_only_where_it_looks_like_a_slip(workspace: Path) -> None:
    file = _competition(workspace, "ollama:leader")
    price = "input_usd_per_million = 1\noutput_usd_per_million = 2\n"
    prices = "".join(f'[prices."{model}"]\n{price}' for model in ("ollama:judgge", "groq:other"))
    _write(workspace, file, (workspace / file).read_text() + prices)
    unused = "has a price, but nobody here names this model"
    slip = f"{file}: prices.\"ollama:judgge\": {unused}; did you mean 'ollama:judge'?"
    assert sorted(_notes(workspace, file)) == [f'{file}: prices."groq:other": {unused}', slip]
    own = '[[metrics]]\nname = "Length"\ntype = "mine"\n[custom_metrics.mine]\npath = "mine.py"\nclass = "Length"\n'
    _write(workspace, "mine.py", METRIC)
    _write(workspace, "configs/evaluator.toml", f'default_model = "ollama:judge"\n{own}')
    assert _notes(workspace, file) == [slip]


def test_keys_and_packages_that_are_missing_are_told_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_workspace(tmp_path, teams=2)
    for name, model in (("a", "groq:llama"), ("b", "mistral:large")):
        file = tmp_path / "configs" / "agents" / f"team-{name}.toml"
        file.write_text(re.sub(r'model = ".*"', f'model = "{model}"', file.read_text()))
    for package in ("groq", "mistralai"):
        monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ConfigurationError) as error:
        ConfigurationManager(tmp_path, environ={}).load_run_settings("configs/orchestrator.toml", for_a_run=True)
    told = [str(problem) for problem in error.value.problems]
    assert [line for line in told if "groq" in line] == [
        "configs/agents/team-a.toml: team.leader.model: no key for the models of 'groq': "
        "set GROQ_API_KEY in the environment or in .env of the workspace",
        "configs/agents/team-a.toml: team.leader.model: models of 'groq' need a package: pip install \"mixseek[groq]\"",
    ]
    assert len([line for line in told if "mistral" in line]) == 2
