"""Limits on documents from outside: finite numbers, storable characters, bounded depth."""

from __future__ import annotations

import math
import re
import sys
from typing import Any

from tradewind.errors import InputError

MAX_DEPTH = 48
"""Levels of lists and mappings that a document may have."""

MAX_INTEGER = 2**63 - 1
"""The largest whole number that a database keeps; identifiers are smaller."""

_FLOAT = int(sys.float_info.max)

# NUL is no text for PostgreSQL, halves of surrogate pairs are none for UTF-8.
_UNSTORABLE = re.compile("[\x00\ud800-\udfff]")


def check_document(document: Any) -> Any:
    """Return the document as it is, if it can be stored and given back.

    Raises:
        InputError: It is too deep, or has a number that is not finite or a character that cannot be stored.
    """
    # An own stack: what is checked here must not be able to exhaust the interpreter's.
    waiting = [(document, 1)]
    while waiting:
        value, depth = waiting.pop()
        if isinstance(value, str):
            check_text(value)
        elif isinstance(value, float):
            if not math.isfinite(value):
                raise InputError(f"the document has the number {value}", hint="numbers must be finite")
        elif isinstance(value, int):
            if abs(value) > _FLOAT:
                raise InputError("the document has a number that is too large", hint="write it with fewer digits")
        elif isinstance(value, dict | list):
            if depth > MAX_DEPTH:
                raise InputError(f"the document is nested deeper than {MAX_DEPTH} levels", hint="write it flatter")
            if isinstance(value, dict):
                for name in value:
                    check_text(str(name))
            inner = value.values() if isinstance(value, dict) else value
            waiting += [(one, depth + 1) for one in inner]
    return document


def check_text(text: str) -> str:
    """Return the text as it is, if it can be stored.

    Raises:
        InputError: It has a character that cannot.
    """
    if (found := _UNSTORABLE.search(text)) is not None:
        raise InputError(f"a text has the character U+{ord(found[0]):04X}", hint="it cannot be stored; leave it out")
    return text
