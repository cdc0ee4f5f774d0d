"""Post-training for language models, from a laptop to a cluster."""
