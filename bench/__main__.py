"""Every part of the benchmark: medians and p95, each beside its limit as a ratio from the same run."""

from bench import competition, journal, prompts, store

for part in (prompts, store, journal, competition):
    print(part.run(), end="\n\n", flush=True)
