"""TrimTuner: searches that learn from runs on parts of the input about the whole."""
