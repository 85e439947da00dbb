"""Provisioners make the machines of runs and give them back."""
