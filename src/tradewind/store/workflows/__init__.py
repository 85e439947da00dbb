"""Runs of workflows: their plans, and the journals of what was done."""
