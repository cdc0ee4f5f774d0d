"""Is it right? One file for each kind of answer."""
