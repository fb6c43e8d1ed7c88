"""What was asked and what it cost: the bill, and a log of the requests that is bounded in memory."""

import json
import time
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Literal, TypeAlias

from mixseek.testing.calls import Api, ModelCall, Role
from mixseek.testing.server.wire import Usage

__all__ = ["Bill", "Ledger", "LoggedRequest", "ModelBill", "Outcome"]

Outcome: TypeAlias = Literal["waiting", "answered", "refused", "aborted"]


@dataclass(slots=True)
class ModelBill:
    """What one model, or all of them, did and cost.

    Every request is answered, refused (an error or no answer at all was sent whole), aborted (the connection ended
    before the response did, by a fault or by the client) or still waiting. Tokens are those stated in usages sent.
    """

    requests: int = 0
    answered: int = 0
    refused: int = 0
    aborted: int = 0
    rate_limited: int = 0
    """Those of the refused that went beyond the rate limit."""
    input_tokens: int = 0
    output_tokens: int = 0

    @property
    def waiting(self) -> int:
        """Requests that have no outcome yet."""
        return self.requests - self.answered - self.refused - self.aborted

    def __add__(self, other: "ModelBill") -> "ModelBill":
        return ModelBill(*(getattr(self, each.name) + getattr(other, each.name) for each in fields(self)))


@dataclass(frozen=True)
class Bill:
    """The bill of all models at one moment."""

    models: Mapping[str, ModelBill]

    @property
    def total(self) -> ModelBill:
        """All models together."""
        return sum(self.models.values(), ModelBill())


@dataclass(slots=True)
class LoggedRequest:
    """One request as it came; its outcome is filled in when it is known."""

    number: int
    """Its place among all requests, from 1."""
    time: float
    """When it came, in seconds since the epoch."""
    model: str
    call_number: int
    """Its place among the requests for this model, from 1."""
    api: Api
    role: Role
    stream: bool
    raw: bytes | None = field(repr=False)
    outcome: Outcome = "waiting"
    fault: str | None = None
    usage: Usage | None = None

    @property
    def body(self) -> Any:
        """The request body, None if bodies are not kept."""
        return None if self.raw is None else json.loads(self.raw)


class Ledger:
    """The books of a server; the log holds the newest requests up to a number and to a sum of bytes."""

    def __init__(self, *, keep_bodies: bool, log_size: int, log_bytes: int) -> None:
        self._keep_bodies = keep_bodies
        self._log_size = log_size
        self._log_bytes = log_bytes
        self._models: dict[str, ModelBill] = {}
        self._log: deque[LoggedRequest] = deque()
        self._bytes = 0
        self._number = 0

    def next_number(self, model: str) -> int:
        """The number the next call of ``model`` will have."""
        books = self._models.get(model)
        return 1 if books is None else books.requests + 1

    def open(self, call: ModelCall, raw: bytes) -> LoggedRequest:
        """Enter a request that came."""
        self._models.setdefault(call.model, ModelBill()).requests += 1
        self._number += 1
        kept = raw if self._keep_bodies else None
        request = LoggedRequest(
            self._number, time.time(), call.model, call.number, call.api, call.role, call.stream, kept
        )
        self._log.append(request)
        self._bytes += len(kept or b"")
        self._forget_the_oldest()
        return request

    def beyond_rate_limit(self, model: str) -> None:
        """Enter that a request went beyond the rate limit; that it is refused is entered when it is."""
        self._models[model].rate_limited += 1

    def close(self, request: LoggedRequest, outcome: Outcome, usage: Usage | None = None) -> None:
        """Enter how a request ended; a second entry replaces the first, for a client may leave at the last moment."""
        self._book(request, -1)
        request.outcome, request.usage = outcome, usage
        self._book(request, 1)

    def bill(self) -> Bill:
        """The bill as it stands."""
        return Bill({model: books + ModelBill() for model, books in sorted(self._models.copy().items())})

    def requests(self) -> list[LoggedRequest]:
        """The log, oldest first."""
        return list(self._log)

    def _book(self, request: LoggedRequest, sign: int) -> None:
        books = self._models.setdefault(request.model, ModelBill())
        if request.outcome != "waiting":
            setattr(books, request.outcome, getattr(books, request.outcome) + sign)
        if request.usage is not None:
            books.input_tokens += sign * request.usage.input_tokens
            books.output_tokens += sign * request.usage.output_tokens

    def _forget_the_oldest(self) -> None:
        while len(self._log) > self._log_size or (self._bytes > self._log_bytes and len(self._log) > 1):
            self._bytes -= len(self._log.popleft().raw or b"")
