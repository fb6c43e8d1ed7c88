"""The Markdown document of an execution: what teams wrote cannot change its structure."""

import random
import re
from math import nan

import pytest
from markdown_it import MarkdownIt

from mixseek.records import ImprovementJudgment, MetricScore
from mixseek.report.markdown_document import render
from mixseek.report.record import ExecutionRecord, MemberCall, RoundRecord, TeamRecord

ATTACKS = [
    "# heading",
    "```\n# out of the block\n```",
    "~~~~\n````````\n# out\n",
    "``````````",
    "    ```\n# a\n   ```\n# b",
    "| a | b |\n|---|---|",
    "</details><script>alert(1)</script>",
    "[x]: http://example.org\n[x]",
    "- list\n1. list\n> quote\n---\n***",
    "a\r# b\r\n# c\x0b# d\u2028# e",
    "\\",
    "`",
    "![i](javascript:alert(1))",
    "&lt;b&gt; <b>",
    "\x1b]0;owned\x07",
    "1. one",
    "+ one",
    "===",
]


def record_of(text: str) -> ExecutionRecord:
    """An execution that holds the text wherever a text can be."""
    call = MemberCall(agent_name=text, agent_type="plain", content=text, status="SUCCESS", task=text)
    failed = call.model_copy(update={"status": "ERROR", "error_message": text})
    one = RoundRecord(
        round_number=1,
        submission=text,
        score=5,
        metrics=(MetricScore(metric_name=text, score=5, evaluator_comment=text),),
        flags=(text,),
        failure=text,
        judgment=ImprovementJudgment(should_continue=True, reasoning=text, confidence_score=1),
        members=(call, failed),
    )
    team = TeamRecord(team_id=text, team_name=text, rank=1, best_score=5, best_round=1, error=text, rounds=(one,))
    return ExecutionRecord(execution_id=text, user_prompt=text, status="completed", teams=(team,))


def structure(document: str) -> list[tuple[str, str]]:
    """What a reader of Markdown makes of it, without the words."""
    tokens = MarkdownIt("gfm-like", {"linkify": False}).parse(document)
    inner = [child for token in tokens for child in (token, *(token.children or ()))]
    kinds = [(token.type, token.tag) for token in inner]
    # Escaped letters and empty texts come as tokens of their own, but are texts.
    return [kind for kind in kinds if kind[0] not in ("text", "text_special", "softbreak")]


@pytest.mark.parametrize("attack", ATTACKS)
def test_no_text_changes_the_structure(attack: str) -> None:
    document = render(record_of(attack))
    assert structure(document) == structure(render(record_of("plain")))
    assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f\u2028\u202e]", document)


def test_no_mixture_of_texts_changes_the_structure() -> None:
    chance, plain = random.Random(3), structure(render(record_of("plain")))
    for _ in range(60):
        attack = "".join(chance.choices([*ATTACKS, "\n", " ", "`", "~", "|", "a"], k=6))
        assert structure(render(record_of(attack))) == plain, attack


@pytest.mark.parametrize(
    "address", ["https://evil.example", "ftp://evil.example", "WWW.evil.example", "me@evil.example"]
)
def test_an_address_in_a_name_or_comment_is_no_link_for_readers_that_need_no_mark(address: str) -> None:
    outside, _, inside = render(record_of(f"see {address} now")).partition("```text")
    assert address not in outside
    assert outside.replace("\\", "").count(address) > 0
    assert address in inside, "what was submitted stays as it is"


def test_a_metric_without_a_score_has_a_dash_beside_its_comment() -> None:
    metric = MetricScore(metric_name="Pattern", score=nan, evaluator_comment="write it shorter")
    one = RoundRecord(round_number=1, failure="no number", metrics=(metric,))
    team = TeamRecord(team_id="a", team_name="A", rounds=(one,))
    document = render(ExecutionRecord(execution_id="e", user_prompt="t", status="completed", teams=(team,)))
    assert "- Not scored: no number\n- Pattern -: write it shorter" in document


def test_a_submission_stays_as_it_was_written() -> None:
    text = "# A title\n\n````\ncode\n````\n\tend"
    document = render(record_of(text))
    blocks = [token.content for token in MarkdownIt().parse(document) if token.type == "fence"]
    assert blocks[0] == f"{text}\n"
