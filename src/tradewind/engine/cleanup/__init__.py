"""Tear studies down, and find and remove orphaned machines and jobs."""
