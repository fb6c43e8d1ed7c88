"""Competitions that are scored in code alone, and reference answers that reach nobody they should not."""

import json
from pathlib import Path

import pytest

from mixseek.errors import ConfigurationError
from mixseek.testing import ModelServer
from soak.arena import TASK, Arena, Team

# The right number is 80; the word in it must not be seen by any team.
REFERENCE = "極秘の模範解答: 80"
SECRET = "極秘の模範解答"
TEAMS = (Team("alpha", scores=(70, 80)), Team("beta", scores=(60, 65)))
CODE = """\
[[metrics]]
name = "答え"
type = "NumericAnswer"
weight = 0.5
[[metrics]]
name = "Length"
weight = 0.5
options = { minimum = 33 }
"""


@pytest.fixture(autouse=True)
def _without_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MIXSEEK_ONLY_LOOPBACK", "1")
    for name in ("GOOGLE_API_KEY", "GEMINI_API_KEY", "OPENAI_API_KEY"):
        monkeypatch.delenv(name, raising=False)


def bodies_of(server: ModelServer, *models: str) -> list[str]:
    return [json.dumps(each.body, ensure_ascii=False) for each in server.requests if each.model.startswith(models)]


FAILING_PROMPT = """[prompt_builder]\nevaluator_user_prompt = "{{ submission.split('no such word')[1] }}"\n"""


async def test_a_prompt_for_judges_that_fails_leaves_the_submission_on_the_board_unscored(
    tmp_path: Path, server: ModelServer
) -> None:
    arena = Arena(tmp_path, server.base_url, TEAMS[:1])
    (tmp_path / "configs" / "prompt_builder.toml").write_text(FAILING_PROMPT)
    arena.script(server)
    played = await arena.play()
    reason = str(played.failure("alpha"))
    assert reason.startswith("template 'evaluator_user_prompt', line 1: ")
    [row] = arena.rows("leader_board")
    assert (row["submission_content"], row["score"]) == ("alpha answer of round 1, worth 70", None)
    assert row["score_details"] == {"reason": reason}


async def test_a_prompt_that_no_judge_reads_is_not_made(tmp_path: Path, server: ModelServer) -> None:
    arena = Arena(tmp_path, server.base_url, TEAMS[:1], evaluator=CODE)
    (tmp_path / "configs" / "prompt_builder.toml").write_text(FAILING_PROMPT)
    arena.script(server)
    summary = await arena.build().execute(TASK, reference=REFERENCE)
    assert (summary.failed_teams_info, summary.best_score) == ([], 100)


async def test_a_competition_scored_in_code_asks_no_judge_and_needs_no_key_for_one(
    tmp_path: Path, server: ModelServer
) -> None:
    arena = Arena(tmp_path, server.base_url, TEAMS, evaluator=CODE)
    # Without a default model of its own the judges would be Google's, whose key is nowhere.
    (tmp_path / "configs" / "evaluator.toml").write_text(CODE, encoding="utf-8")
    arena.script(server)
    summary = await arena.build().execute(TASK, reference=REFERENCE)
    # alpha's answers have 33 characters and beta's 32, which is 1 below, over a width of 16.5.
    beta = 0.5 * 0 + 0.5 * 100 * (1 - 1 / 16.5)
    assert summary.failed_teams_info == []
    rows = [(row["team_id"], row["round_number"], row["score"]) for row in arena.rows("leader_board")]
    assert rows == [
        ("alpha", 1, pytest.approx(50)),
        ("alpha", 2, pytest.approx(100)),
        ("beta", 1, pytest.approx(beta)),
        ("beta", 2, pytest.approx(beta)),
    ]
    assert summary.best_team_id == "alpha"
    assert bodies_of(server, "judge") == []
    assert {line.role for line in summary.bill} == {"leader", "member", "judgment"}


async def test_teams_read_why_and_never_see_the_reference(tmp_path: Path, server: ModelServer) -> None:
    arena = Arena(tmp_path, server.base_url, TEAMS, evaluator=CODE, orchestrator='reference = "answers/a.md"\n')
    (tmp_path / "answers").mkdir()
    (tmp_path / "answers" / "a.md").write_text(REFERENCE, encoding="utf-8")
    arena.script(server)
    await arena.play()
    assert any("70 is not right" in body for body in bodies_of(server, "leader-alpha"))
    assert any("32 characters: write at least 33" in body for body in bodies_of(server, "leader-beta"))
    assert [body for body in bodies_of(server, "") if SECRET in body] == []


async def test_a_judge_that_is_shown_the_reference_is_the_only_one_that_sees_it(
    tmp_path: Path, server: ModelServer
) -> None:
    judges = (
        '[[metrics]]\nname = "Coverage"\nuse_reference = true\n[[metrics]]\nname = "Relevance"\nmodel = "loop:blind"\n'
    )
    arena = Arena(tmp_path, server.base_url, TEAMS, evaluator=judges)
    arena.script(server)
    server.on("blind", lambda _: {"evaluator_comment": "良い", "score": 50})
    summary = await arena.build().execute(TASK, reference=REFERENCE)
    shown = bodies_of(server, "judge")
    assert len(shown) == 4
    assert all(SECRET in body for body in shown)
    others = [body for body in bodies_of(server, "") if body not in shown]
    assert [body for body in others if SECRET in body] == []
    async with arena.journal() as journal:
        prompts = await journal.prompts(summary.execution_id)
        [started, *_] = await journal.events(summary.execution_id)
    sent = {str(message["content"]) for request in server.requests for message in request.body["messages"]}
    kept = [prompt for prompt in prompts if prompt.role == "evaluator_with_reference"]
    assert len(kept) == 4
    assert all(prompt.text in sent and SECRET in prompt.text and str(prompt.nonce) in prompt.text for prompt in kept)
    assert isinstance(started.payload, dict)
    assert started.payload["reference"] == REFERENCE


@pytest.mark.parametrize(
    ("reference", "told"),
    [
        (None, "metrics[0]: '答え' needs a reference answer: set reference in the orchestrator file"),
        ("八十", "metric '答え': the reference answer holds no number"),
    ],
)
async def test_without_a_reference_that_can_be_used_nothing_is_asked(
    tmp_path: Path, server: ModelServer, reference: str | None, told: str
) -> None:
    arena = Arena(tmp_path, server.base_url, TEAMS, evaluator=CODE)
    arena.script(server)
    with pytest.raises(ConfigurationError) as error:
        await arena.build().execute(TASK, reference=reference)
    assert told in str(error.value)
    assert server.requests == []
