"""A loopback server of models, a hub that speaks to it, and a back-off that takes no time."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from mixseek.config.schema import ProvidersSettings
from mixseek.llm import ModelHub
from mixseek.testing import FakeClock, ModelServer


@pytest.fixture
def patience() -> FakeClock:
    return FakeClock()


@pytest.fixture
async def server() -> AsyncIterator[ModelServer]:
    async with ModelServer() as running:
        yield running


@pytest.fixture
def arrived(server: ModelServer) -> Callable[[int], Awaitable[None]]:
    """Waits until so many requests have come to the server."""

    async def wait(count: int) -> None:
        while server.bill.total.requests < count:  # noqa: ASYNC110  # the server has no event for it
            await asyncio.sleep(0.001)

    return wait


@pytest.fixture
def providers(server: ModelServer) -> ProvidersSettings:
    return ProvidersSettings.model_validate(
        {
            "providers": {
                "chat": {"base_url": server.base_url},
                "responses": {"base_url": server.base_url, "api": "responses"},
                "narrow": {"base_url": server.base_url, "max_concurrency": 2},
            }
        }
    )


@pytest.fixture
async def hub(providers: ProvidersSettings, patience: FakeClock) -> AsyncIterator[ModelHub]:
    async with ModelHub(providers, backoff=patience.backoff()) as made:
        yield made
