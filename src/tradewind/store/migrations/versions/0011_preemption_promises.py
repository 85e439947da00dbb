"""Promises of tenants for runs of others that they take."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"


def upgrade() -> None:
    """Make the table; what was promised before was kept by the process that had promised it."""
    op.create_table(
        "preemption_promises",
        sa.Column("cluster", sa.Text, primary_key=True),
        sa.Column("request", sa.Text, primary_key=True),
        sa.Column("tenant", sa.Text, nullable=False),
        sa.Column("study_id", sa.Integer),
        sa.Column("trial", sa.Integer, nullable=False),
        sa.Column("dollars", sa.Float(53), nullable=False),
    )
