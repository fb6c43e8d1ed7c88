"""Go on or stop: the rules, and what becomes of a model's opinion."""

import asyncio
from collections.abc import Sequence

import pytest

from mixseek.config.schema import JudgmentSettings
from mixseek.judgment import UNDECIDED, Judgment, decide_by_rule, settle
from mixseek.llm import ModelHub
from mixseek.records import ImprovementJudgment, RoundState, utc_now
from mixseek.testing import Match, ModelCall, ModelServer, scripted


def rounds(*scores: float | None) -> list[RoundState]:
    return [
        RoundState(
            round_number=number,
            submission_content="text",
            evaluation_score=score,
            round_started_at=utc_now(),
            round_ended_at=utc_now(),
        )
        for number, score in enumerate(scores, 1)
    ]


def decided(
    scores: Sequence[float | None], *, min_rounds: int = 2, max_rounds: int = 5, **settings: float
) -> tuple[bool, str | None]:
    decision = decide_by_rule(
        rounds(*scores),
        JudgmentSettings.model_validate({"model": "none", **settings}),
        min_rounds=min_rounds,
        max_rounds=max_rounds,
    )
    return decision.judgment.should_continue, decision.exit_reason


def test_below_min_rounds_a_team_goes_on_whatever_its_score() -> None:
    assert decided([99.0], target_score=50) == (True, None)


def test_at_max_rounds_a_team_stops() -> None:
    assert decided([10, 20, 30], max_rounds=3) == (False, "max_rounds_reached")


def test_a_reached_target_stops() -> None:
    assert decided([50, 79.9], target_score=80) == (True, None)
    assert decided([50, 80.0], target_score=80) == (False, "target_score_reached")
    assert decided([50, 60, 80.0], target_score=80, max_rounds=3) == (False, "target_score_reached"), "the last round"
    assert decided([50, 60, None], target_score=80, max_rounds=3) == (False, "max_rounds_reached")


@pytest.mark.parametrize(
    ("scores", "stops"),
    [
        ([70, 71], False),
        ([70, 71, 71.5], True),
        ([70, 70, 75], False),
        ([70, 75, 70, 70], True),
        ([70, None, 71], False),
    ],
)
def test_a_plateau_is_so_many_scored_rounds_without_a_gain(scores: list[float | None], stops: bool) -> None:
    expected = (False, "score_plateau") if stops else (True, None)
    assert decided(scores, plateau_rounds=2, plateau_min_gain=2) == expected


def test_a_target_that_was_reached_when_it_was_too_early_to_stop_stays_reached() -> None:
    assert decided([95], target_score=90) == (True, None)
    assert decided([95, 80], target_score=90) == (False, "target_score_reached")
    assert decided([95, None], target_score=90) == (False, "target_score_reached")
    assert decided([95, 80], target_score=90, max_rounds=2) == (False, "target_score_reached")


def test_a_gain_that_is_just_what_is_named_is_not_more() -> None:
    assert decided([80.1, 80.3], plateau_rounds=1, plateau_min_gain=0.2) == (False, "score_plateau")


def test_a_gain_has_to_be_more_than_nothing_when_none_is_named() -> None:
    assert decided([70, 70], plateau_rounds=1) == (False, "score_plateau")
    assert decided([70, 70.1], plateau_rounds=1) == (True, None)


def test_after_a_round_without_a_score_a_team_goes_on() -> None:
    assert decided([50, None], target_score=90, plateau_rounds=1) == (True, None)
    assert decided([50, 50, None], min_rounds=3, plateau_rounds=1) == (True, None), "the plateau before it"


@pytest.mark.parametrize(
    ("scores", "settings", "words"),
    [
        ([95, 80], {"target_score": 90}, "score 95.00 of round 1 reaches the target 90"),
        ([80, 95], {"target_score": 90}, "score 95.00 reaches the target 90"),
        ([70, 70], {"plateau_rounds": 1}, "1 round without a gain of more than 0"),
        ([70, 70, 71], {"plateau_rounds": 2, "plateau_min_gain": 2}, "2 rounds without a gain of more than 2"),
        ([70, 71, 72, 73, 74], {}, "round 5 is the last of 5"),
    ],
)
def test_a_rule_says_what_it_goes_by(scores: list[float], settings: dict[str, float], words: str) -> None:
    rules = JudgmentSettings.model_validate(settings)
    decision = decide_by_rule(rounds(*scores), rules, min_rounds=2, max_rounds=5)
    assert decision.judgment.reasoning == words


def test_what_cannot_be_paid_for_ends_a_team_below_min_rounds_too_but_is_not_told_where_a_rule_ends_it() -> None:
    early = decide_by_rule(rounds(50), JudgmentSettings(), min_rounds=2, max_rounds=5, shortage="no money")
    assert (early.exit_reason, early.judgment.reasoning) == ("budget_exhausted", "no money")
    last = decide_by_rule(rounds(50), JudgmentSettings(), min_rounds=1, max_rounds=1, shortage="no money")
    assert last.exit_reason == "max_rounds_reached"


def test_where_no_rule_speaks_the_model_is_asked_if_there_is_one() -> None:
    undecided = decide_by_rule(rounds(50, 60), JudgmentSettings(), min_rounds=2, max_rounds=5)
    assert undecided is UNDECIDED
    assert Judgment(JudgmentSettings(model="scripted:judgment"), ModelHub()).asks_model(undecided)
    assert not Judgment(JudgmentSettings(model="none"), ModelHub()).asks_model(undecided)


@pytest.mark.parametrize("asked", [True, False])
def test_after_the_last_round_the_model_is_asked_only_for_the_record(asked: bool) -> None:
    settings = JudgmentSettings(model="scripted:judgment", judge_on_final_round=asked)
    last = decide_by_rule(rounds(50, 60), settings, min_rounds=1, max_rounds=2)
    judgment = Judgment(settings, ModelHub())
    assert judgment.asks_model(last) is asked
    assert judgment.asks_model(UNDECIDED), "after a round that is not the last"


def test_an_opinion_ends_a_team_but_never_outlives_the_last_round() -> None:
    go_on, stop = (
        ImprovementJudgment(should_continue=wanted, reasoning="…", confidence_score=1) for wanted in (True, False)
    )
    last = decide_by_rule(rounds(50), JudgmentSettings(), min_rounds=1, max_rounds=1)
    assert settle(UNDECIDED, stop).exit_reason == "no_improvement_expected"
    assert settle(UNDECIDED, go_on).exit_reason is None
    assert settle(last, go_on) is last
    assert settle(UNDECIDED, None) is UNDECIDED


async def test_the_models_opinion_is_taken_as_it_is() -> None:
    opinion = {"reasoning": "頭打ち", "should_continue": False, "confidence_score": 0.8}
    with scripted() as script:
        script.on(Match("judgment"), [opinion])
        judgment = await Judgment(JudgmentSettings(model="scripted:judgment"), ModelHub()).ask("履歴", 5)
    assert judgment.model_dump() == opinion


async def test_a_model_that_cannot_decide_lets_the_team_go_on_and_says_why() -> None:
    with scripted() as script:
        script.on(Match("judgment"), lambda call: {"should_continue": "perhaps"})
        settings = JudgmentSettings(model="scripted:judgment", max_retries=1)
        judgment = await Judgment(settings, ModelHub()).ask("履歴", 5)
    assert (judgment.should_continue, judgment.confidence_score) == (True, 0.0)
    assert judgment.reasoning.startswith("the judgment failed, so the team goes on: ")


@pytest.mark.parametrize(
    ("model", "sent"),
    [("openai:gpt-5-mini", None), ("openai:o3", None), ("openai:gpt-4o", 0.0), ("openai:gpt-5.1", 0.0)],
)
def test_the_usual_temperature_is_left_out_without_a_warning_where_a_model_takes_none(
    model: str, sent: float | None, monkeypatch: pytest.MonkeyPatch, recwarn: pytest.WarningsRecorder
) -> None:
    opinion = {"reasoning": "so", "should_continue": True, "confidence_score": 0.8}
    with ModelServer() as server:
        monkeypatch.setenv("OPENAI_API_KEY", "x")
        monkeypatch.setenv("OPENAI_BASE_URL", server.base_url)
        server.on(model.removeprefix("openai:"), lambda _: opinion)
        judged = asyncio.run(Judgment(JudgmentSettings(model=model), ModelHub()).ask("history", 20))
        [request] = server.requests
    assert judged.model_dump() == opinion
    assert request.body.get("temperature") == sent
    assert [str(each.message) for each in recwarn if "Sampling" in str(each.message)] == []


async def test_a_judgment_that_takes_too_long_lets_the_team_go_on() -> None:
    async def never(call: ModelCall) -> str:
        await asyncio.sleep(3600)
        return ""

    with scripted() as script:
        script.on(Match("judgment"), never)
        judgment = await Judgment(JudgmentSettings(model="scripted:judgment"), ModelHub()).ask("履歴", 0.05)
    assert judgment.should_continue
    assert judgment.reasoning == "the judgment took longer than 0.05 s, so the team goes on"


async def test_the_judge_is_told_the_instruction_of_its_file_or_ours() -> None:
    told: list[str] = []

    def listen(call: ModelCall) -> None:
        told.append(call.system)

    with scripted() as script:
        script.on(Match("judgment"), listen)
        hub = ModelHub()
        await Judgment(JudgmentSettings(model="scripted:judgment"), hub).ask("履歴", 5)
        await Judgment(JudgmentSettings(model="scripted:judgment", system_instruction="厳しく"), hub).ask("履歴", 5)
    assert told[0].startswith("あなたは、チームがもう一度ラウンドを行う価値があるかを判定する審判です。")
    assert told[1] == "厳しく"
