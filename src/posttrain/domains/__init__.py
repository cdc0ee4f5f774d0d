"""What is worth learning: tasks, environment and verifier, one file for each domain."""
