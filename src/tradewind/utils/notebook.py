"""HTML by which objects show themselves in a notebook: every text is escaped, and light and dark themes can be read."""

from __future__ import annotations

import sys
from collections.abc import Collection, Sequence
from html import escape

from tradewind.utils.units import printable

_LINE = "1px solid rgba(128,128,128,.35)"
_CELL = f"padding:2px 12px 2px 0;border:0;border-bottom:{_LINE};background:none;vertical-align:top"
_SOFT = "font-weight:400;opacity:.75;white-space:nowrap"
_WRAPPED = "overflow-wrap:anywhere;white-space:normal"
_BOX = 'class="tex2jax_ignore mathjax_ignore"'
"""Two amounts in dollars are no formula between dollar signs."""

# Notebooks have styles of their own for tables; those of an element itself count more. No colour is set: text and
# ground are those of the notebook's theme.


def text_html(text: object) -> str:
    """A text of the user for HTML: escaped, without control characters."""
    return escape(printable(str(text)))


def box_html(title: str, *parts: str) -> str:
    """Wrap parts that are HTML in a box below a title, which is text."""
    head = f'<div style="font-weight:600;margin-bottom:4px;{_WRAPPED}">{text_html(title)}</div>'
    return f'<div {_BOX} style="max-width:100%;overflow-x:auto">{head}{"".join(parts)}</div>'


def note_html(text: str) -> str:
    """A line of small print."""
    return f'<div style="opacity:.75;font-size:12px;margin:6px 0 2px;{_WRAPPED}">{text_html(text)}</div>'


def bar_html(share: float | None, words: str) -> str:
    """A progress bar with words beside it; without a share it only shows that something goes on."""
    value = "" if share is None else f' value="{share:.4f}"'
    bar = f'<progress max="1"{value} style="width:16em;vertical-align:middle;margin-right:1em"></progress>'
    return f"<div {_BOX}>{bar}{text_html(words)}</div>"


def facts_html(pairs: Sequence[tuple[str, str]]) -> str:
    """Names and values, a pair a line."""
    lines = "".join(
        f'<tr style="background:none"><th scope="row" style="{_CELL};text-align:left;{_SOFT}">{text_html(name)}</th>'
        f'<td style="{_CELL};text-align:left;{_WRAPPED}">{text_html(value)}</td></tr>'
        for name, value in pairs
    )
    return f'<table style="border-collapse:collapse;margin:0"><tbody>{lines}</tbody></table>'


def table_html(heads: Sequence[str], rows: Sequence[Sequence[str]], *, right: Collection[int] = ()) -> str:
    """A table.

    Args:
        heads: Names of the columns.
        rows: The texts of each row.
        right: Columns whose texts are set to the right, as numbers are.
    """
    sides = ["right" if column in right else "left" for column in range(len(heads))]
    head = "".join(
        f'<th scope="col" style="{_CELL};text-align:{side};{_SOFT}">{text_html(name)}</th>'
        for name, side in zip(heads, sides, strict=True)
    )
    body = "".join(f'<tr style="background:none">{_cells(row, sides)}</tr>' for row in rows)
    return (
        '<table style="border-collapse:collapse;margin:0">'
        f'<thead><tr style="background:none">{head}</tr></thead><tbody>{body}</tbody></table>'
    )


def _cells(row: Sequence[str], sides: Sequence[str]) -> str:
    return "".join(
        f'<td style="{_CELL};text-align:{side};{_WRAPPED}">{text_html(text)}</td>'
        for text, side in zip(row, sides, strict=True)
    )


def in_notebook() -> bool:
    """True in the kernel of a notebook; IPython on a terminal is none."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    return getattr(shell, "kernel", None) is not None
