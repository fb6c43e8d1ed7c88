"""The server in a process of its own, told what to do over its controls."""

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any, Self
from urllib.request import ProxyHandler, Request, build_opener

from mixseek.testing.answers import AnswerLike, as_answer
from mixseek.testing.server.bill import Bill, LoggedRequest, ModelBill
from mixseek.testing.server.control import answer_to_json, request_from_json
from mixseek.testing.server.faults import FaultKind

__all__ = ["ModelServerProcess"]


class ModelServerProcess:
    """A server that shares neither loop nor interpreter with what it serves: for benchmarks and for killed processes.

    >>> with ModelServerProcess(latency=0.01) as server:
    ...     server.on("leader-a", ["The answer."])
    ...     server.bill.total.requests
    0

    Its arguments are those of :class:`ModelServer`; its answers are values, for functions do not travel.
    """

    def __init__(
        self,
        *,
        port: int = 0,
        seed: int = 0,
        latency: float = 0.0,
        jitter: float = 0.0,
        rate_limit: float | None = None,
        burst: int | None = None,
        keep_bodies: bool = True,
        log_size: int = 1000,
        log_bytes: int = 64 * 1024 * 1024,
    ) -> None:
        given: dict[str, float | None] = {"port": port, "seed": seed, "latency": latency, "jitter": jitter}
        given |= {"rate-limit": rate_limit, "burst": burst, "log-size": log_size, "log-bytes": log_bytes}
        self._options = [f"--{name}={value}" for name, value in given.items() if value is not None]
        self._options += [] if keep_bodies else ["--no-bodies"]
        # A proxy of the environment has no business with 127.0.0.1.
        self._opener = build_opener(ProxyHandler({}))
        self._process: subprocess.Popen[bytes] | None = None
        self.url = ""
        self.base_url = ""
        self.pid = 0

    def start(self) -> None:
        """Start the process and wait until it listens; it ends with this process, even if that is killed."""
        command = [sys.executable, "-m", "mixseek.testing.server", "--end-with-stdin", *self._options]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)  # noqa: S603
        line = self._process.stdout.readline() if self._process.stdout else b""
        if not line:
            self.stop()
            raise RuntimeError("the model server did not start: its words are on standard error")
        address = json.loads(line)
        self.url, self.base_url, self.pid = address["url"], address["base_url"], address["pid"]

    def stop(self) -> None:
        """End the process."""
        process, self._process = self._process, None
        if process is not None:
            process.terminate()
            process.communicate()

    def on(self, model: str, answers: Sequence[AnswerLike], **match: Any) -> None:
        """As :meth:`ModelServer.on`, with a list of answers."""
        told = [answer_to_json(as_answer(like)) for like in answers]
        self._ask("POST", "script", {"model": model, "answers": told, **match})

    def fault(self, kind: FaultKind | int, **which: Any) -> None:
        """As :meth:`ModelServer.fault`."""
        self._ask("POST", "fault", {"kind": kind, **which})

    def clear_faults(self) -> None:
        """Lift all faults."""
        self._ask("DELETE", "fault")

    def set_latency(self, seconds: float, *, jitter: float = 0.0, model: str = "*") -> None:
        """As :meth:`ModelServer.set_latency`."""
        self._ask("POST", "latency", {"seconds": seconds, "jitter": jitter, "model": model})

    def set_rate_limit(self, per_second: float | None, *, burst: int | None = None, retry_after: bool = True) -> None:
        """As :meth:`ModelServer.set_rate_limit`."""
        self._ask("POST", "rate_limit", {"per_second": per_second, "burst": burst, "retry_after": retry_after})

    def reset(self) -> None:
        """As :meth:`ModelServer.reset`."""
        self._ask("POST", "reset")

    @property
    def environment(self) -> dict[str, str]:
        """Environment variables that point OpenAI clients here."""
        return {"OPENAI_BASE_URL": self.base_url, "OPENAI_API_KEY": "sk-for-a-server-of-tests"}

    @property
    def bill(self) -> Bill:
        """The bill as it stands now."""
        models = self._ask("GET", "bill")["models"]
        return Bill({model: ModelBill(**books) for model, books in models.items()})

    @property
    def requests(self) -> list[LoggedRequest]:
        """The newest requests, oldest first."""
        return [request_from_json(told) for told in self._ask("GET", "requests")]

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _ask(self, method: str, what: str, body: Mapping[str, Any] | None = None) -> Any:
        content = None if body is None else json.dumps(body).encode()
        request = Request(f"{self.url}/control/{what}", data=content, method=method)  # noqa: S310  # always http
        with self._opener.open(request, timeout=30) as response:
            return json.load(response)
