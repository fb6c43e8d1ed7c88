"""A finished execution with other judges or other rules, and played again from its record."""
