"""A submission read as Markdown: what it is made of, and its prose, without a look inside code.

A line at a time, as CommonMark and tables of GitHub have it where a count could tell the difference: fences close with
their own mark, a rule under a paragraph is a heading, a list goes on until a line that is neither indented nor an item.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

import regex

from mixseek.evaluator.metrics.code_blocks import closes

__all__ = ["Markdown", "read_markdown"]

_QUOTE = regex.compile(r"(?: {0,3}> ?)++")
_FENCE = regex.compile(r"( *)(`{3,}+(?=[^`]*$)|~{3,}+)")
_HEADING = regex.compile(r" {0,3}#{1,6}(?:[ \t]+(.*))?$")
_UNDERLINE = regex.compile(r" {0,3}(?:=++|-++)[ \t]*+$")
_BREAK = regex.compile(r" {0,3}([-*_])(?:[ \t]*+\1){2,}+[ \t]*+$")
_ITEM = regex.compile(r"( *)(?:[-*+]|(\d{1,9})[.)])(?:[ \t]++(.*)|$)")
_CELL = regex.compile(r"[ \t]*+:?-++:?[ \t]*+")
_DEFINITION = regex.compile(r" {0,3}\[([^\[\]^][^\[\]]{0,998}+)\]:[ \t]*\S")
_BACKTICKS = regex.compile(r"`++")
_TARGET = r"\([^()\n]{0,2000}+(?:\([^()\n]{0,500}+\)[^()\n]{0,500}+){0,5}+\)"
_IMAGE = regex.compile(rf"!\[([^\[\]\n]{{0,1000}}+)\](?:{_TARGET}|\[[^\[\]\n]{{0,1000}}+\])")
_INLINE_LINK = regex.compile(rf"\[([^\[\]\n]{{0,1000}}+)\]{_TARGET}")
_REFERENCE_LINK = regex.compile(r"\[([^\[\]\n]{1,1000}+)\](?:\[([^\[\]\n]{0,1000}+)\])?")
_ADDRESS = regex.compile(r"<?https?://[^\s<>\[\]「」（）、。]++>?")
_EMPHASIS = regex.compile(r"[*_~]{1,3}+(?=\S)|(?<=\S)[*_~]{1,3}+")


@dataclass
class Markdown:
    """What was found: how many of each, and the paragraphs and items as plain text."""

    headings: int = 0
    lists: int = 0
    list_items: int = 0
    links: int = 0
    code_blocks: int = 0
    tables: int = 0
    prose: list[str] = field(default_factory=list)


def read_markdown(text: str) -> Markdown:
    """Count and collect, in one pass."""
    reader = _Reader()
    for line in text.splitlines():
        reader.take(line.expandtabs(4))
    return reader.finish()


class _Reader:
    """What is known between one line and the next."""

    def __init__(self) -> None:
        self._found = Markdown()
        self._paragraph: list[str] = []
        self._inline: list[tuple[str, bool]] = []
        """Text outside code, and whether it is prose: links are looked for in all of it."""
        self._labels: set[str] = set()
        self._fence: str | None = None
        self._list = False
        self._table = False
        self._indented = False
        self._after_blank = True

    def take(self, line: str) -> None:
        """One more line."""
        line = _QUOTE.sub("", line, count=1) if line.lstrip().startswith(">") else line
        if self._fence is not None:
            self._fence = None if closes(line, self._fence) else self._fence
        elif not line.strip():
            self._end_paragraph()
            self._table = False
            self._after_blank = True
        else:
            self._take_written(line)
            self._after_blank = False

    def finish(self) -> Markdown:
        """What was found in all lines."""
        self._end_paragraph()
        for text, is_prose in self._inline:
            links, plain = _without_links(_without_code(text), self._labels)
            self._found.links += links
            if is_prose and plain.strip():
                self._found.prose.append(plain)
        return self._found

    def _take_written(self, line: str) -> None:
        depth = len(line) - len(line.lstrip(" "))
        if self._is_indented_code(depth):
            self._found.code_blocks += not self._indented
            self._indented = True
            return
        self._indented = False
        if self._list and self._after_blank and depth == 0 and not _ITEM.match(line):
            self._list = False
        is_block = self._take_fence(line, depth) or self._take_rule(line) or self._take_table(line)
        if not (is_block or self._take_item(line, depth)):
            self._take_text(line)

    def _is_indented_code(self, depth: int) -> bool:
        return depth >= 4 and not self._list and not self._paragraph and (self._after_blank or self._indented)

    def _take_fence(self, line: str, depth: int) -> bool:
        opened = _FENCE.match(line)
        if not opened or (depth > 3 and not self._list):
            return False
        self._end_paragraph()
        self._fence = opened[2]
        self._found.code_blocks += 1
        return True

    def _take_rule(self, line: str) -> bool:
        heading = _HEADING.match(line)
        if heading:
            self._end_paragraph()
            self._inline.append((heading[1] or "", False))
        elif self._paragraph and not self._list and not self._table and _UNDERLINE.match(line):
            self._inline.append(("\n".join(self._paragraph), False))
            self._paragraph = []
        elif _BREAK.match(line):
            self._end_paragraph()
            self._list = False
            return True
        else:
            return False
        self._list = False
        self._found.headings += 1
        return True

    def _take_table(self, line: str) -> bool:
        if self._table and "|" in line:
            self._inline.append((line, False))
            return True
        self._table = False
        header = self._paragraph[-1] if self._paragraph else ""
        if "|" not in header or "|" not in line or not _is_delimiter(line, header):
            return False
        self._inline.append((self._paragraph.pop(), False))
        self._end_paragraph()
        self._table = True
        self._found.tables += 1
        return True

    def _take_item(self, line: str, depth: int) -> bool:
        item = _ITEM.match(line)
        if not item or (depth > 3 and not self._list):
            return False
        if self._paragraph and not self._list and (item[2] not in (None, "1") or not item[3]):
            return False  # a line of a paragraph that begins with a number or a dash
        self._end_paragraph()
        self._found.lists += not self._list
        self._list = True
        self._found.list_items += 1
        self._paragraph = [item[3]] if item[3] else []
        return True

    def _take_text(self, line: str) -> None:
        definition = _DEFINITION.match(line)
        if definition and not self._paragraph:
            self._labels.add(_label(definition[1]))
        else:
            self._paragraph.append(line.strip())

    def _end_paragraph(self) -> None:
        if self._paragraph:
            self._inline.append(("\n".join(self._paragraph), True))
            self._paragraph = []


def _is_delimiter(line: str, header: str) -> bool:
    cells = line.strip().strip("|").split("|")
    return len(cells) == len(header.strip().strip("|").split("|")) and all(map(_CELL.fullmatch, cells))


def _without_code(text: str) -> str:
    """``text`` without code spans, each from a run of backticks to the next run of the same length."""
    return "".join(_outside_code(text)) if "`" in text else text


def _outside_code(text: str) -> Iterator[str]:
    runs = [(run.start(), run.end()) for run in _BACKTICKS.finditer(text)]
    partner: dict[int, int] = {}
    latest: dict[int, int] = {}
    for number in range(len(runs) - 1, -1, -1):
        length = runs[number][1] - runs[number][0]
        if length in latest:
            partner[number] = latest[length]
        latest[length] = number
    number, at = 0, 0
    while number < len(runs):
        if number in partner:
            yield text[at : runs[number][0]]
            number = partner[number]
            at = runs[number][1]
        number += 1
    yield text[at:]


def _without_links(text: str, labels: set[str]) -> tuple[int, str]:
    """How many links there are, and the text with their words in place of them."""
    links = 0

    def words_of(link: "regex.Match[str]") -> str:
        nonlocal links
        links += 1
        return str(link[1])

    def words_if_defined(link: "regex.Match[str]") -> str:
        defined = _label(link[2] or link[1]) in labels
        return words_of(link) if defined else str(link[0])

    text = _IMAGE.sub("", text)
    text = _INLINE_LINK.sub(words_of, text)
    if labels:
        text = _REFERENCE_LINK.sub(words_if_defined, text)
    text, addresses = _ADDRESS.subn("", text)
    return links + addresses, _EMPHASIS.sub("", text)


def _label(text: str) -> str:
    return " ".join(text.casefold().split())
