"""The commands of the service: start it, and look after it."""
