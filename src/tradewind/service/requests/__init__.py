"""Requests of users for runs and searches, and their execution by workers."""
