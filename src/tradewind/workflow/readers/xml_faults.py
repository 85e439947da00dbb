"""Faults of XML text, in words."""

from __future__ import annotations

from collections.abc import Callable


def xml_fault(parse: Callable[[], object], begun: Callable[[], bool]) -> tuple[str, int] | None:
    """Parse with expat, and say in words what is wrong and in which line; None where nothing is.

    Args:
        parse: Parses the whole text.
        begun: Says whether an element was met: an error before the first one is of the encoding that is declared.
    """
    from xml.parsers import expat

    try:
        parse()
    except expat.ExpatError as error:
        return f"it is no XML: {expat.errors.messages[error.code]}", error.lineno
    except (LookupError, ValueError) as error:
        if begun():
            raise
        return f"it is no XML that can be read: {error}", 1
    return None
