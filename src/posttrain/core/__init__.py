"""The vocabulary every room shares: records, seams, errors, names. Standard library and numpy only."""
