"""The model server that whole competitions are played on."""

from collections.abc import AsyncIterator

import pytest

from mixseek.testing import ModelServer


@pytest.fixture
async def server() -> AsyncIterator[ModelServer]:
    async with ModelServer() as running:
        yield running
