"""No model call of a test leaves this machine; weights of the embedded model are fetched once, into the checkout."""

import os
from datetime import timedelta
from pathlib import Path

import hypothesis
import pydantic_ai.models
import pytest

# A busy machine takes 200 ms, the bound of hypothesis, for any example; what hangs is still found.
hypothesis.settings.register_profile("mixseek", deadline=timedelta(seconds=10))
hypothesis.settings.load_profile("mixseek")
pydantic_ai.models.ALLOW_MODEL_REQUESTS = False
os.environ["MIXSEEK_ONLY_LOOPBACK"] = "1"
# Whoever runs the tests may have a keyring of their own, with real keys.
os.environ["PYTHON_KEYRING_BACKEND"] = "keyring.backends.null.Keyring"
os.environ.setdefault("MIXSEEK_CACHE", str(Path(__file__).parent.parent / ".cache"))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with what takes long, so that no worker is left alone with it at the end."""
    items.sort(key=lambda item: item.get_closest_marker("long") is None)
