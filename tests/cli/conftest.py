"""Model servers for most modules here: one in this process, and one in its own, for commands that run apart."""

from collections.abc import Iterator

import pytest

from mixseek.testing import ModelServer, ModelServerProcess


@pytest.fixture(scope="module")
def running_server() -> Iterator[ModelServer]:
    with ModelServer() as server:
        yield server


@pytest.fixture
def server(running_server: ModelServer) -> ModelServer:
    running_server.reset()
    return running_server


@pytest.fixture(scope="module")
def running_server_process() -> Iterator[ModelServerProcess]:
    with ModelServerProcess() as server:
        yield server


@pytest.fixture
def server_process(running_server_process: ModelServerProcess) -> ModelServerProcess:
    running_server_process.reset()
    return running_server_process
