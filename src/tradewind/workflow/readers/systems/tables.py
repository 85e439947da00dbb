"""Parses the tables that workflow systems write about their runs."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator

from tradewind.errors import WorkflowError


class TableRow:
    """One row of a table, by the names of its columns.

    Args:
        cells: Cells by column; of columns with one name all of them, in their order.
        line: Line in the file.
    """

    def __init__(self, cells: dict[str, list[str]], line: int) -> None:
        self._cells = cells
        self.line = line

    def text(self, *columns: str) -> str:
        """The first of some columns that says something; empty where none does. Of several with one name the last."""
        for column in columns:
            for cell in reversed(self._cells.get(column, ())):
                if cell not in ("", "-", "NA", "null"):
                    return cell
        return ""


def columns_of(text: str) -> list[str]:
    """Names of the columns in the first line that is no comment: between tabs, or commas where it has no tab."""
    first = next((line for line in text.lstrip("\ufeff").splitlines() if not line.startswith("#")), "")
    return [cell.strip().strip('"') for cell in re.split("\t" if "\t" in first else ",", first)]


def rows_of(text: str, file: str) -> Iterator[TableRow]:
    """Parse the rows of a table whose first line names its columns.

    Args:
        text: The table, with tabs between cells, or commas where its first line has no tab; lines that begin with #
            are comments.
        file: Name of the file, for messages.

    Raises:
        WorkflowError: A row has more cells than there are columns, or fewer; with the line.
    """
    lines = [(n, line) for n, line in enumerate(text.lstrip("\ufeff").splitlines(), 1) if not line.startswith("#")]
    columns = columns_of(text)
    tabs = "\t" in lines[0][1]
    for number, line in lines[1:]:
        if not line.strip():
            continue
        cells = line.split("\t") if tabs else next(csv.reader([line]))
        if len(cells) != len(columns):
            raise WorkflowError(
                f"a row has {len(cells)} cells, and there are {len(columns)} columns",
                file=file,
                line=number,
                hint="the file is not whole, or a cell holds the character that separates cells",
            )
        found: dict[str, list[str]] = {}
        for column, cell in zip(columns, cells, strict=True):
            found.setdefault(column, []).append(cell.strip())
        yield TableRow(found, number)
