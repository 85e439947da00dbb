"""Conformance suites for those who write parts, and problems to try them on; they ship with the package."""
