"""A model server on 127.0.0.1 that speaks the OpenAI protocol, does as it is told, and keeps the bill.

A request takes one walk: read the call, pass the rate limit, see whether a fault strikes, find the answer, wait out the
latency, deliver, and book how it ended.
"""

import asyncio
import logging
import threading
import time
from collections.abc import Sequence
from dataclasses import replace
from hashlib import blake2b
from types import TracebackType
from typing import Any, Self

from aiohttp import web
from pydantic_core import from_json

from mixseek.testing.answers import Answer
from mixseek.testing.calls import Api, ModelCall, Role, read_call
from mixseek.testing.script import Match, Responder, Script
from mixseek.testing.server.bill import Bill, Ledger, LoggedRequest, Outcome
from mixseek.testing.server.control import control
from mixseek.testing.server.delivery import deliver
from mixseek.testing.server.faults import Fault, FaultKind, FaultPlan, body_of_fault, broken_reply
from mixseek.testing.server.pace import Latency, RateLimit
from mixseek.testing.server.wire import Payload, error_payload, payload_of, reply_of

__all__ = ["ModelServer"]

_log = logging.getLogger(__name__)
_APIS: dict[str, Api] = {"/chat/completions": "chat", "/responses": "responses"}


class ModelServer:
    """A loopback server of models: ``async with`` it in a test's loop, or ``with`` it to run it in a thread.

    >>> with ModelServer(seed=1) as server:
    ...     server.on("leader-a", ["The answer."])
    ...     server.fault(503, model="judge", count=2)
    ...     server.base_url.startswith("http://127.0.0.1:")
    True

    Any model name is served. ``latency`` and ``jitter`` are in seconds, ``rate_limit`` in requests per second.
    The log keeps the newest ``log_size`` requests, or fewer if their bodies come to more than ``log_bytes``.
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
        self.port = port
        self.seed = seed
        self._keep_bodies = keep_bodies
        self._log_size = log_size
        self._log_bytes = log_bytes
        self._script = Script(seed)
        self._faults = FaultPlan(seed)
        self._latency = Latency(seed)
        self._rate_limit: RateLimit | None = None
        self._ledger = self._new_ledger()
        self._tasks: set[asyncio.Task[Any]] = set()
        self._runner: web.ServerRunner | None = None
        self._thread: _ServerThread | None = None
        self.set_latency(latency, jitter=jitter)
        self.set_rate_limit(rate_limit, burst=burst)

    # --- where it is --------------------------------------------------------------------------------------------------

    @property
    def url(self) -> str:
        """The root of the server; ``/control`` is below it."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def base_url(self) -> str:
        """What an OpenAI client wants as its base URL."""
        return f"{self.url}/v1"

    @property
    def environment(self) -> dict[str, str]:
        """Environment variables that point OpenAI clients here."""
        return {"OPENAI_BASE_URL": self.base_url, "OPENAI_API_KEY": "sk-for-a-server-of-tests"}

    # --- telling it what to do ----------------------------------------------------------------------------------------

    def on(
        self,
        model: str,
        answers: Responder,
        *,
        role: Role | None = None,
        contains: str | None = None,
        tool: str | None = None,
        output: str | None = None,
    ) -> None:
        """Answer calls of ``model`` (a name or a pattern) by a function or a list; newer rules win over older ones.

        A list gives one answer to each call; after its last one, and where a function gives None, older rules and the
        default answer take over. See :class:`Match` for the other arguments.
        """
        self._script.on(Match(model, role, contains, tool, output), answers)

    def fault(
        self,
        kind: FaultKind | int,
        *,
        model: str = "*",
        role: Role | None = None,
        contains: str | None = None,
        tool: str | None = None,
        output: str | None = None,
        at: int | Sequence[int] = (),
        after: int = 0,
        count: int | None = None,
        share: float = 1.0,
        retry_after: float | None = None,
        size: int = 50 * 1024 * 1024,
    ) -> None:
        """Let calls fail; see :class:`Fault` for the arguments and ``FAULT_KINDS`` for the kinds; 503 is ``"503"``."""
        self.add_fault(
            Fault(
                str(kind),  # type: ignore[arg-type]  # checked when it is made
                Match(model, role, contains, tool, output),
                at=(at,) if isinstance(at, int) else tuple(at),
                after=after,
                count=count,
                share=share,
                retry_after=retry_after,
                size=size,
            )
        )

    def add_fault(self, fault: Fault) -> None:
        """Put a fault in force that is already made."""
        self._faults.add(fault)

    def clear_faults(self) -> None:
        """Lift all faults; connections that hang already go on hanging."""
        self._faults.clear()

    def set_latency(self, seconds: float, *, jitter: float = 0.0, model: str = "*") -> None:
        """Let answers of ``model`` (a name or a pattern) take so long, and up to ``jitter`` longer."""
        self._latency.set(model, seconds, jitter)

    def set_rate_limit(self, per_second: float | None, *, burst: int | None = None, retry_after: bool = True) -> None:
        """Refuse what goes beyond with 429; ``burst``, by default a second's, may come at once.

        Without ``retry_after`` the refusal does not say how long to wait.
        """
        self._rate_limit = None if per_second is None else RateLimit(per_second, burst, retry_after=retry_after)

    def reset(self) -> None:
        """Forget scripts and faults and begin new books; latency and rate limit stay."""
        self._script.clear()
        self._faults.clear()
        self._ledger = self._new_ledger()

    # --- what came of it ----------------------------------------------------------------------------------------------

    @property
    def bill(self) -> Bill:
        """What every model was asked and what it cost, as it stands now."""
        return self._ledger.bill()

    @property
    def requests(self) -> list[LoggedRequest]:
        """The newest requests, oldest first."""
        return self._ledger.requests()

    @property
    def models(self) -> list[str]:
        """The names of models that were scripted or asked."""
        scripted = {model for model in self._script.models if not any(sign in model for sign in "*?[")}
        return sorted(scripted | set(self.bill.models))

    # --- its life -----------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Listen, in the running loop."""
        server = web.Server(self._handle, handler_cancellation=True, access_log=None, keepalive_timeout=600)
        self._runner = web.ServerRunner(server, shutdown_timeout=1.0)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", self.port, backlog=2048)
        await site.start()
        self.port = self._runner.addresses[0][1]

    async def stop(self) -> None:
        """Close every connection at once, hanging ones too."""
        runner, self._runner = self._runner, None
        if runner is None:
            return
        for site in list(runner.sites):
            await site.stop()
        for task in list(self._tasks):
            task.cancel()
        await runner.cleanup()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    def __enter__(self) -> Self:
        self._thread = _ServerThread(self)
        self._thread.begin()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._thread is not None:
            self._thread.end()

    def _new_ledger(self) -> Ledger:
        return Ledger(keep_bodies=self._keep_bodies, log_size=self._log_size, log_bytes=self._log_bytes)

    # --- one request --------------------------------------------------------------------------------------------------

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        path = request.path.removeprefix("/v1")
        if request.method == "POST" and path in _APIS:
            return await self._tracked(request, _APIS[path])
        if path.startswith("/control/"):
            return await control(self, request)
        if request.method == "GET" and (path == "/models" or path.startswith("/models/")):
            return _models_response(self.models, path)
        return web.json_response({"error": {"message": f"no {request.method} {request.path} here"}}, status=404)

    async def _tracked(self, request: web.BaseRequest, api: Api) -> web.StreamResponse:
        task = asyncio.current_task()
        assert task is not None  # noqa: S101  # a handler runs in a task
        self._tasks.add(task)
        try:
            return await self._serve(request, api)
        finally:
            self._tasks.discard(task)

    async def _serve(self, request: web.BaseRequest, api: Api) -> web.StreamResponse:
        raw = await request.content.read()
        try:
            call = self._read(api, raw)
        except ValueError as error:
            refusal = error_payload(400, str(error), kind="invalid_request_error", code=None, headers={})
            return await deliver(request, refusal, None, lambda: None)
        ledger = self._ledger
        entry = ledger.open(call, raw)
        try:
            payload, manner = await self._respond_to(call, entry)
            outcome: Outcome = "answered" if payload.is_answer else "refused"
            return await deliver(request, payload, manner, lambda: ledger.close(entry, outcome, payload.usage))
        except (asyncio.CancelledError, ConnectionError):
            ledger.close(entry, "aborted")
            raise

    def _read(self, api: Api, raw: bytes) -> ModelCall:
        body = from_json(raw)
        model = body.get("model") if isinstance(body, dict) else None
        return read_call(api, body, self._ledger.next_number(model) if isinstance(model, str) else 1)

    async def _respond_to(self, call: ModelCall, entry: LoggedRequest) -> tuple[Payload, FaultKind | None]:
        """The response to ``call`` and, if a wire fault strikes it, the manner in which it breaks."""
        if self._rate_limit is not None and (seconds := self._rate_limit.seconds_to_wait(time.monotonic())):
            entry.fault = "rate_limit"
            self._ledger.beyond_rate_limit(call.model)
            return self._rate_limit.refusal(seconds), None
        fault = self._faults.strike(call)
        payload = await self._payload(call, entry, fault)
        if (seconds := self._latency.of(call)) > 0:
            await asyncio.sleep(seconds)
        return payload, fault.kind if fault else None

    async def _payload(self, call: ModelCall, entry: LoggedRequest, fault: Fault | None) -> Payload:
        if fault is not None:
            entry.fault = fault.kind
            if fault.is_body:
                return body_of_fault(fault, call)
        try:
            answer = await self._script.answer(call, keep=fault is not None)
        except Exception as error:  # noqa: BLE001  # a test's own function may raise anything; the client is told
            _log.exception("the script for %r raised", call.model)
            message = f"the script for {call.model!r} raised {type(error).__name__}: {error}"
            return error_payload(500, message, kind="script_error", code="script_error", headers={})
        return self._answered(call, entry, answer, fault)

    def _answered(self, call: ModelCall, entry: LoggedRequest, answer: Answer, fault: Fault | None) -> Payload:
        reply = reply_of(call, answer, self._identity(entry))
        if fault is None and (flaw := self._faults.strike(call, reply)) is not None:
            entry.fault = flaw.kind
            reply = broken_reply(flaw, reply)
        return _marred(payload_of(call, reply), fault)

    def _identity(self, entry: LoggedRequest) -> str:
        return blake2b(f"{self.seed}|{entry.number}".encode(), digest_size=12).hexdigest()


def _marred(payload: Payload, fault: Fault | None) -> Payload:
    """``payload`` as the faults have it that send it whole but not as it should be."""
    match fault.kind if fault else None:
        case "cut_json":
            whole = b"".join(payload.pieces)
            return replace(payload, pieces=(whole[: len(whole) * 2 // 3],), usage=None, is_answer=False)
        case "empty_body":
            return replace(payload, pieces=(b"",), usage=None, is_answer=False)
        case "wrong_content_type":
            return replace(payload, content_type="text/plain")
        case _:
            return payload


def _models_response(models: list[str], path: str) -> web.Response:
    if path == "/models":
        return web.json_response({"object": "list", "data": [_described(model) for model in models]})
    return web.json_response(_described(path.removeprefix("/models/")))


def _described(model: str) -> dict[str, Any]:
    return {"id": model, "object": "model", "created": 0, "owned_by": "loopback"}


class _ServerThread:
    """A thread with a loop of its own for a server that is used without one."""

    def __init__(self, server: ModelServer) -> None:
        self._server = server
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="model-server", daemon=True)

    def begin(self) -> None:
        self._thread.start()
        try:
            asyncio.run_coroutine_threadsafe(self._server.start(), self._loop).result()
        except BaseException:
            self._close()
            raise

    def end(self) -> None:
        asyncio.run_coroutine_threadsafe(self._server.stop(), self._loop).result()
        self._close()

    def _close(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.run_until_complete(self._loop.shutdown_asyncgens())
        self._loop.close()
