"""What a sandbox is given and what comes back."""

from dataclasses import dataclass
from typing import Literal, Protocol

__all__ = ["FLOOD_CHARACTERS", "LONGEST_CODE", "CodeResult", "Limit", "Limits", "Output", "Sandbox", "too_long"]

Limit = Literal["time", "memory", "output"]

# Output beyond the part that is kept is thrown away, but somebody has to read it: this much, then the run is ended.
FLOOD_CHARACTERS = 4_000_000
# What a model writes is a fraction of this; parsing happens before an interpreter counts its memory.
LONGEST_CODE = 200_000


@dataclass(frozen=True)
class Limits:
    """How much one run may take."""

    timeout_seconds: float = 30
    memory_mb: int = 256
    output_chars: int = 20_000
    """How much is kept of what it prints."""

    @property
    def memory_bytes(self) -> int:
        """The memory in bytes."""
        return self.memory_mb * 1024 * 1024


@dataclass(frozen=True)
class CodeResult:
    """What came of one run."""

    output: str
    """What was printed, errors included, as far as it is kept."""
    exit_code: int | None
    """As a shell tells it; None if a limit ended the run."""
    limit: Limit | None = None
    """The limit that ended the run."""
    is_cut: bool = False
    """Whether more was printed than is kept."""

    @property
    def succeeded(self) -> bool:
        """Whether it ended by itself, without an error."""
        return self.exit_code == 0


class Sandbox(Protocol):
    """Where code runs."""

    async def run_python(self, code: str) -> CodeResult:
        """Run a program to its end; nothing it did is left for the next one."""
        ...


class Output:
    """The beginning of what is printed; the rest is only counted."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._parts: list[str] = []
        self._kept = 0
        self.seen = 0

    def add(self, text: str) -> None:
        """Take in what was printed."""
        self.seen += len(text)
        if self._kept < self._most:
            self._parts.append(text[: self._most - self._kept])
            self._kept += len(self._parts[-1])

    @property
    def is_cut(self) -> bool:
        """Whether more came than is kept."""
        return self.seen > self._kept

    @property
    def is_flood(self) -> bool:
        """Whether so much came that nobody should read on."""
        return self.seen > FLOOD_CHARACTERS

    def result(self, exit_code: int | None, limit: Limit | None = None) -> CodeResult:
        """The run with this end; a run that a limit ended has no exit code."""
        return CodeResult("".join(self._parts), None if limit else exit_code, limit, self.is_cut)


def too_long(code: str) -> CodeResult | None:
    """The refusal of a program no interpreter should have to parse."""
    if len(code) <= LONGEST_CODE:
        return None
    return CodeResult(f"the program has {len(code)} characters, at most {LONGEST_CODE} are run\n", 1)
