"""Names existing agents import."""
