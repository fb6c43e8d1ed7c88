"""Pages as Markdown."""

import pytest

from mixseek.agents.member.web.markdown import page_as_markdown


def text(html: str) -> str:
    return page_as_markdown(html, "https://example.com/a/b", longest=100_000)[1]


@pytest.mark.parametrize(
    ("html", "markdown"),
    [
        ("<h2>A  heading\n</h2><p>and text</p>", "## A heading\n\nand text"),
        ("<p>one<br>two</p><div>three</div>", "one\ntwo\n\nthree"),
        ("<p>a <b>bold</b> and <em>soft</em> word, <code>x = 1</code></p>", "a **bold** and *soft* word, `x = 1`"),
        ("<p><b></b><a href='/x'></a>none</p>", "none"),
        ("<a href='../c?q=1'>relative</a>", "[relative](https://example.com/c?q=1)"),
        ("<a href='//other.example/'>other</a>", "[other](https://other.example/)"),
        ("<a href='javascript:alert(1)'>script</a> <a href='mailto:x@y'>mail</a>", "script mail"),
        ("<ul><li>a<ul><li>b</li></ul></li><li><p>c</p></li><li></li></ul>", "- a\n  - b\n- c"),
        ("<ol><li>x<li>y</ol>", "1. x\n2. y"),
        ("<pre>def f():\n    return <b>1</b>\n</pre>", "```\ndef f():\n    return 1\n```"),
        ("<table><tr><th>a<th>b</tr><tr><td>1<td>2</tr></table>", "| a | b |\n| --- | --- |\n| 1 | 2 |"),
        ("<blockquote>said</blockquote>", "> said"),
        ("<p>before</p><hr><p>after</p>", "before\n\n---\n\nafter"),
        ("<img alt='a picture' src=x><img src=y>", "a picture"),
        ("text<script>x()</script><style>p{}</style><!-- c --><noscript>n</noscript>tail", "texttail"),
        ("<p>潮の<b>満ち</b>引き</p>", "潮の**満ち**引き"),
        ("<td>a cell alone</td></ul></blockquote>", "a cell alone"),
        ("<?xml version='1.0' encoding='utf-8'?><html><body>x</body></html>", "x"),
        ("", ""),
        ("   \n", ""),
    ],
)
def test_html_becomes_markdown(html: str, markdown: str) -> None:
    assert text(html) == markdown


def test_the_title_is_one_line() -> None:
    assert page_as_markdown("<title> A\n title </title><p>x", "http://x/", longest=10) == ("A title", "x")


@pytest.mark.parametrize(
    "html",
    [
        "<blockquote>" * 200 + "line<br>" * 20_000,
        "<ul><li>" * 100 + "line<br>" * 20_000,
        "<div>" * 100_000,
        "<" * 200_000,
    ],
    ids=["quotes", "lists", "divisions", "signs"],
)
def test_nesting_does_not_multiply_the_text(html: str) -> None:
    assert len(text(html)) <= 100_000
