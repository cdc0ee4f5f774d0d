"""Supervised child processes, started from `module:factory` and plain configuration."""
