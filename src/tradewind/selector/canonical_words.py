"""Canonical words for providers, categories and architectures.

They are called by many words in price lists, in spaces and in bounds: `canonical_value` brings each to one.
"""

from __future__ import annotations

import functools
import re

_PROVIDERS = {
    "amazon": "aws",
    "amazon web services": "aws",
    "amazon ec2": "aws",
    "aws ec2": "aws",
    "ec2": "aws",
    "google": "gcp",
    "google cloud": "gcp",
    "google cloud platform": "gcp",
    "google compute engine": "gcp",
    "gce": "gcp",
    "microsoft": "azure",
    "microsoft azure": "azure",
}
_CATEGORIES = {"cpu": "compute"}
_ARCHITECTURES = {
    **dict.fromkeys(("x8664", "amd64", "x64", "intel64", "em64t"), "x86_64"),
    **dict.fromkeys(("arm64", "aarch64", "arm64v8", "armv8", "arm"), "arm64"),
}


def canonical_provider(text: str) -> str:
    """Translate ``EC2`` to ``aws``, ``GCE`` to ``gcp``; unknown names are returned in lower case."""
    return _PROVIDERS.get(text.lower(), text.lower())


@functools.lru_cache(maxsize=1024)
def canonical_category(text: str) -> str:
    """Translate ``Compute optimized`` and ``CPU`` to ``compute``, ``General Purpose`` to ``general``."""
    short = re.sub(r"[\s_-]*(optimi[sz]ed|purpose)$", "", text.lower()).strip() or text.lower()
    return _CATEGORIES.get(short, short)


@functools.lru_cache(maxsize=1024)
def canonical_arch(text: str) -> str:
    """Translate ``AMD64`` and ``x86-64`` to ``x86_64``, ``aarch64`` to ``arm64``; others are returned in lower case."""
    return _ARCHITECTURES.get(re.sub(r"[\s_-]+", "", text.lower()), text.lower())


def canonical_value(attribute: str, value: object) -> str:
    """Translate a value of an attribute into the word by which it is compared."""
    text = str(value)
    if attribute == "provider":
        return canonical_provider(text)
    if attribute == "arch":
        return canonical_arch(text)
    return canonical_category(text) if attribute == "category" else text.lower()
