"""Preemption: a tenant below its share gets places of runs of others, if its policy says so."""
