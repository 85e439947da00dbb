"""Figures and reasons of an allocator, for those who watch."""
