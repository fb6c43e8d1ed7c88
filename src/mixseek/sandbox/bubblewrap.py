"""Any command in bubblewrap: the machine's programs without its files, its network, its processes or its secrets.

A command sees ``/usr`` and the Python that runs MixSeek, both read-only, a fresh ``/proc`` and ``/dev``, and one
directory of its own in memory, ``/work``. It has no network, an empty environment, and no right a user could have. A
user's run is in a user name space; root's is given a user number that owns nothing, since the kernel counts no
processes against root.
"""

import itertools
import os
import random
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from functools import cache
from pathlib import Path, PurePosixPath
from resource import RLIM_INFINITY, RLIMIT_AS, RLIMIT_DATA, RLIMIT_STACK, getrlimit

from mixseek.errors import ConfigurationError, SandboxError
from mixseek.sandbox.processes import watch
from mixseek.sandbox.results import CodeResult, Limits, too_long
from mixseek.sandbox.seccomp import system_call_filter
from mixseek.sandbox.workers import Switch, off_the_loop

__all__ = ["WORK_MB", "BubblewrapSandbox", "bubblewrap_is_missing"]

WORK_MB = 64
"""Room for files in ``/work``, which is in memory."""

_WORK = "/work"
_MB = 1024 * 1024
_SHARED_MEMORY_MB = 16
_PROCESSES = 32
_STACK_MB = 8
# Address space beyond the memory: what is only reserved costs nothing, and runtimes reserve a lot.
_RESERVED_MB = 4096
_OPEN_FILES = 128
_OLDEST = (0, 8)
_NEEDED = ("bwrap", "prlimit", "setpriv")
_PROBE_SECONDS = 10.0
# What programs look up about the machine itself; nothing else of /etc is shown.
_OF_ETC = ("alternatives", "ld.so.cache", "ld.so.conf", "ld.so.conf.d", "localtime")
_DIRECTORIES = ("bin", "sbin", "lib", "lib32", "lib64")
# Numbers that no account has, and that exist even where a container maps only the usual ones.
_USERS = range(60_000, 65_000)


class BubblewrapSandbox:
    """Runs Python, or any command, in bubblewrap."""

    def __init__(self, limits: Limits | None = None) -> None:
        self._limits = limits or Limits()

    async def run_python(self, code: str) -> CodeResult:
        """Run a program with the full standard library; packages of the environment are not there."""
        if refused := too_long(code):
            return refused
        # A lone surrogate cannot be encoded, nor be part of a program: Python says so itself.
        text = code.encode("utf-8", "surrogatepass")
        return await self.run([_python(), "-I", "main.py"], {"main.py": text})

    async def run(self, command: Sequence[str], files: Mapping[str, bytes] | None = None) -> CodeResult:
        """Run a command in a directory that holds these files, by their paths within it."""
        if missing := bubblewrap_is_missing():
            raise ConfigurationError(missing)
        return await off_the_loop(lambda switch: _run(command, files or {}, self._limits, switch))


@cache
def bubblewrap_is_missing() -> str | None:
    """What keeps bubblewrap from running here, as a trial shows it; None if nothing does."""
    for program in _NEEDED:
        if shutil.which(program) is None:
            package = "bubblewrap" if program == "bwrap" else "util-linux"
            return f"the bubblewrap sandbox needs the program {program!r}: apt-get install {package}"
    version = subprocess.run(["bwrap", "--version"], capture_output=True, text=True, check=False).stdout  # noqa: S607
    found = tuple(map(int, re.findall(r"\d+", version)[:2]))
    if found < _OLDEST:
        return f"{version.strip()} is too old: the sandbox needs {'.'.join(map(str, _OLDEST))} or newer"
    try:
        return _failed_trial()
    except SandboxError as error:
        return str(error)


def _failed_trial() -> str | None:
    """What goes wrong with the Python that runs MixSeek, or with any program; None if it runs."""
    limits = Limits(timeout_seconds=_PROBE_SECONDS)
    # Started by a program inside: the first one is still looked up with the rights of whoever sets the sandbox up. An
    # interpreter that cannot reach its own library may find that of another version.
    tried = _run(["env", _python(), "-I", "-c", "import sys; print(sys.version)"], {}, limits, Switch())
    if tried.succeeded and tried.output.strip() == sys.version:
        return None
    told = f"{tried.output.strip() or tried.limit}; everybody has to be able to read {str(_prefix())!r}"
    tried = _run(["true"], {}, limits, Switch())
    if not tried.succeeded:
        return f"bubblewrap cannot run a program here: {tried.output.strip() or tried.limit}"
    return f"the Python that runs MixSeek, {_python()!r}, cannot run in bubblewrap: {told}"


def _run(command: Sequence[str], files: Mapping[str, bytes], limits: Limits, switch: Switch) -> CodeResult:
    with ExitStack() as stack:
        told, telling = os.pipe()
        stack.callback(os.close, told)
        shown = {fd: path for path, data in files.items() for fd in [_open_for_reading(data, stack)]}
        calls = system_call_filter()
        barred = None if calls is None else _open_for_reading(calls, stack)
        started = [*_wrapped(shown, barred, telling), *_limited(limits), *command]
        handed = [telling, *shown, *([] if barred is None else [barred])]
        try:
            outer = subprocess.Popen(  # noqa: S603  # running what others wrote is what this is for
                started,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                env={},
                cwd="/",
                pass_fds=handed,
                start_new_session=True,
            )
        except (OSError, ValueError) as error:
            raise SandboxError(f"bubblewrap could not be started: {error}") from error
        finally:
            os.close(telling)
        with outer:
            try:
                result, has_begun = watch(outer, told, limits, switch)
            except OSError as error:  # an old kernel, or one that allows no handles of processes
                outer.kill()
                raise SandboxError(f"bubblewrap could not be watched: {error}") from error
    if not has_begun and not switch.is_pulled:
        raise SandboxError(f"bubblewrap could not set up its sandbox: {result.output.strip() or 'it was killed'}")
    return result


def _open_for_reading(data: bytes, stack: ExitStack) -> int:
    """A file in memory alone, open at its beginning."""
    fd = os.memfd_create("mixseek")
    stack.callback(os.close, fd)
    with open(fd, "wb", closefd=False) as file:
        file.write(data)
    os.lseek(fd, 0, os.SEEK_SET)
    return fd


def _wrapped(files: Mapping[int, str], barred: int | None, telling: int) -> Iterator[str]:
    """The bubblewrap command, up to the program it starts."""
    yield from (shutil.which("bwrap") or "bwrap", "--die-with-parent", "--new-session", "--as-pid-1")
    yield from ("--unshare-pid", "--unshare-ipc", "--unshare-uts", "--unshare-net", "--unshare-cgroup-try")
    yield from ("--hostname", "sandbox")
    if _is_root():
        yield from ("--cap-add", "CAP_SETUID", "--cap-add", "CAP_SETGID")
    else:
        yield from ("--unshare-user", "--disable-userns")
    yield from _environment()
    yield from _system()
    yield from ("--proc", "/proc", "--dev", "/dev")
    # To be read both are the same, but to map /dev/zero is to have memory that is shared and belongs to no file.
    yield from ("--dev-bind", "/dev/full", "/dev/zero")
    yield from ("--perms", "1777", "--size", str(_SHARED_MEMORY_MB * _MB), "--tmpfs", "/dev/shm")  # noqa: S108
    yield from ("--perms", "1777", "--size", str(WORK_MB * _MB), "--tmpfs", _WORK, "--symlink", "work", "/tmp")  # noqa: S108
    for fd, path in files.items():
        for parent in reversed(PurePosixPath(path).parents[:-1]):
            yield from ("--perms", "0777", "--dir", f"{_WORK}/{parent}")
        yield from ("--perms", "0644", "--file", str(fd), f"{_WORK}/{path}")
    # The directories that were only made to mount something in are memory too, without a limit: nobody writes there.
    yield from ("--remount-ro", "/dev", "--remount-ro", "/", "--chdir", _WORK)
    if barred is not None:
        yield from ("--seccomp", str(barred))
    yield from ("--json-status-fd", str(telling), "--")


def _environment() -> Iterator[str]:
    path = dict.fromkeys((str(Path(_python()).parent), "/usr/local/bin", "/usr/bin", "/bin"))
    values = {"PATH": ":".join(path), "HOME": _WORK, "TMPDIR": _WORK, "LANG": "C.UTF-8", "PYTHONDONTWRITEBYTECODE": "1"}
    yield "--clearenv"
    for name, value in values.items():
        yield from ("--setenv", name, value)


def _system() -> Iterator[str]:
    """The programs of the machine, and nothing that is somebody's."""
    yield from ("--ro-bind", "/usr", "/usr")
    for name in _DIRECTORIES:
        place = Path("/", name)
        if place.is_symlink():
            yield from ("--symlink", str(place.readlink()), str(place))
        elif place.is_dir():
            yield from ("--ro-bind", str(place), str(place))
    yield from _directory("/etc")
    for name in _OF_ETC:
        yield from ("--ro-bind-try", f"/etc/{name}", f"/etc/{name}")
    prefix = _prefix()
    if not prefix.is_relative_to("/usr"):
        for parent in reversed(prefix.parents[:-1]):
            yield from _directory(str(parent))
        yield from ("--ro-bind", str(prefix), str(prefix))


def _directory(path: str) -> Iterator[str]:
    """An empty directory that anybody can go through; those bubblewrap makes by itself are open to root alone."""
    yield from ("--perms", "0755", "--dir", path)


def _limited(limits: Limits) -> Iterator[str]:
    """What starts the command inside: with the kernel's limits, and as nobody where that is not so by itself.

    The first process is a shell that waits for the command: bubblewrap's own would be left to the machine's first
    process, which in many containers never clears up after others.
    """
    yield from ("/bin/sh", "-c", '"$@"; exit $?', "sh")
    # Stacks of threads count as data in their whole size; what is really held is watched from outside.
    data = limits.memory_bytes + _PROCESSES * _STACK_MB * _MB
    yield from ("prlimit", f"--data={_at_most(RLIMIT_DATA, data)}", f"--cpu={int(limits.timeout_seconds) + 1}")
    yield f"--as={_at_most(RLIMIT_AS, data + _RESERVED_MB * _MB)}"
    yield f"--stack={_at_most(RLIMIT_STACK, _STACK_MB * _MB)}:"
    yield from (f"--fsize={WORK_MB * _MB}", f"--nproc={_PROCESSES}", f"--nofile={_OPEN_FILES}", "--core=0", "--")
    if _is_root():
        user = str(next(_users))
        yield from ("setpriv", "--reuid", user, "--regid", user, "--clear-groups")
        yield from ("--inh-caps=-all", "--bounding-set=-all", "--")


def _at_most(resource: int, wanted: int) -> int:
    """As much as is wanted, or as we have ourselves: only root may give more."""
    _, hard = getrlimit(resource)
    return wanted if hard == RLIM_INFINITY else min(wanted, hard)


def _is_root() -> bool:
    return os.geteuid() == 0


# One after the other from anywhere, so that two runs at once are not counted as one user's.
_users = itertools.chain(
    range(random.choice(_USERS), _USERS.stop),  # noqa: S311  # nothing secret about it
    itertools.cycle(_USERS),
)


def _prefix() -> Path:
    """Where the Python that runs MixSeek is, with its library."""
    return Path(os.path.realpath(sys.base_prefix))


def _python() -> str:
    """The interpreter itself, not the link to it, or the copy, in an environment whose files are not shown."""
    return os.path.realpath(getattr(sys, "_base_executable", "") or sys.executable)
