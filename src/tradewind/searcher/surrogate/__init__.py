"""Surrogate models: Gaussian processes, and the features that they take."""
