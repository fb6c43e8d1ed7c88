"""The manual names every setting, as the models have it."""

from pathlib import Path

import pytest

from mixseek.config.kinds import KINDS
from mixseek.config.reference import field_references

MANUAL = Path(__file__).parents[2] / "docs" / "configuration.md"


@pytest.mark.parametrize("kind", KINDS)
def test_every_setting_has_a_description_and_stands_in_the_manual(kind: str) -> None:
    manual = MANUAL.read_text(encoding="utf-8")
    references = field_references(KINDS[kind])
    assert references
    for reference in references:
        assert reference.description, reference.key
        key = reference.key.replace("team.members[]", "agent")
        assert f"| `{key}` |" in manual
        assert reference.variable is None or f"`{reference.variable}`" in manual


def test_a_reference_tells_limits_default_and_variable() -> None:
    references = {reference.key: reference for reference in field_references(KINDS["orchestrator"])}
    rounds = references["orchestrator.max_rounds"]
    assert (rounds.allowed, rounds.default, rounds.variable) == (
        "a whole number from 1 to 10",
        "5",
        "MIXSEEK_MAX_ROUNDS",
    )
    assert references["budget.max_tokens"].variable == "MIXSEEK_BUDGET__MAX_TOKENS"
    assert references["orchestrator.teams[].config"].default == "required"
    assert "orchestrator.workspace_path" not in references
