"""Runs answer.py on the case that is named, and ends with 0 if it prints what it should."""

import subprocess
import sys

CASES = {
    "counts": ("b a b\nA b\n", "b 3\na 2\n"),
    "ties": ("pear fig\nplum fig pear\n", "fig 2\npear 2\nplum 1\n"),
    "empty": ("", ""),
}


def fault(case: str) -> str:
    """What is wrong with what answer.py prints for a case; "" if nothing is."""
    given, expected = CASES[case]
    # As a program of its own: one that is imported could end this check with a success.
    ran = subprocess.run([sys.executable, "answer.py"], input=given, capture_output=True, text=True, timeout=10)
    if ran.returncode:
        return ran.stderr[-400:]
    if ran.stdout.split() == expected.split():
        return ""
    return f"for the input {given!r} it printed {ran.stdout[:200]!r}, not {expected!r}"


if __name__ == "__main__":
    sys.exit(fault(sys.argv[1]) or 0)
