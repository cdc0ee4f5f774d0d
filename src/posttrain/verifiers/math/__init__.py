"""What a final answer of mathematics says, read by a grammar of ours: nothing here evaluates text as a program."""
