"""What happened and what it came to, on disk; the only place that speaks SQL."""
