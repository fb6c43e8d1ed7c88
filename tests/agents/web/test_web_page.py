"""The page on members, where it is about the web: its files are right, and it leaves no setting out."""

import re
from pathlib import Path

import pytest

from mixseek.config.manager import ConfigurationManager
from mixseek.config.schema import Settings, WebFetchSettings, WebSearchSettings

PAGE = (Path(__file__).parents[3] / "docs" / "members.md").read_text(encoding="utf-8")
FILES = re.findall(r"```toml\n(# (configs/\S+)\n\[agent\]\n.*?)```", PAGE, re.DOTALL)


@pytest.mark.parametrize(("text", "name"), FILES, ids=[name for _, name in FILES])
def test_the_files_of_members_that_use_the_web_are_right(text: str, name: str, tmp_path: Path) -> None:
    file = tmp_path / name
    file.parent.mkdir(parents=True)
    file.write_text(text, encoding="utf-8")
    report = ConfigurationManager(tmp_path, environ={}).validate(name)
    assert (report.kind, report.problems) == ("member", ())
    assert not [note for note in report.notes if "not yet in effect" in note.message]


@pytest.mark.parametrize(("kind", "settings"), [("web_search", WebSearchSettings), ("web_fetch", WebFetchSettings)])
def test_the_page_tells_every_setting_of_the_web(kind: str, settings: type[Settings]) -> None:
    [section] = re.findall(rf"^## `{kind}`\n(.*?)(?=^## |\Z)", PAGE, re.DOTALL | re.MULTILINE)
    told = set(re.findall(r"^\| `(\w+)` \|", section, re.MULTILINE))
    assert set(settings.model_fields) - told <= {"backend"}
    assert '`backend = "local"`' in section
