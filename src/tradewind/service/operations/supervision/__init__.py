"""Child processes of the server: start, restart, configuration and metrics."""
