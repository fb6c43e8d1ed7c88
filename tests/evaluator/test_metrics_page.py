"""The page on metrics: every example is right, every metric is there with its options."""

import re
from pathlib import Path

import pytest

from mixseek import plugins
from mixseek.config.checks import options_model
from mixseek.config.manager import ConfigurationManager
from mixseek.config.reference import options_table
from mixseek.evaluator import EvaluationRequest, Evaluator
from mixseek.metrics import CODE_METRICS

PAGE = (Path(__file__).parents[2] / "docs" / "metrics.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(r"```toml\n(.*?)```", PAGE, re.DOTALL)


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    [schema] = re.findall(r"```json\n(.*?)```", PAGE, re.DOTALL)
    [metric] = re.findall(r"```python\n# metrics/questions.py\n(.*?)```", PAGE, re.DOTALL)
    [check] = re.findall(r"```python\n# check.py\n(.*?)```", PAGE, re.DOTALL)
    for name, text in {"schemas/city.json": schema, "metrics/questions.py": metric, "check.py": check}.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text, encoding="utf-8")
    (tmp_path / "configs").mkdir()
    return tmp_path


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda text: re.findall(r'name = "(.*?)"', text)[0])
def test_every_example_of_the_page_is_right(example: str, workspace: Path) -> None:
    (workspace / "configs" / "evaluator.toml").write_text(example, encoding="utf-8")
    assert ConfigurationManager(workspace, environ={}).validate("configs/evaluator.toml").problems == ()


@pytest.mark.parametrize("name", CODE_METRICS)
def test_the_page_has_every_metric_with_an_example_and_its_options(name: str) -> None:
    section = PAGE.partition(f"\n## {name}\n")[2].partition("\n## ")[0]
    assert "```toml\n[[metrics]]" in section
    model = options_model(plugins.metrics.get(name))
    assert model is not None
    assert all(field.description for field in model.model_fields.values())
    assert options_table(model) in section, options_table(model)


async def test_the_metric_of_the_page_scores(workspace: Path) -> None:
    (workspace / "configs" / "evaluator.toml").write_text(EXAMPLES[-1], encoding="utf-8")
    settings = ConfigurationManager(workspace, environ={}).get_evaluator_settings()
    request = EvaluationRequest(user_query="q", submission="本当？ Really? Yes.")
    result = await Evaluator(settings, workspace=workspace).evaluate(request)
    # Two questions, one more than is fine: 100 - 20
    assert (result.overall_score, result.feedback_summary) == (80, "Questions: questions: 2, at most 1 are fine")
