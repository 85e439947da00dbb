"""Catalogues: one module a provider."""
