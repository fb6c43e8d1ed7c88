"""The fenced code blocks of a Markdown text, also of one inside a list or a quote."""

import re
from collections.abc import Iterator
from dataclasses import dataclass

__all__ = ["CodeBlock", "closes", "code_blocks"]

_QUOTES = re.compile(r"(?:[ \t]{0,3}+> ?+)++")
_OPENING = re.compile(
    # An item of a list may begin with a block.
    r"(?P<before>(?:[ \t]*+(?:[-*+]|\d{1,9}+[.)])[ \t]++)*+[ \t]*+)"
    r"(?P<fence>`{3,}+(?=[^`]*+$)|~{3,}+)(?P<kind>.*+)",
    re.DOTALL,
)


@dataclass(frozen=True)
class CodeBlock:
    """One block: what it says it is made of, in lower case, and what stands in it."""

    kind: str
    text: str
    is_closed: bool


def code_blocks(text: str) -> Iterator[CodeBlock]:
    """All blocks in their order; one that nobody closes goes on to the end.

    >>> list(code_blocks("So:\\n1. ```python\\n   print(1)\\n   ```\\nThat is all."))
    [CodeBlock(kind='python', text='print(1)\\n', is_closed=True)]
    """
    opened: re.Match[str] | None = None
    is_quoted, inside = False, list[str]()
    for line in text.splitlines(keepends=True):
        unquoted = _QUOTES.sub("", line, count=1) if opened is None or is_quoted else line
        if opened is None:
            opened, is_quoted, inside = _OPENING.match(unquoted), unquoted != line, []
        elif closes(unquoted, opened["fence"]):
            yield CodeBlock(_kind(opened), "".join(inside), is_closed=True)
            opened = None
        else:
            inside.append(_moved_out(unquoted, len(opened["before"])))
    if opened is not None:
        yield CodeBlock(_kind(opened), "".join(inside), is_closed=False)


def closes(line: str, fence: str) -> bool:
    """Whether a line ends the block that ``fence`` began: nothing but the same mark, and no less of it."""
    mark = line.strip()
    return len(mark) >= len(fence) and not mark.strip(fence[0])


def _kind(opened: re.Match[str]) -> str:
    words = opened["kind"].split()
    return words[0].lower() if words else ""


def _moved_out(line: str, depth: int) -> str:
    """The line without as much of its indentation as the fence has."""
    return line[:depth].lstrip(" \t") + line[depth:]
