"""store.md: the tables of the database."""

from __future__ import annotations

from sqlalchemy import Table

from reference.text import page, table

INTRO = """\
The store is an SQLite file or a PostgreSQL database with these tables. Reading them with your own tools is welcome;
writing is not: a search relies on what it has stored. Money is USD, time is seconds (moments: since the epoch), and
columns that hold a document hold JSON."""

MEANINGS = {
    "studies": "One row a study: a problem and the search for its answer.",
    "trials": "One row a trial, its plain columns first, its documents last.",
    "runs": "One row a run, written before anything is started, so that nothing that costs money is ever unknown.",
}
"""What a row is, by table; a table without an entry is shown without one."""


def write() -> str:
    """The page."""
    from tradewind.store.sql.schema import metadata

    return page("Tables of the store", INTRO, *(_section(t) for t in metadata.sorted_tables))


def _section(found: Table) -> str:
    rows = [
        [
            f"`{column.name}`",
            str(column.type).lower(),
            "key" if column.primary_key else "may be empty" if column.nullable else "",
            ", ".join(f"`{key.target_fullname}`" for key in column.foreign_keys),
        ]
        for column in found.columns
    ]
    blocks = [f"## {found.name}", MEANINGS.get(found.name, ""), table(["column", "type", "", "refers to"], rows)]
    return "\n\n".join(block for block in blocks if block)
