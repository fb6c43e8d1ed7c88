"""The web for members: a search, and a fetch that cannot be led to private addresses."""
