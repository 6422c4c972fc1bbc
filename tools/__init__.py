"""Developer tools: bootstrap, documentation, fuzzing, mutation testing."""
