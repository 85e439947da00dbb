"""Parses drawings of graphs: Graphviz ``digraph`` and Mermaid ``flowchart``."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise

from tradewind.errors import WorkflowError


@dataclass
class DrawnNode:
    """One node of a drawing.

    Attributes:
        label: Text in it, as the file has it; None where it has none of its own.
        shape: Its shape: Graphviz' word, or the brackets of Mermaid.
        style: Its style, of Graphviz.
        group: Title of the innermost subgraph with a name around it; empty where there is none.
        line: Line that has it first.
    """

    label: str | None = None
    shape: str = ""
    style: str = ""
    group: str = ""
    line: int = 0


@dataclass
class DrawnGraph:
    """A drawing: its name, its nodes by their ids, and its edges in the order of the file, each once."""

    name: str
    nodes: dict[str, DrawnNode] = field(default_factory=dict)
    edges: dict[tuple[str, str], int] = field(default_factory=dict)

    def node(self, name: str, line: int) -> DrawnNode:
        """The node of an id, which is made where it is new."""
        return self.nodes.setdefault(name, DrawnNode(line=line))

    def between(self, kept: set[str]) -> list[tuple[str, str, tuple[str, ...]]]:
        """Connect the nodes that are kept, through all others.

        Args:
            kept: Ids of the nodes that stay.

        Returns:
            Pairs of kept nodes, each once, with the ids of all nodes on the ways between them.
        """
        after: dict[str, list[str]] = {}
        for start, end in self.edges:
            after.setdefault(start, []).append(end)
        found: dict[tuple[str, str], set[str]] = {}
        for start in self.nodes:
            if start in kept:
                self._walk(start, after, kept, found)
        return [(start, end, tuple(sorted(through))) for (start, end), through in found.items()]

    def _walk(
        self, start: str, after: dict[str, list[str]], kept: set[str], found: dict[tuple[str, str], set[str]]
    ) -> None:
        # The nodes on the ways from the start to a node are those that were passed before it.
        passed: dict[str, set[str]] = {start: set()}
        waiting = [start]
        while waiting:
            here = waiting.pop()
            for end in after.get(here, ()):
                through = passed[here] | ({here} if here != start else set())
                if end in kept:
                    found.setdefault((start, end), set()).update(through)
                elif end not in passed or not through <= passed[end]:
                    passed[end] = passed.get(end, set()) | through
                    waiting.append(end)


_TOKENS = re.compile(
    r"""(?P<blank>\s+|//[^\n]*|/\*.*?\*/|^\#[^\n]*)
    |"(?P<text>(?:[^"\\]|\\.)*)"
    |(?P<html><(?:[^<>]|<[^<>]*>)*>)
    |(?P<arrow>->|--)
    |(?P<sign>[{}\[\];,=:])
    |(?P<word>-?(?:\.\d+|\d+(?:\.\d*)?)|[\w.]+)""",
    re.VERBOSE | re.DOTALL | re.MULTILINE,
)

_Token = tuple[str, str, int]


_DIGRAPH = re.compile(r"\s*(/\*.*?\*/\s*|//[^\n]*\n\s*|#[^\n]*\n\s*)*(strict\s+)?digraph\b", re.DOTALL)


def is_dot(text: str) -> bool:
    """True for a text that begins as a directed graph of Graphviz, after comments."""
    return _DIGRAPH.match(text) is not None


def read_dot(text: str, file: str) -> DrawnGraph:
    """Parse a directed graph of Graphviz.

    Args:
        text: The text.
        file: Name of the file, for messages.

    Raises:
        WorkflowError: It is no directed graph in Graphviz' language; with the line.
    """
    return _DotParser(text, file).graph()


class _DotParser:
    def __init__(self, text: str, file: str) -> None:
        self._file = file
        self._tokens = list(self._scan(text))
        self._place = 0
        self._groups = [""]

    def _fail(self, message: str, line: int) -> WorkflowError:
        return WorkflowError(f"it is no graph of Graphviz: {message}", file=self._file, line=line)

    def _scan(self, text: str) -> Iterator[_Token]:
        place, line = 0, 1
        while place < len(text):
            found = _TOKENS.match(text, place)
            if found is None:
                raise self._fail(f"{text[place]!r} is not expected", line)
            kind = found.lastgroup or ""
            if kind != "blank":
                yield ("word" if kind in ("text", "html") else kind), found[kind], line
            line += found[0].count("\n")
            place = found.end()

    def _next(self) -> _Token:
        if self._place >= len(self._tokens):
            raise self._fail("it ends too early", self._tokens[-1][2] if self._tokens else 1)
        self._place += 1
        return self._tokens[self._place - 1]

    def _ahead(self) -> str:
        if self._place >= len(self._tokens):
            return ""
        kind, text, _ = self._tokens[self._place]
        return text if kind in ("sign", "arrow") else kind

    def graph(self) -> DrawnGraph:
        kind, text, line = self._next()
        if text.lower() == "strict":
            kind, text, line = self._next()
        if kind != "word" or text.lower() != "digraph":
            raise self._fail(f"it begins with {text!r}, not with digraph", line)
        name = self._next()[1] if self._ahead() == "word" else ""
        graph = DrawnGraph(name)
        if self._ahead() != "{":
            raise self._fail("there is no { after its name", line)
        self._next()
        self._statements(graph)
        return graph

    def _statements(self, graph: DrawnGraph) -> None:
        depth = 1
        while depth:
            kind, text, line = self._next()
            if (kind, text) == ("sign", "}"):
                depth -= 1
                if depth:
                    self._groups.pop()
            elif (kind, text) == ("sign", "{"):
                depth += 1
                self._groups.append(self._groups[-1])
            elif kind == "word" and text.lower() == "subgraph":
                if self._ahead() == "word":
                    self._next()
            elif kind == "word" and text.lower() in ("graph", "node", "edge") and self._ahead() == "[":
                found = self._attributes()
                if text.lower() == "graph" and found.get("label"):
                    self._groups[-1] = found["label"] if depth > 1 else ""
            elif kind == "word":
                self._node_or_edges(graph, text, line, depth)
            elif text not in (";", ","):
                raise self._fail(f"{text!r} is not expected", line)

    def _node_or_edges(self, graph: DrawnGraph, name: str, line: int, depth: int) -> None:
        if self._ahead() == "=":
            self._next()
            value = self._next()[1]
            if name == "label" and depth > 1:
                self._groups[-1] = value
            return
        chain = [name]
        self._port()
        while self._ahead() == "->":
            self._next()
            kind, text, at = self._next()
            if kind != "word":
                raise self._fail("an edge to a group is not read", at)
            chain.append(text)
            self._port()
        nodes = [graph.node(each, line) for each in chain]
        attributes = self._attributes() if self._ahead() == "[" else {}
        for start, end in pairwise(chain):
            graph.edges.setdefault((start, end), line)
        if len(chain) == 1:
            node = nodes[0]
            node.group = node.group or self._groups[-1]
            node.label = attributes.get("label", node.label)
            node.shape = attributes.get("shape", node.shape)
            node.style = attributes.get("style", node.style)

    def _port(self) -> None:
        while self._ahead() == ":":
            self._next()
            self._next()

    def _attributes(self) -> dict[str, str]:
        found: dict[str, str] = {}
        while self._ahead() == "[":
            self._next()
            while True:
                kind, text, line = self._next()
                if (kind, text) == ("sign", "]"):
                    break
                if kind == "word" and self._ahead() == "=":
                    self._next()
                    found[text] = self._next()[1]
                elif kind != "word" and text not in (",", ";"):
                    raise self._fail(f"{text!r} is not expected", line)
        return found


_NODE = re.compile(
    r"""(?P<id>[A-Za-z_][\w.]*)\s*
    (?:(?P<open>\(\[|\(\(|\[\[|\[\(|\{\{|\[|\(|\{|>)\s*
       (?P<label>"[^"]*"|.*?)\s*
       (?:\]\)|\)\)|\]\]|\)\]|\}\}|\]|\)|\}))?
    (?::::\w+)?""",
    re.VERBOSE,
)
_LINK = re.compile(r"\s*(?:(?:--+>|==+>|-\.+->|---+|===+)\s*(?:\|[^|]*\|)?|--\s+[^-|>]+?\s+--+>)\s*")


def read_mermaid(text: str, file: str) -> DrawnGraph:
    """Parse a flowchart of Mermaid; lines of styles are left out.

    Args:
        text: The text, which may stand inside a page of HTML.
        file: Name of the file, for messages.

    Raises:
        WorkflowError: There is no flowchart in it, or a line of it is none; with the line.
    """
    graph = DrawnGraph("")
    groups = [""]
    begun = False
    for number, raw in enumerate(text.splitlines(), 1):
        line = raw.strip().rstrip(";").strip()
        if not begun:
            begun = re.search(r"\b(flowchart|graph)\s+(TB|TD|BT|LR|RL)$", line) is not None
            continue
        if line.startswith(("</", "```")):
            break
        if not line or line.startswith("%%") or re.match(r"(style|classDef|class|click|linkStyle|direction)\b", line):
            continue
        if line.startswith("subgraph"):
            title = line.removeprefix("subgraph").strip()
            titled = re.fullmatch(r"\S+?\s*\[(.*)\]", title)
            groups.append((titled[1] if titled else title).strip('" ').rpartition(":")[2] or groups[-1])
        elif line == "end":
            groups = groups[:-1] or [""]
        else:
            _mermaid_line(graph, line, groups[-1], number, file)
    if not begun:
        raise WorkflowError("there is no flowchart of Mermaid in it", file=file)
    return graph


def _mermaid_line(graph: DrawnGraph, line: str, group: str, number: int, file: str) -> None:
    place, before = 0, ""
    while place < len(line):
        found = _NODE.match(line, place)
        if found is None:
            raise WorkflowError(f"it is no line of a Mermaid flowchart: {line[:60]!r}", file=file, line=number)
        name = found["id"]
        node = graph.node(name, number)
        if found["open"]:
            node.label, node.shape = found["label"].strip('"').strip(), found["open"]
            if found["label"].startswith('"') and found["open"] == "[":
                node.shape = '["'
        node.group = node.group or group
        if before:
            graph.edges.setdefault((before, name), number)
        before, place = name, found.end()
        link = _LINK.match(line, place)
        if link is None and place < len(line):
            raise WorkflowError(f"it is no line of a Mermaid flowchart: {line[:60]!r}", file=file, line=number)
        place = link.end() if link else place
