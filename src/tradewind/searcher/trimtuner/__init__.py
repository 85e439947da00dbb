"""Sub-sampled searches: what parts of the input teach about the whole."""
