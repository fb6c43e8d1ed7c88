"""Records under the paths that custom members and metrics import them from."""
