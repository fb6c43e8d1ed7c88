"""``python -m mixseek``, and what the command ``mixseek`` runs."""

import sys
from typing import NoReturn

__all__ = ["main"]

_EXIT_INTERRUPTED = 130


def main() -> NoReturn:
    """Run ``mixseek`` with the arguments of the process."""
    try:
        # Takes some tenths of a second, in which Ctrl-C is no reason for a traceback either.
        from mixseek.cli import main as run
    except KeyboardInterrupt:
        sys.exit(_EXIT_INTERRUPTED)
    run()


if __name__ == "__main__":
    main()
