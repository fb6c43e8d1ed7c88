"""Structure: what is counted in Markdown, and the scores that follow, computed by hand."""

from fractions import Fraction
from typing import Any

import pytest

from mixseek.evaluator.metrics.markdown import read_markdown
from mixseek.evaluator.metrics.structure import Structure, StructureOptions

# 2 headings, 2 lists of 3 and 2 items, 3 links, 1 block of code, 1 table
PAGE = """\
# 概要
本文 [頁](https://example.com/a_(b)) と <https://example.org> を見る。

- 一
- 二
  - 三

```python
# no heading
- no item, [no](link)
```

| a | b |
| --- | :-: |
| 1 | [t](u) |

二番目
------
1. one
2. two
"""


@pytest.mark.parametrize(
    ("text", "counts"),
    [
        # headings, lists, items, links, code blocks, tables
        (PAGE, (2, 2, 5, 3, 1, 1)),
        ("", (0, 0, 0, 0, 0, 0)),
        ("# A\n## B ##\n###### C\n#hashtag\n####### seven", (3, 0, 0, 0, 0, 0)),
        ("題\n===\n\n---\n\n本文\n", (1, 0, 0, 0, 0, 0)),
        ("~~~\n```\n# x\n~~~\n# y", (1, 0, 0, 0, 1, 0)),
        ("```\n# never closed\n- x", (0, 0, 0, 0, 1, 0)),
        ("````\n```\n# x\n```\n````\n", (0, 0, 0, 0, 1, 0)),
        ("text\n\n    # code\n\n    - code\n\ntext", (0, 0, 0, 0, 1, 0)),
        ("> # 引用\n> - 一\n> - 二", (1, 1, 2, 0, 0, 0)),
        ("- a\n\n  more of a\n- b\n\nend\n\n- c", (0, 2, 3, 0, 0, 0)),
        ("1. a\n   ```\n   2. code\n   ```\n2) b", (0, 1, 2, 0, 1, 0)),
        ("It happened in\n1984. A year.\n-5 degrees", (0, 0, 0, 0, 0, 0)),
        ("![image](a.png) [![badge](b.svg)](c) `[no](link)` ``[no](`link)``", (0, 0, 0, 1, 0, 0)),
        ("[a][d] [d] [none] [x][none] [^1]\n\n[d]: https://example.com\n[^1]: note", (0, 0, 0, 2, 0, 0)),
        ("詳しくは https://example.com/a、https://example.com/b 。", (0, 0, 0, 2, 0, 0)),
        ("a | b\n--- | ---\n1 | 2\n\nc | d\n--- | --- | ---\n", (0, 0, 0, 0, 0, 1)),
    ],
)
def test_what_is_counted_in_markdown(text: str, counts: tuple[int, ...]) -> None:
    found = read_markdown(text)
    assert (
        found.headings,
        found.lists,
        found.list_items,
        found.links,
        found.code_blocks,
        found.tables,
    ) == counts


def test_prose_is_paragraphs_and_items_without_marks() -> None:
    page = "# T\n\nA **b** [c](d) `e` f\ng.\n\n- h_i_ https://example.com j\n\n| k | l |\n|--|--|\n"
    assert read_markdown(page).prose == ["A b c  f\ng.", "hi  j"]


@pytest.mark.parametrize(
    ("options", "score"),
    [
        ({"headings": {"minimum": 2}}, 100),
        ({"headings": {"minimum": 1, "maximum": 3}}, 100),
        # 2 of 4
        ({"headings": {"minimum": 4}}, 50),
        # 1 of the 2 that are there
        ({"headings": {"maximum": 1}}, 50),
        # 2 of 4
        ({"lists": {"minimum": 4}}, 50),
        # 5 of 8
        ({"list_items": {"minimum": 8}}, Fraction(125, 2)),
        ({"links": {"minimum": 3}}, 100),
        # 2 of the 3 that are there
        ({"links": {"maximum": 2}}, Fraction(200, 3)),
        ({"code_blocks": {"minimum": 1}}, 100),
        # 1 of 3
        ({"tables": {"minimum": 3}}, Fraction(100, 3)),
        ({"tables": {"maximum": 0}}, 0),
        # (1/2 + 1 + 1/3) / 3
        ({"headings": {"minimum": 4}, "links": {"minimum": 3}, "tables": {"minimum": 3}}, Fraction(1100, 18)),
    ],
)
def test_structure_agrees_with_the_score_computed_by_hand(options: dict[str, Any], score: Fraction | int) -> None:
    measured = Structure(StructureOptions.model_validate(options)).measure(PAGE, None)
    assert measured.score == pytest.approx(float(score), abs=1e-9)


def test_structure_says_what_is_there_and_what_is_wanted() -> None:
    options = {"headings": {"minimum": 4}, "list_items": {"maximum": 3}, "links": {"minimum": 1}}
    comment = Structure(StructureOptions.model_validate(options)).measure(PAGE, None).comment
    assert comment == "headings: 2, wanted at least 4; list items: 5, wanted at most 3; links: 3, as wanted"
