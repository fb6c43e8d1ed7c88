"""The prompt strategies: plain text and a directory of templates, and how they serve a round."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import jinja2
import pytest

from mixseek.config.schema import RoundPromptConfig
from mixseek.errors import ConfigurationError
from mixseek.prompt_builder import (
    TEMPLATE_VARIABLES,
    EvaluationResult,
    Jinja2PromptBuilder,
    LeaderboardEntry,
    PlainTextPromptBuilder,
    PromptBuilder,
    RoundPromptContext,
    StrategyPromptBuilder,
    SubmissionRecord,
    build_round_prompt,
    setup_jinja2_environment,
)
from mixseek.records import MetricScore, RoundState

HISTORY = [
    SubmissionRecord(round_number=1, content="一回目", score=70.0, feedback=""),
    SubmissionRecord(round_number=2, content="二回目", score=82.25, feedback=""),
]
EVALUATIONS = [
    EvaluationResult(
        metrics=[MetricScore(metric_name="Coverage", score=70, evaluator_comment="例が足りない")], overall_score=70.0
    ),
    EvaluationResult(
        metrics=[
            MetricScore(metric_name="Coverage", score=84.5, evaluator_comment="良い"),
            MetricScore(metric_name="Relevance", score=80, evaluator_comment="的確"),
        ],
        overall_score=82.25,
    ),
]
RANKING = [
    LeaderboardEntry(rank=1, team_id="b", team_name="Beta", best_score=90, latest_round=2, total_rounds=2),
    LeaderboardEntry(rank=2, team_id="a", team_name="Alpha", best_score=82.25, latest_round=2, total_rounds=2),
]


def test_round_one_is_the_query_alone() -> None:
    assert build_round_prompt("問い", 1, "a", [], [], [], None) == (
        "ユーザのクエリに対して、最良の回答を提供してください。\n\nクエリ:\n問い"
    )


def test_later_rounds_have_the_strategys_text() -> None:
    assert build_round_prompt("問い", 3, "a", HISTORY, EVALUATIONS, RANKING, 2) == (
        "ユーザのクエリに対して、継続的に改善した回答を提供してください。\n"
        "\n"
        "元のクエリ:\n"
        "問い\n"
        "\n"
        "これまでのあなたのSubmission履歴と評価結果:\n"
        "ラウンド 1:\n"
        "- Submission: 一回目\n"
        "- スコア: 70.0/100\n"
        "- フィードバック: Coverage: 例が足りない\n"
        "\n"
        "ラウンド 2:\n"
        "- Submission: 二回目\n"
        "- スコア: 82.2/100\n"
        "- フィードバック: Coverage: 良い / Relevance: 的確\n"
        "\n"
        "チーム全体のランキング:\n"
        "全チーム最高スコアランキング:\n"
        "  1位: Beta (スコア: 90.0/100)\n"
        "  2位: Alpha (スコア: 82.2/100) ← あなたのチーム\n"
        "\n"
        "あなたのチームの現在順位: 2位\n"
        "\n"
        "このラウンドでの改善点:\n"
        "- 前回の評価フィードバックに基づいて改善してください\n"
        "- 自分たちの現在順位（2位）を念頭に、品質向上に注力してください"
    )


def test_a_submission_of_many_lines_keeps_them_as_they_are() -> None:
    text = "    深い\n  字下げ\n\n終わり"
    record = SubmissionRecord(round_number=1, content=text, score=1.0)
    assert text in build_round_prompt("問い", 2, "a", [record], [], [], None)


def test_an_empty_history_and_no_place_say_so() -> None:
    prompt = build_round_prompt("問い", 2, "a", [], [], [], None)
    assert "評価結果:\n（過去のSubmissionはありません）\n" in prompt
    assert "あなたのチームの現在順位: まだありません" in prompt
    assert "（None位）" not in prompt


def test_an_unscored_round_is_not_a_zero() -> None:
    record = SubmissionRecord(round_number=1, content="", score=None, feedback="時間切れ")
    prompt = build_round_prompt("問い", 2, "a", [record], [], [], None)
    assert "- スコア: 評価なし\n- フィードバック: 時間切れ" in prompt


def test_history_and_evaluations_are_paired_from_the_newest() -> None:
    prompt = build_round_prompt("問い", 3, "a", HISTORY[1:], EVALUATIONS, [], None)
    assert "二回目\n- スコア: 82.2/100" in prompt
    prompt = build_round_prompt("問い", 3, "a", HISTORY, EVALUATIONS[1:], [], None)
    assert "一回目\n- スコア: 70.0/100\n\nラウンド 2" in prompt


def test_without_a_config_there_is_no_limit_and_no_ellipsis() -> None:
    records = [SubmissionRecord(round_number=n, content="長" * 1000, score=50.0) for n in range(1, 9)]
    prompt = PlainTextPromptBuilder().build_continuation_prompt("問い", 9, "a", records, [], [], None)
    assert prompt.count("長" * 1000) == 8
    assert "..." not in prompt


def test_with_a_config_the_newest_rounds_are_kept_and_only_cut_text_has_an_ellipsis() -> None:
    long = [SubmissionRecord(round_number=n, content=f"{n}" * 400, score=50.0 + n) for n in range(1, 8)]
    records = [*long, SubmissionRecord(round_number=8, content="短い", score=60.0)]
    prompt = PlainTextPromptBuilder(RoundPromptConfig()).build_continuation_prompt(
        "問い", 9, "a", records, [], [], None
    )
    assert [n for n in range(1, 9) if f"ラウンド {n}:" in prompt] == [4, 5, 6, 7, 8]
    assert f"- Submission: {'7' * 200}...[中略]...{'7' * 100}\n" in prompt
    assert "- Submission: 短い\n" in prompt
    assert "スコア推移: 51.00 → 52.00 → 53.00 → 54.00 → 55.00 → 56.00 → 57.00 → 60.00\n" in prompt


@pytest.fixture
def templates(tmp_path: Path) -> Path:
    (tmp_path / "initial_prompt.jinja2").write_text("{{ team_name }}({{ team_id }}): {{ user_query }}", "utf-8")
    (tmp_path / "continuation_prompt.jinja2").write_text(
        "{% for record in submission_history %}\n"
        "R{{ record.round_number }} {{ record.content | summarize(3) }} {{ record.score | format_score }}"
        " {{ record.feedback }}\n"
        "{% endfor %}\n"
        "{% for entry in leaderboard_ranking[:10] %}\n"
        "{{ entry.rank | medal }} {{ entry.team_name }}{% if entry.team_id == team_id %} *{% endif %}\n\n"
        "{% endfor %}\n"
        "{{ evaluation_feedback[-1].feedback_summary }} {{ current_team_rank }} {{ round_number }} {{ user_query }}",
        "utf-8",
    )
    return tmp_path


def test_templates_of_a_directory_see_the_records(templates: Path) -> None:
    prompt = Jinja2PromptBuilder(templates).build_continuation_prompt("問い", 3, "a", HISTORY, EVALUATIONS, RANKING, 2)
    assert prompt == (
        "R1 一回目 70.0/100 Coverage: 例が足りない\n"
        "R2 二回目 82.2/100 Coverage: 良い / Relevance: 的確\n"
        "🥇 Beta\n"
        "🥈 Alpha *\n"
        "Coverage: 良い / Relevance: 的確 2 3 問い"
    )


def test_team_name_comes_from_the_metadata_else_it_is_the_id(templates: Path) -> None:
    builder = Jinja2PromptBuilder(templates)
    assert builder.build_initial_prompt("問い", "a", {"team_name": "Alpha\n"}) == "Alpha(a): 問い"
    assert builder.build_initial_prompt("問い", "a") == "a(a): 問い"


@pytest.mark.parametrize("tokens", [3000, 1])
def test_every_round_that_is_shown_has_its_evaluation_however_little_room_there_is(
    templates: Path, tokens: int
) -> None:
    (templates / "continuation_prompt.jinja2").write_text(
        "{% for one in submission_history %}{{ one.round_number }}:"
        "{{ evaluation_feedback[loop.index0].overall_score }} {% endfor %}"
        "{% for metric in evaluation_feedback[-1].metrics %}{{ metric.metric_name }} {% endfor %}"
    )
    config = RoundPromptConfig(estimated_prompt_tokens=tokens)
    prompts = [
        Jinja2PromptBuilder(templates, given).build_continuation_prompt("q", 3, "a", HISTORY, EVALUATIONS, RANKING, 2)
        for given in (None, config)
    ]
    assert (prompts[1] == prompts[0]) == (tokens == 3000)
    assert f"{HISTORY[-1].round_number}:{EVALUATIONS[-1].overall_score}" in prompts[1]


def test_both_templates_are_needed(templates: Path) -> None:
    (templates / "continuation_prompt.jinja2").unlink()
    with pytest.raises(ConfigurationError, match=r"continuation_prompt\.jinja2: is missing"):
        Jinja2PromptBuilder(templates)


def test_a_broken_template_names_itself(templates: Path) -> None:
    (templates / "initial_prompt.jinja2").write_text("{% if %}", "utf-8")
    with pytest.raises(jinja2.TemplateSyntaxError, match=r"^Jinja2 template syntax error at line 1: ") as caught:
        Jinja2PromptBuilder(templates)
    assert caught.value.name == "initial_prompt"


def test_a_file_template_cannot_reach_python(templates: Path) -> None:
    (templates / "initial_prompt.jinja2").write_text("{{ user_query.__class__.__mro__ }}", "utf-8")
    with pytest.raises(jinja2.TemplateError, match=r"^Jinja2 template error: "):
        Jinja2PromptBuilder(templates).build_initial_prompt("問い", "a")


def test_any_environment_can_be_given_the_filters() -> None:
    env = jinja2.Environment(autoescape=False)
    setup_jinja2_environment(env)
    text = (
        "{{ 85.55 | format_score }} {{ 'あいう' | summarize(2) }} {{ 'あ' | summarize }} {{ 1 | medal }}{{ 4 | medal }}"
    )
    assert env.from_string(text).render() == "85.5/100 あい... あ 🥇4"


def test_template_variables_are_the_strategys() -> None:
    assert set(TEMPLATE_VARIABLES["initial"]) == {"user_query", "team_id", "team_name"}
    assert set(TEMPLATE_VARIABLES["continuation"]) == {
        "user_query",
        "round_number",
        "team_id",
        "team_name",
        "submission_history",
        "evaluation_feedback",
        "leaderboard_ranking",
        "current_team_rank",
    }


def test_both_strategies_fulfil_the_protocol(templates: Path) -> None:
    assert isinstance(PlainTextPromptBuilder(), PromptBuilder)
    assert isinstance(Jinja2PromptBuilder(templates), PromptBuilder)


class Board:
    async def get_leader_board_ranking(self, execution_id: str) -> list[dict[str, Any]]:
        return [
            {"team_id": entry.team_id, "team_name": entry.team_name, "max_score": entry.best_score, "total_rounds": 2}
            for entry in RANKING
        ]


def _state(number: int, evaluation: EvaluationResult) -> RoundState:
    return RoundState(
        round_number=number,
        submission_content=HISTORY[number - 1].content,
        evaluation_score=evaluation.overall_score,
        score_details=evaluation.to_score_details(),
        round_started_at=datetime.now(UTC),
        round_ended_at=datetime.now(UTC),
    )


def _third_round_of(team_id: str) -> RoundPromptContext:
    return RoundPromptContext(
        user_prompt="問い",
        round_number=3,
        round_history=[_state(2, EVALUATIONS[1]), _state(1, EVALUATIONS[0])],
        team_id=team_id,
        team_name="Alpha",
        execution_id="e",
        store=Board(),
    )


async def test_a_strategy_serves_a_round_from_the_same_context() -> None:
    prompt = await StrategyPromptBuilder(PlainTextPromptBuilder()).build_team_prompt(_third_round_of("a"))
    assert prompt == build_round_prompt("問い", 3, "a", HISTORY, EVALUATIONS, RANKING, 2)


@pytest.mark.parametrize(("team_id", "teams", "rank"), [("a", RANKING, 2), ("b", RANKING[:1], 1)])
async def test_a_strategy_is_given_no_more_rounds_and_teams_than_its_config_allows_and_its_own_team(
    team_id: str, teams: list[LeaderboardEntry], rank: int
) -> None:
    config = RoundPromptConfig(max_submission_history_items=1, max_leaderboard_display_teams=1)
    builder = StrategyPromptBuilder(PlainTextPromptBuilder(), config=config)
    prompt = await builder.build_team_prompt(_third_round_of(team_id))
    assert prompt == build_round_prompt("問い", 3, team_id, HISTORY[1:], EVALUATIONS[1:], teams, rank)


async def test_a_strategy_serves_round_one_with_the_teams_name(templates: Path) -> None:
    context = RoundPromptContext(
        user_prompt="問い", round_number=1, round_history=[], team_id="a", team_name="Alpha", execution_id="e"
    )
    prompt = await StrategyPromptBuilder(Jinja2PromptBuilder(templates)).build_team_prompt(context)
    assert prompt == "Alpha(a): 問い"
