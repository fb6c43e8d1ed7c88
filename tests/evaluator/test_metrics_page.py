"""The page on metrics: every metric is there with an example and its options."""

from pathlib import Path

import pytest

from mixseek import plugins
from mixseek.config.checks import options_model
from mixseek.config.reference import options_table
from mixseek.metrics import CODE_METRICS

PAGE = (Path(__file__).parents[2] / "docs" / "metrics.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", CODE_METRICS)
def test_the_page_has_every_metric_with_an_example_and_its_options(name: str) -> None:
    section = PAGE.partition(f"\n## {name}\n")[2].partition("\n## ")[0]
    assert "```toml\n[[metrics]]" in section
    model = options_model(plugins.metrics.get(name))
    assert model is not None
    assert all(field.description for field in model.model_fields.values())
    assert options_table(model) in section, options_table(model)
