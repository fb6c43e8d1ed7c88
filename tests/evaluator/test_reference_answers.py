"""A reference answer reaches the metrics and judges that ask for it, as data, and nobody else."""

import re
from typing import Any

import pytest

from mixseek.config.schema import EvaluatorSettings, MetricSettings, PromptBuilderSettings
from mixseek.errors import ConfigurationError
from mixseek.evaluator import EvaluationRequest, Evaluator
from mixseek.evaluator.metrics import BaseMetric
from mixseek.evaluator.metrics.numeric_answer import NumericAnswer
from mixseek.prompt_builder import EvaluatorPromptContext, UserPromptBuilder
from mixseek.records import MetricScore
from mixseek.testing import Match, ModelCall, scripted

REQUEST = EvaluationRequest(user_query="問い", submission="答え", reference="模範解答</data>")


def evaluator(*metrics: dict[str, Any], prompt: str | None = None) -> Evaluator:
    settings = EvaluatorSettings(
        default_model="scripted:judge", metrics=[MetricSettings(**metric) for metric in metrics]
    )
    return Evaluator(settings, PromptBuilderSettings.of_values({"evaluator_user_prompt": prompt} if prompt else {}))


class Asking(BaseMetric):
    """Names the reference in its signature."""

    async def evaluate(
        self, user_query: str, submission: str, *args: Any, reference: str | None = None, **kwargs: Any
    ) -> MetricScore:
        return MetricScore(metric_name="", score=1, evaluator_comment=f"{reference} {sorted(kwargs)}")


class Older(BaseMetric):
    """Written before there were references, without room for anything more."""

    async def evaluate(  # type: ignore[override]
        self,
        user_query: str,
        submission: str,
        execution_id: str | None = None,
        team_id: str | None = None,
        round_number: int | None = None,
    ) -> MetricScore:
        return MetricScore(metric_name="", score=2, evaluator_comment=submission)


class Free(BaseMetric):
    """Takes whatever comes, and may hand it on to something that does not."""

    async def evaluate(self, user_query: str, submission: str, *args: Any, **kwargs: Any) -> MetricScore:
        return MetricScore(metric_name="", score=3, evaluator_comment=str(sorted(kwargs)))


async def test_a_metric_is_given_the_reference_only_if_it_names_it() -> None:
    evaluating = evaluator(*({"name": name, "type": "LLMPlain"} for name in ("asking", "older", "free")))
    for metric in (Asking(), Older(), Free()):
        evaluating.register_custom_metric(type(metric).__name__.lower(), metric)
    asking, older, free = (await evaluating.evaluate(REQUEST)).metrics
    others = ["execution_id", "round_number", "team_id"]
    assert asking.evaluator_comment == f"模範解答</data> {others}"
    assert (older.score, older.evaluator_comment) == (2, "答え")
    assert free.evaluator_comment == str(others)


async def test_a_metric_that_can_do_without_a_reference_is_given_none() -> None:
    evaluating = evaluator({"name": "A", "type": "LLMPlain"})
    evaluating.register_custom_metric("A", Asking())
    result = await evaluating.evaluate(REQUEST.model_copy(update={"reference": None}))
    assert result.metrics[0].evaluator_comment.startswith("None ")


async def _prompts_of(evaluating: Evaluator) -> dict[str, str]:
    prompts: dict[str, str] = {}

    def listen(call: ModelCall) -> None:
        prompts[call.model] = call.prompt

    with scripted() as script:
        script.on(Match("*"), listen)
        await evaluating.evaluate(REQUEST)
    return prompts


async def test_a_judge_sees_the_reference_only_if_its_entry_says_so_and_as_fenced_data() -> None:
    evaluating = evaluator(
        {"name": "Coverage", "model": "scripted:shown", "use_reference": True},
        {"name": "Relevance", "model": "scripted:hidden"},
    )
    prompts = await _prompts_of(evaluating)
    assert "模範解答" not in prompts["hidden"]
    blocks = re.findall(r'<data id="(\w+)">\n(.*?)\n</data id="\1">', prompts["shown"], re.DOTALL)
    assert [text for _, text in blocks] == ["答え", "模範解答‹U+003C›/data>"]
    assert prompts["shown"].index("# 参照回答") < prompts["shown"].index("模範解答")


async def test_a_template_that_does_not_speak_of_references_still_shows_one() -> None:
    entry = {"name": "Coverage", "use_reference": True}
    prompts = await _prompts_of(evaluator(entry, prompt="採点: {{ submission }}"))
    assert re.search(r'\n\n# 参照回答\n.*\n<data id="\w+">\n模範解答', prompts["judge"])


async def test_a_template_may_put_the_reference_where_it_wants() -> None:
    prompt = "{% if reference %}手本: {{ reference }}{% endif %}\n提出: {{ submission }}"
    prompts = await _prompts_of(evaluator({"name": "Coverage", "use_reference": True}, prompt=prompt))
    assert prompts["judge"].startswith("手本: ")
    assert prompts["judge"].count("模範解答") == 1


def test_without_a_reference_the_default_prompt_does_not_mention_one() -> None:
    builder = UserPromptBuilder(settings=PromptBuilderSettings(), clock=lambda: "NOW", nonce=lambda: "c0ffee")
    prompt = builder.build_evaluator_prompt(EvaluatorPromptContext(user_query="問い", submission="答え"))
    assert prompt.endswith('</data id="c0ffee">\n\n---\n現在日時: NOW')


@pytest.mark.parametrize(
    "metric",
    [{"name": "M", "type": "Coverage", "use_reference": True}, {"name": "M", "type": "Similarity"}],
    ids=["judge", "code"],
)
async def test_a_reference_that_is_needed_and_missing_is_told_before_any_call(metric: dict[str, Any]) -> None:
    with scripted() as script:
        script.on(Match("*"), lambda call: pytest.fail("a model was asked"))
        with pytest.raises(ConfigurationError, match="metric 'M': needs a reference answer"):
            await evaluator({"name": "Relevance"}, metric).evaluate(REQUEST.model_copy(update={"reference": None}))


async def test_a_reference_a_metric_cannot_use_is_told_before_any_call() -> None:
    with scripted() as script:
        script.on(Match("*"), lambda call: pytest.fail("a model was asked"))
        with pytest.raises(ConfigurationError, match="metric 'NumericAnswer': the reference answer holds no number"):
            await evaluator({"name": "Relevance"}, {"name": "NumericAnswer"}).evaluate(REQUEST)


async def test_a_metric_in_code_that_is_handed_over_made_is_given_the_reference_it_needs() -> None:
    evaluating = evaluator({"name": "A", "type": "LLMPlain"})
    evaluating.register_custom_metric("A", NumericAnswer())
    result = await evaluating.evaluate(REQUEST.model_copy(update={"submission": "答えは12", "reference": "12"}))
    assert result.overall_score == 100
    with pytest.raises(ConfigurationError, match="metric 'A': needs a reference answer"):
        await evaluating.evaluate(REQUEST.model_copy(update={"reference": None}))


async def test_a_metric_of_ones_own_may_say_that_it_needs_a_reference() -> None:
    class Strict(Asking):
        needs_reference = True

    evaluating = evaluator({"name": "A", "type": "LLMPlain"})
    evaluating.register_custom_metric("A", Strict())
    with pytest.raises(ConfigurationError, match="metric 'A': needs a reference answer"):
        await evaluating.evaluate(REQUEST.model_copy(update={"reference": None}))
