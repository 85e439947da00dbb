"""Tradewind finds the cheapest configuration that finishes a job before its deadline, within a budget."""

__version__ = "0.1.0"
