"""The ray runner: jobs on the nodes of a Ray cluster."""
