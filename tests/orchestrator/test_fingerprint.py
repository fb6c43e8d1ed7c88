"""What a change of settings can make different in what was played."""

import pytest

from mixseek.errors import Problem
from mixseek.orchestrator.fingerprint import Reach, reach_of


@pytest.mark.parametrize(
    ("part", "key", "reach"),
    [
        ("orchestrator", "budget.max_cost_usd", "nothing"),
        ("orchestrator", "budget.max_output_tokens", "rounds"),
        ("orchestrator", "prices.openai:gpt-4.1.input_usd_per_million", "nothing"),
        ("orchestrator", "storage.lock_wait_seconds", "nothing"),
        ("orchestrator", "timeout_per_team_seconds", "nothing"),
        ("orchestrator", "max_retries_per_team", "nothing"),
        ("orchestrator", "max_rounds", "end"),
        ("orchestrator", "min_rounds", "end"),
        ("orchestrator", "answer_schema.properties.budget.type", "rounds"),
        ("orchestrator", None, "rounds"),
        ("team alpha", "budget.max_requests", "nothing"),
        ("team alpha", "leader.timeout_seconds", "nothing"),
        ("team alpha", "leader.model", "rounds"),
        ("team alpha", "members[0].max_retries", "nothing"),
        # The member is told how long its code may run.
        ("team alpha", "members[0].tool_settings.code_execution.timeout_seconds", "rounds"),
        ("team alpha", "members[0].mcp_servers.storage.command", "rounds"),
        ("evaluator", "metrics[0].timeout_seconds", "nothing"),
        ("evaluator", "metrics[0].options.timeout_seconds", "rounds"),
        ("evaluator", "metrics[0].weight", "rounds"),
        ("judgment", "target_score", "end"),
        ("judgment", "judge_on_final_round", "end"),
        ("judgment", "system_instruction", "rounds"),
        ("providers", "providers.budget.max_concurrency", "nothing"),
        ("providers", "providers.budget.base_url", "rounds"),
        ("file prompts/team.j2", None, "rounds"),
        ("mixseek", None, "rounds"),
    ],
)
def test_a_change_reaches_as_far_as_its_setting_can(part: str, key: str | None, reach: Reach) -> None:
    assert reach_of(Problem("was 1, is 2", part, key)) == reach
