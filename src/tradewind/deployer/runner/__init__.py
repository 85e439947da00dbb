"""Runners: who runs the job on the machines."""
