"""What goes wrong in a template is raised as the class that Jinja's users know."""

import pytest
from jinja2 import TemplateError

from mixseek.templating import compile_template


@pytest.mark.parametrize(
    ("source", "name"),
    [
        ("\n{{ nobody }}", "UndefinedError"),
        ("\n{% if %}", "TemplateSyntaxError"),
        ("\n{{ ''.__class__ }}", "SecurityError"),
        ("\n{{ 1 / 0 }}", "TemplateRuntimeError"),
        ("\n{{ 'x' * 10**9 }}", "TemplateLimitError"),
    ],
)
def test_an_error_has_the_class_it_is_known_by_and_its_place(source: str, name: str) -> None:
    with pytest.raises(TemplateError) as caught:
        compile_template(source, "team_user_prompt").render({})
    assert type(caught.value).__name__ == name
    assert (getattr(caught.value, "template_name", None), getattr(caught.value, "lineno", None)) == (
        "team_user_prompt",
        2,
    )
