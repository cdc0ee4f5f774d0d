"""Are the tests right? Coverage, mutants, repetition and difficulty of a task's hidden tests."""
