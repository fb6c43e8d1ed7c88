"""What the manual says of variables is so."""

import re
from pathlib import Path

from mixseek.config.environment import variable_names
from mixseek.config.kinds import KINDS
from mixseek.config.shape import allowed, field_at

MANUAL = (Path(__file__).parents[2] / "docs" / "configuration.md").read_text(encoding="utf-8")


def test_the_manual_names_the_variables_that_hold_json() -> None:
    before_the_tables, _, _ = MANUAL.partition("<!-- reference -->")
    for kind in KINDS.values():
        for path, name in variable_names(kind.model, kind.variables).items() if kind.variables else ():
            field = field_at(kind.model, path)
            assert field is not None
            holds_json = re.match(r"(text or )?a (list|table)", allowed(field)) is not None
            assert not holds_json or f"`{name}`" in before_the_tables or f"`{name}=" in before_the_tables
