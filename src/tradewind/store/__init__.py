"""Floor 2: the store keeps studies, trials and runs."""
