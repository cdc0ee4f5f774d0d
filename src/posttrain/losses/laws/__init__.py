"""The laws that can be tried on a loss alone, ours or a user's: `posttrain check loss NAME`."""
