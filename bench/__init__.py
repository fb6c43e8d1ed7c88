"""Medians and 95th percentiles, each beside its limit from the same run."""
