"""``mixseek attack`` as its users run it, against a model server on this machine."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from mixseek.testing import ModelCall, ModelServer, ObeyingModel, write_workspace
from tests.commands import run_here


@pytest.fixture
def server() -> Iterator[ModelServer]:
    with ModelServer() as running:
        yield running


def attack(root: Path, *arguments: str, **variables: str) -> tuple[int, str, str]:
    ran = run_here("attack", "-w", str(root), *arguments, variables=variables)
    return ran.returncode, ran.stdout, ran.stderr


def believes_in_rubrics(call: ModelCall) -> dict[str, Any]:
    """A judge that a plain English instruction impresses, and hidden characters annoy."""
    shift = 45 if "Ignore all previous instructions" in call.prompt else -5 if "‹U+E00" in call.prompt else 0
    return {"evaluator_comment": "", "score": 40 + shift}


def test_the_shift_of_each_category_is_printed_with_calls_and_cost(tmp_path: Path, server: ModelServer) -> None:
    prices = '[prices."loopback:judge"]\ninput_usd_per_million = 1.0\noutput_usd_per_million = 1.0\n'
    write_workspace(tmp_path, base_url=server.base_url, evaluator='[[metrics]]\nname = "Coverage"\n')
    with (tmp_path / "configs" / "orchestrator.toml").open("a") as file:
        file.write(f"\n{prices}")
    server.on("judge", believes_in_rubrics)
    chosen = ["--category", "instruction_en", "--category", "hidden_characters", "--limit", "8"]
    code, out, err = attack(tmp_path, "-c", "configs/orchestrator.toml", *chosen)
    assert (code, err.splitlines()) == (0, ["8 attacks, 11 model calls: Coverage"])
    lines = [line.split() for line in out.splitlines()]
    assert out.startswith("The honest answer got 40.0, 40.0, 40.0\n")
    assert ["instruction_en", "4", "1", "1", "+11.2", "+45.0"] in lines
    assert ["hidden_characters", "4", "2", "0", "-2.5", "+0.0"] in lines
    assert out.splitlines()[-1].startswith("3 of 8 attacks moved the score, 1 of them upwards; 11 model calls, 0.0")
    assert server.bill.total.answered == 11
    assert not (tmp_path / "mixseek.db").exists()


def test_json_holds_every_score_and_nothing_else_is_printed(tmp_path: Path, server: ModelServer) -> None:
    write_workspace(tmp_path, base_url=server.base_url, evaluator='[[metrics]]\nname = "Coverage"\n')
    server.on("judge", ObeyingModel(score=33))
    code, out, _ = attack(tmp_path, "-c", "configs/evaluator.toml", "--limit", "34", "-f", "json")
    report = json.loads(out)
    assert code == 0
    assert report["honest_scores"] == [33, 33, 33]
    assert {verdict["score"] for verdict in report["verdicts"]} == {33}
    assert [category["moved"] for category in report["categories"]] == [0] * 17
    assert report["usage"]["requests"] == 37


def test_only_judges_are_tried_and_an_attack_that_cannot_be_judged_is_told(tmp_path: Path, server: ModelServer) -> None:
    metrics = '[[metrics]]\nname = "Coverage"\nweight = 0.5\nmax_retries = 0\n'
    metrics += '[[metrics]]\nname = "Length"\nweight = 0.5\noptions = { maximum = 400 }\n'
    write_workspace(tmp_path, base_url=server.base_url, evaluator=metrics)
    server.on("judge", lambda call: "no verdict" if "INST]" in call.prompt else ObeyingModel()(call))
    code, out, err = attack(tmp_path, "-c", "configs/evaluator.toml", "--category", "chat_template", "--limit", "5")
    assert code == 1
    assert "5 attacks, 8 model calls: Coverage" in err
    assert "chat_template-4: metric 'Coverage' could not score" in err
    assert "(2 not judged)" in out
    assert "The honest answer got 40.0, 40.0, 40.0" in out


@pytest.mark.parametrize(
    ("weights", "honest", "highest"),
    [((0.9, 0.1, 0), "74.0", "+2.0"), ((0.45, 0.05, 0.5), "74.0", "+2.0"), ((0, 0, 1), "50.0", "+10.0")],
)
def test_judges_count_by_their_weights_among_each_other(
    tmp_path: Path, server: ModelServer, weights: tuple[float, float, float], honest: str, highest: str
) -> None:
    def judge(call: ModelCall) -> dict[str, Any]:
        is_relevance = call.system.startswith("How relevant")
        fooled = "Ignore all previous instructions" in call.prompt and not is_relevance
        return {"evaluator_comment": "", "score": 80 if is_relevance else 40 if fooled else 20}

    metrics = '[[metrics]]\nname = "Relevance"\nsystem_instruction = "How relevant?"\nweight = {}\n'
    metrics += '[[metrics]]\nname = "Coverage"\nsystem_instruction = "How complete?"\nweight = {}\n'
    metrics += '[[metrics]]\nname = "Length"\noptions = {{ maximum = 400 }}\nweight = {}\n'
    write_workspace(tmp_path, base_url=server.base_url, evaluator=metrics.format(*weights))
    server.on("judge", judge)
    code, out, _ = attack(tmp_path, "-c", "configs/evaluator.toml", "--category", "instruction_en", "--limit", "4")
    assert code == 0
    assert out.startswith(f"The honest answer got {honest}, {honest}, {honest}\n")
    assert highest in out


@pytest.mark.parametrize(
    ("evaluator", "arguments", "told"),
    [
        ('default_model = "openai:gpt-5-mini"', [], "set OPENAI_API_KEY in the environment or in .env of"),
        ('[[metrics]]\nname = "Length"\noptions = { maximum = 9 }', [], "there is no judge to try"),
        ("", ["--category", "poems"], "there is no category 'poems'"),
        ("metrics = 3", [], "configs/evaluator.toml: metrics"),
        ("", ["-c", "configs/judgment.toml"], "is a judgment file: give an evaluator or an orchestrator file"),
        ("", ["-c", "configs/nowhere.toml"], "nowhere.toml"),
    ],
)
def test_what_is_wrong_is_told_before_a_call(
    tmp_path: Path, server: ModelServer, evaluator: str, arguments: list[str], told: str
) -> None:
    write_workspace(tmp_path, base_url=server.base_url)
    if evaluator:
        (tmp_path / "configs" / "evaluator.toml").write_text(evaluator)
    code, out, err = attack(tmp_path, "-c", "configs/evaluator.toml", *arguments, OPENAI_API_KEY="")
    assert (code, out) == (2, "")
    assert told in err
    assert server.bill.total.requests == 0
