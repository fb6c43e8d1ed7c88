"""The pages that are made from the code are those of the code, and leave nothing out."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from pydantic import BaseModel

from docs.generate import DOCS, pages
from mixseek.config.schema import MetricOptions, PromptBuilderSettings, Settings
from mixseek.config.shape import SET_BY_THE_LOADER, key_of

PAGES = pages()
ROOT = DOCS.parent


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_a_page_made_from_the_code_is_up_to_date(path: Path) -> None:
    assert path.read_text(encoding="utf-8") == PAGES[path], "run make docs"


def _models(base: type[BaseModel] = Settings) -> Iterator[type[BaseModel]]:
    """The settings models of the files; options of metrics have a page of their own."""
    for model in base.__subclasses__():
        if model is not MetricOptions and model.__module__.startswith("mixseek.config."):
            yield model
            yield from _models(model)


@pytest.mark.parametrize("model", [*_models(), PromptBuilderSettings], ids=lambda model: model.__name__)
def test_every_setting_of_every_model_stands_in_the_manual(model: type[BaseModel]) -> None:
    keys = re.findall(r"^\| `(\S+?)` \|.* \| [^|]+ \|$", (DOCS / "configuration.md").read_text("utf-8"), re.MULTILINE)
    told = {part for key in keys for part in re.split(r"\.|\[\]", key)}
    fields = {key_of(name, field): field for name, field in model.model_fields.items()}
    assert [key for key, field in fields.items() if SET_BY_THE_LOADER not in field.metadata and key not in told] == []


def test_every_variable_the_code_reads_stands_on_a_page() -> None:
    source = "\n".join(path.read_text("utf-8") for path in (ROOT / "src").rglob("*.py"))
    told = "\n".join(path.read_text("utf-8") for path in DOCS.rglob("*.md"))
    read = set(
        re.findall(r"\"(MIXSEEK_[A-Z0-9_]+[A-Z0-9]|NO_COLOR|FORCE_COLOR|OTEL_[A-Z_]+|LOGFIRE_[A-Z_]+)\"", source)
    )
    assert [name for name in sorted(read) if f"`{name}" not in told] == []
