"""The page on members, where it is about the web: it leaves no setting out."""

import re
from pathlib import Path

import pytest

from mixseek.config.schema import Settings, WebFetchSettings, WebSearchSettings

PAGE = (Path(__file__).parents[3] / "docs" / "members.md").read_text(encoding="utf-8")


@pytest.mark.parametrize(("kind", "settings"), [("web_search", WebSearchSettings), ("web_fetch", WebFetchSettings)])
def test_the_page_tells_every_setting_of_the_web(kind: str, settings: type[Settings]) -> None:
    [section] = re.findall(rf"^## `{kind}`\n(.*?)(?=^## |\Z)", PAGE, re.DOTALL | re.MULTILINE)
    told = set(re.findall(r"^\| `(\w+)` \|", section, re.MULTILINE))
    assert set(settings.model_fields) - told <= {"backend"}
    assert '`backend = "local"`' in section
