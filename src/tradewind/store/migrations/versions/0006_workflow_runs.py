"""Runs of workflows: studies of another kind, with a plan and a journal."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"


def upgrade() -> None:
    """Make the tables; all studies that there are were searches."""
    op.add_column("studies", sa.Column("kind", sa.Text, nullable=False, server_default="search"))
    op.create_table(
        "workflow_runs",
        sa.Column("study_id", sa.Integer, sa.ForeignKey("studies.id"), primary_key=True),
        sa.Column("folder", sa.Text, nullable=False),
        sa.Column("plan", sa.Text, nullable=False),
    )
    op.create_table(
        "workflow_records",
        sa.Column("study_id", sa.Integer, sa.ForeignKey("studies.id"), primary_key=True),
        sa.Column("number", sa.Integer, primary_key=True),
        sa.Column("at", sa.Float(53), nullable=False),
        sa.Column("kind", sa.Text, nullable=False),
        sa.Column("task", sa.Text),
        sa.Column("attempt", sa.Integer),
        sa.Column("machine", sa.Text),
        sa.Column("document", sa.Text, nullable=False),
        sqlite_with_rowid=False,
    )
