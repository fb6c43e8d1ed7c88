"""With ``language = "en"`` no Japanese reaches a model, whatever happens in a competition."""

import json
import re
import string
from dataclasses import fields
from pathlib import Path

import pytest

from mixseek.config import ConfigurationManager
from mixseek.config.schema import PROMPTS, EvaluatorSettings, MetricSettings, PromptBuilderSettings
from mixseek.evaluator import EvaluationRequest, Evaluator
from mixseek.evaluator.metrics.llm_plain import LLMPlain
from mixseek.orchestrator import Orchestrator, load_orchestrator_settings
from mixseek.prompt_builder import PlainTextPromptBuilder, format_ranking_table
from mixseek.prompt_builder.formatters import Detail, format_submission_history, generate_position_message
from mixseek.prompt_builder.models import LeaderboardEntry
from mixseek.records import RoundState, SubmissionRecord, utc_now
from mixseek.templating import ENGLISH, JAPANESE, TEXTS, Language, Texts, check_template, compile_template
from mixseek.testing import Answer, Match, ModelServer, ToolCall, scripted, write_workspace

JAPANESE_LETTERS = re.compile("[\u3000-\u30ff\u3400-\u9fff\uff00-\uffef]")
PIXEL = bytes.fromhex("89504e470d0a1a0a") + b"\x00" * 20

EVALUATOR = """
[[metrics]]
name = "ClarityCoherence"
[[metrics]]
name = "Coverage"
[[metrics]]
name = "Relevance"
use_reference = true
[[metrics]]
name = "Length"
options = { minimum = 1000 }
"""
MEMBERS = """
[[team.members]]
name = "coder"
type = "code_execution"
model = "loopback:coder"
tool_settings = { code_execution = { backend = "monty", timeout_seconds = 1 } }

[[team.members]]
name = "searcher"
type = "web_search"
model = "loopback:searcher"
tool_settings = { web_search = { endpoint = "http://127.0.0.1:9", timeout = 2 } }

[[team.members]]
name = "reader"
type = "web_fetch"
model = "loopback:reader"
tool_settings = { web_fetch = { enable_citations = true, backend = "local" } }

[[team.members]]
name = "broken"
type = "plain"
model = "loopback:broken"
max_retries = 0
"""
SCHEMA = """answer_schema = { type = "object", required = ["city"], properties = { city = { type = "string" } } }
"""


def _write(root: Path, base_url: str, language: str) -> Path:
    rules = 'min_rounds = 1\nmax_retries_per_team = 0\nreference = "Tokyo"\n'
    file = write_workspace(root, teams=3, max_rounds=3, base_url=base_url, orchestrator=rules, evaluator=EVALUATOR)
    agents = root / "configs" / "agents"
    with (agents / "team-a.toml").open("a") as team:
        team.write(MEMBERS)
    in_json = (agents / "team-b.toml").read_text().replace("[team.leader]", f"{SCHEMA}\n[team.leader]")
    (agents / "team-b.toml").write_text(in_json)
    prompts = (
        f'[prompt_builder]\nlanguage = "{language}"\n[prompt_builder.round_prompt]\nsubmission_preview_chars = 20\n'
    )
    (root / "configs" / "prompt_builder.toml").write_text(prompts)
    return file


def _play_the_tools(server: ModelServer) -> None:
    """Programs that end in every way, a page that cannot be read, answers that are too long or no JSON."""
    programs = ["print('x')", "1", "raise ValueError()", "while True: pass"]
    server.on("coder", [Answer(tool_calls=tuple(ToolCall("run_python", {"code": program}) for program in programs))])
    server.on("leader-b", ["no JSON", '{"city": "Tokyo"}'])
    server.on("leader-c", ["word " * 200])
    server.fault("empty_answer", model="leader-c", after=1, count=8)
    server.fault(400, model="broken")


async def _said(root: Path, language: str) -> str:
    """All that models were sent in a competition of this language."""
    async with ModelServer() as server:
        _play_the_tools(server)
        file = _write(root, server.base_url, language)
        orchestrator = Orchestrator(load_orchestrator_settings(file, root), save_db=False)
        (root / "notes.txt").write_text("The capital is Tokyo.")
        (root / "map.png").write_bytes(PIXEL)
        await orchestrator.execute("Name the capital of Japan.", attachments=[root / "notes.txt", root / "map.png"])
        bodies = [json.dumps(request.body, ensure_ascii=False) for request in server.requests]
    return "\n".join(bodies)


def _fragments(text: str) -> list[str]:
    """The fixed parts of a text, as they stand in JSON."""
    if "{{" in text:
        parts = re.split(r"\{\{.*?\}\}|\{%.*?%\}|\n", text)
    else:
        parts = [literal for literal, *_ in string.Formatter().parse(text)]
    return [json.dumps(part.strip(), ensure_ascii=False)[1:-1] for part in parts if part.strip(" \n()'\"/:")]


NOT_IN_THIS_RUN = {"plain", "quality", "cut", "feedback", "no_ranking", "no_reason", "no_history", "place", "reference"}
NOT_IN_THIS_RUN |= {"over_memory", "over_output", "output_cut", "run_full_python"}
NOT_IN_THIS_RUN |= {"web_search_with_texts", "web_fetch", "sources"}


async def test_a_competition_in_english_holds_no_japanese(tmp_path: Path) -> None:
    said = await _said(tmp_path, "en")
    assert JAPANESE_LETTERS.findall(said) == []
    played = {
        field.name: getattr(ENGLISH, field.name) for field in fields(ENGLISH) if field.name not in NOT_IN_THIS_RUN
    }
    unsaid = {name: [part for part in _fragments(text) if part not in said] for name, text in played.items()}
    assert {name: parts for name, parts in unsaid.items() if parts} == {}


async def test_the_same_competition_in_japanese_says_all_of_it_in_japanese(tmp_path: Path) -> None:
    said = await _said(tmp_path, "ja")
    assert JAPANESE_LETTERS.search(said)
    assert [
        part for text in (ENGLISH.data_follows, ENGLISH.coverage) for part in _fragments(text) if part in said
    ] == []


# --- the texts --------------------------------------------------------------------------------------------------------


def _all_texts(texts: Texts) -> dict[str, str]:
    own = {field.name: getattr(texts, field.name) for field in fields(texts) if field.name != "plain"}
    return own | {f"plain.{field.name}": getattr(texts.plain, field.name) for field in fields(texts.plain)}


def test_both_languages_have_the_same_places_to_fill() -> None:
    japanese, english = _all_texts(JAPANESE), _all_texts(ENGLISH)
    for name in japanese:
        both = [sorted(re.findall(r"\{[^}]*\}+", texts[name])) for texts in (japanese, english)]
        assert both[0] == both[1], name


def test_no_english_text_holds_a_japanese_letter() -> None:
    assert {name for name, text in _all_texts(ENGLISH).items() if JAPANESE_LETTERS.search(text)} == set()


@pytest.mark.parametrize("language", TEXTS)
@pytest.mark.parametrize("name", PROMPTS)
def test_the_templates_of_every_language_are_right(language: Language, name: str) -> None:
    assert check_template(getattr(TEXTS[language], name), name) == []


async def test_judges_of_ones_own_and_the_general_one_are_told_in_english() -> None:
    settings = EvaluatorSettings(default_model="scripted:judge", metrics=[MetricSettings(name="A", type="LLMPlain")])
    with scripted() as script:
        script.on(Match("judge"), lambda call: {"evaluator_comment": call.system, "score": 1})
        evaluator = Evaluator(settings, PromptBuilderSettings.of_values({"language": "en"}))
        evaluator.register_custom_metric("A", LLMPlain())
        result = await evaluator.evaluate(EvaluationRequest(user_query="q", submission="s"))
    assert result.metrics[0].evaluator_comment == ENGLISH.quality


def _round(number: int, content: str, score: float | None, feedback: str = "") -> RoundState:
    return RoundState(
        round_number=number,
        submission_content=content,
        evaluation_score=score,
        evaluation_feedback=feedback,
        round_started_at=utc_now(),
        round_ended_at=utc_now(),
    )


def test_a_past_in_english() -> None:
    rounds = [_round(1, "one " * 20, None), _round(2, "two " * 20, 50.0, "longer")]
    detail = Detail(preview_chars=8, scores=False, trend=True)
    assert format_submission_history(rounds, detail, ENGLISH) == (
        "## Round 1\nScore: not scored\nReason: none was...[cut]...rded\nYour submission: one one ...[cut]...one \n\n"
        "## Round 2\nScore: 50.00/100\nFeedback: longer\nYour submission: two two ...[cut]...two "
    )
    assert format_submission_history([], texts=ENGLISH) == "There are no earlier submissions yet."
    assert format_ranking_table([], "a", texts=ENGLISH) == "There is no ranking yet."
    assert generate_position_message(4, 5, ENGLISH) == "Your team is in place 4 of 5."


def test_the_prompts_of_the_plain_strategy_in_english() -> None:
    builder = PlainTextPromptBuilder(texts=ENGLISH)
    records = [SubmissionRecord(round_number=1, content="one", score=None, feedback="longer")]
    ranking = [LeaderboardEntry(rank=1, team_id="a", team_name="A", best_score=50, latest_round=1, total_rounds=1)]
    first = builder.build_initial_prompt("Why?", "a")
    later = [
        builder.build_continuation_prompt("Why?", 2, "a", records, [], ranking, 1),
        builder.build_continuation_prompt("Why?", 2, "b", [], [], [], None),
    ]
    assert [text for text in (first, *later) if JAPANESE_LETTERS.search(text)] == []
    assert "- Score: not scored" in later[0]
    assert "  1. A (score: 50.0/100) ← your team" in later[0]
    assert "The present place of your team: none yet" in later[1]


def test_the_filter_of_scores_speaks_the_language_of_the_prompt() -> None:
    template = compile_template("{{ score | format_score }}", "initial_prompt")
    assert [template.render({"score": None}, texts) for texts in (ENGLISH, JAPANESE)] == ["not scored", "評価なし"]


# --- choosing ---------------------------------------------------------------------------------------------------------


def _prompts(root: Path, text: str) -> Path:
    (root / "configs").mkdir()
    file = root / "configs" / "prompt_builder.toml"
    file.write_text(text)
    return file


def test_a_file_that_names_a_language_needs_no_templates(tmp_path: Path) -> None:
    file = _prompts(tmp_path, '[prompt_builder]\nlanguage = "en"\nteam_user_prompt = "{{ user_prompt }}"\n')
    manager = ConfigurationManager(tmp_path)
    assert manager.validate(file).problems == ()
    settings = manager.get_prompt_builder_settings()
    assert settings.team_user_prompt == "{{ user_prompt }}"
    assert settings.evaluator_user_prompt == ENGLISH.evaluator_user_prompt


def test_the_language_may_come_from_the_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("MIXSEEK_PROMPT_BUILDER__LANGUAGE", "en")
    assert ConfigurationManager(tmp_path).get_prompt_builder_settings().team_user_prompt == ENGLISH.team_user_prompt
    assert PromptBuilderSettings().judgment_user_prompt == ENGLISH.judgment_user_prompt


def test_an_unknown_language_is_refused(tmp_path: Path) -> None:
    report = ConfigurationManager(tmp_path).validate(_prompts(tmp_path, '[prompt_builder]\nlanguage = "fr"\n'))
    assert [(problem.key, problem.message) for problem in report.problems] == [
        ("prompt_builder.language", '\'fr\' is not allowed: must be "ja" or "en"')
    ]
