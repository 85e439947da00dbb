"""Suggestions for a misspelt name, as the last words of an error."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def closest_match(word: str, known: Iterable[str]) -> str | None:
    """The name that is spelt most like a word, or only with other capitals; None where none is like it."""
    options = list(known)
    close = difflib.get_close_matches(word, options, n=1) or [o for o in options if o.lower() == word.lower()]
    return close[0] if close else None


def did_you_mean(word: str, known: Iterable[str], otherwise: str, none: str = "none") -> str:
    """``did you mean 'x'?``, or the list of what is known.

    Args:
        word: What was written.
        known: The names there are, as they are to be listed.
        otherwise: What comes before the list: ``installed:``.
        none: What stands for an empty list.
    """
    options = list(known)
    close = closest_match(word, options)
    return f"did you mean {close!r}?" if close is not None else f"{otherwise} {', '.join(options) or none}"
