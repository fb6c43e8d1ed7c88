"""Scores submissions: runs the metrics and weighs them."""
