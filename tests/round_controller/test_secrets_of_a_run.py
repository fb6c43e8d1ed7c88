"""A key that a model repeats reaches neither journal nor tables."""

from pathlib import Path

import pytest

from mixseek.orchestrator import Orchestrator, load_orchestrator_settings
from mixseek.testing import Match, scripted, write_workspace

CANARY = "canary-0a1b2c3d4e5f6a7b"


@pytest.mark.parametrize("where", ["environment", ".env"])
async def test_a_key_in_an_answer_is_kept_nowhere(where: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if where == "environment":
        monkeypatch.setenv("SOME_PROVIDER_API_KEY", CANARY)
    else:
        (tmp_path / ".env").write_text(f"SOME_PROVIDER_API_KEY={CANARY}\n")
    write_workspace(tmp_path, teams=1, members=1, max_rounds=1)
    with scripted() as script:
        script.on(Match("member-1"), [f"the key is {CANARY}"])
        script.on(Match("leader-a"), lambda call: f"I was told {CANARY}" if call.tool_results else None)
        settings = load_orchestrator_settings("configs/orchestrator.toml", tmp_path)
        summary = await Orchestrator(settings).execute("task")
    assert CANARY in summary.team_results[0].submission_content
    holding = files_holding(CANARY, tmp_path)
    assert {"mixseek.db", "journal.db"} <= set(holding)
    assert not any(holding.values())


def files_holding(text: str, workspace: Path) -> dict[str, bool]:
    kept = [path for path in workspace.iterdir() if path.name.startswith(("mixseek.db", "journal.db"))]
    return {path.name: text.encode() in path.read_bytes() for path in kept}
