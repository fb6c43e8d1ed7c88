"""A loopback server of models, a hub that speaks to it, and a back-off that takes no time."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass, field

import pytest
from pydantic_ai import models

from mixseek.config.schema import ProvidersSettings
from mixseek.llm import Backoff, ModelHub
from mixseek.llm.transport import ONLY_LOOPBACK
from mixseek.testing import ModelServer


@pytest.fixture(autouse=True)
def _no_real_calls(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv(ONLY_LOOPBACK, "1")
    with models.override_allow_model_requests(False):
        yield


@dataclass
class Patience:
    """A clock that moves only when someone sleeps, and what was slept."""

    now: float = 0.0
    waits: list[float] = field(default_factory=list)
    dice: float = 1.0

    async def sleep(self, seconds: float) -> None:
        self.waits.append(seconds)
        self.now += seconds

    def backoff(self) -> Backoff:
        return Backoff(sleep=self.sleep, random=lambda: self.dice, clock=lambda: self.now)


@pytest.fixture
def patience() -> Patience:
    return Patience()


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
async def hub(providers: ProvidersSettings, patience: Patience) -> AsyncIterator[ModelHub]:
    async with ModelHub(providers, backoff=patience.backoff()) as made:
        yield made
