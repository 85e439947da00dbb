"""Secrets that are shown once and kept as digests: tokens of programs, cookies of sessions, links to results."""

from __future__ import annotations

import hashlib
import secrets

TOKEN_PREFIX = "tw_"
"""Begins every token, so that a scanner of source code recognises one that was committed."""


def new_secret(prefix: str = TOKEN_PREFIX) -> str:
    """A secret of 256 random bits."""
    return prefix + secrets.token_urlsafe(32)


def secret_digest(secret: str) -> str:
    """What is kept of a secret: it has 256 bits of its own, so that a plain hash cannot be searched."""
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()
