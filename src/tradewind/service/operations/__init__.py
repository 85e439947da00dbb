"""Operation of the server: start and end, worker, health, metrics, logs, pruning."""
