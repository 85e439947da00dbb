"""Standard output and error that cannot show or take all that a command has to say."""

from __future__ import annotations

import codecs
import io
import os
import re
import sys

from tradewind.utils.units import shortened


def prepare() -> None:
    """Let a character that the terminal does not have become one that looks like it, or a question mark.

    It is no reason to lose a result.
    """
    codecs.register_error(_ALIKE, _replace)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper) and (stream.errors == "strict" or not unicode(stream)):
            stream.reconfigure(errors=_ALIKE)


_ALIKE = "tradewind.alike"
_PLAIN = str.maketrans("█░…•×–✓✗⊘▶★¢", "#-~*x-+x/>*c")
"""One character each, so that columns stay where they are."""


def _replace(error: UnicodeError) -> tuple[str, int]:
    """Give what stands for characters that an encoding does not have, and where to go on."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    lost = error.object[error.start : error.end].translate(_PLAIN)
    return "".join(one if one.isascii() else "?" for one in lost), error.end


def unicode(stream: object) -> bool:
    """True if a stream takes every character there is."""
    return str(getattr(stream, "encoding", None) or "utf-8").lower().replace("-", "").startswith("utf")


def blocked() -> bool:
    """True if standard output takes no more; asked after an error that does not say which file it is of."""
    if sys.stdout is None:
        return False
    try:
        # What is larger than the buffer was not kept in it: without more to write, the flush would succeed.
        sys.stdout.write("\n")
        sys.stdout.flush()
    except BrokenPipeError:
        return False
    except OSError:
        return True
    return False


def finish() -> str:
    """Write what is still in our buffers; why that cannot be done, in words, or empty.

    A reader that has gone (``head``, ``less``) is no reason for words.
    """
    try:
        if sys.stdout is not None:
            sys.stdout.flush()
    except BrokenPipeError:
        drop()
    except OSError as error:
        drop()
        return f"the output could not be written: {(error.strerror or str(error)).lower()}"
    return ""


def drop() -> None:
    """Drop what is still in our buffers."""
    if sys.stdout is sys.__stdout__:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)


_LONGEST = 200
"""Characters of a name, a value or a path that a line about it shows."""

_OPENING = r"(?:(?<=^')|(?<=[\s(\[=:,]'))"
"""After a quote that opens: what stands between two quoted names, or two apostrophes, is no name."""

_LONG = re.compile(rf"{_OPENING}[^']{{{_LONGEST + 1},}}(?=')|\S{{{_LONGEST + 1},}}")


def one_line(text: str) -> str:
    """A message on one line; what is quoted in it, or has no space, and is very long loses its middle."""
    return _LONG.sub(lambda found: shortened(found[0], _LONGEST), " ".join(text.split()))


def printable(text: str) -> str:
    """Text of others without what would move the cursor or colour the terminal."""
    return "".join(c if c.isprintable() else " " for c in text)
