"""What is found in a template before it is rendered."""

import pytest

from mixseek.templating import (
    DEFAULT_EVALUATOR_USER_PROMPT,
    DEFAULT_JUDGMENT_USER_PROMPT,
    DEFAULT_TEAM_USER_PROMPT,
    VARIABLES_BY_TEMPLATE,
    TemplateFault,
    check_template,
)

CONTINUATION = """{{ user_query }} {{ team_name }}
{% for record in submission_history %}
{{ record.round_number }}: {{ record.content[:200] }} {{ record.score | format_score }} {{ record.feedback }}
{% endfor %}
{% for result in evaluation_feedback %}{{ result.feedback_summary }}{{ result.overall_score }}{% endfor %}
{% for ranking in leaderboard_ranking[:10] %}
{{ ranking.rank | medal }} {{ ranking.team_name }} {{ ranking.best_score }}
{% if ranking.team_id == team_id %}← あなたのチーム{% endif %}
{% endfor %}
{{ current_team_rank }}
"""


@pytest.mark.parametrize(
    ("source", "name"),
    [
        (DEFAULT_TEAM_USER_PROMPT, "team_user_prompt"),
        (DEFAULT_EVALUATOR_USER_PROMPT, "evaluator_user_prompt"),
        (DEFAULT_JUDGMENT_USER_PROMPT, "judgment_user_prompt"),
        ("{{ user_query }} {{ team_id }} {{ team_name }}", "initial_prompt"),
        (CONTINUATION, "continuation_prompt"),
        ("{% set x = 1 %}{% macro m(a) %}{{ a }}{{ x }}{% endmacro %}{{ m(user_prompt.upper()) }}", "team_user_prompt"),
        ("{% for i in range(3) %}{{ loop.index }}{% endfor %}{{ 2 ** 10 }}{{ 'ab' * 3 }}", "team_user_prompt"),
        (
            "{% set ns = namespace(total=0) %}{{ ns.total }}{% set user_prompt = {} %}{{ user_prompt.x }}",
            "team_user_prompt",
        ),
    ],
)
def test_nothing_is_found_in_good_templates(source: str, name: str) -> None:
    assert check_template(source, name) == []


@pytest.mark.parametrize(
    ("source", "lineno", "words"),
    [
        ("\n{% if %}", 2, "Jinja2 template syntax error at line 2: "),
        ("{{ user_promt }}", 1, "'user_promt' is undefined; did you mean 'user_prompt'?"),
        ("{{ submission }}", 1, "'submission' is undefined"),
        ("{{ loop.index }}", 1, "'loop' is undefined"),
        ("{% if x is defined %}{% endif %}", 1, "'x' is undefined"),
        ("a\n{{ user_prompt|uper }}", 2, "no filter named 'uper'; did you mean 'upper'?"),
        ("{% if 1 is ood %}{% endif %}", 1, "no test named 'ood'; did you mean 'odd'?"),
        ("{% if false %}{{ user_prompt|nothing_like_it }}{% endif %}", 1, "no filter named 'nothing_like_it'"),
        ("{{ user_prompt.__class__ }}", 1, "access to attribute '__class__' is unsafe"),
        ("{{ user_prompt['__class__'] }}", 1, "access to item '__class__' is unsafe"),
        ("{{ user_prompt.format(1) }}", 1, "'user_prompt' has no attribute 'format' for templates"),
        ("{{ user_prompt.uper() }}", 1, "did you mean 'upper'?"),
        ("{{ round_number.real }}", 1, "'round_number' has no attribute 'real' for templates"),
        ("{% include 'x' %}", 1, "'include' cannot be used in a prompt template"),
        ("{% extends 'x' %}", 1, "'extends' cannot be used in a prompt template"),
        ("{{ cycler(1) }}", 1, "'cycler' cannot be used in a prompt template"),
        ("{{ self }}", 1, "'self' cannot be used in a prompt template"),
        ("\n\n{{ 'x' * 10**9 }}", 3, "the template makes too much data"),
        ("{% set a = user_prompt ~ ('x'|center(10**7)) %}", 1, "'width' is over 10,000"),
        ("{% for i in range(10**6) %}{% endfor %}", 1, "range() of more than 10,000 numbers"),
        ("{{ 1e999 }}", 1, "a number is too large"),
        ("{% for i in [1] %}" * 25 + "{% endfor %}" * 25, None, "the template cannot be compiled"),
        ("x" * 300_000, None, "the template is longer than 256 K characters"),
        ("{{ " + "(" * 300 + "1" + ")" * 300 + " }}", None, "the template is nested too deeply"),
    ],
)
def test_a_fault_is_found_with_its_line(source: str, lineno: int | None, words: str) -> None:
    (fault,) = check_template(source, "team_user_prompt")
    assert fault.lineno == lineno
    assert words in fault.message
    assert fault.message.startswith("Jinja2 template ")


def test_fields_of_records_are_checked_in_loops() -> None:
    source = "{% for r in submission_history|reverse %}{{ r.contnt }}{% endfor %}\n{{ submission_history.append(1) }}"
    first, second = check_template(source, "continuation_prompt")
    assert "'r' has no attribute 'contnt' for templates; did you mean 'content'?" in first.message
    assert (second.lineno, "'append'" in second.message) == (2, True)


def test_all_faults_are_told_at_once_in_the_order_of_lines() -> None:
    source = "{{ a_name }}\n{% include 'x' %}\n{{ user_prompt|nofilter }}\n{{ ''.__mro__ }}\n{{ 10**(10**9) }}"
    assert [fault.lineno for fault in check_template(source, "team_user_prompt")] == [1, 2, 3, 4, 5]


def test_a_fault_is_a_frozen_value() -> None:
    assert TemplateFault(1, "a") == TemplateFault(1, "a")
    assert len({TemplateFault(1, "a"), TemplateFault(1, "a")}) == 1


def test_every_variable_of_every_template_is_known() -> None:
    for name, variables in VARIABLES_BY_TEMPLATE.items():
        source = "".join(f"{{{{ {variable} }}}}" for variable in variables)
        assert check_template(source, name) == []


def test_many_faults_take_no_long_time_and_are_cut() -> None:
    source = "".join(f"{{{{ unknown_{number}|nofilter_{number} }}}}" for number in range(1000))
    assert 2 <= len(check_template(source, "team_user_prompt")) <= 100
