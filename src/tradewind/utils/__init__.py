"""Floor 0: clocks, units, paths, atomic files and other small helpers that every part uses."""
