"""What a workflow does on a set of machines, without running it."""
