"""Where the parts of a run live; starts them by name and imports none of them."""
