"""Writes workflows and plans in the formats of systems that carry them out."""
