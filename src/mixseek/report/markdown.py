"""Markdown of strangers as HTML that can do nothing: no tags of theirs, no images, links to the web and to mail alone.

Some texts make any Markdown parser work without end or write a thousand times what it read. Every step of the parser is
therefore counted against a budget that grows with the text, and what goes beyond it, or is long or nested beyond what
people write, or comes when all texts of the page have taken too much of the processor, is shown as the plain text it
is.
"""

import re
import time
from collections.abc import Iterator, Sequence
from html import escape
from typing import Any

from markdown_it import MarkdownIt
from markdown_it.rules_block import StateBlock
from markdown_it.rules_core import StateCore
from markdown_it.rules_inline import StateInline
from markdown_it.token import Token

__all__ = ["MarkdownRenderer", "plain", "readable"]

_MAX_TEXT = 100_000
_MAX_PIPES = 200
"""In one line: a table's empty cells are filled up, so that a few wide rows could become millions of cells."""
_MAX_NESTING = 20
_STEPS_PER_CHARACTER = 4
_STEPS_PER_PAGE = 6_000_000
"""More than 50 teams with 10 rounds of 20 KB need; what comes after is plain text."""
_SECONDS_PER_PAGE = 20.0
"""Some texts are written so that each step takes long; the largest honest page takes half of this."""
_CHARACTERS_PER_STEP = 2
"""Reading costs too, even where rules have little to do."""

# Codes that stand for no letter, turn the direction of writing for what follows, or are half a character.
_UNREADABLE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff\ufffe\uffff]")
_LINK = re.compile(r"(?:https?://|mailto:)", re.IGNORECASE)
_MARKS = re.compile(r"[\\`*_\[\]<&~\n]")
_ALIGNED = {"text-align:left": " class=l", "text-align:center": " class=c", "text-align:right": " class=r"}
# Below the page's own headings, so that its outline stays what it is.
_HEADINGS = {"h1": "h4", "h2": "h5", "h3": "h6", "h4": "h6", "h5": "h6", "h6": "h6"}


def readable(text: str) -> str:
    """The text with line breaks of one kind; what no one could read, or would read wrongly, is written as an escape.

    >>> readable("a\\r\\nb\\x1b[2J")
    'a\\nb\\\\x1b[2J'
    """
    lines = text.replace("\r\n", "\n").replace("\r", "\n")
    return _UNREADABLE.sub(lambda match: match[0].encode("unicode_escape").decode("ascii"), lines)


class MarkdownRenderer:
    """Renders the texts of one page; together they have so many steps, and so many seconds of the processor."""

    def __init__(self, *, steps: int = _STEPS_PER_PAGE, seconds: float = _SECONDS_PER_PAGE) -> None:
        self._steps = steps
        self._seconds = seconds
        self._parser = _make_parser()

    def render(self, text: str) -> str:
        """HTML of a text that :func:`readable` gave, or of a text in a block as it stands, if it is too much."""
        if self._seconds <= 0 or not _is_of_human_measure(text):
            return plain(text)
        begun = time.thread_time()
        self._steps -= len(text) // _CHARACTERS_PER_STEP
        allowed = min(self._steps, _STEPS_PER_CHARACTER * len(text) + 1000)
        budget = _Budget(allowed)
        try:
            return "".join(_html(self._parser.parse(text, {"budget": budget})))
        except _TooMuchError:
            return plain(text)
        finally:
            self._steps -= allowed - budget.steps
            self._seconds -= time.thread_time() - begun


def plain(text: str) -> str:
    """The text as it stands."""
    return f"<pre class=plain>\n{escape(text, quote=False)}</pre>"


def _is_of_human_measure(text: str) -> bool:
    return len(text) <= _MAX_TEXT and all(line.count("|") <= _MAX_PIPES for line in text.split("\n"))


# --- parsing ----------------------------------------------------------------------------------------------------------


class _TooMuchError(Exception):
    """The text is not worth more steps."""


class _Budget:
    def __init__(self, steps: int) -> None:
        self.steps = steps

    def spend(self) -> None:
        self.steps -= 1
        if self.steps < 0:
            raise _TooMuchError


def _make_parser() -> MarkdownIt:
    # The parser drops what is nested beyond its own limit; ours is the smaller one, and drops nothing.
    parser = MarkdownIt("commonmark", {"html": False, "maxNesting": _MAX_NESTING + 4})
    parser.enable(["table", "strikethrough"]).disable(["html_block", "html_inline", "reference"])
    parser.block.ruler.before("table", "budget", _count_block)
    parser.inline.ruler.before("text", "budget", _count_inline)
    parser.core.ruler.at("inline", _parse_inline)
    parser.validateLink = _is_link  # type: ignore[method-assign]
    return parser


def _count_block(state: StateBlock, _start: int, _end: int, _silent: bool) -> bool:
    state.env["budget"].spend()
    if state.level > _MAX_NESTING:
        raise _TooMuchError
    return False


def _count_inline(state: StateInline, _silent: bool) -> bool:
    state.env["budget"].spend()
    return False


def _parse_inline(state: StateCore) -> None:
    """As the parser does it, but text without a mark, which most of it is, needs no parsing."""
    for token in state.tokens:
        if token.type != "inline":
            continue
        if _MARKS.search(token.content):
            token.children = []
            state.md.inline.parse(token.content, state.md, state.env, token.children)
        else:
            token.children = [Token("text", "", 0, content=token.content)]


def _is_link(url: str) -> bool:
    return _LINK.match(url) is not None


# --- writing ----------------------------------------------------------------------------------------------------------


def _html(tokens: Sequence[Token]) -> Iterator[str]:
    for token in tokens:
        if token.type == "inline":
            yield from _html(token.children or ())
        elif token.type == "text":
            yield escape(token.content, quote=False)
        elif not token.hidden:
            yield _element(token)


def _element(token: Token) -> str:
    match token.type:
        case "softbreak":
            return "\n"
        case "hardbreak" | "hr":
            return f"<{token.tag}>"
        case "code_inline":
            return f"<code>{escape(token.content, quote=False)}</code>"
        case "fence" | "code_block":
            return f"<pre><code>{escape(token.content, quote=False)}</code></pre>\n"
        case "image":
            return f"<span class=image>{escape(_words(token.children or ()) or 'image', quote=False)}</span>"
        case "link_open":
            return f'<a href="{escape(str(token.attrs["href"]))}" target=_blank rel="noopener noreferrer">'
        case _:
            return _tag(token)


def _tag(token: Token) -> str:
    name = _HEADINGS.get(token.tag, token.tag)
    if token.nesting < 0:
        return f"</{name}>"
    return f"<{name}{_attribute(name, token.attrs)}>"


def _attribute(name: str, attributes: dict[str, Any]) -> str:
    if name in ("td", "th"):
        return _ALIGNED.get(str(attributes.get("style")), "")
    return f" start={int(attributes['start'])}" if name == "ol" and "start" in attributes else ""


def _words(tokens: Sequence[Token]) -> str:
    """What an image is said to show; it may hold marks and images itself."""
    return "".join(token.content or _words(token.children or ()) for token in tokens)
