"""Running code that nobody has read: a small door, and the sandboxes behind it.

Monty is a Python interpreter without a way out: no files, no network, no processes, and only a part of the standard
library. Bubblewrap gives a real machine's view of itself (the full Python, any command) in namespaces of its own. Both
hold to the same limits, work off the event loop, and leave nothing behind; cancelling a run ends it at once.
"""

from mixseek.sandbox.bubblewrap import BubblewrapSandbox, bubblewrap_is_missing
from mixseek.sandbox.monty import MontySandbox, monty_is_missing
from mixseek.sandbox.results import CodeResult, Limit, Limits, Sandbox

__all__ = [
    "BubblewrapSandbox",
    "CodeResult",
    "Limit",
    "Limits",
    "MontySandbox",
    "Sandbox",
    "bubblewrap_is_missing",
    "monty_is_missing",
]
