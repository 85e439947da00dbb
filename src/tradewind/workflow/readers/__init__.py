"""Reads workflows from the formats that they come in."""
