"""Readers of the files that other workflow systems write and run."""
