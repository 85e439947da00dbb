"""Requests: what users want run, and how the server carries it out."""
