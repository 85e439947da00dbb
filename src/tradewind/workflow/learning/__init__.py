"""Learns where tasks go: from simulated runs, and from what it sees during a run."""
