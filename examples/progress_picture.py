"""Plays a competition in a terminal of its own and makes a picture of its progress: python progress_picture.py FILE.png

The models are answers of a server on this machine; the command and the terminal are real. Needs Chromium, which turns
the terminal's text into pixels.
"""

import fcntl
import io
import os
import pty
import re
import shutil
import struct
import subprocess
import sys
import tempfile
import termios
from collections.abc import Callable, Iterator
from pathlib import Path

from rich.console import Console
from rich.terminal_theme import SVG_EXPORT_THEME
from rich.text import Text

from mixseek.testing import AnswerLike, ModelCall, ModelServer, write_workspace

COLUMNS, ROWS = 100, 26
TEAMS = {"a": "Careful readers", "b": "Quick drafts", "c": "東京チーム", "d": "Skeptics", "e": "Two heads"}
SCORES = {
    "a": [71.5, 78.0, 84.5],
    "b": [64.0, 62.5, 73.0],
    "c": [75.0, 81.5, 80.0],
    "d": [58.0, 66.0, 69.5],
    "e": [61.0, 77.5, 79.0],
}
WORDS = [
    "three uses, each with a reason; the second lacks a source",
    "clear and short, but two of the uses are the same one",
    "says who uses it and since when; the best part is on paper",
]
MODELS = [*(f"leader-{team}" for team in TEAMS), "researcher", "critic", "judge", "judgment"]
MEMBER = '\n[[team.members]]\nname = "{0}"\ntype = "plain"\nmodel = "loopback:{0}"\ndescription = "A {0}."\n'
PRICE = '\n[prices."loopback:{0}"]\ninput_usd_per_million = 0.4\noutput_usd_per_million = 1.6\n'
METRIC = '[[metrics]]\nname = "Judge"\ntype = "LLMPlain"\nsystem_instruction = "Score it."\n'
PAGE = """<meta charset="utf-8"><style>
body {{ background: {background}; color: {foreground}; margin: 24px 30px; }}
pre {{ font: 16.6px/22px "DejaVu Sans Mono", Menlo, monospace; margin: 0; }}
i {{ display: inline-block; width: 2ch; font-style: normal; line-height: 1; }}
</style><pre>{code}</pre>"""
# One picture replaces another: up to where that began, and everything from there on erased.
REPAINT = re.compile(r"(?:\x1b\[(\d+)A)?\r\x1b\[J")


def main(target: Path) -> None:
    """Play, and keep the picture of the moment when most was to be seen."""
    with ModelServer() as server, tempfile.TemporaryDirectory() as directory:
        workspace = Path(directory)
        write(workspace, server)
        screens = list(screens_of(played(workspace)))
        print_pixels(max(screens, key=interest), target, workspace)


def write(workspace: Path, server: ModelServer) -> None:
    """The workspace of the teams, and how their models answer."""
    orchestrator = write_workspace(
        workspace,
        teams=len(TEAMS),
        max_rounds=4,
        base_url=server.base_url,
        orchestrator="max_concurrent_teams = 4",
        evaluator=METRIC,
    )
    orchestrator.write_text(orchestrator.read_text() + "".join(map(PRICE.format, MODELS)))
    for number, (team, name) in enumerate(TEAMS.items()):
        file = workspace / "configs" / "agents" / f"team-{team}.toml"
        text = re.sub("team_name = .*", f'team_name = "{name}"', file.read_text())
        file.write_text(text + MEMBER.format("researcher") + MEMBER.format("critic"), encoding="utf-8")
        server.set_latency(0.5 + 0.15 * number, jitter=0.3, model=f"leader-{team}")
    server.set_latency(0.9, jitter=0.6, model="researcher")
    server.set_latency(0.7, jitter=0.6, model="critic")
    server.on("judge", judge())


def judge() -> Callable[[ModelCall], AnswerLike]:
    """Gives each team the next of its scores; answers name the leader who wrote them."""
    left = {team: iter(zip(scores, WORDS, strict=True)) for team, scores in SCORES.items()}

    def score(call: ModelCall) -> AnswerLike:
        found = re.search("leader-([a-e])", call.prompt)
        number, words = next(left[found[1]] if found else iter(()), (70.0, WORDS[0]))
        return {"evaluator_comment": words, "score": number}

    return score


def played(workspace: Path) -> str:
    """All that the command wrote to its terminal."""
    outside, inside = pty.openpty()
    fcntl.ioctl(inside, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
    command = [sys.executable, "-m", "mixseek", "exec", "Name three uses of bamboo.", "-w", str(workspace)]
    environment = {**os.environ, "TERM": "xterm-256color", "PYTHONIOENCODING": "utf-8"}
    with subprocess.Popen(command, stdin=inside, stdout=subprocess.DEVNULL, stderr=inside, env=environment):  # noqa: S603
        os.close(inside)
        written = b"".join(iter(lambda: piece(outside), b""))
    os.close(outside)
    return written.decode().replace("\r\n", "\n")


def piece(terminal: int) -> bytes:
    """The next of what was written; nothing when the other side is closed."""
    try:
        return os.read(terminal, 65536)
    except OSError:
        return b""


def screens_of(written: str) -> Iterator[list[str]]:
    """The lines of the terminal after each time it was painted."""
    lines: list[str] = []
    frames = REPAINT.split(written)
    for up, text in zip([None, *frames[1::2]], frames[::2], strict=True):
        lines = [*lines[: len(lines) - 1 - int(up or 0)], *text.split("\n")]
        yield lines


def interest(lines: list[str]) -> tuple[bool, int, int]:
    """A picture in which teams are at different things and some rounds have scrolled by."""
    text = Text.from_ansi("\n".join(lines)).plain
    phases = sum(phase in text for phase in ("waiting", "member ", "leader ", "evaluating", "judging", "finished"))
    rounds = text.count(": round ")
    return (" Phase " in text and 7 <= rounds <= 11, phases, rounds)


def print_pixels(lines: list[str], target: Path, directory: Path) -> None:
    """The lines as a terminal shows them, in a PNG file."""
    console = Console(record=True, width=COLUMNS, file=io.StringIO(), force_terminal=True)
    console.print(Text.from_ansi("\n".join(lines[-ROWS:])), soft_wrap=True)
    page = console.export_html(theme=SVG_EXPORT_THEME, inline_styles=True, code_format=PAGE)
    # A terminal gives every wide letter two cells, whatever font it comes from.
    page = re.sub("[\u3040-\u30ff\u4e00-\u9fff]", r"<i>\g<0></i>", page)
    drawing = directory / "progress.html"
    drawing.write_text(page, encoding="utf-8")
    browser = shutil.which("chromium") or shutil.which("google-chrome") or "chromium"
    size = f"--window-size={COLUMNS * 10 + 60},{len(lines[-ROWS:]) * 22 + 48}"
    command = [browser, "--headless", "--no-sandbox", "--hide-scrollbars", size, f"--screenshot={target.resolve()}"]
    subprocess.run([*command, drawing.as_uri()], check=True, timeout=120, stderr=subprocess.DEVNULL)  # noqa: S603


if __name__ == "__main__":
    main(Path(sys.argv[1]))
