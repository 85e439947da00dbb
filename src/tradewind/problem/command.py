"""Command lines written as one text: split into words as a shell does, and refused where only a shell would do."""

from __future__ import annotations

import re

from tradewind.errors import SpecError

_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*=")
_EXPANDED = re.compile(r"\$(?:[A-Za-z_]\w*|\{|\()|`")
_OPERATORS = re.compile(
    r"""
    (?: (?:^|(?<=\s)) (?:\d|&)? (?:>>?|<<?<?) (?:&\d)?   # a redirection that begins a word: > >> < 2> 2>&1 &>
      | (?:>>?|<) (?=\s|$)                               # or ends one
      | && | \|\|
      | (?:^|(?<=\s)) (?:;|\||&) | (?:;;?|\||&) (?=\s|$) # at the edge of a word: within one, they may mean themselves
    )""",
    re.VERBOSE,
)
_QUOTED = re.compile(r"'[^']*'|\"(?:\\.|[^\"\\])*\"|\\.", re.DOTALL)

# A gap, letters, single quotes, double quotes, an escaped letter.
_PIECE = re.compile(r"""([ \t\r\n]+)|([^ \t\r\n'"\\]+)|'([^']*)'|"([^"\\]*(?:\\.[^"\\]*)*)"|\\(.)""", re.DOTALL)


def split_words(text: str) -> tuple[str, ...]:
    """The words of a command line, as a shell would split it; a backslash at the end of a line goes on in the next.

    What only a shell would understand is refused: without one it would be words for the program, which may well
    ignore them and end as if all were done.

    Raises:
        SpecError: A quote is not closed, or the text needs a shell.
    """
    joined = _QUOTED.sub(lambda match: "" if match[0] == "\\\n" else match[0], text).strip()
    try:
        words = _split(joined)
    except ValueError as error:
        raise SpecError(f"cannot split the command: {str(error).lower()}", hint="write it as a list of words") from None
    if len(words) > 1 and (variable := _ASSIGNMENT.match(joined)):
        name = variable[0].rstrip("=")
        raise SpecError(f"no shell sees the command, but it begins with {name}=", hint=f"set {name} under env")
    if found := _needs_shell(joined):
        raise SpecError(
            f"no shell sees the command, but it has {found}",
            hint='write command: [sh, -c, "..."] for a shell; quote what is meant as it stands',
        )
    return tuple(words)


def _split(text: str) -> list[str]:
    """As `shlex.split`, in a time that grows with the length of the text: that one's grows with a word's square.

    Raises:
        ValueError: A quote is not closed, or the text ends with a backslash.
    """
    words: list[str] = []
    word: list[str] | None = None
    end = 0
    for match in _PIECE.finditer(text):
        if match.start() != end:
            break
        end = match.end()
        gap, plain, single, double, escaped = match.groups()
        if gap is None:
            word = [] if word is None else word
            word.append(plain or single or escaped or re.sub(r'\\(["\\])', r"\1", double or ""))
        elif word is not None:
            words.append("".join(word))
            word = None
    if end != len(text):
        raise ValueError("No escaped character" if text[end] == "\\" else "No closing quotation")
    return words if word is None else [*words, "".join(word)]


def _needs_shell(text: str) -> str:
    """What in a command line only a shell would understand, in words; empty where there is nothing."""
    # In double quotes a shell still fills in variables, in single ones it does not.
    live = _QUOTED.sub(lambda match: re.sub(r"\\.", "_", match[0]) if match[0][0] == '"' else "_", text)
    if found := _EXPANDED.search(live):
        return found[0] if found[0] == "`" or found[0][-1].isalnum() else f"{found[0]}..."
    bare = _QUOTED.sub("_", text)
    if "\n" in bare:
        return "several lines (after > instead of | they are one)"
    found = _OPERATORS.search(bare)
    return found[0] if found else ""
