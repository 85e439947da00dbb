"""Markdown out of docstrings and tables."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable, Sequence
from typing import Any

NOTE = "<!-- Written by tools/generate_reference.py: do not edit; `make docs` writes it again. -->"

_SECTION = re.compile(r"^(Args|Attributes|Returns|Yields|Raises):$")
_ITEM = re.compile(r"^    (?P<name>\*{0,2}[\w.]+): (?P<text>.*)$")


def page(title: str, *blocks: str) -> str:
    """A whole page: title, note that it is generated, blocks with a blank line between."""
    return "\n\n".join([f"# {title}", NOTE, *(block for block in blocks if block)]) + "\n"


def table(titles: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table; empty text if there are no rows."""
    lines = ["| " + " | ".join(cell(text) for text in row) + " |" for row in rows]
    if not lines:
        return ""
    head = ["| " + " | ".join(titles) + " |", "|" + "---|" * len(titles)]
    return "\n".join(head + lines)


def cell(text: str) -> str:
    """Text that cannot break a table."""
    return code_marks(text).replace("|", "\\|").replace("\n", " ").strip()


def code_marks(text: str) -> str:
    """Markdown's single backquotes in place of the double ones of reStructuredText."""
    return text.replace("``", "`")


def first_line(thing: Any) -> str:
    """The first line of a docstring."""
    return code_marks((inspect.getdoc(thing) or "").partition("\n")[0])


def docstring(thing: Any) -> str:
    """A Google-style docstring as Markdown: its sections become lists."""
    lines = (inspect.getdoc(thing) or "").splitlines()
    out: list[str] = []
    in_section = False
    for line in lines:
        if section := _SECTION.match(line):
            in_section = True
            out += [f"**{section[1]}**", ""]
        elif in_section and (item := _ITEM.match(line)):
            out.append(f"- `{item['name'].lstrip('*')}`: {item['text']}")
        elif in_section and line.startswith("    "):
            out.append(("  " if out and out[-1].lstrip().startswith(("-", "  ")) else "") + line.strip())
        else:
            in_section = in_section and not line
            out.append(line[:-1] if line.endswith("::") else line)
    return code_marks("\n".join(out)).strip()
