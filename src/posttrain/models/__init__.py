"""Get, convert, load and export models; tokenizers and chat templates."""
