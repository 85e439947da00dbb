"""One table of leases, for studies, requests, clusters and notices, and for the workers that share a study."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"

_HELD = {
    "study": ("studies", "id", ("hold_token", "hold_holder", "hold_since", "hold_expires")),
    "request": ("requests", "id", ("hold_token", "hold_holder", "NULL", "hold_expires")),
    "cluster": ("clusters", "name", ("hold_token", "hold_holder", "NULL", "hold_expires")),
    "notice": ("notices", "id", ("hold_token", "NULL", "NULL", "hold_expires")),
}


def upgrade() -> None:
    """Make the table, carry the leases over, and drop the columns and the table that had them."""
    real = sa.Float(53)
    op.create_table(
        "leases",
        sa.Column("kind", sa.Text, primary_key=True),
        sa.Column("subject", sa.Text, primary_key=True),
        sa.Column("seat", sa.Text, primary_key=True),
        sa.Column("token", sa.Text),
        sa.Column("holder", sa.Text),
        sa.Column("since", real),
        sa.Column("expires", real),
        sqlite_with_rowid=False,
    )
    into = "INSERT INTO leases (kind, subject, seat, token, holder, since, expires)"
    for kind, (table, key, columns) in _HELD.items():
        values = f"'{kind}', CAST({key} AS TEXT), '', {', '.join(columns)}"
        op.execute(f"{into} SELECT {values} FROM {table} WHERE hold_token IS NOT NULL OR hold_expires IS NOT NULL")  # noqa: S608
        for column in columns:
            if column != "NULL":
                op.drop_column(table, column)
    workers = "'study', CAST(study_id AS TEXT), token, token, holder, NULL, expires"
    op.execute(f"{into} SELECT {workers} FROM study_workers")  # noqa: S608
    op.drop_table("study_workers")
