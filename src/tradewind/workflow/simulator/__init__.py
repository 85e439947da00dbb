"""Simulates workflows on sets of machines, without running them."""
