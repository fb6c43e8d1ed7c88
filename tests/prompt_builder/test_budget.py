"""Prompts within a token budget: any history and ranking renders, and what goes first is what a team needs least."""

import logging
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mixseek.config.schema import PromptBuilderSettings, RoundPromptConfig
from mixseek.prompt_builder import RoundPromptContext, UserPromptBuilder
from mixseek.prompt_builder.budget import detail_steps
from mixseek.prompt_builder.tokens import count_tokens
from mixseek.records import RoundState

NOW = datetime(2026, 1, 2, tzinfo=UTC)
LONG = "長い提出内容です。" * 100


class Board:
    def __init__(self, rows: list[dict[str, Any]]) -> None:
        self.rows = rows

    async def get_leader_board_ranking(self, execution_id: str) -> list[dict[str, Any]]:
        return self.rows


def a_round(number: int, score: float | None = 70.0, content: str = LONG) -> RoundState:
    comment = f"第{number}ラウンドの講評"
    return RoundState(
        round_number=number,
        submission_content=content,
        evaluation_score=score,
        score_details={"metrics": [{"metric_name": "Coverage", "score": score, "evaluator_comment": comment}]},
        evaluation_feedback=f"Coverage: {comment}",
        round_started_at=NOW,
        round_ended_at=NOW,
    )


def a_board(teams: int) -> Board:
    return Board(
        [
            {"team_id": f"t{i}", "team_name": f"チーム{i}", "max_score": 100.0 - i, "total_rounds": 4}
            for i in range(1, teams + 1)
        ]
    )


def a_context(rounds: int = 4, teams: int = 12, team_id: str = "t11", **fields: Any) -> RoundPromptContext:
    values: dict[str, Any] = {
        "user_prompt": "課題",
        "round_number": rounds + 1,
        "round_history": [a_round(number, 60.0 + number) for number in range(1, rounds + 1)],
        "team_id": team_id,
        "team_name": "われら",
        "execution_id": "e",
        "store": a_board(teams),
    }
    return RoundPromptContext(**values | fields)


async def prompt_within(tokens: int, context: RoundPromptContext, **config: Any) -> str:
    limits = RoundPromptConfig(estimated_prompt_tokens=tokens, **config)
    settings = PromptBuilderSettings(round_prompt=limits)
    return await UserPromptBuilder(settings=settings, clock=lambda: "いま").build_team_prompt(context)


async def test_without_the_table_nothing_is_left_out() -> None:
    builder = UserPromptBuilder(settings=PromptBuilderSettings())
    prompt = await builder.build_team_prompt(a_context(rounds=8, teams=20))
    assert prompt.count(LONG) == 8
    assert prompt.count("ラウンド数") == 20
    assert "スコア推移" not in prompt


async def test_a_wide_budget_shows_all_that_the_counts_allow() -> None:
    prompt = await prompt_within(100_000, a_context(rounds=7, teams=12, team_id="t12"))
    assert [n for n in range(1, 8) if f"## ラウンド {n}\n" in prompt] == [3, 4, 5, 6, 7]
    assert [n for n in range(1, 13) if f"#{n} " in prompt] == [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12]
    assert f"あなたの提出内容: {LONG[:200]}...[中略]...{LONG[-100:]}" in prompt
    assert "スコア推移: 61.00 → 62.00 → 63.00 → 64.00 → 65.00 → 66.00 → 67.00\n" in prompt


async def test_each_setting_of_the_table_has_its_effect() -> None:
    context = a_context(rounds=7, teams=12, team_id="t1")
    prompt = await prompt_within(
        100_000,
        context,
        max_submission_history_items=2,
        max_leaderboard_display_teams=4,
        submission_preview_chars=10,
        enable_trend_analysis=False,
    )
    assert prompt.count("## ラウンド") == 2
    assert prompt.count("ラウンド数") == 4
    assert f"あなたの提出内容: {LONG[:10]}...[中略]...{LONG[-5:]}\n" in prompt
    assert "スコア推移" not in prompt


async def test_trend_needs_two_scored_rounds() -> None:
    one = a_context(rounds=2, round_history=[a_round(1, None), a_round(2, 70.0)])
    assert "スコア推移" not in await prompt_within(100_000, one)


async def test_what_a_team_needs_least_goes_first() -> None:
    context = a_context()
    full = count_tokens(await prompt_within(100_000, context))
    prompts = [await prompt_within(tokens, context) for tokens in range(full, 100, -10)]
    parts = {
        "an older submission": "## ラウンド 1\n",
        "another team": "#8 ",
        "score details": "スコア詳細",
        "the trend": "スコア推移",
        "a leading team": "#3 ",
        "feedback": "第4ラウンドの講評",
        "the latest score": "スコア: 64.00/100",
        "the own place": "12チーム中11位",
        "the task": "課題",
    }
    gone_at = {
        name: next((i for i, p in enumerate(prompts) if text not in p), len(prompts)) for name, text in parts.items()
    }
    assert list(gone_at) == sorted(gone_at, key=lambda name: gone_at[name])
    assert gone_at["feedback"] < len(prompts)
    assert {gone_at[name] for name in ("the latest score", "the own place", "the task")} == {len(prompts)}


async def test_an_excess_of_level_one_alone_is_reported_and_nothing_of_it_is_cut(
    caplog: pytest.LogCaptureFixture,
) -> None:
    task = "とても長い課題。" * 500
    with caplog.at_level(logging.WARNING):
        prompt = await prompt_within(200, a_context(user_prompt=task))
    assert task in prompt
    assert "スコア: 64.00/100" in prompt
    assert "12チーム中11位" in prompt
    [record] = caplog.records
    assert record.getMessage().startswith(
        f"the prompt of round 5 for team 't11' needs {count_tokens(prompt)} tokens, over the budget of 200 "
    )


async def test_round_one_over_the_budget_is_reported_too(caplog: pytest.LogCaptureFixture) -> None:
    context = a_context(rounds=0, user_prompt="長い課題。" * 200)
    with caplog.at_level(logging.WARNING):
        prompt = await prompt_within(100, context)
    assert "長い課題。" * 200 in prompt
    assert "the prompt of round 1" in caplog.text


def test_japanese_is_counted_as_models_count_it_and_not_by_spaces() -> None:
    text = "日本語の文章には単語の間に空白がありません。" * 50
    assert len(text) / 3 < count_tokens(text) < len(text)


def test_texts_longer_than_the_tokenizer_takes_at_once_are_counted() -> None:
    assert count_tokens("word " * 400_000) >= 400_000


def test_special_tokens_and_broken_surrogates_are_plain_text() -> None:
    assert count_tokens("<|endoftext|>\ud800") > 1


def test_every_step_shows_no_more_than_the_one_before() -> None:
    steps = detail_steps(RoundPromptConfig(), rounds=9, teams=20)
    for fuller, leaner in pairwise(steps):
        assert leaner != fuller
        assert (leaner.rounds or 0) <= (fuller.rounds or 0)
        assert (leaner.teams or 0) <= (fuller.teams or 0)
        for part in ("submissions", "scores", "feedback", "trend"):
            assert getattr(leaner, part) <= getattr(fuller, part)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)
scores = st.none() | st.floats(-1e9, 1e9)
round_states = st.builds(
    RoundState,
    round_number=st.integers(1, 50),
    submission_content=st.text(max_size=600),
    evaluation_score=scores,
    score_details=st.dictionaries(st.text(max_size=10) | st.just("metrics"), json_values, max_size=4),
    evaluation_feedback=st.text(max_size=100),
    improvement_judgment=st.none(),
    round_started_at=st.just(NOW),
    round_ended_at=st.just(NOW),
    message_history=st.just([]),
)
ranking_rows = st.fixed_dictionaries(
    {
        "team_id": st.sampled_from([f"t{i}" for i in range(20)]),
        "team_name": st.text(max_size=30),
        "max_score": st.floats(-1e6, 1e6),
        "total_rounds": st.integers(0, 50),
    }
)
not_blank = st.text(min_size=1, max_size=300).filter(lambda text: text.strip() != "")


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    task=not_blank,
    history=st.lists(round_states, max_size=8),
    ranking=st.lists(ranking_rows, max_size=15, unique_by=lambda row: row["team_id"]),
    round_number=st.integers(1, 9),
    budget=st.none() | st.integers(1, 4000),
)
async def test_any_history_and_ranking_renders_and_keeps_the_budget(
    task: str, history: list[RoundState], ranking: list[dict[str, Any]], round_number: int, budget: int | None
) -> None:
    config = None if budget is None else RoundPromptConfig(estimated_prompt_tokens=budget)
    builder = UserPromptBuilder(settings=PromptBuilderSettings(round_prompt=config), clock=lambda: "いま")
    context = RoundPromptContext(
        user_prompt=task,
        round_number=round_number,
        round_history=history,
        team_id="t3",
        team_name="われら",
        execution_id="e",
        store=Board(ranking),
    )
    handler = _Kept()
    logging.getLogger("mixseek.prompt_builder.budget").addHandler(handler)
    try:
        prompts = [await builder.build_team_prompt(context), await builder.build_judgment_prompt(context)]
    finally:
        logging.getLogger("mixseek.prompt_builder.budget").removeHandler(handler)
    assert all(task in prompt for prompt in prompts)
    over = [prompt for prompt in prompts if budget is not None and count_tokens(prompt) > budget]
    assert len(handler.messages) == len(over)
    if budget is not None and over:
        smallest = RoundPromptConfig(estimated_prompt_tokens=1)
        least = UserPromptBuilder(settings=PromptBuilderSettings(round_prompt=smallest), clock=lambda: "いま")
        if over[0] is prompts[0]:
            assert await least.build_team_prompt(context) == over[0]


class _Kept(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.messages: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.messages.append(record.getMessage())
