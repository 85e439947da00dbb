"""Parses the text catalogues of Pegasus 4: ``tc.txt`` of programs, and ``rc.txt`` of files."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

_TOKEN = re.compile(r'"((?:[^"\\]|\\.)*)"|([{}])|([^\s{}"]+)')
_NAME = re.compile(r"(?:(.*?)::)?([^:]+)(?::(.*))?")


@dataclass
class ListedProgram:
    """A program of ``tc.txt`` on one site.

    Attributes:
        key: Namespace, name and version.
        site: The site; empty where the program has none.
        url: Where it is there.
        container: The container that it runs in; empty for none.
        profiles: Profiles there and of the program: value by namespace and key.
    """

    key: tuple[str, str, str]
    site: str = ""
    url: str = ""
    container: str = ""
    profiles: dict[tuple[str, str], str] = field(default_factory=dict)


@dataclass(frozen=True)
class ListedFile:
    """A file of ``rc.txt``.

    Attributes:
        name: Its logical name.
        url: Where it is.
        attributes: Further words, such as its site.
    """

    name: str
    url: str
    attributes: dict[str, str]


def parse_programs(text: str) -> list[ListedProgram] | None:
    """Parse ``tc.txt``; None where the text is something else."""
    tokens = list(_tokens(text))
    found: list[ListedProgram] = []
    place = 0
    while place < len(tokens):
        kind, place = tokens[place], place + 1
        if kind == "cont" and tokens[place + 1 : place + 2] == ["{"]:
            place = _end(tokens, place + 1)
        elif kind == "tr" and tokens[place + 1 : place + 2] == ["{"]:
            end = _end(tokens, place + 1)
            found += _program(tokens[place], tokens[place + 2 : end - 1])
            place = end
        else:
            return None
    return found or None


def parse_files(text: str) -> list[ListedFile] | None:
    """Parse ``rc.txt``; None where the text is something else."""
    found = []
    for raw in text.splitlines():
        line = raw.strip()
        if not line or line.startswith("#"):
            continue
        words = re.fullmatch(r'("[^"]*"|\S+)\s+("[^"]*"|\S+)((?:\s+[\w.]+\s*=\s*(?:"[^"]*"|\S+))*)', line)
        if words is None:
            return None
        given = re.findall(r'([\w.]+)\s*=\s*(?:"([^"]*)"|(\S+))', words[3])
        attributes = {key: quoted or word for key, quoted, word in given}
        found.append(ListedFile(words[1].strip('"'), words[2].strip('"'), attributes))
    return found or None


def _tokens(text: str) -> Iterator[str]:
    for line in text.splitlines():
        for match in _TOKEN.finditer("" if line.lstrip().startswith("#") else line):
            if match[3] and match[3].startswith("#"):
                break
            yield match[1] if match[1] is not None else match[0]


def _end(tokens: list[str], place: int) -> int:
    """The place behind the brace that closes the one at a place."""
    depth = 0
    while place < len(tokens):
        depth += (tokens[place] == "{") - (tokens[place] == "}")
        place += 1
        if not depth:
            break
    return place


def _program(name: str, tokens: list[str]) -> list[ListedProgram]:
    match = _NAME.fullmatch(name)
    key = (match[1] or "", match[2], match[3] or "") if match is not None else ("", name, "")
    general, sites = ListedProgram(key), []
    into, place = general, 0
    while place < len(tokens):
        word, rest = tokens[place], tokens[place + 1 : place + 4]
        if word == "site" and rest[1:2] == ["{"]:
            into = ListedProgram(key, rest[0])
            sites.append(into)
            place += 3
        elif word == "}":
            into = general
            place += 1
        elif word == "profile" and len(rest) == 3:
            into.profiles[rest[0].lower(), rest[1]] = rest[2]
            place += 4
        else:
            if word == "pfn" and rest:
                into.url = rest[0]
            elif word == "container" and rest:
                into.container = rest[0]
            place += 2
    for site in sites:
        site.profiles = {**general.profiles, **site.profiles}
    return sites or [general]
