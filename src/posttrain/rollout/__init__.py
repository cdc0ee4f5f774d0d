"""Tasks → scored groups."""
