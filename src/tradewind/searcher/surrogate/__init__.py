"""Surrogate models."""
