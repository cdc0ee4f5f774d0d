"""Pure functions on tensors, one file each."""
