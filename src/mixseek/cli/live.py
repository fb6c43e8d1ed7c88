"""Progress while it happens: a picture of all teams at the bottom of a terminal, or a line for every event elsewhere.

A listener must be quick, so an event is only put aside when it happens; a thread looks a few times a second at what
has come, and paints. Whatever else is written meanwhile (log lines, warnings, what members print) goes through the
same thread and scrolls by above the picture. The cursor is never hidden, so that a process that is killed leaves a
terminal as it should be.
"""

import io
import os
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, redirect_stderr, redirect_stdout, suppress
from typing import Any, TextIO

from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from mixseek.cli.chart import fit, in_ascii, number
from mixseek.cli.display import Display
from mixseek.cli.output import clean, clean_text, warn, writes_all
from mixseek.cli.progress import Progress, words_of
from mixseek.events import (
    BudgetLow,
    Event,
    RoundFailed,
    RoundFinished,
    RoundJudged,
    RunFinished,
    TeamFailed,
    TeamStarted,
)
from mixseek.redaction import Redactor

__all__ = ["harmless_prints", "is_live", "showing"]

_TICK_SECONDS = 0.1
# With hundreds of teams a picture takes milliseconds; the run has the processor for the rest of the time.
_REST_FOR_WORK = 25
_LAST_PAINT_SECONDS = 5.0
_LONGEST_LINE = 100_000


def is_live(stream: TextIO) -> bool:
    """Whether a picture can be painted there: a terminal that knows how to move its cursor."""
    try:
        return stream.isatty() and os.environ.get("TERM", "") not in ("", "dumb", "unknown")
    except ValueError:  # it is closed
        return False


@contextmanager
def showing(redactor: Redactor | None = None) -> Iterator[Progress]:
    """A listener that shows a run on standard error; what is printed inside stays out of standard output.

    ::

        with showing(redactor) as progress:
            asyncio.run(Orchestrator(settings, listeners=[progress]).execute(task))
    """
    redactor = redactor or Redactor([])
    if not is_live(sys.stderr):
        with harmless_prints(redactor):
            yield Progress(lambda line: warn(redactor.text(line)))
        return
    with _Painter(sys.stderr, redactor) as painter:
        yield Progress(lambda _: None, also=painter.hear)


@contextmanager
def harmless_prints(redactor: Redactor) -> Iterator[None]:
    """What members and metrics of others print goes to standard error, without secrets and codes that steer a terminal.

    It must not end up in the result on standard output either.
    """
    stream = sys.stderr

    def tell(line: str) -> None:
        with suppress(OSError, ValueError):  # nobody reads it any more
            stream.write(_in_letters_of(stream, clean_text(redactor.text(line))) + "\n")
            stream.flush()

    with _taking_prints(tell, stream, is_terminal=False):
        yield


@contextmanager
def _taking_prints(tell: Callable[[str], None], stream: TextIO, *, is_terminal: bool) -> Iterator[None]:
    """Hand on what is printed inside, on either stream, line by line."""
    printed = _Printed(tell, stream, is_terminal=is_terminal)
    text = io.TextIOWrapper(printed, encoding="utf-8", errors="backslashreplace", write_through=True)  # type: ignore[type-var]
    with redirect_stdout(text), redirect_stderr(text):
        try:
            yield
        finally:
            printed.finish()


def _in_letters_of(stream: TextIO, text: str) -> str:
    return text if writes_all(stream) else text.encode(stream.encoding, "backslashreplace").decode(stream.encoding)


class _Painter:
    """The thread that paints, and what it paints."""

    def __init__(self, stream: TextIO, redactor: Redactor) -> None:
        self._stream = stream
        self._redactor = redactor
        self._console = Console(file=stream, force_terminal=True, highlight=False, markup=False, emoji=False)
        self._display = Display(harmless=redactor.text)
        self._news: deque[tuple[float, Event] | str] = deque()
        self._painted: list[int] = []
        """How many cells each line of the picture takes that is on the screen now."""
        self._width = self._console.width
        self._second = -1
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._work, name="mixseek.live", daemon=True)
        self._around = ExitStack()

    def __enter__(self) -> "_Painter":
        self._around.enter_context(_taking_prints(self.tell, self._stream, is_terminal=True))
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._around.close()
        self._ends.set()
        # A terminal that is held with Ctrl-S takes nothing; the run must be able to end.
        self._thread.join(_LAST_PAINT_SECONDS)

    def hear(self, event: Event) -> None:
        """Put an event aside for the next picture."""
        self._news.append((time.monotonic(), event))

    def tell(self, line: str) -> None:
        """Let a line scroll by above the picture, or, when that is over, write it as it comes."""
        if self._ends.is_set():
            warn(self._redactor.text(line))
        else:
            self._news.append(line)

    # --- the thread ---------------------------------------------------------------------------------------------------

    def _work(self) -> None:
        try:
            pause = _TICK_SECONDS
            while not self._ends.wait(pause):
                begun = time.thread_time()
                self._tick()
                pause = max(_TICK_SECONDS, _REST_FOR_WORK * (time.thread_time() - begun))
            self._paint(self._taken_in(), last=True)
        except (OSError, ValueError):
            # The terminal is gone; the run goes on without it.
            return

    def _tick(self) -> None:
        """Paint if there is anything new, at least the time."""
        second = int(time.monotonic())
        if self._news or second != self._second or self._console.width != self._width:
            self._second = second
            self._paint(self._taken_in())

    def _taken_in(self) -> list[Text]:
        """What has come since the last picture; the lines of it that scroll by."""
        lines = []
        while self._news:
            news = self._news.popleft()
            if isinstance(news, str):
                lines.append(Text(clean_text(self._redactor.text(news))))
            else:
                self._display.hear(news[1], news[0])
                lines += self._line(news[1])
        return lines

    def _line(self, event: Event) -> list[Text]:
        """What is left to read of an event when the picture has moved on."""
        match event:
            case RoundFinished():
                return [self._round(event)]
            case TeamStarted(retry=0) | RoundJudged(exit_reason=None | "max_rounds_reached") | RunFinished():
                return []
        words = words_of(event)
        if words is None:
            return []
        style = "yellow" if isinstance(event, BudgetLow) else "dim"
        style = "red" if isinstance(event, RoundFailed | TeamFailed) else style
        about = f"{self._display.name_of(event.team_id)}: " if event.team_id is not None else ""
        return [Text(clean(self._redactor.text(about + words)), style)]

    def _round(self, event: RoundFinished) -> Text:
        """A finished round in one line: who, what score, and as much of the judge's words as there is room for."""
        score = "unscored" if event.entry.score is None else number(event.entry.score)
        name = self._display.name_of(event.team_id or "")
        text = Text().append(f"{name}: ", "bold").append(f"round {event.entry.round_number} ").append(score, "green")
        words = clean(self._redactor.text(" ".join(event.state.evaluation_feedback.split())))
        room = self._console.width - 1 - cell_len(text.plain) - 2
        return text.append("  " + fit(words, room).rstrip(), "dim") if room > 10 and words else text

    def _paint(self, above: list[Text], *, last: bool = False) -> None:
        width, height = self._console.size
        now = time.monotonic()
        lines = self._display.lines(width, height, now)
        # A bar that stays on the screen tells of the end; that of a run which was stopped would seem to wait.
        kept = lines if not last else lines[-1:] if self._display.is_over else []
        text = Text("\n").join([*above, *kept])
        if text and (last or not lines):
            text.append("\n")
        self._stream.write(self._back(width) + self._encoded(text))
        self._stream.flush()
        self._painted, self._width = [cell_len(line.plain) for line in lines], width

    def _back(self, width: int) -> str:
        """To where the last picture began, and nothing left of it.

        A terminal that was made narrower has broken its longer lines, so that it takes more of them.
        """
        rows = sum(max(1, -(-cells // width)) for cells in self._painted)
        up = f"\x1b[{rows - 1}A" if rows > 1 else ""
        return f"{up}\r\x1b[J" if rows else ""

    def _encoded(self, text: Text) -> str:
        """With the codes for its styles, in letters that the terminal has."""
        with self._console.capture() as captured:
            self._console.print(text, soft_wrap=True, end="")
        shown = captured.get()
        if writes_all(self._stream):
            return shown
        return in_ascii(shown).encode(self._stream.encoding, "replace").decode(self._stream.encoding)


class _Printed(io.RawIOBase):
    """Takes what is printed, and hands it on line by line."""

    def __init__(self, tell: Callable[[str], None], stream: TextIO, *, is_terminal: bool) -> None:
        self._tell = tell
        self._stream = stream
        self._is_terminal = is_terminal
        self._begun = b""
        self._lock = threading.Lock()

    def write(self, data: Any) -> int:
        with self._lock:
            *whole, self._begun = (self._begun + bytes(data)).split(b"\n")
            if len(self._begun) > _LONGEST_LINE:
                whole, self._begun = [*whole, self._begun], b""
            for line in whole:
                self._tell(line.decode("utf-8", "backslashreplace"))
        return len(data)

    def finish(self) -> None:
        """Hand on what has no end of line yet."""
        if self._begun:
            self.write(b"\n")

    def writable(self) -> bool:
        return True

    def isatty(self) -> bool:
        return self._is_terminal

    def fileno(self) -> int:
        return self._stream.fileno()
