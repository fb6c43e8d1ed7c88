"""What both sandboxes do with ordinary programs, and how they are ended."""

import asyncio
import os
import platform
import resource
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from mixseek.errors import ConfigurationError, SandboxError
from mixseek.sandbox import BubblewrapSandbox, CodeResult, Limits, MontySandbox, bubblewrap_is_missing
from mixseek.sandbox.results import LONGEST_CODE
from mixseek.sandbox.seccomp import system_call_filter
from tests.processes import children_of

# One test, below, says what is missing.
needs_bubblewrap = pytest.mark.skipif(bubblewrap_is_missing() is not None, reason=str(bubblewrap_is_missing()))
SANDBOXES = [MontySandbox, pytest.param(BubblewrapSandbox, marks=needs_bubblewrap)]
Kind = type[MontySandbox | BubblewrapSandbox]

both = pytest.mark.parametrize("kind", SANDBOXES)


def test_bubblewrap_runs_here_so_that_its_tests_are_not_skipped() -> None:
    assert bubblewrap_is_missing() is None


@both
async def test_what_a_program_prints_comes_back(kind: Kind) -> None:
    ran = await kind().run_python("import math, json\nprint('東京', math.comb(10, 3))\nprint(json.dumps({'a': [1]}))")
    assert ran == CodeResult('東京 120\n{"a": [1]}\n', 0)
    assert ran.succeeded


@both
async def test_an_error_is_told_like_python_tells_it(kind: Kind) -> None:
    ran = await kind().run_python("print('first')\n1 / 0")
    assert (ran.exit_code, ran.limit, ran.succeeded) == (1, None, False)
    assert ran.output.startswith("first\nTraceback")
    assert ran.output.endswith("ZeroDivisionError: division by zero\n")


@both
async def test_a_program_that_is_none_is_told_so(kind: Kind) -> None:
    ran = await kind().run_python("def (:")
    assert ran.exit_code == 1
    assert "SyntaxError" in ran.output


@both
async def test_a_program_without_text_or_with_any_text_is_no_trouble(kind: Kind) -> None:
    assert await kind().run_python("") == CodeResult("", 0)
    assert (await kind().run_python("print('\ud800')")).exit_code == 1


@both
async def test_a_program_of_any_length_is_not_parsed(kind: Kind) -> None:
    ran = await kind().run_python("#" * (LONGEST_CODE + 1))
    assert ran.exit_code == 1
    assert "at most 200000" in ran.output


@both
async def test_a_run_ends_after_its_time(kind: Kind) -> None:
    started = time.monotonic()
    ran = await kind(Limits(timeout_seconds=1)).run_python("while True: pass")
    assert (ran.limit, ran.exit_code) == ("time", None)
    assert 1 <= time.monotonic() - started < 20


@both
async def test_a_run_has_so_much_memory_and_no_more(kind: Kind) -> None:
    assert (await kind(Limits(memory_mb=400)).run_python("print(len('a' * 100_000_000))")).succeeded
    ran = await kind(Limits(memory_mb=64)).run_python("print(len('a' * 1_000_000_000))")
    assert not ran.succeeded
    assert "MemoryError" in ran.output


HOLDING = {
    "at once": "x = bytearray(b'1') * 150_000_000\ntime.sleep(60)",
    "bit by bit": "x = []\nwhile len(x) < 150: x.append(bytearray(b'1') * 1_000_000)\ntime.sleep(60)",
    "in a thread that outlives the first": (
        "def hold():\n    time.sleep(0.2)\n    x = bytearray(b'1') * 150_000_000\n    time.sleep(60)\n"
        "threading.Thread(target=hold).start()\nctypes.CDLL(None).pthread_exit(None)"
    ),
}


@needs_bubblewrap
@pytest.mark.parametrize("code", HOLDING.values(), ids=HOLDING)
async def test_a_program_that_holds_more_than_its_memory_is_ended(code: str) -> None:
    ran = await BubblewrapSandbox(Limits(memory_mb=64)).run_python(f"import ctypes, threading, time\n{code}")
    assert ran.limit == "memory"


@needs_bubblewrap
@pytest.mark.skipif(os.geteuid() != 0, reason="only root has rights to give up")
def test_memory_is_counted_without_the_right_to_look_into_processes() -> None:
    anybody = ["setpriv", "--reuid=61000", "--regid=61000", "--clear-groups", "--", "sleep", "60"]
    without_rights = ["setpriv", "--bounding-set=-all", "--inh-caps=-all", "--", sys.executable, "-c"]
    with subprocess.Popen(anybody) as looked_at:
        code = f"from mixseek.sandbox.processes import _memory_of\nprint(_memory_of({looked_at.pid}, enough=0) > 0)"
        try:
            told = subprocess.run([*without_rights, code], capture_output=True, text=True, check=True).stdout
        finally:
            looked_at.kill()
    assert told == "True\n"


@needs_bubblewrap
async def test_memory_is_counted_over_all_processes_of_a_run() -> None:
    held = (
        "import os, time\nfor _ in range(8):\n    if os.fork() == 0:\n        x = os.urandom(30_000_000)\n"
        "        time.sleep(60)\ntime.sleep(60)"
    )
    assert (await BubblewrapSandbox(Limits(memory_mb=128)).run_python(held)).limit == "memory"


@needs_bubblewrap
async def test_pages_that_processes_share_are_counted_once() -> None:
    shared = (
        "import os, time\nx = os.urandom(40_000_000)\nchildren = []\n"
        "for _ in range(8):\n    pid = os.fork()\n    if pid == 0:\n        time.sleep(0.5)\n        os._exit(0)\n"
        "    children.append(pid)\nfor pid in children: os.waitpid(pid, 0)\nprint('done')"
    )
    assert (await BubblewrapSandbox(Limits(memory_mb=128)).run_python(shared)).output == "done\n"


@both
async def test_only_the_beginning_of_much_output_is_kept_and_the_program_goes_on(kind: Kind) -> None:
    ran = await kind(Limits(output_chars=1000)).run_python("for n in range(2000): print('あ' * 9)\nassert n == 1999")
    assert ran == CodeResult(("あ" * 9 + "\n") * 100, 0, is_cut=True)


@needs_bubblewrap
async def test_a_flood_of_output_ends_the_run() -> None:
    ran = await BubblewrapSandbox().run(["yes"])
    assert (ran.limit, ran.exit_code, ran.is_cut) == ("output", None, True)


@both
async def test_cancelling_ends_the_run_at_once_and_leaves_no_process(kind: Kind) -> None:
    before = children_of()
    running = asyncio.create_task(kind(Limits(timeout_seconds=600)).run_python("while True: pass"))
    async with asyncio.timeout(30):
        await asyncio.sleep(0.5)
        assert children_of() != before
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
    assert children_of() == before


@needs_bubblewrap
async def test_cancelling_ends_those_who_wait_in_line_too() -> None:
    before = children_of()
    sandbox = BubblewrapSandbox(Limits(timeout_seconds=600))
    runs = [asyncio.create_task(sandbox.run_python("while True: pass")) for _ in range(20)]
    await asyncio.sleep(0.5)
    assert len(children_of() - before) <= max(2, os.cpu_count() or 1)
    for run in runs:
        run.cancel()
    async with asyncio.timeout(30):
        ended = await asyncio.gather(*runs, return_exceptions=True)
    assert all(isinstance(each, asyncio.CancelledError) for each in ended)
    assert children_of() == before


@both
async def test_the_loop_goes_on_while_code_runs(kind: Kind) -> None:
    running = asyncio.create_task(kind(Limits(timeout_seconds=1)).run_python("while True: pass"))
    longest = 0.0
    while not running.done():
        started = time.monotonic()
        await asyncio.sleep(0.01)
        longest = max(longest, time.monotonic() - started)
    assert longest < 0.9


@both
async def test_runs_at_the_same_time_do_not_mix(kind: Kind) -> None:
    ran = await asyncio.gather(*(kind().run_python(f"print({n})") for n in range(12)))
    assert [each.output for each in ran] == [f"{n}\n" for n in range(12)]


FIRST = """
import asyncio, sysconfig, time
from mixseek.sandbox import MontySandbox

async def both():
    return await asyncio.gather(*(MontySandbox().run_python(f"print({n})") for n in range(2)))

def slowly(values, found=sysconfig._init_posix):
    time.sleep(0.5)
    found(values)

sysconfig._init_posix = slowly
print([ran.output for ran in asyncio.run(both())])
"""


def test_the_first_two_runs_of_a_process_may_begin_at_once() -> None:
    ran = subprocess.run([sys.executable, "-c", FIRST], capture_output=True, text=True, check=False)
    assert (ran.stdout, ran.stderr) == ("['0\\n', '1\\n']\n", "")


# --- bubblewrap alone -----------------------------------------------------------------------------------------------


@needs_bubblewrap
async def test_the_full_standard_library_and_a_work_directory_are_there() -> None:
    code = (
        "import csv, multiprocessing, os, sqlite3, subprocess, tempfile\n"
        "with tempfile.NamedTemporaryFile('w') as file: file.write('x')\n"
        "print(os.getcwd(), sqlite3.connect('db').execute('select 1').fetchone())\n"
        "print(subprocess.run(['echo', 'hello'], capture_output=True, text=True).stdout.strip())\n"
        "with multiprocessing.Pool(2) as pool: print(pool.map(abs, [-1, 2]))"
    )
    assert (await BubblewrapSandbox().run_python(code)).output == "/work (1,)\nhello\n[1, 2]\n"


@needs_bubblewrap
async def test_the_python_that_runs_mixseek_runs_inside_and_starts_itself() -> None:
    code = "import subprocess, sys\nprint(sys.version, flush=True)\nsubprocess.run([sys.executable, '-V'], check=True)"
    assert (await BubblewrapSandbox().run_python(code)).output == f"{sys.version}\nPython {platform.python_version()}\n"
    ran = await BubblewrapSandbox().run(["python3", "-c", "import sys; print(sys.version)"])
    assert ran.output == f"{sys.version}\n"


@needs_bubblewrap
async def test_what_programs_look_up_in_etc_can_be_read() -> None:
    told = await BubblewrapSandbox().run(["sh", "-c", "ls /etc && cat /etc/ld.so.cache > copy"])
    assert told.succeeded, told.output


@needs_bubblewrap
def test_a_python_that_cannot_run_inside_is_told_with_its_place(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    hidden = shutil.copy(os.path.realpath(sys.executable), tmp_path / "python")
    monkeypatch.setattr(sys, "_base_executable", str(hidden))
    bubblewrap_is_missing.cache_clear()
    try:
        assert f"the Python that runs MixSeek, {str(hidden)!r}, cannot run" in str(bubblewrap_is_missing())
    finally:
        bubblewrap_is_missing.cache_clear()


@needs_bubblewrap
async def test_a_run_has_so_many_processes_and_no_more() -> None:
    code = (
        "import os, time\nstarted = 0\ntry:\n    while started < 200:\n        if os.fork() == 0: time.sleep(60)\n"
        "        started += 1\nexcept BlockingIOError: print(started)"
    )
    ran = await asyncio.gather(*(BubblewrapSandbox().run_python(code) for _ in range(2)))
    # Each run is counted for itself; the interpreter is one of the 32, and root's shell may be another.
    assert all(30 <= int(each.output) <= 31 for each in ran)


@needs_bubblewrap
@pytest.mark.parametrize("memory_mb", [64, 256, 1024])
async def test_threads_that_only_reserve_memory_are_not_held_to_hold_it(memory_mb: int) -> None:
    code = (
        "import threading\ntogether = threading.Barrier(29)\n"
        "for _ in range(28): threading.Thread(target=together.wait).start()\ntogether.wait()\nprint('done')"
    )
    assert (await BubblewrapSandbox(Limits(memory_mb=memory_mb)).run_python(code)).output == "done\n"


@needs_bubblewrap
async def test_memory_shared_by_a_file_and_endless_zeros_are_there() -> None:
    code = (
        "import multiprocessing\nfrom multiprocessing.shared_memory import SharedMemory\n"
        "number = multiprocessing.Value('i', 1)\nshared = SharedMemory(create=True, size=8)\n"
        "def work():\n    number.value, shared.buf[0] = 2, 3\n"
        "child = multiprocessing.Process(target=work)\nchild.start()\nchild.join()\n"
        "print(number.value, shared.buf[0], open('/dev/zero', 'rb').read(2))\nshared.close()\nshared.unlink()"
    )
    assert (await BubblewrapSandbox().run_python(code)).output == "2 3 b'\\x00\\x00'\n"


@pytest.fixture
def many_open_files() -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 2000), hard))
    opened = [os.open(os.devnull, os.O_RDONLY) for _ in range(1100)]
    yield
    for fd in opened:
        os.close(fd)
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@both
@pytest.mark.usefixtures("many_open_files")
async def test_code_runs_in_a_process_with_many_connections(kind: Kind) -> None:
    assert (await kind().run_python("print('hello')")).output == "hello\n"


@needs_bubblewrap
async def test_a_command_runs_among_the_files_it_is_given() -> None:
    files = {"data.txt": b"three\nlines\nof text\n", "sub/dir/more.txt": b"\xff\x00"}
    command = ["sh", "-c", "wc -l < data.txt; od -An -tx1 sub/dir/more.txt; echo new > sub/dir/new; exit 7"]
    ran = await BubblewrapSandbox().run(command, files)
    assert ran == CodeResult("3\n ff 00\n", 7)


@needs_bubblewrap
async def test_a_command_that_does_not_exist_fails_like_in_a_shell() -> None:
    ran = await BubblewrapSandbox().run(["no-such-program"])
    assert ran.exit_code == 127
    assert "no-such-program" in ran.output


@needs_bubblewrap
async def test_a_command_that_is_killed_ends_like_in_a_shell() -> None:
    assert (await BubblewrapSandbox().run(["sh", "-c", "kill -9 $$"])).exit_code == 128 + 9


@needs_bubblewrap
async def test_files_that_do_not_fit_are_the_sandboxs_failure_not_the_codes() -> None:
    with pytest.raises(SandboxError, match="could not set up"):
        await BubblewrapSandbox().run(["true"], {"big": b"x" * 100_000_000})


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
def test_the_filter_of_system_calls_is_whole_steps_that_end_with_leave(machine: str) -> None:
    program = system_call_filter(machine)
    assert program is not None
    assert len(program) % 8 == 0
    assert program[-8:] == bytes.fromhex("060000000000ff7f")


def test_a_machine_whose_calls_are_numbered_otherwise_has_no_filter() -> None:
    assert system_call_filter("sparc") is None


async def test_without_bubblewrap_one_is_told_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    bubblewrap_is_missing.cache_clear()
    try:
        with pytest.raises(ConfigurationError, match="apt-get install bubblewrap"):
            await BubblewrapSandbox().run(["true"])
    finally:
        bubblewrap_is_missing.cache_clear()


# --- the end of the whole process -----------------------------------------------------------------------------------

KILLED = """
import asyncio, sys
from mixseek.sandbox import BubblewrapSandbox, Limits, MontySandbox

kind = {"monty": MontySandbox, "bubblewrap": BubblewrapSandbox}[sys.argv[1]]
print("ready", flush=True)
asyncio.run(kind(Limits(timeout_seconds=int(sys.argv[2]))).run_python("while True: pass"))
"""


def _descendants(pid: int) -> set[int]:
    found, unseen = set[int](), [pid]
    while unseen:
        children = children_of(unseen.pop())
        unseen += children
        found |= children
    return found


def _is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except FileNotFoundError:
        return False


@pytest.mark.parametrize(
    ("kind", "seconds"),
    [
        ("monty", 4),  # its worker notices after its own limit at the latest
        pytest.param("bubblewrap", 600, marks=needs_bubblewrap),
    ],
)
def test_when_the_process_is_killed_its_code_ends_too(kind: str, seconds: int) -> None:
    with subprocess.Popen([sys.executable, "-c", KILLED, kind, str(seconds)], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        deadline = time.monotonic() + 60
        while not (started := _descendants(process.pid)) and time.monotonic() < deadline:
            time.sleep(0.05)
        time.sleep(1)
        started |= _descendants(process.pid)
        assert started
        process.kill()
    while any(map(_is_running, started)) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not any(map(_is_running, started))
