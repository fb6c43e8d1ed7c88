"""Every scenario with its large counts, one after the other; ends with exit code 1 if any failed."""

import platform
import subprocess
import sys
import time
from datetime import UTC, datetime

SCENARIOS = (
    "resume",
    "budget",
    "purses",
    "together",
    "damage",
    "secrets",
    "disks",
    "kills",
    "store",
    "faults",
    "rates",
)
LONGEST_SECONDS = 120 * 60


def _passes(scenario: str) -> bool:
    print(f"\n== python -m {scenario}", flush=True)
    began = time.monotonic()
    try:
        code: int | str = subprocess.run(
            [sys.executable, "-m", scenario], check=False, timeout=LONGEST_SECONDS
        ).returncode
    except subprocess.TimeoutExpired:
        code = "none, it did not come to an end"
    print(f"-- {time.monotonic() - began:.0f} s, exit code {code}", flush=True)
    return code == 0


def _run_all() -> bool:
    print(f"make soak, {datetime.now(UTC):%Y-%m-%d %H:%M} UTC, Python {platform.python_version()}", flush=True)
    began = time.monotonic()
    passed = [_passes(f"soak.{name}") for name in SCENARIOS]
    minutes = (time.monotonic() - began) / 60
    print(f"\n{sum(passed)} passed, {len(passed) - sum(passed)} failed, {minutes:.0f} minutes")
    return all(passed)


if __name__ == "__main__":
    sys.exit(0 if _run_all() else 1)
