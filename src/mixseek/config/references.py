"""``${NAME}`` in a setting stands for a variable of the environment or of the workspace's ``.env``.

It is how a setting uses a key without holding it: the text is filled when a run needs it, and shown as it was written.
"""

import re
from collections.abc import Mapping

__all__ = ["fill", "references"]

_REFERENCE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")


def references(text: str) -> list[str]:
    """The variables a text refers to.

    >>> references("Bearer ${GITHUB_TOKEN}")
    ['GITHUB_TOKEN']
    """
    return _REFERENCE.findall(text)


def fill(text: str, environ: Mapping[str, str]) -> str:
    """``text`` with the values of its variables; ``KeyError`` if one is not set.

    >>> fill("Bearer ${TOKEN}", {"TOKEN": "t"})
    'Bearer t'
    """
    return _REFERENCE.sub(lambda found: environ[found[1]], text)
