"""Groups → a better policy."""
