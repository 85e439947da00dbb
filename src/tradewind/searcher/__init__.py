"""Floor 2: searchers propose configurations."""
