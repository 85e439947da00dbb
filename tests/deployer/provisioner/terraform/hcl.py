"""Reads the blocks of a Terraform file that ``terraform fmt`` has laid out: enough to compare them with a schema."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

_HEAD = re.compile(r'^(\w+)((?: "[\w-]+")*) \{(\})?$')
_ARGUMENT = re.compile(r"^(\w+) += (.*)$")


@dataclass
class Block:
    """A block of Terraform's language.

    Attributes:
        kind: ``resource``, ``provider``, or a nested block's name.
        labels: What stands in quotes behind it.
        arguments: Names of its arguments.
        blocks: Those in it; of a ``dynamic`` one its content, under its own name.
    """

    kind: str
    labels: tuple[str, ...] = ()
    arguments: set[str] = field(default_factory=set)
    blocks: list[Block] = field(default_factory=list)

    def nested(self, path: str = "") -> Iterator[tuple[str, Block]]:
        """This one and all below, each with its path."""
        yield path, self
        for block in self.blocks:
            yield from block.nested(f"{path}.{block.kind}".lstrip("."))


def blocks_of(file: Path) -> list[Block]:
    """The outermost blocks of a file."""
    lines = [line.partition(" # ")[0].strip() for line in file.read_text().splitlines()]
    kept = iter([line for line in lines if line and not line.startswith("#")])
    return _inside(kept).blocks


def _inside(lines: Iterator[str]) -> Block:
    found = Block("")
    for line in lines:
        if line == "}":
            break
        if head := _HEAD.match(line):
            inner = Block("") if head[3] else _inside(lines)
            inner.kind, inner.labels = head[1], tuple(re.findall(r'"([\w-]+)"', head[2]))
            if inner.kind == "dynamic":
                [content] = inner.blocks
                inner = Block(inner.labels[0], (), content.arguments, content.blocks)
            found.blocks.append(inner)
            continue
        argument = _ARGUMENT.match(line)
        assert argument is not None, line
        found.arguments.add(argument[1])
        depth = _depth(argument[2])
        while depth > 0:
            depth += _depth(next(lines))
    return found


def _depth(text: str) -> int:
    bare = re.sub(r'"[^"]*"', "", text)
    return sum(map(bare.count, "([{")) - sum(map(bare.count, ")]}"))
