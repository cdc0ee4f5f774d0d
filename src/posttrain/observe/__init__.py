"""Reads run records and shows them."""
