"""A workspace of its own for every test, and an environment without settings."""

import os
from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def _no_settings_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("MIXSEEK_")] + ["TZ"]:
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    root = tmp_path / "workspace"
    (root / "configs" / "agents").mkdir(parents=True)
    return root
