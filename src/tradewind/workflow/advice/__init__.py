"""Chooses the machines of a workflow: which types, how many of each."""
