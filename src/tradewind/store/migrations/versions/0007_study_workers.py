"""Several workers on one study: who they are, and which trials each of them has."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"


def upgrade() -> None:
    """Make the tables."""
    op.create_table(
        "study_workers",
        sa.Column("token", sa.Text, primary_key=True),
        sa.Column("study_id", sa.Integer, sa.ForeignKey("studies.id"), nullable=False),
        sa.Column("holder", sa.Text, nullable=False),
        sa.Column("expires", sa.Float(53), nullable=False),
    )
    op.create_index("study_workers_by_study", "study_workers", ["study_id"])
    op.create_table(
        "shared_trials",
        sa.Column("study_id", sa.Integer, sa.ForeignKey("studies.id"), primary_key=True),
        sa.Column("trial", sa.Integer, primary_key=True),
        sa.Column("changed", sa.BigInteger, nullable=False),
        sa.Column("worker", sa.Text),
    )
    op.create_index("shared_trials_by_change", "shared_trials", ["study_id", "changed"])
