"""One word for what providers and categories are called in many: in price lists, in spaces and in bounds."""

from __future__ import annotations

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


def canonical_provider(text: str) -> str:
    """``EC2`` as ``aws``, ``GCE`` as ``gcp``; a name that is not known in lower case."""
    return _PROVIDERS.get(text.lower(), text.lower())


def canonical_category(text: str) -> str:
    """``Compute optimized`` and ``CPU`` as ``compute``, ``General Purpose`` as ``general``."""
    short = re.sub(r"[\s_-]*(optimi[sz]ed|purpose)$", "", text.lower()).strip() or text.lower()
    return _CATEGORIES.get(short, short)


def canonical_value(attribute: str, value: object) -> str:
    """A value of an attribute in the word by which it is compared."""
    text = str(value)
    if attribute == "provider":
        return canonical_provider(text)
    return canonical_category(text) if attribute == "category" else text.lower()
