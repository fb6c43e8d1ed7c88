"""Scenarios with large counts, run by ``make soak``."""
