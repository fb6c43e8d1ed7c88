"""What is forked is a process as ``subprocess`` would have started it."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from soak import forked
from tests.terminals import Terminal

SAFETY_SECONDS = 60
TELL = """
import json, os, signal, sys
print(json.dumps({
    "argv": sys.argv, "path": sys.path, "cwd": os.getcwd(), "environment": {**os.environ},
    "encoding": [sys.stdin.encoding, sys.stdout.encoding, sys.stdout.errors, sys.stderr.errors],
    "buffered": sys.stdout.line_buffering, "name": __name__, "main": sys.modules["__main__"].__name__,
    "interrupt": signal.getsignal(signal.SIGINT) is signal.default_int_handler,
    "open": sorted(int(each) for each in os.listdir("/proc/self/fd"))[:-1],
}))
"""
ENVIRONMENT = {"PYTHONPATH": "/elsewhere:/nowhere", "PYTHONIOENCODING": "ascii:replace", "A": "\udcff", "PATH": "/bin"}


@pytest.mark.parametrize("arguments", [("-c", TELL, "x", "é"), ("tell.py", "x"), ("-m", "tell", "x")])
def test_it_runs_as_python_runs_it(arguments: tuple[str, ...], tmp_path: Path) -> None:
    (tmp_path / "tell.py").write_text(TELL)
    told: list[Any] = []
    for module in (subprocess, forked):
        ran = module.run(
            [sys.executable, *arguments],
            cwd=tmp_path, env=ENVIRONMENT, input="", capture_output=True, text=True, timeout=SAFETY_SECONDS, check=True,
        )  # fmt: skip
        told.append(json.loads(ran.stdout))
    real, ours = told
    # Names that Python gives itself while it starts.
    ours["environment"] |= {name: real["environment"][name] for name in {"LC_CTYPE"} & set(real["environment"])}
    # Jobs in the background of a shell, and what they start, ignore it; what is forked never does.
    assert ours["interrupt"]
    assert ours == {**real, "interrupt": True}


def test_it_has_its_exit_code_and_its_exit_functions() -> None:
    code = "import atexit, sys; atexit.register(print, 'over'); print('begun'); sys.exit('no')"
    ran = forked.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=SAFETY_SECONDS)
    assert (ran.returncode, ran.stdout, ran.stderr) == (1, "begun\nover\n", "no\n")


def test_an_error_is_shown_as_python_shows_it() -> None:
    ran = forked.run(
        [sys.executable, "-c", "raise KeyError('x')"], capture_output=True, text=True, timeout=SAFETY_SECONDS
    )
    assert ran.returncode == 1
    assert ran.stderr.endswith("KeyError: 'x'\n")


def test_it_can_be_signalled_killed_and_waited_for() -> None:
    code = "import time; print(1, flush=True); time.sleep(60)"
    with forked.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "1\n"
        assert child.poll() is None
        with pytest.raises(subprocess.TimeoutExpired):
            child.wait(0.01)
        child.send_signal(signal.SIGKILL)
        assert child.wait(SAFETY_SECONDS) == -signal.SIGKILL
        assert not Path(f"/proc/{child.pid}").exists()


def test_one_in_a_terminal_gets_the_ctrl_c_that_is_typed() -> None:
    code = "import time; print('begun', flush=True); time.sleep(60)"
    with Terminal([sys.executable, "-c", code], env=dict(os.environ)) as terminal:
        terminal.until(lambda: "begun" in terminal.text())
        terminal.type("\x03")
        assert terminal.wait() == -signal.SIGINT


def test_in_a_shell_it_has_the_streams_the_end_and_the_signals_of_the_program_that_stands_for_it() -> None:
    code = "import os, sys; print(sys.stdin.read().upper()); sys.stdout.flush(); os.kill(os.getpid(), int(sys.argv[1]))"
    line = f"({forked.shell_command('-c', code)} 15) | tr O 0; echo ${{PIPESTATUS[0]}}"
    ran = subprocess.run(["bash", "-c", line], input="hello", capture_output=True, text=True, timeout=SAFETY_SECONDS)
    assert ran.stdout == "HELL0\n143\n", ran.stderr
    asking = subprocess.Popen(["bash", "-c", forked.shell_command("-c", "import time; time.sleep(60)")])
    asking.terminate()
    assert asking.wait(SAFETY_SECONDS) == -signal.SIGTERM
