"""What templates can do: the contract's texts and errors, and all the harmless things people write."""

import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import jinja2
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jinja2.exceptions import SecurityError
from markupsafe import Markup

from mixseek import templating
from mixseek.records import EvaluationResult, MetricScore, SubmissionRecord
from mixseek.templating import (
    DEFAULT_EVALUATOR_USER_PROMPT,
    DEFAULT_JUDGMENT_USER_PROMPT,
    DEFAULT_TEAM_USER_PROMPT,
    PROMPT_FILTERS,
    TEMPLATE_VARIABLES,
    TemplateLimitError,
    compile_template,
)

HISTORY = """## ラウンド 1
スコア: 75.50/100
スコア詳細:
{
  "accuracy": 80.0,
  "completeness": 70.0
}
あなたの提出内容: 初回の分析結果"""
RANKING = "**#1 Alpha (あなたのチーム) - スコア: 75.50/100 (ラウンド数: 1)**"
POSITION = "🏆 現在、あなたのチームは1位です！この調子で頑張ってください。"
NOW = "2025-11-19T12:34:56.789012+00:00"

FIRST_ROUND = f"""# ユーザから指定されたタスク
データ分析タスク

現在はラウンド1です。過去のSubmissionとランキング情報はまだありません。

---
現在日時: {NOW}"""

SECOND_ROUND = f"""# ユーザから指定されたタスク
データ分析タスク

# 過去の提出履歴
{HISTORY}

# 現在のチームランキング
現在のリーダーボードに基づく順位:

{RANKING}

{POSITION}

# 今回のラウンドの目標
上記のフィードバックを基に提出内容を改善してください。これまでのラウンドで指摘された弱点に焦点を当てましょう。

---
現在日時: {NOW}"""

RECORDS = [
    SubmissionRecord(round_number=1, content="あ" * 300, score=61.25, feedback="短い"),
    SubmissionRecord(round_number=2, content="い" * 10, score=None),
    SubmissionRecord(round_number=3, content="う<&>", score=80.0, feedback="良い"),
]


def render(source: str, **values: object) -> str:
    return compile_template(source, "test_template").render(values)


def round_values(**changes: object) -> dict[str, object]:
    return {
        "user_prompt": "データ分析タスク",
        "round_number": 2,
        "submission_history": HISTORY,
        "ranking_table": RANKING,
        "team_position_message": POSITION,
        "current_datetime": NOW,
        **changes,
    }


# --- the default texts ----------------------------------------------------------------------------------------------


def test_first_round_gives_the_text_of_the_contract() -> None:
    values = round_values(round_number=1, submission_history="", ranking_table="", team_position_message="")
    assert render(DEFAULT_TEAM_USER_PROMPT, **values) == FIRST_ROUND


def test_second_round_gives_the_text_of_the_contract() -> None:
    assert render(DEFAULT_TEAM_USER_PROMPT, **round_values()) == SECOND_ROUND


def test_team_prompt_without_a_ranking_skips_the_section() -> None:
    text = render(DEFAULT_TEAM_USER_PROMPT, **round_values(ranking_table="", team_position_message=""))
    assert "ランキング" not in text
    assert f"{HISTORY}\n\n\n# 今回のラウンドの目標" in text


def test_judgment_prompt_names_the_finished_round_and_skips_an_empty_ranking() -> None:
    text = render(DEFAULT_JUDGMENT_USER_PROMPT, **round_values())
    assert "ラウンド2が終了しました" in text
    assert f"{RANKING}\n\n{POSITION}\n\n# 判定基準" in text
    without = render(DEFAULT_JUDGMENT_USER_PROMPT, **round_values(ranking_table="", team_position_message=""))
    assert f"{HISTORY}\n\n# 判定基準" in without


def test_evaluator_prompt_holds_task_and_submission() -> None:
    values = {"user_prompt": "課題", "submission": "提出", "reference": "", "current_datetime": NOW}
    text = render(DEFAULT_EVALUATOR_USER_PROMPT, **values)
    assert "# ユーザから指定されたタスク\n課題\n" in text
    assert "# 評価対象の提出内容\n提出\n" in text
    assert text.endswith(f"現在日時: {NOW}")


def test_a_long_history_passes() -> None:
    history = "\n".join("提出内容です。" * 3_000 for _ in range(50))
    assert history in render(DEFAULT_TEAM_USER_PROMPT, **round_values(submission_history=history))


def test_public_names() -> None:
    assert templating.__all__ == sorted(templating.__all__, key=lambda name: (not name.isupper(), name.islower(), name))
    assert all(hasattr(templating, name) for name in templating.__all__)


def test_variables_of_the_template_files_are_those_of_the_contract() -> None:
    assert TEMPLATE_VARIABLES["initial"] == {"user_query": "str", "team_id": "str", "team_name": "str"}
    assert list(TEMPLATE_VARIABLES["continuation"]) == [
        "user_query",
        "round_number",
        "team_id",
        "team_name",
        "submission_history",
        "evaluation_feedback",
        "leaderboard_ranking",
        "current_team_rank",
    ]


# --- errors ---------------------------------------------------------------------------------------------------------


def test_syntax_error_tells_its_line() -> None:
    with pytest.raises(jinja2.TemplateSyntaxError) as caught:
        compile_template("a\nb\n\n\n{% if x %}", "team_user_prompt")
    assert str(caught.value).startswith("Jinja2 template syntax error at line 5: Unexpected end of template")
    assert caught.value.lineno == 5
    assert getattr(caught.value, "template_name", None) == "team_user_prompt"


def test_undefined_variable_is_told_in_jinjas_words() -> None:
    with pytest.raises(jinja2.UndefinedError) as caught:
        render("a\n\n{{ unknown_variable }}")
    assert str(caught.value) == "Jinja2 template error: 'unknown_variable' is undefined"
    assert getattr(caught.value, "lineno", None) == 3
    assert getattr(caught.value, "template_name", None) == "test_template"


@pytest.mark.parametrize(
    ("source", "kind", "words", "lineno"),
    [
        ("\n{{ ''.__class__ }}", SecurityError, "access to attribute '__class__' is unsafe", 2),
        ("{{ records[0].model_dump() }}", SecurityError, "access to attribute 'model_dump' of 'SubmissionRecord'", 1),
        ("{{ records[0].contents }}", jinja2.UndefinedError, "has no attribute 'contents'", 1),
        ("{{ records[9] }}", jinja2.UndefinedError, "list object has no element 9", 1),
        ("\n\n{{ 1 / 0 }}", jinja2.TemplateRuntimeError, "ZeroDivisionError: division by zero", 3),
        ("{{ 1 + 'a' }}", jinja2.TemplateRuntimeError, "TypeError: unsupported operand type(s) for +", 1),
        ("\n{{ 'x' * 10**9 }}", TemplateLimitError, "the template makes too much data", 2),
        ("{% for i in range(20000) %}{% endfor %}", TemplateLimitError, "range() of more than 10,000 numbers", 1),
        ("{{ " + "(" * 300 + "1" + ")" * 300 + " }}", TemplateLimitError, "the template is nested too deeply", None),
        (
            "{% for i in [1] %}" * 25 + "{% endfor %}" * 25,
            jinja2.TemplateError,
            "the template cannot be compiled",
            None,
        ),
        ("{{ 10.0 ** 400 }}", jinja2.TemplateRuntimeError, "OverflowError", 1),
        ("{% include 'a' %}", SecurityError, "'include' cannot be used in a prompt template", 1),
    ],
)
def test_anything_else_is_a_template_error_with_name_and_line(
    source: str, kind: type[jinja2.TemplateError], words: str, lineno: int | None
) -> None:
    with pytest.raises(kind) as caught:
        render(source, records=RECORDS)
    assert str(caught.value).startswith("Jinja2 template error: ")
    assert words in str(caught.value)
    assert getattr(caught.value, "template_name", None) == "test_template"
    assert getattr(caught.value, "lineno", "missing") == lineno


def test_an_error_message_is_never_long() -> None:
    with pytest.raises(jinja2.UndefinedError) as caught:
        render("{{ x['" + "k" * 10_000 + "'] }}", x={})
    assert len(str(caught.value)) < 600


# --- harmless templates ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("source", "text"),
    [
        ("  {% if true %}\nx\n  {% endif %}\ny\n", "x\ny"),
        ("a  {%- if true -%}  b  {%- endif -%}  c", "abc"),
        ("a{# {{ nothing }} #}b", "ab"),
        ("{% raw %}{{ x }}{% endraw %}", "{{ x }}"),
        ("{% if n == 1 %}one{% elif n == 2 %}two{% else %}many{% endif %}", "two"),
        ("{% if 1 < n <= 2 and not (n > 5 or n is none) %}y{% endif %}", "y"),
        ("{{ 'y' if n in [1, 2] else 'n' }}", "y"),
        ("{% for x in 'abc' %}{{ loop.index }}{{ x }}{{ ',' if not loop.last }}{% endfor %}", "1a,2b,3c"),
        ("{% for x in [] %}x{% else %}none{% endfor %}", "none"),
        ("{% for x in range(6) if x is even %}{{ loop.length }}{{ x }}{% endfor %}", "303234"),
        ("{% for a, b in [(1, 2), (3, 4)] %}{{ a + b }} {% endfor %}", "3 7 "),
        ("{% for x in [1, 2, 3] %}{{ loop.cycle('o', 'e') }}{{ loop.revindex0 }}{% endfor %}", "o2e1o0"),
        ("{% for x in [1, 1, 2] %}{{ x if loop.changed(x) else '-' }}{% endfor %}", "1-2"),
        (
            "{% for x in [1, 2] %}{{ loop.previtem is defined }}{{ loop.nextitem|default(0) }}{% endfor %}",
            "False2True0",
        ),
        ("{% for x in [1, [2, [3]]] recursive %}{{ loop(x) if x is iterable else x }}{% endfor %}", "123"),
        ("{% set s = namespace(t=0) %}{% for x in [1, 2] %}{% set s.t = s.t + x %}{% endfor %}{{ s.t }}", "3"),
        ("{% set a, b = 1, 2 %}{{ b }}{{ a }}", "21"),
        ("{% set t | upper %}a{{ n }}b{% endset %}{{ t }}", "A2B"),
        ("{% with a = n * 2 %}{{ a }}{% endwith %}", "4"),
        ("{% filter upper %}a{{ text }}{% endfilter %}", "AHELLO WORLD"),
        ("{% macro m(a, b='-') %}[{{ a }}{{ b }}]{% endmacro %}{{ m(1) }}{{ m(b=2, a=3) }}", "[1-][32]"),
        ("{% macro m() %}<{{ caller(1) }}>{% endmacro %}{% call(x) m() %}{{ x + 1 }}{% endcall %}", "<2>"),
        ("{% macro m() %}{{ varargs|join }}{{ kwargs|dictsort }}{% endmacro %}{{ m(1, 2, a=3) }}", "12[('a', 3)]"),
        ("{% block b %}in{% endblock %}", "in"),
        ("{{ text|upper }} {{ text|title }} {{ text|capitalize }}", "HELLO WORLD Hello World Hello world"),
        ("{{ missing|default('d') }}{{ ''|default('e', true) }}{{ missing is defined }}", "deFalse"),
        ("{{ [1, 2]|join('-') }} {{ 'abc'|join(',') }} {{ text|length }}", "1-2 a,b,c 11"),
        ("{{ 3.14159|round(2) }} {{ 2.5|round(0, 'ceil')|int }} {{ '42'|int + 1 }} {{ '1.5'|float }}", "3.14 3 43 1.5"),
        ("{{ {'b': [1, none], 'a': '<'}|tojson }}", '{"a": "\\u003c", "b": [1, null]}'),
        ("{{ {'a': 1}|tojson(indent=2) }}", '{\n  "a": 1\n}'),
        ("{{ text|truncate(8, true, '..', 0) }} {{ text|replace('l', 'L') }}", "hello .. heLLo worLd"),
        ("{{ 'a\nb'|indent(2) }}|{{ 'x'|center(5) }}|{{ 'a b c'|wordwrap(3) }}", "a\n  b|  x  |a b\nc"),
        ("{{ [3, 1, 2]|sort|reverse|list }} {{ [1, 1, 2]|unique|list }} {{ [1, 5]|max }}", "[3, 2, 1] [1, 2] 5"),
        ("{{ [1, 2, 3]|batch(2, 0)|list }} {{ [1, 2, 3]|slice(2)|list }}", "[[1, 2], [3, 0]] [[1, 2], [3]]"),
        ("{{ [1, 2, 3]|select('odd')|list }} {{ ['a']|map('upper')|first }} {{ [1, 2]|sum }}", "[1, 3] A 3"),
        ("{{ '<b>'|e }} {{ '<b>x</b> y'|striptags }} {{ 'a b'|urlencode }} {{ 'x'|safe }}", "&lt;b&gt; x y a%20b x"),
        ("{{ '%s is %05.1f' % ('pi', 3.14159) }} {{ '%d%%'|format(5) }}", "pi is 003.1 5%"),
        ("{{ 'a b'|wordcount }} {{ 1000|filesizeformat }} {{ -1|abs }} {{ 'ab'|list }}", "2 1.0 kB 1 ['a', 'b']"),
        ("{{ text.split()|last }} {{ text.upper() }} {{ text.replace('o', '0') }}", "world HELLO WORLD hell0 w0rld"),
        ("{{ text.startswith('he') }} {{ '-'.join(['a', 'b']) }} {{ '7'.zfill(3) }}", "True a-b 007"),
        ("{{ 'a,b'.split(',') }} {{ ' x '.strip() }} {{ text[:5] }} {{ text[-1] }}", "['a', 'b'] x hello d"),
        ("{{ details.accuracy }} {{ details['accuracy'] }} {{ details.get('x', 0) }}", "80.0 80.0 0"),
        ("{% for k, v in details.items() %}{{ k }}={{ v }};{% endfor %}", "accuracy=80.0;names=['a'];"),
        ("{{ details|length }} {{ details.names[0] }} {{ 'accuracy' in details }}", "2 a True"),
        ("{{ 7 // 2 }} {{ 7 % 2 }} {{ 2 ** 10 }} {{ -n }} {{ 7 / 2 }} {{ 'a' ~ n ~ none }}", "3 1 1024 -2 3.5 a2None"),
        ("{{ 'ab' * 3 }} {{ [0] * 2 + [1] }} {{ (1, 2)[0] }} {{ {'a': 1}.a }}", "ababab [0, 0, 1] 1 1"),
        (
            "{{ n is number }} {{ text is string }} {{ 6 is divisibleby 3 }} {{ 'a' is in 'abc' }}",
            "True True True True",
        ),
        ("{{ dict(a=1) }} {{ range(3)|list }} {{ true }} {{ none }} {{ 1.0 }}", "{'a': 1} [0, 1, 2] True None 1.0"),
        ("{% for g in [{'k': 1}, {'k': 1}]|groupby('k') %}{{ g.grouper }}{{ g.list|length }}{% endfor %}", "12"),
    ],
)
def test_harmless_templates_work_as_in_jinja(source: str, text: str) -> None:
    values = {"n": 2, "text": "hello world", "details": {"accuracy": 80.0, "names": ["a"]}}
    assert render(source, **values) == text
    plain = jinja2.Environment(trim_blocks=True, lstrip_blocks=True)
    assert plain.from_string(source).render(values) == text


def test_records_are_read_in_loops_and_filters() -> None:
    source = (
        "{% for record in records %}"
        "{{ record.round_number }}: {{ record.content[:3] }} {{ record.score|format_score }}\n"
        "{% endfor %}{{ records|map(attribute='round_number')|list }} "
        "{{ records|selectattr('score')|map(attribute='score')|sum }} {{ (records|last).feedback }}"
    )
    expected = "1: あああ 61.2/100\n2: いいい 評価なし\n3: う<& 80.0/100\n[1, 2, 3] 141.25 良い"
    assert render(source, records=RECORDS) == expected


def test_documented_properties_of_records_can_be_read() -> None:
    metrics = [MetricScore(metric_name="clarity", score=80, evaluator_comment="明確")]
    assert render("{{ r.feedback_summary }}", r=EvaluationResult(metrics=metrics, overall_score=80)) == "clarity: 明確"


def test_own_filters() -> None:
    assert set(PROMPT_FILTERS) == {"format_score", "summarize", "medal"}
    assert render("{{ none|format_score }} {{ 75.54|format_score }}") == "評価なし 75.5/100"
    assert render("{{ 0|format_score }}") == "0.0/100"
    assert render("{{ ('nan'|float)|format_score }}") == "評価なし"
    assert render("{{ 'abc'|summarize(2) }} {{ 'abc'|summarize(3) }}") == "ab... abc"
    assert render("{{ ('x' * 201)|summarize }}") == "x" * 200 + "..."
    assert render("{{ [1, 2, 3, 4]|map('medal')|join(' ') }}") == "🥇 🥈 🥉 4"


def test_html_safe_values_are_plain_text() -> None:
    assert render("{{ x + '<' }}{{ x ~ '<' }}", x=Markup("a")) == "a<a<"


@given(text=st.text())
def test_any_text_is_printed_as_it_is(text: str) -> None:
    assert render("{{ x }}", x=text) == text
    assert render("{% macro m(a) %}{{ a }}{% endmacro %}{% for c in [x] %}{{ m(c) }}{% endfor %}", x=text) == text
    assert render("{% set a %}{{ x }}{% endset %}{{ a ~ '' }}", x=text) == text


@given(text=st.text(alphabet="{}%#- 'x7*\n"))
def test_text_that_looks_like_a_template_is_not_one(text: str) -> None:
    assert render("[{{ x }}]", x=text) == f"[{text}]"


@given(text=st.text(alphabet=st.sampled_from("{}%#-| 'x7*.()[]~_=,\n") | st.sampled_from("ifforendset")))
def test_any_source_gives_text_or_a_template_error(text: str) -> None:
    assert isinstance(text_or_message(text), str)


def text_or_message(source: str) -> str:
    try:
        return compile_template(source, "any").render({"x": "value"})
    except jinja2.TemplateError as error:
        return str(error)


# --- compiling once -------------------------------------------------------------------------------------------------


def test_a_template_is_compiled_once_for_each_source_and_name() -> None:
    first = compile_template("{{ a }} once", "one")
    assert compile_template("{{ a }} once", "one") is first
    assert compile_template("{{ a }} once", "two") is not first


def test_threads_share_one_compiled_template_and_do_not_mix_values() -> None:
    start = threading.Barrier(8)

    def work(number: int) -> tuple[int, bool]:
        start.wait()
        template = compile_template("{% for i in range(50) %}{{ x }},{% endfor %} threads", "threads")
        texts = {template.render({"x": number}) for _ in range(20)}
        return id(template), texts == {f"{number}," * 50 + " threads"}

    with ThreadPoolExecutor(8) as pool:
        results = list(pool.map(work, range(8)))
    assert len({template for template, _ in results}) == 1
    assert all(right for _, right in results)


def test_a_render_does_not_use_up_the_means_of_the_next() -> None:
    template = compile_template("{% for i in range(9000) %}{{ i }}{% endfor %}", "again")
    assert len({template.render({}) for _ in range(30)}) == 1


def test_templating_loads_no_heavy_package() -> None:
    program = "import sys, mixseek.templating; print([m for m in ('duckdb', 'pydantic_ai') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
