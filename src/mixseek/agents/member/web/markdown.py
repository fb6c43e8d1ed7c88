"""A web page as Markdown, in one pass over its tree.

Parsers of HTML can be kept busy for minutes by a page that is made for it, and a thread cannot be stopped. So this file
is also a program: it reads HTML on standard input and writes JSON, in a process that has limits of its own and can be
killed. It imports nothing of MixSeek, since starting it is part of the price of a page.
"""

import json
import re
import resource
import sys
from collections.abc import Mapping
from typing import Any
from urllib.parse import urljoin

__all__ = ["page_as_markdown"]

_LEFT_OUT = (
    *("script", "style", "noscript", "template", "svg", "math", "iframe", "object", "embed", "canvas", "video"),
    *("audio", "select", "button", "textarea", "dialog"),
)
_BLOCKS = frozenset(
    (
        *("address", "article", "aside", "blockquote", "body", "caption", "center", "dd", "details", "div", "dl", "dt"),
        *("fieldset", "figcaption", "figure", "footer", "form", "h1", "h2", "h3", "h4", "h5", "h6", "header", "hr"),
        *("main", "nav", "ol", "p", "pre", "section", "summary", "table", "tbody", "tfoot", "thead", "tr", "ul"),
    )
)
_SPACED = frozenset(
    (
        *("article", "blockquote", "dl", "figure", "h1", "h2", "h3", "h4", "h5", "h6", "hr", "ol", "p", "pre"),
        *("section", "table", "ul"),
    )
)
_MARKS: Mapping[str, str] = {"b": "**", "strong": "**", "em": "*", "i": "*", "code": "`", "del": "~~", "s": "~~"}
_DEEPEST_INDENT = 6
_LONGEST_TITLE = 300
_SPACES = re.compile(r"[ \t\r\n\f\u00a0]+")


def page_as_markdown(html: str, base_url: str, *, longest: int) -> tuple[str, str]:
    """Title and text of a page; links are whole addresses. Reading ends after ``longest`` characters."""
    from lxml import etree  # the extra "web"; without it a page cannot be read

    parser = etree.HTMLParser(encoding="utf-8", remove_comments=True, remove_pis=True)
    tree = etree.fromstring(html.encode("utf-8", "replace"), parser) if html.strip() else None
    if tree is None:
        return "", ""
    title = _one_line(tree.findtext(".//title") or "")[:_LONGEST_TITLE]
    etree.strip_elements(tree, *_LEFT_OUT, "head", with_tail=False)
    writer = _Writer(base_url)
    for event, element in etree.iterwalk(tree, events=("start", "end")):
        if event == "start":
            writer.start(element)
        else:
            writer.end(element)
        if writer.length > longest:
            break
    return title, writer.text()[:longest]


def _one_line(text: str) -> str:
    return _SPACES.sub(" ", text).strip()


class _Writer:
    """Takes elements as they begin and end, and writes lines."""

    def __init__(self, base_url: str) -> None:
        self.length = 0
        self._base_url = base_url
        self._lines: list[str] = []
        self._line: list[str] = []
        self._lead = ""
        self._lists: list[int | None] = []
        self._quotes = 0
        self._preformatted = 0
        self._cells: list[int] = []
        self._marks: list[tuple[Any, str, int, int]] = []

    def text(self) -> str:
        self._end_line()
        return re.sub(r"\n{3,}", "\n\n", "\n".join(self._lines)).strip()

    # --- elements -----------------------------------------------------------------------------------------------------

    def start(self, element: Any) -> None:
        tag = element.tag
        self._part(tag)
        self._begin(tag, element)
        self._write(element.text or "")

    def _begin(self, tag: str, element: Any) -> None:  # noqa: C901  # a table of what a tag begins with
        match tag:
            case "h1" | "h2" | "h3" | "h4" | "h5" | "h6":
                self._lead = "#" * int(tag[1]) + " "
            case "br":
                self._end_line()
            case "hr":
                self._put("---")
                self._end_line()
            case "ul":
                self._lists.append(None)
            case "ol":
                self._lists.append(0)
            case "li":
                self._begin_item()
            case "blockquote":
                self._quotes += 1
            case "pre":
                self._preformatted += 1
                self._put("```")
                self._end_line()
            case "table":
                self._cells.append(-1)
            case "tr":
                self._begin_row()
            case "td" | "th":
                self._begin_cell()
            case "img":
                self._write(element.get("alt") or "")
            case "a" if self._address(element):
                self._open(element, "[")
            case _ if tag in _MARKS and not self._preformatted:
                self._open(element, _MARKS[tag])

    def end(self, element: Any) -> None:
        self._finish(element.tag, element)
        self._part(element.tag)
        self._write(element.tail or "")

    def _part(self, tag: str) -> None:
        if tag in _BLOCKS:
            self._end_line()
        if tag in _SPACED and not self._lists:
            self._blank_line()

    def _finish(self, tag: str, element: Any) -> None:
        match tag:
            case "ul" | "ol" if self._lists:
                self._end_line()
                self._lists.pop()
            case "h1" | "h2" | "h3" | "h4" | "h5" | "h6" | "li":
                self._end_line()
                self._lead = ""
            case "blockquote":
                self._end_line()
                self._quotes -= 1
            case "pre":
                self._end_line()
                self._preformatted -= 1
                self._put("```")
            case "tr":
                self._end_row()
            case "table" if self._cells:
                self._end_line()
                self._cells.pop()
            case "a":
                self._close(element, f"]({self._address(element)})")
            case _ if tag in _MARKS:
                self._close(element, _MARKS[tag])

    def _begin_item(self) -> None:
        self._end_line()
        if self._lists and (number := self._lists[-1]) is not None:
            self._lists[-1] = number + 1
            self._lead = f"{number + 1}. "
        else:
            self._lead = "- "

    # --- tables -------------------------------------------------------------------------------------------------------

    def _begin_row(self) -> None:
        if self._cells:
            self._first_row = self._cells[-1] == -1
            self._cells[-1] = 0

    def _begin_cell(self) -> None:
        if self._cells:
            self._cells[-1] = max(self._cells[-1], 0) + 1
            self._put("| " if self._cells[-1] == 1 else " | ")

    def _end_row(self) -> None:
        if not self._cells or self._cells[-1] <= 0:
            return
        self._put(" |")
        self._end_line()
        if self._first_row:
            self._put("|" + " --- |" * self._cells[-1])
            self._end_line()
            self._first_row = False

    _first_row = False

    # --- marks around text --------------------------------------------------------------------------------------------

    def _open(self, element: Any, mark: str) -> None:
        self._put(mark)
        self._marks.append((element, mark, len(self._lines), len(self._line)))

    def _close(self, element: Any, mark: str) -> None:
        if not self._marks or self._marks[-1][0] is not element:
            return
        _, _, lines, pieces = self._marks.pop()
        if (lines, pieces) == (len(self._lines), len(self._line)):
            self._line.pop()  # nothing was written inside
        else:
            self._put(mark)

    def _address(self, element: Any) -> str | None:
        """Where a link leads, if it can be read and Markdown can say it."""
        try:
            address = urljoin(self._base_url, (element.get("href") or "").strip())
        except ValueError:
            return None
        return address if re.fullmatch(r"https?://[^\s<>()]+", address) else None

    # --- lines --------------------------------------------------------------------------------------------------------

    def _write(self, text: str) -> None:
        if self._preformatted:
            first, *more = text.split("\n")
            self._put(first)
            for line in more:
                self._end_line(blank=True)
                self._put(line)
            return
        text = _SPACES.sub(" ", text)
        if not self._line or self._line[-1].endswith(" "):
            text = text.lstrip(" ")
        self._put(text)

    def _put(self, text: str) -> None:
        if text:
            self._line.append(text)
            self.length += len(text)

    def _end_line(self, *, blank: bool = False) -> None:
        line = "".join(self._line).rstrip()
        self._line.clear()
        if line or blank:
            prefix = "> " * min(self._quotes, _DEEPEST_INDENT)
            indent = "  " * min(max(len(self._lists) - 1, 0), _DEEPEST_INDENT)
            # What a line begins with waits for its text: an item may hold paragraphs, a heading only an empty link.
            self._lines.append(f"{prefix}{indent}{self._lead}{line}")
            self.length += len(prefix) + len(indent) + len(self._lead) + 1
            self._lead = ""

    def _blank_line(self) -> None:
        if self._lines and self._lines[-1]:
            self._lines.append("")


def main(url: str, longest: str, seconds: str, memory: str) -> None:
    """From HTML on standard input to JSON on standard output, within so much processor time and memory."""
    resource.setrlimit(resource.RLIMIT_CPU, (int(seconds), int(seconds)))
    resource.setrlimit(resource.RLIMIT_AS, (int(memory), int(memory)))
    html = sys.stdin.buffer.read().decode("utf-8", "replace")
    sys.stdout.buffer.write(json.dumps(page_as_markdown(html, url, longest=int(longest))).encode())


if __name__ == "__main__":
    main(*sys.argv[1:])
