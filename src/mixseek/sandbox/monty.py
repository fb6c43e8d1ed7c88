"""Python in Monty: an interpreter that has no files, no network and no processes to give away.

Each run has a worker process of its own, gone afterwards. The interpreter counts time and memory itself and cannot be
talked out of it (its errors of limits are not to be caught); behind it stand the kernel's limits on the worker, a
deadline of ours, and the kill. No value leaves the interpreter: one of a few bytes can be gigabytes when it is copied.
"""

import contextlib
import importlib.util
import os
import signal
import sysconfig
from threading import Lock
from typing import TYPE_CHECKING, Any, Literal

from mixseek.errors import ConfigurationError, SandboxError
from mixseek.sandbox.results import CodeResult, Limit, Limits, Output, too_long
from mixseek.sandbox.workers import Switch, off_the_loop

if TYPE_CHECKING:
    from pydantic_monty import MontyRuntimeError

__all__ = ["MontySandbox", "monty_is_missing"]

# The worker's own memory beyond what it counts as the program's: its code, the parsed program, buffers.
_WORKER_BYTES = 512 * 1024 * 1024
# How long the interpreter may need to notice its limit before it is killed.
_GRACE_SECONDS = 2.0
_RECURSION = 500
# Each name that is not defined costs a question to this process, answered with no.
_UNKNOWN_NAMES = 100_000
_looking_up = Lock()


def monty_is_missing() -> str | None:
    """What to do to have Monty; None if it is there."""
    if importlib.util.find_spec("pydantic_monty") is None:
        return 'the Monty sandbox needs a package: pip install "mixseek[code]"'
    return None


class MontySandbox:
    """Runs Python in Monty; the first run imports it."""

    def __init__(self, limits: Limits | None = None) -> None:
        self._limits = limits or Limits()

    async def run_python(self, code: str) -> CodeResult:
        """Run a program in an interpreter of its own."""
        if missing := monty_is_missing():
            raise ConfigurationError(missing)
        if refused := too_long(code):
            return refused
        return await off_the_loop(lambda switch: _run(code, self._limits, switch))


def _run(code: str, limits: Limits, switch: Switch) -> CodeResult:
    with _looking_up:
        # Monty finds its program by this; two threads that ask for the first time at once find it half made.
        sysconfig.get_config_vars()
    import pydantic_monty as monty

    output = Output(limits.output_chars)
    try:
        with (
            monty.Monty(max_processes=1, request_timeout=limits.timeout_seconds + _GRACE_SECONDS) as pool,
            pool.checkout(limits=_counted(limits), os_policy={"sleep": "zero"}) as session,
        ):
            worker = _Worker(session.worker_pid)  # a session that is busy does not tell
            worker.hold_to(limits)

            def printed(_stream: Literal["stdout", "stderr"], text: str) -> None:
                output.add(text)
                if output.is_flood:
                    worker.kill()

            with switch.ends(worker.kill):
                # The value of a last expression would be copied into this process: let there be none.
                session.feed_run(f"{code}\nNone", print_callback=printed)
    except monty.MontyCrashedError as error:
        return output.result(None, _limit_of_crash(output, timed_out=error.timed_out))
    except monty.MontyRuntimeError as error:
        limit = _limit_of(error)
        output.add(error.display("type-msg" if limit else "traceback") + "\n")
        return output.result(1, limit)
    except monty.MontyError as error:
        output.add(f"{type(error.exception()).__name__}: {error}\n")
        return output.result(1)
    except OSError as error:
        raise SandboxError(f"Monty could not be started: {error}") from error
    return output.result(0)


def _counted(limits: Limits) -> Any:
    return {
        "max_feed_duration_secs": limits.timeout_seconds,
        "max_memory": limits.memory_bytes,
        "max_recursion_depth": _RECURSION,
        "max_suspensions": _UNKNOWN_NAMES,
    }


class _Worker:
    """The process that runs the program."""

    def __init__(self, pid: int | None) -> None:
        if pid is None:
            raise SandboxError("Monty told no process of its own")
        self._pid = pid

    def hold_to(self, limits: Limits) -> None:
        """The kernel's limits, where it has them for another process: the interpreter may miscount."""
        with contextlib.suppress(ImportError, AttributeError, ProcessLookupError):
            import resource

            most = limits.memory_bytes + _WORKER_BYTES
            resource.prlimit(self._pid, resource.RLIMIT_AS, (most, most))
            resource.prlimit(self._pid, resource.RLIMIT_CORE, (0, 0))
            # Should this process be killed, nobody is left to do it.
            most = int(limits.timeout_seconds + _GRACE_SECONDS) + 1
            resource.prlimit(self._pid, resource.RLIMIT_CPU, (most, most))

    def kill(self) -> None:
        """End it now."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self._pid, signal.SIGKILL)


def _limit_of(error: "MontyRuntimeError") -> Limit | None:
    """The limit behind an error; a program that words its own error like this only speaks ill of itself."""
    text = str(error)
    if text.startswith("TimeoutError: feed time limit exceeded"):
        return "time"
    return "memory" if text.startswith("MemoryError: memory limit exceeded") else None


def _limit_of_crash(output: Output, *, timed_out: bool) -> Limit:
    """Why a worker died: of its deadline, of a flood, or of memory, which the kernel gives no more of."""
    if output.is_flood:
        return "output"
    return "time" if timed_out else "memory"
