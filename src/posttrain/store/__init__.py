"""Runs, checkpoints and trajectories on disk, each file whole or absent."""
