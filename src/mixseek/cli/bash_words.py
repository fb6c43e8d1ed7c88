"""Completion in bash of words with a colon, as names of models are: bash takes each for several words.

What it hands over as ``scripted``, ``:`` and ``le`` is put together again before the command is asked, and the part up
to the colon is taken off its answers, since bash only replaces what stands behind it.
"""

import contextlib
import io
import os
import sys
from collections.abc import Iterator, Sequence

__all__ = ["colons_joined", "joined"]

_ASKED_BY_BASH = "complete_bash"


@contextlib.contextmanager
def colons_joined() -> Iterator[None]:
    """Around a command: if a bash asks it for completions, words with colons are whole inside."""
    if os.environ.get("_MIXSEEK_COMPLETE") != _ASKED_BY_BASH or not os.environ.get("COMP_CWORD", "").isdecimal():
        yield
        return
    words, beginning = joined(os.environ.get("COMP_WORDS", "").split("\n"), int(os.environ["COMP_CWORD"]))
    os.environ.update(COMP_WORDS="\n".join(words), COMP_CWORD=str(len(words) - 1))
    answers = io.StringIO()
    try:
        with contextlib.redirect_stdout(answers):
            yield
    finally:
        sys.stdout.writelines(line.removeprefix(beginning) for line in answers.getvalue().splitlines(keepends=True))


def joined(words: Sequence[str], place: int) -> tuple[list[str], str]:
    """The words up to the one at ``place`` with colons inside them, and how much of that one bash has behind itself.

    >>> joined(["mixseek", "models", "check", "scripted", ":", "le"], 5)
    (['mixseek', 'models', 'check', 'scripted:le'], 'scripted:')
    >>> joined(["mixseek", "show", "12"], 2)
    (['mixseek', 'show', '12'], '')
    """
    whole: list[str] = []
    follows_colon = False
    for word in [*words, ""][: place + 1]:
        is_colon = bool(word) and not word.strip(":")
        if whole and (is_colon or follows_colon):
            whole[-1] += word
        else:
            whole.append(word)
        follows_colon = is_colon
    parted = len(whole) <= place
    return whole, whole[-1].rpartition(":")[0] + ":" if parted and ":" in whole[-1] else ""
