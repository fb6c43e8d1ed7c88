"""Teams in parallel."""
