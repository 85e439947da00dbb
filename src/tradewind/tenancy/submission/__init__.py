"""Hands searches over to a cluster: job YAMLs, and Python functions that are tunable."""
