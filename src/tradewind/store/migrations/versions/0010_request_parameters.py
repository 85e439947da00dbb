"""Requests are found by the values of their parameters."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from tradewind.store import codec
from tradewind.store.service.request_parameters import parameter_rows

revision = "0010"
down_revision = "0009"

_AT_ONCE = 1000


def upgrade() -> None:
    """Make the table, and enter the requests that there are."""
    made = op.create_table(
        "request_parameters",
        sa.Column("request_id", sa.Integer, sa.ForeignKey("requests.id"), primary_key=True),
        sa.Column("name", sa.Text, primary_key=True),
        sa.Column("text", sa.Text, nullable=False),
        sa.Column("number", sa.Float(53)),
    )
    op.create_index("request_parameters_by_text", "request_parameters", ["name", "text", "request_id"])
    op.create_index("request_parameters_by_number", "request_parameters", ["name", "number", "request_id"])
    connection, last = op.get_bind(), 0
    query = sa.text("SELECT id, document FROM requests WHERE id > :last AND state != 'deleted' ORDER BY id LIMIT :most")
    while found := connection.execute(query, {"last": last, "most": _AT_ONCE}).all():
        last = found[-1].id
        rows = [row for number, text in found for row in parameter_rows(number, codec.loads(text))]
        if rows:
            connection.execute(made.insert(), rows)
