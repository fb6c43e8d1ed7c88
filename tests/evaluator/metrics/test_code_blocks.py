"""Fenced code blocks: of which kind they are, what stands in them, and where they end."""

import time

import pytest

from mixseek.evaluator.metrics.code_blocks import code_blocks


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("none", []),
        ("```\na\n```", [("", "a\n")]),
        ("```py\na\n```\ntext\n```json title\nb\n```", [("py", "a\n"), ("json", "b\n")]),
        ("1. So:\n\n   ```python\n   def f():\n       return 1\n   ```", [("python", "def f():\n    return 1\n")]),
        ("- ```sh\n  ls\n  ```\n- ```sh\n  pwd\n  ```", [("sh", "ls\n"), ("sh", "pwd\n")]),
        ("> ```\n> a\n> > b\n> ```\n> c", [("", "a\nb\n")]),
        ("````md\n```\na\n```\n````", [("md", "```\na\n```\n")]),
        ("```py\n'''\n```py\n'''\n```", [("py", "'''\n```py\n'''\n")]),
        ("~~~\n```\n~~~~", [("", "```\n")]),
        ("`` ` `` and ```inline``` code", []),
        ("```\n\n  two spaces\n```", [("", "\n  two spaces\n")]),
        ("   ```\n a\n     b\n   ```", [("", "a\n  b\n")]),
    ],
)
def test_blocks_are_found_as_readers_of_markdown_find_them(text: str, found: list[tuple[str, str]]) -> None:
    assert [(block.kind, block.text) for block in code_blocks(text)] == found


def test_a_block_that_nobody_closes_goes_on_to_the_end_and_says_so() -> None:
    assert [(block.text, block.is_closed) for block in code_blocks("```\na\n```\n~~~\nb\n```")] == [
        ("a\n", True),
        ("b\n```", False),
    ]


@pytest.mark.parametrize("piece", ["- ", "-    ", "> ", "1. ", " \t", "`", "~"])
def test_no_line_takes_long(piece: str) -> None:
    began = time.monotonic()
    list(code_blocks(piece * 50_000 + "x"))
    assert time.monotonic() - began < 5
