"""Runs of workflows in the store: their journal there, and what commands make of it."""
