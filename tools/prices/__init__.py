"""Writes the price tables that the package ships, and says how old they are; see README.md in this folder."""
