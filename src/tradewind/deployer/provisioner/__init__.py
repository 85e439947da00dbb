"""Provisioners: who makes the machines."""
