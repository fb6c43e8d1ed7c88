# ruff: noqa: E501  # a short program is read best on one line
"""Programs that try to get out of a sandbox, or to take more than they are given; a list to read and to add to.

A program that gets what it wants prints ESCAPED. What it could also do without a word (write, connect, start a process,
live on) is looked at from outside.
"""

import asyncio
import os
import socket
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

import pytest

from mixseek.sandbox import BubblewrapSandbox, CodeResult, Limits, MontySandbox, Sandbox, bubblewrap_is_missing
from tests.processes import children_of

ROOMY = Limits(timeout_seconds=30, memory_mb=192, output_chars=5000)
TIGHT = Limits(timeout_seconds=1, memory_mb=96, output_chars=5000)

# One test says what is missing, in test_sandboxes.py.
needs_bubblewrap = pytest.mark.skipif(bubblewrap_is_missing() is not None, reason=str(bubblewrap_is_missing()))
SANDBOXES = [MontySandbox, pytest.param(BubblewrapSandbox, marks=needs_bubblewrap)]


@dataclass(frozen=True)
class Escape:
    """OUTSIDE, SECRET_FILE, PORT, PARENT and MARK in the program are replaced by those of the test."""

    name: str
    code: str


READING = [
    Escape("a secret file", "print('ESCAPED', open('SECRET_FILE').read())"),
    Escape("the accounts", "print('ESCAPED', 'root:' in open('/etc/passwd').read())"),
    Escape("the shadow file", "print('ESCAPED', open('/etc/shadow').read())"),
    Escape("by pathlib", "from pathlib import Path\nprint('ESCAPED', Path('SECRET_FILE').read_text())"),
    Escape("by the io module", "import io\nprint('ESCAPED', io.open('SECRET_FILE').read())"),
    Escape("by descriptors", "import os\nprint('ESCAPED', os.read(os.open('SECRET_FILE', os.O_RDONLY), 100))"),
    Escape(
        "through a symbolic link", "import os\nos.symlink('SECRET_FILE', 'link')\nprint('ESCAPED', open('link').read())"
    ),
    Escape("by climbing up", "print('ESCAPED', open('../../../../../../SECRET_FILE').read())"),
    Escape("through the parent's root", "print('ESCAPED', open('/proc/PARENT/root/SECRET_FILE').read())"),
    Escape("through the first process's root", "print('ESCAPED', open('/proc/1/root/SECRET_FILE').read())"),
    Escape("through the parent's environment", "print('ESCAPED', open('/proc/PARENT/environ').read())"),
    Escape(
        "any secret in any environment that can be seen",
        "import os, glob\n"
        "for path in glob.glob('/proc/*/environ'):\n"
        "    try: text = open(path).read()\n"
        "    except OSError: continue\n"
        "    if 'TEST_API' + '_KEY' in text: print('ESCAPED', text)",
    ),
    Escape("the environment", "import os\nif 'TEST_API_KEY' in os.environ: print('ESCAPED')\nprint(dict(os.environ))"),
    Escape(
        "descriptors it inherited",
        "import os\nfor fd in range(3, 256):\n    try: os.fstat(fd)\n    except OSError: continue\n    print('ESCAPED', fd, os.readlink(f'/proc/self/fd/{fd}'))",
    ),
    Escape(
        "what lies beside the programs that are shown",
        "import os, sys\n"
        "shown = {'alternatives', 'ld.so.cache', 'ld.so.conf', 'ld.so.conf.d', 'localtime'}\n"
        "if set(os.listdir('/etc')) - shown: print('ESCAPED', os.listdir('/etc'))\n"
        "place = sys.base_prefix\n"
        "while not place.startswith('/usr') and os.path.dirname(place) != '/':\n"
        "    place = os.path.dirname(place)\n"
        "    if len(os.listdir(place)) > 1: print('ESCAPED', place, os.listdir(place))",
    ),
    Escape("by mapping memory of the parent", "print('ESCAPED', open('/proc/PARENT/mem', 'rb').read(1))"),
    Escape(
        "by a mount of the disk",
        "import ctypes\n"
        "libc = ctypes.CDLL(None)\n"
        "if libc.mount(b'proc', b'/work', b'proc', 0, None) == 0: print('ESCAPED')",
    ),
    Escape(
        "the devices",
        "import os\nprint('ESCAPED', [d for d in os.listdir('/dev') if d.startswith(('sd', 'vd', 'nvme', 'mem', 'kmsg'))][0])",
    ),
]

WRITING = [
    Escape("a new file outside", "open('OUTSIDE/new', 'w').write('x')\nprint('ESCAPED')"),
    Escape("over a file outside", "open('SECRET_FILE', 'w').write('x')\nprint('ESCAPED')"),
    Escape("into the system", "open('/usr/bin/mixseek-was-here', 'w').write('x')\nprint('ESCAPED')"),
    Escape("into the root", "open('/mixseek-was-here', 'w').write('x')\nprint('ESCAPED')"),
    Escape("removing files", "import shutil\nshutil.rmtree('OUTSIDE')\nprint('ESCAPED')"),
    Escape(
        "renaming out of the work directory",
        "import os\nopen('f', 'w').write('x')\nos.rename('f', 'OUTSIDE/f')\nprint('ESCAPED')",
    ),
    Escape("a hard link to a secret", "import os\nos.link('SECRET_FILE', 'h')\nprint('ESCAPED', open('h').read())"),
    Escape("kernel settings", "open('/proc/sys/kernel/hostname', 'w').write('x')\nprint('ESCAPED')"),
    Escape("the host's name", "import socket\nsocket.sethostname('x')\nprint('ESCAPED')"),
    Escape(
        "making devices",
        "import os, stat\nos.mknod('disk', 0o600 | stat.S_IFBLK, os.makedev(8, 0))\nprint('ESCAPED')",
    ),
    Escape(
        "a set-user-id program",
        "import os\nopen('s', 'w').write('x')\nos.chown('s', 0, 0)\nos.chmod('s', 0o4755)\nprint('ESCAPED')",
    ),
]

REACHING_OUT = [
    Escape(
        "a connection to this machine",
        "import socket\nsocket.create_connection(('127.0.0.1', PORT), 2)\nprint('ESCAPED')",
    ),
    Escape(
        "a web request",
        "import urllib.request\nurllib.request.urlopen('http://127.0.0.1:PORT/', timeout=2)\nprint('ESCAPED')",
    ),
    Escape(
        "a datagram",
        "import socket\ns = socket.socket(type=socket.SOCK_DGRAM)\ns.sendto(b'x', ('192.0.2.1', 53))\nprint('ESCAPED')",
    ),
    Escape("a raw socket", "import socket\nsocket.socket(socket.AF_PACKET, socket.SOCK_RAW)\nprint('ESCAPED')"),
    Escape("by a shell", "import os\nif os.system('exec 3<>/dev/tcp/127.0.0.1/PORT') == 0: print('ESCAPED')"),
    Escape("the parent, with a signal", "import os\nos.kill(PARENT, 9)\nprint('ESCAPED')"),
    Escape("everybody, with a signal", "import os, signal\nsignal.signal(15, signal.SIG_IGN)\nos.kill(-1, 15)"),
    Escape(
        "the parent, with a debugger",
        "import ctypes\nif ctypes.CDLL(None).ptrace(16, PARENT, 0, 0) == 0: print('ESCAPED')",
    ),
    Escape("a name space of its own", "import ctypes\nif ctypes.CDLL(None).unshare(0x10000000) == 0: print('ESCAPED')"),
    Escape(
        "memory that belongs to no process",
        "import os\nfd = os.memfd_create('m')\nos.write(fd, b'x')\nprint('ESCAPED')",
    ),
    Escape("shared memory without a file", "import mmap\nmmap.mmap(-1, 10**6)\nprint('ESCAPED')"),
    Escape(
        "shared memory of a device",
        "import mmap, os\nmmap.mmap(os.open('/dev/zero', os.O_RDWR), 10**6)\nprint('ESCAPED')",
    ),
    Escape("becoming root", "import os\nos.setuid(0)\nprint('ESCAPED')"),
    Escape(
        "asking for rights",
        "import subprocess\nif subprocess.run(['su', '-c', 'true']).returncode == 0: print('ESCAPED')",
    ),
    Escape(
        "higher limits", "import resource\nresource.setrlimit(resource.RLIMIT_NPROC, (10**6, 10**6))\nprint('ESCAPED')"
    ),
]

STAYING = [
    Escape("a background process", "import subprocess\nsubprocess.Popen(['sleep', '600', 'MARK'])"),
    Escape(
        "a daemon",
        "import os, time\n"
        "if os.fork() == 0:\n"
        "    os.setsid()\n"
        "    if os.fork() == 0:\n"
        "        os.execvp('sleep', ['sleep', '600', 'MARK'])",
    ),
    Escape(
        "a process that will not hear",
        "import subprocess\nsubprocess.Popen(['sh', '-c', 'trap \"\" TERM HUP INT; sleep 600; : MARK'])",
    ),
    Escape(
        "a background thread",
        "import threading, time\nthreading.Thread(target=time.sleep, args=(600,), daemon=True).start()",
    ),
]

TRICKS = [
    Escape("walking to all classes", "for c in ().__class__.__base__.__subclasses__():\n    if c.__name__ == 'Popen': c(['touch', 'OUTSIDE/new'])\n    if c.__name__ == '_wrap_close': c.__init__.__globals__['system']('touch OUTSIDE/new')"),
    Escape("globals of a function", "def f(): pass\nf.__globals__['__builtins__'].open('OUTSIDE/new', 'w')\nprint('ESCAPED')"),
    Escape("importing by name", "__import__('os').system('touch OUTSIDE/new')"),
    Escape("importing by importlib", "import importlib\nimportlib.import_module('subprocess').run(['touch', 'OUTSIDE/new'])"),
    Escape("evaluating text", "eval(\"__import__('os').system('touch OUTSIDE/new')\")"),
    Escape("compiled code", "exec(compile(\"import os; os.system('touch OUTSIDE/new')\", 'x', 'exec'))"),
    Escape("fields of a format", "print('{0.__class__.__mro__[1].__subclasses__}'.format(1))\nopen('OUTSIDE/new', 'w')"),
    Escape("frames of an error", "try: 1/0\nexcept ZeroDivisionError as e:\n    f = e.__traceback__.tb_frame\n    while f.f_back: f = f.f_back\n    f.f_builtins['open']('OUTSIDE/new', 'w')"),
    Escape("native code", "import ctypes\nctypes.CDLL(None).system(b'touch OUTSIDE/new')"),
    Escape("a pickle", "import pickle\npickle.loads(b\"cos\\nsystem\\n(S'touch OUTSIDE/new'\\ntR.\")"),
    Escape("a codec", "import codecs\ncodecs.open('OUTSIDE/new', 'w')\nprint('ESCAPED')"),
    Escape("the garbage collector", "import gc\nfor o in gc.get_objects():\n    if getattr(o, '__name__', '') == 'open': o('OUTSIDE/new', 'w')"),
]  # fmt: skip

TOO_MUCH = [
    Escape("an endless loop", "while True: pass"),
    Escape("an endless loop that catches everything", "while True:\n    try:\n        while True: pass\n    except BaseException: pass"),
    Escape("a fork bomb", "import os\nwhile True:\n    try: os.fork()\n    except OSError: pass"),
    Escape("a bomb of shells", "import os\nos.system(':(){ :|:& };:')\nwhile True: pass"),
    Escape("one huge text", "x = 'a' * 10**11\nprint('ESCAPED')"),
    Escape("a list without end", "x = []\nwhile True: x.append('a' * 10000)"),
    Escape("doubling", "x = [0]\nwhile True: x = x + x"),
    Escape("a huge number", "x = 10**10**9\nprint('ESCAPED')"),
    Escape("shifting a number", "x = 1 << (1 << 45)\nprint('ESCAPED')"),
    Escape("a number's digits", "x = str(7 ** (10**7))\nwhile True: pass"),
    Escape("a format's width", "x = f'{1:{10**11}}'\nprint('ESCAPED')"),
    Escape("a regular expression that backtracks", "import re\nfor _ in range(10**9): re.match('(a+)+$', 'a' * 40 + 'b')"),
    Escape("recursion without end", "def f(n): return f(n + 1) + f(n + 2)\nf(0)"),
    Escape("deep nesting", "x = []\nfor _ in range(10**8): x = [x]\nprint(x)"),
    Escape("a deep program", "x = " + "(" * 50_000 + ")" * 50_000),
    Escape("a flood of output", "while True: print('a' * 1000)"),
    Escape("one huge line", "while True: print('a' * 10**6, end='')"),
    Escape("output in tiny pieces", "import sys\nwhile True: print('a', end='', file=sys.stderr)"),
    Escape("filling the work directory", "f = open('big', 'wb')\nfor _ in range(10**6): f.write(b'a' * 10**6)\nprint('ESCAPED')"),
    Escape("many files", "for n in range(10**9): open(f'f{n}', 'w').write('x' * 4096)"),
    Escape("filling shared memory", "f = open('/dev/shm/big', 'wb')\nfor _ in range(10**6): f.write(b'a' * 10**6)\nprint('ESCAPED')"),
    Escape("memory in many processes", "import os, time\nfor _ in range(20):\n    if os.fork() == 0:\n        x = os.urandom(20_000_000)\n        time.sleep(60)\ntime.sleep(60)\nprint('ESCAPED')"),
    Escape("threads without end", "import threading, time\nwhile True: threading.Thread(target=time.sleep, args=(60,)).start()"),
    Escape("sleeping", "import time\nwhile True: time.sleep(60)"),
    Escape("stopping itself", "import os, signal\nos.kill(os.getpid(), signal.SIGSTOP)\nraise SystemExit(1)"),
    Escape("copies that grow when they leave", "x = ['a']\nfor _ in range(40): x = [x, x]\nx\nraise ValueError(x)"),
]  # fmt: skip


@dataclass(frozen=True)
class Surroundings:
    """What a program must not get at."""

    outside: Path
    secret_file: Path
    port: int
    mark: str

    def aimed(self, escape: Escape) -> str:
        replaced = {
            "'ESCAPED'": "'ESC' + 'APED'",  # a traceback shows the line it stands in
            "OUTSIDE": self.outside,
            "SECRET_FILE": self.secret_file,
            "PORT": self.port,
            "PARENT": os.getpid(),
            "MARK": self.mark,
        }
        code = escape.code
        for name, value in replaced.items():
            code = code.replace(name, str(value))
        return code


@pytest.fixture
def around(monkeypatch: pytest.MonkeyPatch) -> Iterator[Surroundings]:
    """A directory anybody may read and write, whatever number a sandbox gives its user: only the sandbox keeps it."""
    monkeypatch.setenv("TEST_API_KEY", "the secret of the environment")
    with tempfile.TemporaryDirectory(dir="/tmp") as made, socket.create_server(("127.0.0.1", 0)) as server:
        outside, secret = Path(made), Path(made) / "secret.txt"
        secret.write_text("the secret of the file")
        secret.chmod(0o666)
        outside.chmod(0o777)
        server.setblocking(False)
        yield Surroundings(outside, secret, server.getsockname()[1], f"mark-{uuid4().hex}")
        with pytest.raises(BlockingIOError):
            server.accept()
        assert [path.name for path in outside.iterdir()] == ["secret.txt"]
        assert secret.read_text() == "the secret of the file"


def _processes_with(mark: str) -> list[str]:
    found = []
    for place in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if mark in place.read_text(errors="replace"):
                found.append(place.parent.name)
        except OSError:
            continue
    return found


async def _tried(sandbox: Sandbox, escape: Escape, around: Surroundings) -> CodeResult:
    before = children_of()
    async with asyncio.timeout(60):
        result = await sandbox.run_python(around.aimed(escape))
    assert "ESCAPED" not in result.output
    assert "the secret of" not in result.output
    assert children_of() == before
    assert _processes_with(around.mark) == []
    return result


def _named(escape: Escape) -> str:
    return escape.name.replace(" ", "-")


@pytest.mark.parametrize("kind", SANDBOXES)
@pytest.mark.parametrize("escape", READING + WRITING + REACHING_OUT + STAYING + TRICKS, ids=_named)
async def test_nothing_is_read_written_reached_started_or_kept_outside(
    kind: type[MontySandbox | BubblewrapSandbox], escape: Escape, around: Surroundings
) -> None:
    result = await _tried(kind(ROOMY), escape, around)
    assert result.limit is None


@pytest.mark.parametrize("kind", SANDBOXES)
@pytest.mark.parametrize("escape", TOO_MUCH, ids=_named)
async def test_what_takes_too_much_ends_at_a_limit_or_in_an_error(
    kind: type[MontySandbox | BubblewrapSandbox], escape: Escape, around: Surroundings
) -> None:
    result = await _tried(kind(TIGHT), escape, around)
    assert not result.succeeded
    assert len(result.output) <= TIGHT.output_chars


@pytest.mark.parametrize("kind", SANDBOXES)
async def test_a_run_leaves_nothing_to_the_next(kind: type[MontySandbox | BubblewrapSandbox]) -> None:
    sandbox = kind(ROOMY)
    await sandbox.run_python("kept = 1\nimport builtins\nbuiltins.kept = 1")
    await sandbox.run_python("for place in ('/work', '/tmp', '/dev/shm'): open(place + '/kept', 'w').write('x')")
    found = await sandbox.run_python(
        "try:\n    kept\n    print('KEPT')\nexcept NameError: print('no name')\n"
        "for place in ('/work', '/tmp', '/dev/shm'):\n"
        "    try: print('KEPT', open(place + '/kept').read())\n"
        "    except OSError: print('no file')"
    )
    assert found.output == "no name\nno file\nno file\nno file\n"
