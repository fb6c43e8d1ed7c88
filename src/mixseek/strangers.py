"""The code of others at the edges where it must end nobody's work but its own.

It may raise what no ``except Exception`` catches: a library made in Rust panics with a ``BaseException`` of its own.
"""

import asyncio

__all__ = ["in_words", "is_for_us"]


def is_for_us(error: BaseException) -> bool:
    """Whether what came out of a stranger's code has to go on: a run that ends, and no failure of that code."""
    if isinstance(error, asyncio.CancelledError):
        # What cancels its own work is heard of in the same way, in a task that nobody cancels.
        task = asyncio.current_task()
        return task is not None and task.cancelling() > 0
    return isinstance(error, KeyboardInterrupt | GeneratorExit)


def in_words(error: BaseException) -> str:
    """A failure of a stranger's code as it is told."""
    if isinstance(error, asyncio.CancelledError):
        return "it gave up its own work"
    return f"{type(error).__name__}: {error}".rstrip(": ")
