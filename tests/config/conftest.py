"""A workspace of its own for every test, and an environment without settings."""

import os
from pathlib import Path

import pytest

from mixseek import providers


@pytest.fixture(autouse=True)
def _no_settings_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("MIXSEEK_")] + ["TZ"]:
        monkeypatch.delenv(name, raising=False)
    # As if the package of the default models were installed, whichever are.
    monkeypatch.setitem(providers._PACKAGES, "google", "json")


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    root = tmp_path / "workspace"
    (root / "configs" / "agents").mkdir(parents=True)
    return root
