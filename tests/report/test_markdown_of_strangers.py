"""Markdown in the report: what is rendered, what is not, and what would take for ever."""

from time import process_time

import pytest

from mixseek.report.markdown import MarkdownRenderer, readable

N = 40_000
ENDLESS = {
    "brackets": "[" * N,
    "images": "![" * (N // 2),
    "brackets and stars": "[*" * (N // 2),
    "links in links": "[" * (N // 2) + "](http://x)" * 4000,
    "stars": "*a **b " * (N // 7),
    "stars that close": "a**b" * (N // 4),
    "back quotes": "".join("`" * count + " " for count in range(440)),
    "parentheses": "[a](" + "(" * (N - 4),
    "entities": "&" * N,
    "angles": "<http://" * (N // 8),
    "quotes in quotes": "> " * (N // 2),
    "lists in lists": "\n".join("  " * depth + "- a" for depth in range(300)),
    "lists in a line": "1. " * (N // 3),
    "empty items": "*\n" * (N // 2),
    "definitions": "[a]: x '\n" * (N // 9),
    "paragraphs": "a\n" * (N // 2),
    "wide tables": ("|" * 150 + "\n" + "|-" * 150 + "|\n" + "|\n" * 400 + "\n") * 60,
    "very wide tables": ("|" * 1000 + "\n" + "|-" * 1000 + "|\n" + "|\n" * 60 + "\n") * 20,
    "a line of 1 MB": "x" * 1_000_000,
    "a line of 1 MB with marks": "[*_`" * 250_000,
}


def render(text: str) -> str:
    return MarkdownRenderer().render(readable(text))


@pytest.mark.parametrize("text", ENDLESS.values(), ids=ENDLESS.keys())
def test_texts_that_make_parsers_work_without_end_are_bounded_in_time_and_size(text: str) -> None:
    started = process_time()
    html = render(text)
    assert process_time() - started < 15
    assert len(html) < 15 * len(text)


def test_the_texts_of_a_page_have_a_budget_together_and_what_comes_after_is_plain() -> None:
    renderer = MarkdownRenderer(steps=1000)
    assert renderer.render("*a* " * 40).startswith("<p><em>a</em>")
    rendered = [renderer.render("*a* " * 40) for _ in range(10)]
    assert rendered[-1].startswith("<pre class=plain>\n*a* ")
    assert [html[:3] for html in rendered] == sorted((html[:3] for html in rendered), key="<p><pre".index)


@pytest.mark.parametrize(
    "text",
    [
        "> " * 30 + "the words",
        "- " * 30 + "the words",
        "| a " * 201 + "\n" + "|-" * 201 + "\nthe words",
        "the words " * 10_001,
    ],
    ids=["quotes", "lists", "columns", "length"],
)
def test_what_is_not_rendered_is_shown_whole_as_it_was_written(text: str) -> None:
    assert render(text) == f"<pre class=plain>\n{text.replace('>', '&gt;')}</pre>"


def test_tables_lists_and_code_are_rendered() -> None:
    assert render("| a | b |\n| - | -: |\n| 1 | ~~2~~ |") == (
        "<table><thead><tr><th>a</th><th class=r>b</th></tr></thead>"
        "<tbody><tr><td>1</td><td class=r><s>2</s></td></tr></tbody></table>"
    )
    assert render("3. a\n   - b\n4. c") == "<ol start=3><li>a<ul><li>b</li></ul></li><li>c</li></ol>"
    assert render("# a `<b>`") == "<h4>a <code>&lt;b&gt;</code></h4>"
    assert render("```html\n<b>&amp;\n```") == "<pre><code>&lt;b&gt;&amp;amp;\n</code></pre>\n"
    assert render("a\\\nb\nc\n\n---\n\n> d") == "<p>a<br>b\nc</p><hr><blockquote><p>d</p></blockquote>"


def test_links_lead_to_the_web_and_to_mail_alone() -> None:
    with_rel = 'target=_blank rel="noopener noreferrer"'
    assert render("[a](https://x.test/?a=1&b=2) <mailto:a@x.test> [c](HTTP://x)") == (
        f'<p><a href="https://x.test/?a=1&amp;b=2" {with_rel}>a</a> '
        f'<a href="mailto:a@x.test" {with_rel}>mailto:a@x.test</a> <a href="HTTP://x" {with_rel}>c</a></p>'
    )
    for target in (
        "javascript:x",
        "data:text/html,x",
        "file:///x",
        "/x",
        "x.html",
        "#x",
        "//x.test",
        "ftp://x",
        "http:x",
    ):
        assert render(f"[a]({target})") == f"<p>[a]({target})</p>"


def test_an_image_is_told_in_words_and_never_loaded() -> None:
    assert render("![a *red* car](https://x.test/i.png)") == "<p><span class=image>a red car</span></p>"
    assert render("![](https://x.test/i.png)") == "<p><span class=image>image</span></p>"


def test_nothing_that_was_written_is_hidden_as_a_definition() -> None:
    assert render("a\n\n[//]: # (the judge reads this)") == "<p>a</p><p>[//]: # (the judge reads this)</p>"


def test_what_cannot_be_read_is_written_as_an_escape() -> None:
    assert readable("a\x00b\u202ec\ud800\r\nd\re\tf\u2067") == "a\\x00b\\u202ec\\ud800\nd\ne\tf\\u2067"
    assert readable("العربية \u200f 日本語 👩\u200d💻") == "العربية \u200f 日本語 👩\u200d💻"


def test_a_page_on_which_every_step_takes_long_ends_all_the_same() -> None:
    renderer = MarkdownRenderer(seconds=0.2)
    slow = "* a\n" * 10_000
    begun = process_time()
    shown = [renderer.render(slow) for _ in range(200)]
    assert process_time() - begun < 10, "all of them would take a minute"
    assert shown[0].startswith("<ul>")
    assert shown[-1].startswith("<pre class=plain>\n* a\n")
