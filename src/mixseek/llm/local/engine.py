"""llama.cpp in this process: one file of weights, a few lanes that compute one answer at a time each.

A lane is a llama.cpp of its own with a thread of its own. Several answers in one batch would be a little faster, but
what stands beside an answer in its batch, or what is left of an earlier prompt, changes the last bits of its numbers
and with them, sooner or later, a word: only an answer that is computed alone is the same for the same seed. Lanes map
one file, so that a further one costs the memory of its context and little else; they are made when needed.

An engine is shared by all who hold it and ends with the last of them. Nothing of it outlives the interpreter: lanes are
told to stop and waited for at exit. A process that was forked off has no lanes, and makes its own.
"""

import asyncio
import atexit
import ctypes
import os
import secrets
import threading
import weakref
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from mixseek.errors import ModelRefusedError

__all__ = ["Completion", "Engine", "Options", "RefusedRequest", "drop", "hold"]

# So many tokens of a prompt are read between two looks at whether anyone still waits for the answer.
_TOKENS_A_STEP: Final = 128
_SECONDS_TO_END: Final = 30.0

Body = dict[str, Any]
Ready = Callable[[Callable[[], bool]], None]
"""Sees to it that the weights are there; gives up when its argument says so."""


@dataclass(frozen=True)
class Options:
    """What a lane is made with."""

    file: Path
    n_ctx: int
    lanes: int
    threads: int


@dataclass(frozen=True)
class Completion:
    """What llama.cpp made of a request."""

    text: str
    finish_reason: str
    input_tokens: int
    output_tokens: int


class RefusedRequest(Exception):  # noqa: N818  # named as what it is; it is told as a ModelError
    """A request llama.cpp does not take, in its own words."""

    def __init__(self, error: dict[str, Any]) -> None:
        super().__init__(str(error.get("message") or error))
        self.kind: str = error.get("type", "")
        self.prompt_tokens: int | None = error.get("n_prompt_tokens")


@dataclass(eq=False)
class _Job:
    body: Body
    done: "Future[Completion]" = field(default_factory=Future)
    unwanted: threading.Event = field(default_factory=threading.Event)


class Engine:
    """One file of weights, loaded for up to ``options.lanes`` answers at once."""

    def __init__(self, options: Options, ready: Ready) -> None:
        self.options = options
        self.holders = 0
        self._ready = ready
        self._waiting: deque[_Job] = deque()
        self._running: set[_Job] = set()
        self._changed = threading.Condition()
        self._lanes: list[threading.Thread] = []
        self._idle = 0
        self._ended = False
        self._servers: list[Any] = []

    async def complete(self, body: Body) -> Completion:
        """The answer to a request; whoever is cancelled stops the computing too."""
        job = _Job(body)
        self._put(job)
        try:
            return await asyncio.wrap_future(job.done)
        finally:
            job.unwanted.set()

    async def prepare(self) -> None:
        """Load the first lane, if none is there, so that the first answer does not wait for it."""
        await self.complete({})

    def end(self) -> None:
        """Stop what is computed and let the lanes go; :meth:`join` waits for them."""
        with self._changed:
            self._ended = True
            for job in self._waiting:
                job.done.cancel()
            for job in self._running:
                job.unwanted.set()
            self._changed.notify_all()

    def join(self) -> None:
        """Wait until the lanes are gone."""
        for lane in list(self._lanes):
            lane.join(_SECONDS_TO_END)

    def abandon(self) -> None:
        """Forget the lanes without touching them: in a forked process their threads are not there to be waited for."""
        for server in self._servers:
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(server))

    def _put(self, job: _Job) -> None:
        with self._changed:
            self._waiting.append(job)
            if len(self._waiting) > self._idle and len(self._lanes) < self.options.lanes:
                lane = threading.Thread(target=self._work, name=f"mixseek-local-{len(self._lanes)}", daemon=True)
                self._lanes.append(lane)
                lane.start()
            self._changed.notify()

    # --- a lane -------------------------------------------------------------------------------------------------------

    def _work(self) -> None:
        server = None
        while (job := self._next()) is not None:
            try:
                if server is None:
                    server = self._load()
                job.done.set_result(_completed(server, job))
            except BaseException as error:  # noqa: BLE001  # the one who asked is told, whatever it was
                job.done.set_exception(error)
            finally:
                with self._changed:
                    self._running.discard(job)
        if server is not None:
            self._servers.remove(server)

    def _next(self) -> _Job | None:
        """The next job somebody waits for; None when there will be no more."""
        with self._changed:
            while True:
                while self._waiting:
                    job = self._waiting.popleft()
                    if job.done.set_running_or_notify_cancel():
                        self._running.add(job)
                        return job
                if self._ended:
                    return None
                self._idle += 1
                self._changed.wait()
                self._idle -= 1

    def _load(self) -> Any:
        self._ready(lambda: self._ended)
        server = _server(self.options)
        self._servers.append(server)
        return server


def _server(options: Options) -> Any:
    import xllamacpp  # 100 MB that come with an extra

    params = xllamacpp.CommonParams()
    params.model.path = str(options.file)
    params.n_ctx = options.n_ctx
    params.n_parallel = 1
    params.n_batch = params.n_ubatch = _TOKENS_A_STEP
    # The threads that share the work on one answer do not survive a fork, and are waited for in vain.
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = 1 if _is_forked else options.threads
    # Prompts of the past are no use to an answer that is to be computed afresh.
    params.cache_ram_mib = 0
    params.verbosity = -1
    params.warmup = False
    # It cannot but listen on this machine as well: one thread at a free port, and nobody knows the key.
    params.port = 0
    params.n_threads_http = 1
    params.api_keys = [secrets.token_hex(32)]
    params.ui = params.endpoint_slots = params.endpoint_props = False
    try:
        return xllamacpp.Server(params)
    except RuntimeError as error:
        raise ModelRefusedError(
            f"llama.cpp cannot load {str(options.file)!r}: is it whole, and of a known kind?"
        ) from error


def _completed(server: Any, job: _Job) -> Completion:
    if not job.body:
        return Completion("", "stop", 0, 0)
    heard = _Heard(job.unwanted)
    body = {**job.body, "stream": True, "stream_options": {"include_usage": True}, "return_progress": True}
    returned = server.handle_chat_completions({**body, "cache_prompt": False}, heard)
    return heard.completion(returned)


class _Heard:
    """Listens to an answer as it is computed; says stop when nobody waits for it any more."""

    def __init__(self, unwanted: threading.Event) -> None:
        self._unwanted = unwanted
        self._pieces: list[str] = []
        self._finish_reason: str | None = None
        self._usage: dict[str, int] = {}
        self._error: dict[str, Any] | None = None

    def __call__(self, chunk: dict[str, Any]) -> bool:
        self._error = chunk.get("error", self._error)
        self._usage = chunk.get("usage") or self._usage
        for choice in chunk.get("choices", ()):
            self._pieces.append(choice["delta"].get("content") or "")
            self._finish_reason = choice.get("finish_reason") or self._finish_reason
        return self._unwanted.is_set()

    def completion(self, returned: Any) -> Completion:
        error = self._error or (returned or {}).get("error")
        if error:
            raise RefusedRequest(error)
        return Completion(
            "".join(self._pieces),
            self._finish_reason or "error",
            self._usage.get("prompt_tokens", 0),
            self._usage.get("completion_tokens", 0),
        )


# --- who holds which --------------------------------------------------------------------------------------------------

_engines: dict[Options, Engine] = {}
_all: "weakref.WeakSet[Engine]" = weakref.WeakSet()
_lock = threading.Lock()
_is_forked = False


def hold(options: Options, ready: Ready) -> Engine:
    """The engine with these options; ``ready`` is called before weights are loaded. It has to be dropped again."""
    with _lock:
        engine = _engines.get(options)
        if engine is None:
            engine = _engines[options] = Engine(options, ready)
            _all.add(engine)
        engine.holders += 1
        return engine


def drop(engine: Engine) -> bool:
    """Hold an engine no longer; it ends with the last who did. Whether it ends now."""
    with _lock:
        engine.holders -= 1
        if engine.holders or _engines.get(engine.options) is not engine:
            return False
        del _engines[engine.options]
    engine.end()
    return True


def _end_all() -> None:
    for engine in list(_all):
        engine.end()
    for engine in list(_all):
        engine.join()


def _forget_all() -> None:
    global _lock, _is_forked
    _lock, _is_forked = threading.Lock(), True
    for engine in list(_all):
        engine.abandon()
    _engines.clear()
    _all.clear()


atexit.register(_end_all)
os.register_at_fork(after_in_child=_forget_all)
