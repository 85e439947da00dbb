"""Parses the catalogues of Pegasus 4: ``tc.txt`` of programs, ``rc.txt`` of files, and ``sites.xml`` of sites."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from tradewind.errors import WorkflowError
from tradewind.workflow.readers.xml_faults import xml_fault

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


def parse_sites(text: str, file: str) -> dict[str, dict[tuple[str, str], str]] | None:
    """Parse ``sites.xml``: for each site the values of its profiles by namespace and key; None where it is another XML.

    Args:
        text: The XML text, of any version of the format.
        file: The file's name, for errors.

    Raises:
        WorkflowError: It is no XML, or declares entities.
    """
    from xml.parsers import expat

    parser = expat.ParserCreate()
    found: dict[str, dict[tuple[str, str], str]] = {}
    stack: list[tuple[str, dict[str, str]]] = []
    roots, words = [""], [""]

    def start(name: str, attributes: dict[str, str]) -> None:
        roots.append(name.rpartition(":")[2])
        stack.append((roots[-1], attributes))
        words.clear()
        if [each for each, _ in stack[1:]] == ["site"]:
            found.setdefault(_handle(attributes), {})

    def end(_name: str) -> None:
        name, attributes = stack.pop()
        # A profile within a folder or a gatekeeper of the site is not of its jobs.
        if name == "profile" and [each for each, _ in stack[1:]] == ["site"]:
            key = attributes.get("namespace", "").lower(), attributes.get("key", "")
            found[_handle(stack[1][1])][key] = "".join(words).strip()

    def refused(*_: object) -> None:
        raise WorkflowError("it declares entities, which are not read", file=file, line=parser.CurrentLineNumber)

    parser.StartElementHandler, parser.EndElementHandler = start, end
    parser.CharacterDataHandler = words.append
    parser.EntityDeclHandler = refused
    if fault := xml_fault(lambda: parser.Parse(text, True), lambda: len(roots) > 1):
        raise WorkflowError(fault[0], file=file, line=fault[1])
    return found if roots[1] == "sitecatalog" else None


def _handle(attributes: dict[str, str]) -> str:
    """The name of a site; it was called sid before version 3 of the format."""
    return attributes.get("handle") or attributes.get("sid", "")


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
