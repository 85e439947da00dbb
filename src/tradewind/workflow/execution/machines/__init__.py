"""Machines of a run that do not see its folder: their files, and the rows of all machines."""
