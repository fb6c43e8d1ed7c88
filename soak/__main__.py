"""Every scenario with its large counts, one after the other; ends with exit code 1 if any failed."""

import platform
import subprocess
import sys
from datetime import UTC, datetime

SCENARIOS = ("soak.store", "soak.faults", "soak.rates", "soak.kills")

print(f"make soak, {datetime.now(UTC):%Y-%m-%d %H:%M} UTC, Python {platform.python_version()}", flush=True)
failed = []
for scenario in SCENARIOS:
    print(f"\n== python -m {scenario}", flush=True)
    if subprocess.run([sys.executable, "-m", scenario], check=False).returncode != 0:
        failed.append(scenario)
print(f"\n{len(SCENARIOS) - len(failed)} passed, {len(failed)} failed")
sys.exit(1 if failed else 0)
