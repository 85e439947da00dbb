"""Conformance suites for every kind of part; they ship with the package."""
