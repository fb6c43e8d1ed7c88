"""Every field with its default and its limits, written out as the reference has them."""

from typing import Any

import pytest
from pydantic import BaseModel, ValidationError

from mixseek.config.schema import (
    BudgetSettings,
    CodeExecutionSettings,
    EvaluatorSettings,
    FunctionSettings,
    JudgmentSettings,
    LeaderSettings,
    LLMDefaultSettings,
    LocalSettings,
    McpServerSettings,
    MemberAgentConfig,
    MemberSettings,
    MetricSettings,
    OrchestratorSettings,
    PromptBuilderSettings,
    ProviderSettings,
    ProvidersSettings,
    RoundPromptConfig,
    StorageSettings,
    TeamSettings,
    ToolSettings,
    WebFetchSettings,
    WebSearchSettings,
    default_tool_name,
)
from mixseek.errors import ConfigurationError
from mixseek.records import AgentType
from mixseek.templating import DEFAULT_EVALUATOR_USER_PROMPT, DEFAULT_JUDGMENT_USER_PROMPT, DEFAULT_TEAM_USER_PROMPT

REQUIRED: dict[type[BaseModel], dict[str, Any]] = {
    OrchestratorSettings: {"teams": [{"config": "team.toml"}]},
    TeamSettings: {"team_id": "t", "team_name": "T"},
    MemberAgentConfig: {"name": "a", "type": "plain", "model": "openai:gpt-5-mini"},
    MetricSettings: {"name": "Coverage"},
    McpServerSettings: {"command": "server"},
    ProviderSettings: {"base_url": "http://localhost:8000/v1"},
}

MODEL_PARAMS: dict[str, Any] = {
    "temperature": None,
    "max_tokens": None,
    "timeout_seconds": None,
    "max_retries": None,
    "stop_sequences": None,
    "top_p": None,
    "seed": None,
}
WEIGHTS = [("ClarityCoherence", 0.334), ("Coverage", 0.333), ("Relevance", 0.333)]

DEFAULTS: list[tuple[type[BaseModel], dict[str, Any]]] = [
    (
        OrchestratorSettings,
        {
            "workspace_path": None,
            "timeout_per_team_seconds": 300,
            "max_concurrent_teams": 4,
            "max_retries_per_team": 2,
            "evaluator_config": None,
            "judgment_config": None,
            "prompt_builder_config": None,
            "max_rounds": 5,
            "min_rounds": 2,
            "submission_timeout_seconds": 300,
            "judgment_timeout_seconds": 60,
            "answer_schema": None,
            "reference": None,
            "budget": None,
            "prices": {},
            "storage": StorageSettings(lock_wait_seconds=60),
        },
    ),
    (
        TeamSettings,
        {
            "max_concurrent_members": 15,
            "leader": LeaderSettings(),
            "members": [],
            "answer_schema": None,
            "budget": None,
        },
    ),
    (
        LeaderSettings,
        MODEL_PARAMS
        | {
            "model": "google-gla:gemini-2.5-flash-lite",
            "system_instruction": None,
            "system_prompt": None,
            "timeout_seconds": 300,
            "max_retries": 3,
            "fallback_models": [],
        },
    ),
    (
        MemberAgentConfig,
        MODEL_PARAMS
        | {
            "description": "",
            "tool_name": "delegate_to_a",
            "tool_description": "",
            "max_retries": 3,
            "system_instruction": None,
            "system_prompt": None,
            "plugin": None,
            "tool_settings": None,
            "metadata": {},
            "capabilities": None,
            "mcp_servers": {},
            "functions": [],
            "fallback_models": [],
        },
    ),
    (ToolSettings, {"web_search": None, "web_fetch": None, "code_execution": None, "functions": None}),
    (
        WebSearchSettings,
        {"max_results": 10, "timeout": 30, "include_raw_content": None, "backend": "auto", "endpoint": None},
    ),
    (
        WebFetchSettings,
        {
            "max_uses": None,
            "allowed_domains": None,
            "blocked_domains": None,
            "enable_citations": False,
            "max_content_tokens": None,
            "backend": "auto",
            "allowed_private_hosts": [],
        },
    ),
    (CodeExecutionSettings, {"backend": "auto", "timeout_seconds": 30, "memory_mb": 256, "output_chars": 20_000}),
    (FunctionSettings, {"timeout_seconds": 60}),
    (McpServerSettings, {"args": [], "env": {}, "url": None, "headers": {}, "timeout_seconds": 30}),
    (
        BudgetSettings,
        {
            "max_cost_usd": None,
            "max_tokens": None,
            "max_requests": None,
            "max_seconds": None,
            "max_output_tokens": None,
        },
    ),
    (
        EvaluatorSettings,
        {
            "default_model": "google-gla:gemini-2.5-flash",
            "max_retries": 3,
            "timeout_seconds": 300,
            "llm_default": LLMDefaultSettings(),
            "metrics": [MetricSettings(name=name, weight=weight) for name, weight in WEIGHTS],
            "custom_metrics": {},
        },
    ),
    (LLMDefaultSettings, MODEL_PARAMS | {"model": None}),
    (
        MetricSettings,
        MODEL_PARAMS
        | {
            "model": None,
            "type": "Coverage",
            "weight": None,
            "system_instruction": None,
            "use_reference": False,
            "options": {},
        },
    ),
    (
        JudgmentSettings,
        MODEL_PARAMS
        | {
            "model": "google-gla:gemini-2.5-flash",
            "temperature": 0.0,
            "max_retries": 3,
            "timeout_seconds": 60,
            "system_instruction": None,
            "judge_on_final_round": True,
            "target_score": None,
            "plateau_rounds": None,
            "plateau_min_gain": None,
        },
    ),
    (
        PromptBuilderSettings,
        {
            "team_user_prompt": DEFAULT_TEAM_USER_PROMPT,
            "evaluator_user_prompt": DEFAULT_EVALUATOR_USER_PROMPT,
            "judgment_user_prompt": DEFAULT_JUDGMENT_USER_PROMPT,
            "language": "ja",
            "round_prompt": None,
        },
    ),
    (
        RoundPromptConfig,
        {
            "max_submission_history_items": 5,
            "max_leaderboard_display_teams": 10,
            "submission_preview_chars": 200,
            "enable_trend_analysis": True,
            "estimated_prompt_tokens": 3000,
        },
    ),
    (ProvidersSettings, {"providers": {}, "local": LocalSettings()}),
    (LocalSettings, {"n_ctx": 4096, "max_concurrency": None, "threads": None}),
    (
        ProviderSettings,
        {"api_key_env": None, "max_concurrency": None, "requests_per_minute": None, "api": "chat", "media": []},
    ),
]

_MODEL_LIMITS: list[tuple[str, list[Any], list[Any]]] = [
    ("temperature", [0, 0.5, 2], [-0.1, 2.1, "1", float("nan")]),
    ("max_tokens", [1, 10**6], [0, -1, 1.5]),
    ("timeout_seconds", [1, 10**6], [0, -1, 1.5]),
    ("max_retries", [0, 100], [-1, 1.5]),
    ("stop_sequences", [[], ["END"]], ["END", [1]]),
    ("top_p", [0, 1], [-0.1, 1.1]),
    ("seed", [0, -7, 2**40], [1.5, "7"]),
]

LIMITS: list[tuple[type[BaseModel], str, list[Any], list[Any]]] = [
    (OrchestratorSettings, "timeout_per_team_seconds", [10, 3600], [9, 3601]),
    (OrchestratorSettings, "max_concurrent_teams", [1, 1000], [0, 1001]),
    (OrchestratorSettings, "max_retries_per_team", [0, 10], [-1, 11]),
    (OrchestratorSettings, "max_rounds", [1, 10], [0, 11, "5", True, 2.5]),
    (OrchestratorSettings, "min_rounds", [1, 5], [0, 6]),
    (OrchestratorSettings, "submission_timeout_seconds", [1, 10**6], [0]),
    (OrchestratorSettings, "judgment_timeout_seconds", [1, 10**6], [0]),
    (OrchestratorSettings, "teams", [[{"config": "x"}]], [[], "x", [{}], [{"config": ""}]]),
    (OrchestratorSettings, "answer_schema", ["a.json", {"type": "object"}], [3]),
    (
        OrchestratorSettings,
        "prices",
        [{"openai:gpt-5": {"input_usd_per_million": 0, "output_usd_per_million": 1.5}}],
        [
            {"gpt": {"input_usd_per_million": 0, "output_usd_per_million": 1}},
            {"openai:gpt-5": {"input_usd_per_million": -1, "output_usd_per_million": 1}},
            {"openai:gpt-5": {"input_usd_per_million": 1e308, "output_usd_per_million": 1}},
            {"openai:gpt-5": {"input_usd_per_million": 0, "output_usd_per_million": 1.1e9}},
            {"openai:gpt-5": {"input_usd_per_million": 1}},
        ],
    ),
    (StorageSettings, "lock_wait_seconds", [0, 0.5, 86_400], [-1, 86_401, float("inf")]),
    (BudgetSettings, "max_cost_usd", [0.01, 100, 1e9], [0, -1, float("inf"), 1e308, 1.1e9]),
    (BudgetSettings, "max_tokens", [1, 2**53], [0, 1.5, 2**53 + 1]),
    (BudgetSettings, "max_requests", [1, 2**53], [0, 2**53 + 1]),
    (BudgetSettings, "max_seconds", [0.5, 1e9], [0, float("nan"), 1e308]),
    (BudgetSettings, "max_output_tokens", [1, 8192, 2**53], [0, 1.5, 2**53 + 1]),
    (TeamSettings, "team_id", ["a/b", "日本"], ["", " ", 3]),
    (TeamSettings, "team_name", ["x"], ["", "\n"]),
    (TeamSettings, "max_concurrent_members", [1, 50], [0, 51]),
    (LeaderSettings, "model", ["openai:gpt-5", "ollama:a/b:c"], ["gpt-5", "", "openai:", ":x", "open ai:x"]),
    (LeaderSettings, "system_instruction", ["", "x", None], [3]),
    (LeaderSettings, "fallback_models", [[], ["openai:x"]], [["x"], "openai:x"]),
    (MemberAgentConfig, "model", ["openai:gpt-5"], ["gpt-5", None]),
    (MemberAgentConfig, "name", ["調査"], [""]),
    (MemberAgentConfig, "tool_name", ["ask", "_a-1", "a" * 64], ["", "ask me", "1a", "a" * 65, "調査"]),
    (MemberAgentConfig, "functions", [["a.b:c"]], [["c"], ["a:b.c"], ["a:"]]),
    (MemberAgentConfig, "metadata", [{"anything": [1, {"x": None}]}], ["x"]),
    (MemberAgentConfig, "tool_settings", [{"mine": {"a": 1}}], [{"mine": 1}, {"web_search": {"x": 1}}]),
    (WebSearchSettings, "max_results", [1, 50], [0, 51]),
    (WebSearchSettings, "timeout", [1], [0]),
    (WebSearchSettings, "backend", ["auto", "provider", "local"], ["monty", None]),
    (
        WebSearchSettings,
        "endpoint",
        ["http://127.0.0.1:8888", "https://s.example/search"],
        ["s.example", "http://u:p@s"],
    ),
    (WebFetchSettings, "max_uses", [1], [0]),
    (
        WebFetchSettings,
        "allowed_domains",
        [[], ["example.com"], ["*.Example.COM."], ["日本語.example"], ["localhost"]],
        [[""], ["https://example.com"], ["example.com/path"], ["example.com:443"], ["a b"], ["a" * 64 + "é.example"]],
    ),
    (
        WebFetchSettings,
        "allowed_private_hosts",
        [["intranet"], ["10.0.0.7:8080"], ["[::1]:80"], ["::1"]],
        [["http://intranet"], ["intranet:0"], ["intranet:65536"], ["intranet:"], ["*"], [""]],
    ),
    (WebFetchSettings, "max_content_tokens", [1], [0]),
    (FunctionSettings, "timeout_seconds", [1, 600], [0, "5"]),
    (CodeExecutionSettings, "backend", ["auto", "provider", "monty", "bubblewrap"], ["docker"]),
    (CodeExecutionSettings, "timeout_seconds", [1, 600], [0, 601, 1.5]),
    (CodeExecutionSettings, "memory_mb", [64, 65536], [63, 65537]),
    (CodeExecutionSettings, "output_chars", [100, 1_000_000], [99, 1_000_001]),
    (EvaluatorSettings, "default_model", ["a:b"], ["b"]),
    (EvaluatorSettings, "max_retries", [0], [-1]),
    (EvaluatorSettings, "timeout_seconds", [1], [0]),
    (
        EvaluatorSettings,
        "metrics",
        [
            [{"name": "A"}, {"name": "B"}],
            [{"name": "A", "weight": 0.5}, {"name": "B", "weight": 0.501}],
            [{"name": "A", "weight": 0.5}, {"name": "B", "weight": 0.499}],
        ],
        [
            [],
            [{"name": "A", "weight": 0.5}, {"name": "B", "weight": 0.502}],
            [{"name": "A", "weight": 0.5}, {"name": "B"}],
            [{"name": "A"}, {"name": "A"}],
        ],
    ),
    (
        EvaluatorSettings,
        "custom_metrics",
        [{"Any key. /": {"module": "m", "class": "C"}}, {"K": {"path": "m.py", "class": "C"}}],
        [{"K": {"class": "C"}}, {"K": {"module": "m"}}, {"K": {"module": "m", "path": "p", "class": "C"}}],
    ),
    (MetricSettings, "weight", [0, 1], [-0.1, 1.1]),
    (JudgmentSettings, "model", ["none", "a:b"], ["None", "x"]),
    (JudgmentSettings, "target_score", [0, 100], [-1, 101]),
    (JudgmentSettings, "plateau_rounds", [1, 10], [0, 11]),
    (JudgmentSettings, "judge_on_final_round", [True, False], ["yes", 1]),
    (RoundPromptConfig, "max_submission_history_items", [1, 1000], [0, 1001]),
    (RoundPromptConfig, "max_leaderboard_display_teams", [1, 1000], [0, 1001]),
    (RoundPromptConfig, "submission_preview_chars", [2, 10**6], [1, 10**6 + 1]),
    (RoundPromptConfig, "estimated_prompt_tokens", [1, 10**7], [0, 10**7 + 1]),
    (ProviderSettings, "base_url", ["https://x/v1"], ["x", "ftp://x", "http://me:pw@x"]),
    (ProviderSettings, "api_key_env", ["MY_KEY"], ["sk-abc", ""]),
    (ProviderSettings, "max_concurrency", [1], [0]),
    (ProviderSettings, "requests_per_minute", [1], [0]),
    (ProviderSettings, "api", ["chat", "responses"], ["grpc"]),
    (ProviderSettings, "media", [[], ["image"], ["document", "audio"]], ["image", ["film"]]),
    (LocalSettings, "n_ctx", [256, 8192, 1_048_576], [255, 1_048_577, "4096"]),
    (LocalSettings, "max_concurrency", [1], [0]),
    (LocalSettings, "threads", [1], [0]),
    (ProvidersSettings, "providers", [{"my-server": {"base_url": "http://x"}}], [{"a:b": {"base_url": "http://x"}}]),
    *(
        (model, *limits)
        for model in (LeaderSettings, MemberAgentConfig, LLMDefaultSettings, MetricSettings, JudgmentSettings)
        for limits in _MODEL_LIMITS
    ),
]

VALID = [(model, field, value) for model, field, valid, _ in LIMITS for value in valid]
INVALID = [(model, field, value) for model, field, _, invalid in LIMITS for value in invalid]


def _make(model: type[BaseModel], /, **values: Any) -> BaseModel:
    return model(**{**REQUIRED.get(model, {}), **values})


@pytest.mark.parametrize(("model", "defaults"), DEFAULTS, ids=lambda value: getattr(value, "__name__", ""))
def test_every_default_is_the_stated_one(model: type[BaseModel], defaults: dict[str, Any]) -> None:
    made = _make(model)
    assert {name: getattr(made, name) for name in defaults} == defaults
    assert set(defaults) | set(REQUIRED.get(model, {})) == set(model.model_fields)


@pytest.mark.parametrize(("model", "field", "value"), VALID)
def test_a_value_within_its_limits_is_taken(model: type[BaseModel], field: str, value: Any) -> None:
    assert field in _make(model, **{field: value}).model_fields_set


@pytest.mark.parametrize(("model", "field", "value"), INVALID)
def test_a_value_beyond_its_limits_is_refused(model: type[BaseModel], field: str, value: Any) -> None:
    with pytest.raises(ValidationError) as caught:
        _make(model, **{field: value})
    assert {error["loc"][0] for error in caught.value.errors()} == {field}


@pytest.mark.parametrize("model", [model for model, _ in DEFAULTS], ids=lambda model: model.__name__)
def test_settings_cannot_be_changed(model: type[BaseModel]) -> None:
    made = _make(model)
    name = next(iter(model.model_fields))
    with pytest.raises(ValidationError, match="frozen"):
        setattr(made, name, None)


@pytest.mark.parametrize("rounds", [1, 2, 3, 10])
def test_least_rounds_follow_most_rounds(rounds: int) -> None:
    made = OrchestratorSettings.model_validate({"teams": [{"config": "x"}], "max_rounds": rounds})
    assert made.min_rounds == min(2, rounds)


def test_faults_of_fields_and_between_fields_come_together() -> None:
    with pytest.raises(ValidationError) as caught:
        _make(OrchestratorSettings, max_rounds=3, min_rounds=4, max_concurrent_teams=0, typo=1)
    assert [error["loc"][0] for error in caught.value.errors()] == ["max_concurrent_teams", "typo", "min_rounds"]


def test_equal_settings_are_equal() -> None:
    assert _make(TeamSettings) == _make(TeamSettings)
    assert _make(TeamSettings) != _make(TeamSettings, max_concurrent_members=3)


def test_member_settings_and_member_agent_config_are_one_class() -> None:
    assert MemberSettings is MemberAgentConfig


def test_an_agent_type_may_be_given_as_its_enum() -> None:
    member = MemberAgentConfig(name="a", type=AgentType.PLAIN, model="a:b")
    assert member.type == "plain"


# --- tool names -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["調査", "調査 A", "Web Researcher", "a" * 100, "a/b", "🎉"])
def test_an_unusual_name_gets_a_valid_tool_name_of_its_own(name: str) -> None:
    member = MemberAgentConfig(name=name, type="plain", model="a:b")
    assert member.tool_name == default_tool_name(name)
    assert member.tool_name.isascii()
    assert len(member.tool_name) <= 64


def test_names_that_look_alike_get_different_tools() -> None:
    names = ["a b", "a_b", "a/b", "調査", "分析", "a" * 60, "a" * 61]
    assert len({default_tool_name(name) for name in names}) == len(names)


def test_the_description_is_what_the_leader_is_told() -> None:
    member = MemberAgentConfig(name="a", type="plain", model="a:b", description="Searches.")
    assert member.tool_description == "Searches."
    told = MemberAgentConfig(name="a", type="plain", model="a:b", description="x", tool_description="y")
    assert told.tool_description == "y"


# --- older spellings ------------------------------------------------------------------------------------------------


def _member(**values: Any) -> MemberAgentConfig:
    return MemberAgentConfig.model_validate({"name": "a", "type": "plain", "model": "a:b", **values})


def test_agent_name_and_agent_type_are_read() -> None:
    member = MemberAgentConfig.model_validate({"agent_name": "a", "agent_type": "plain", "model": "a:b"})
    assert (member.name, member.type) == ("a", "plain")


@pytest.mark.parametrize("key", ["instructions", "system_instruction"])
def test_an_instruction_may_be_a_table_with_a_text(key: str) -> None:
    assert _member(**{key: {"text": "Be brief."}}).system_instruction == "Be brief."


def test_tool_settings_under_metadata_are_read_and_kept() -> None:
    metadata = {"tool_settings": {"web_search": {"max_results": 3}, "mine": {"a": 1}}, "owner": "me"}
    member = _member(metadata=metadata)
    assert member.tool_settings is not None
    assert member.tool_settings.web_search == WebSearchSettings(max_results=3)
    assert member.tool_settings.model_extra == {"mine": {"a": 1}}
    assert member.metadata == metadata


def test_a_members_own_tool_settings_win_over_those_under_metadata() -> None:
    member = _member(
        tool_settings={"web_search": {"max_results": 5}},
        metadata={"tool_settings": {"web_search": {"max_results": 3}, "web_fetch": {"max_uses": 2}}},
    )
    assert member.tool_settings is not None
    assert member.tool_settings.web_search == WebSearchSettings(max_results=5)
    assert member.tool_settings.web_fetch == WebFetchSettings(max_uses=2)


def test_what_existing_files_carry_is_accepted() -> None:
    member = _member(
        capabilities=["search", "read"],
        tool_settings={"web_search": {"include_raw_content": True}, "code_execution": {"sandbox": "x"}},
    )
    assert member.capabilities == ["search", "read"]


# --- prompt builder settings made alone -----------------------------------------------------------------------------


def test_prompt_settings_made_alone_read_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MIXSEEK_TEAM_USER_PROMPT", "short name")
    assert PromptBuilderSettings().team_user_prompt == "short name"
    monkeypatch.setenv("MIXSEEK_PROMPT_BUILDER__TEAM_USER_PROMPT", "long name")
    assert PromptBuilderSettings().team_user_prompt == "long name"
    assert PromptBuilderSettings(team_user_prompt="argument").team_user_prompt == "argument"


def test_a_bare_variable_is_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEAM_USER_PROMPT", "not ours")
    monkeypatch.setenv("ROUND_PROMPT", "{}")
    assert PromptBuilderSettings().team_user_prompt == DEFAULT_TEAM_USER_PROMPT
    assert PromptBuilderSettings().round_prompt is None


def test_the_limits_of_a_prompt_come_from_the_environment_key_by_key(monkeypatch: pytest.MonkeyPatch) -> None:
    prefix = "MIXSEEK_PROMPT_BUILDER__ROUND_PROMPT"
    monkeypatch.setenv(prefix, '{"submission_preview_chars": 50, "estimated_prompt_tokens": 7}')
    monkeypatch.setenv(f"{prefix}__ESTIMATED_PROMPT_TOKENS", "100")
    expected = RoundPromptConfig(submission_preview_chars=50, estimated_prompt_tokens=100)
    assert PromptBuilderSettings().round_prompt == expected


@pytest.mark.parametrize("field", ["team_user_prompt", "evaluator_user_prompt", "judgment_user_prompt"])
@pytest.mark.parametrize("blank", ["", " \n"])
def test_a_prompt_cannot_be_empty(field: str, blank: str) -> None:
    with pytest.raises(ValidationError) as caught:
        PromptBuilderSettings.model_validate({field: blank})
    assert [str(error["ctx"]["error"]) for error in caught.value.errors()] == [f"{field} cannot be empty"]


def test_an_unknown_variable_of_the_prompt_builder_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MIXSEEK_PROMPT_BUILDER__TEAM_PROMPT", "x")
    with pytest.raises(ConfigurationError, match="did you mean MIXSEEK_PROMPT_BUILDER__TEAM_USER_PROMPT"):
        PromptBuilderSettings()
