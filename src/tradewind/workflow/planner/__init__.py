"""Decides which machine runs which task, and in which order."""
