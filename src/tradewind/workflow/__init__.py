"""Workflows: graphs of tasks, simulated, planned, learned and run on several machines."""
