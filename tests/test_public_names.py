"""The names people import stay where they are, and the packages above them stay cheap."""

import importlib
import subprocess
import sys

import pytest

NAMES = {
    "mixseek": ["__version__", "arun", "run"],
    "mixseek.agents.leader.agent": ["DEFAULT_LEADER_SYSTEM_INSTRUCTION"],
    "mixseek.agents.leader.models": ["MemberSubmission", "MemberSubmissionsRecord"],
    "mixseek.agents.member": ["BaseMemberAgent", "MemberAgentFactory"],
    "mixseek.agents.member.base": ["BaseMemberAgent"],
    "mixseek.agents.member.factory": ["MemberAgentFactory"],
    "mixseek.config": ["ConfigurationManager"],
    "mixseek.config.manager": ["ConfigurationManager", "load_orchestrator_settings"],
    "mixseek.config.schema": [
        "EvaluatorSettings",
        "JudgmentSettings",
        "MemberAgentConfig",
        "OrchestratorSettings",
        "PromptBuilderSettings",
        "TeamSettings",
    ],
    "mixseek.core.auth": ["AuthenticationError", "create_authenticated_model"],
    "mixseek.evaluator": ["EvaluationRequest", "EvaluationResult", "Evaluator", "MetricScore"],
    "mixseek.evaluator.metrics": ["BaseMetric", "LLMJudgeMetric"],
    "mixseek.evaluator.metrics.base": ["BaseMetric", "LLMJudgeMetric"],
    "mixseek.models.evaluation_request": ["EvaluationRequest"],
    "mixseek.models.evaluation_result": ["EvaluationResult", "MetricScore"],
    "mixseek.models.leaderboard": ["LeaderBoardEntry"],
    "mixseek.models.member_agent": ["AgentType", "MemberAgentConfig", "MemberAgentResult", "ResultStatus"],
    "mixseek.orchestrator": ["Orchestrator", "load_orchestrator_settings"],
    "mixseek.orchestrator.models": [
        "ExecutionSummary",
        "FailedTeamInfo",
        "OrchestratorTask",
        "RoundResult",
        "TeamStatus",
    ],
    "mixseek.prompt_builder": [
        "EvaluatorPromptContext",
        "Jinja2PromptBuilder",
        "PlainTextPromptBuilder",
        "PromptBuilder",
        "RoundPromptContext",
        "UserPromptBuilder",
        "__version__",
        "build_round_prompt",
        "setup_jinja2_environment",
    ],
    "mixseek.prompt_builder.constants": [
        "DEFAULT_EVALUATOR_USER_PROMPT",
        "DEFAULT_JUDGMENT_USER_PROMPT",
        "DEFAULT_TEAM_USER_PROMPT",
    ],
    "mixseek.prompt_builder.formatters": [
        "format_ranking_table",
        "format_submission_history",
        "generate_position_message",
        "get_current_datetime_with_timezone",
    ],
    "mixseek.prompt_builder.jinja2_builder": ["Jinja2PromptBuilder", "setup_jinja2_environment"],
    "mixseek.prompt_builder.models": [
        "EvaluationResult",
        "LeaderboardEntry",
        "RoundContext",
        "RoundPromptContext",
        "SubmissionRecord",
        "TEMPLATE_VARIABLES",
    ],
    "mixseek.prompt_builder.plain_text": ["PlainTextPromptBuilder"],
    "mixseek.prompt_builder.protocol": ["PromptBuilder"],
    "mixseek.round_controller": ["OnRoundCompleteCallback", "RoundController", "RoundState"],
    "mixseek.round_controller.models": ["ImprovementJudgment", "RoundState"],
    "mixseek.storage.aggregation_store": ["AggregationStore", "DatabaseReadError", "DatabaseWriteError"],
}


@pytest.mark.parametrize("module", NAMES)
def test_the_names_of_a_module_are_there_and_public(module: str) -> None:
    loaded = importlib.import_module(module)
    missing = [name for name in NAMES[module] if not hasattr(loaded, name) or name not in loaded.__all__]
    assert missing == []


@pytest.mark.parametrize(
    "module",
    [
        "mixseek",
        "mixseek.records",
        "mixseek.config",
        "mixseek.storage",
        "mixseek.evaluator.metrics",
        "mixseek.agents.member",
    ],
)
def test_light_modules_load_neither_models_nor_databases(module: str) -> None:
    script = f"import sys, {module}; print([m for m in ('pydantic_ai', 'duckdb', 'openai') if m in sys.modules])"
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "[]"
