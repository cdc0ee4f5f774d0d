"""Verdicts → one number → credit."""
