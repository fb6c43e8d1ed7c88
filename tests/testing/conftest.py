from collections.abc import AsyncIterator, Iterator

import aiohttp
import pytest
from pydantic_ai import models

from mixseek.testing import ModelServer


@pytest.fixture
async def server() -> AsyncIterator[ModelServer]:
    async with ModelServer() as server:
        yield server


@pytest.fixture
async def http() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=60)) as session:
        yield session


@pytest.fixture(autouse=True)
def _loopback_calls_are_allowed() -> Iterator[None]:
    with models.override_allow_model_requests(True):
        yield
