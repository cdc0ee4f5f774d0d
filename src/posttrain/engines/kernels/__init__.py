"""Compiled operations for the embedded engine: optional, built on demand, equal to the plain ones up to rounding."""
