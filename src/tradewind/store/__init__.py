"""Floor 2: the store keeps studies, shared clusters, and all that the service knows, in one database."""
