"""Turns commands of other systems into the words of a command line, and back."""

from __future__ import annotations

import ast
import json
import re
import shlex

_WORD = re.compile(
    r"""
    (?P<blank>\s+)
    | (?P<single>'[^']*')
    | (?P<double>"(?:[^"\\]|\\.)*")
    | (?P<escaped>\\.)
    | (?P<plain>[^\s'"\\]+)
    """,
    re.VERBOSE | re.DOTALL,
)
_LITERAL = re.compile(r"""[{\[]\s*['"]""")
"""How a list or mapping of JSON or Python begins; it is one word with its quotes."""
ENV = "/usr/bin/env"
"""Finds a program that is named without a path; it has this path on all Unix systems."""

_RUN = 'exec "$0" "$@"'
"""Script of `with_streams`, before its redirections."""
_WFBENCH = ("wfbench", "wfbench.py")
_SHELLS = ("sh", "bash", "dash", "zsh", "ksh")


def split_arguments(program: str, arguments: list[str]) -> list[str]:
    """Split arguments that hold several words, such as ``--name x``, as a shell would.

    A list or a mapping, such as that of WfBench's ``--output-files {'a': 3}``, stays one word with its quotes. For
    WfBench it becomes JSON: its generator writes it as Python does, and its program reads JSON only. An argument whose
    quotes are not closed stays as it is, as does the script after ``-c`` of a shell.

    Args:
        program: The program that they are for.
        arguments: The arguments, each of one word or of several.
    """
    found: list[str] = []
    name = program.rpartition("/")[2]
    shell = name in _SHELLS
    for place, text in enumerate(arguments):
        script = shell and place > 0 and arguments[place - 1] == "-c"
        words = None if script or not re.search(r"\s", text) else _split(text)
        found += [text] if words is None else words
    return [_as_json(word) if _LITERAL.match(word) else word for word in found] if name in _WFBENCH else found


def _as_json(word: str) -> str:
    """A list or mapping of Python as JSON; a word that is none as it is."""
    try:
        return json.dumps(ast.literal_eval(word))
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        return word


def join_argument(word: str) -> str:
    """Write one word so that `split_arguments` takes it as one."""
    return shlex.quote(word) if re.search(r"\s", word) else word


def _split(text: str) -> list[str] | None:
    """The words of a text; None where a quote is not closed."""
    words: list[str] = []
    word: str | None = None
    place = 0
    while place < len(text):
        if word is None and _LITERAL.match(text, place):
            end = _literal_end(text, place)
            if end:
                word, place = text[place:end], end
                continue
        match = _WORD.match(text, place)
        if match is None:
            return None
        place, part = match.end(), match[0]
        if match.lastgroup == "blank":
            words += [] if word is None else [word]
            word = None
            continue
        if match.lastgroup in ("single", "double"):
            part = part[1:-1]
            part = re.sub(r'\\(["\\$`])', r"\1", part) if match.lastgroup == "double" else part
        word = (word or "") + (part[1:] if match.lastgroup == "escaped" else part)
    return words if word is None else [*words, word]


def _literal_end(text: str, place: int) -> int:
    """The end of a list or mapping; 0 where it is not closed."""
    depth = 0
    while place < len(text):
        match = _WORD.match(text, place)
        if match is None:
            return 0
        if match.lastgroup != "plain":
            place = match.end()
            continue
        depth += (text[place] in "{[") - (text[place] in "}]")
        place += 1
        if not depth:
            return place
    return 0


def with_streams(words: list[str], stdin: str, stdout: str, stderr: str) -> list[str]:
    """Let a command read its standard input from a file, and write its output and its errors to files.

    Args:
        words: The words of the command.
        stdin: The file to read from; empty for none.
        stdout: The file for the output; empty for none.
        stderr: The file for the errors, which may be that of the output; empty for none.
    """
    parts = [f"{sign}{shlex.quote(name)}" for sign, name in (("<", stdin), (">", stdout)) if name]
    if stderr:
        parts.append("2>&1" if stderr == stdout else f"2>{shlex.quote(stderr)}")
    return ["sh", "-c", " ".join([_RUN, *parts]), *words] if parts else words


def split_streams(words: list[str]) -> tuple[list[str], str, str, str]:
    """Take a command of `with_streams` apart: its words, and the files of its input, its output and its errors."""
    files = {"<": "", ">": "", "2>": ""}
    if words[:2] == ["sh", "-c"] and len(words) > 3 and words[2].startswith(f"{_RUN} "):
        for part in shlex.split(words[2][len(_RUN) :]):
            sign, name = re.fullmatch(r"(2?>|<|)(.*)", part, re.DOTALL).groups()  # type: ignore[union-attr]
            files[sign] = files[">"] if part == "2>&1" else name
        found = words[3:], files["<"], files[">"], files["2>"]
        if with_streams(*found) == words:
            return found
    return words, "", "", ""


def without_env(words: list[str]) -> list[str]:
    """Leave out ``env`` before a program that it only has to find."""
    found = len(words) > 1 and words[0] == ENV and not words[1].startswith("-") and "=" not in words[1] and words[1]
    return words[1:] if found else words


def quote_argument(word: str) -> str:
    """Quote a word for the arguments of Pegasus, so that its planner and the shell of its jobs take it as one.

    Raises:
        ValueError: They would differ about the word.
    """
    if re.fullmatch(r"[\w@%+=:,./-]+", word, re.ASCII):
        return word
    if "'" not in word:
        return f"'{word}'"
    if re.search(r"[$`\\]", word):
        raise ValueError("a single quote beside $, ` or a backslash")
    return '\\"'.join(f'"{part}"' if part else "" for part in word.split('"'))


def unquote_argument(text: str) -> str:
    """The word that `quote_argument` has quoted; any other text as it is."""
    words = _split(text) if text[:1] in ("'", '"', "\\") else None
    if not words or len(words) > 1:
        return text
    try:
        return words[0] if quote_argument(words[0]) == text else text
    except ValueError:
        return text
