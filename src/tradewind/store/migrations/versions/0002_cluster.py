"""Shared clusters: tenants, clusters and their searches."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    """Make the tables."""
    real = sa.Float(53)
    op.create_table(
        "tenants",
        sa.Column("name", sa.Text, primary_key=True),
        sa.Column("weight", real, nullable=False),
        sa.Column("priority", sa.Integer, nullable=False),
        sa.Column("quota", sa.Text, nullable=False),
        sa.Column("created", real, nullable=False),
    )
    op.create_table(
        "clusters",
        sa.Column("name", sa.Text, primary_key=True),
        sa.Column("settings", sa.Text, nullable=False),
        sa.Column("snapshot", sa.Text, nullable=False),
        sa.Column("updated", real, nullable=False),
        sa.Column("hold_token", sa.Text),
        sa.Column("hold_holder", sa.Text),
        sa.Column("hold_expires", real),
    )
    op.create_table(
        "cluster_jobs",
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("tenant", sa.Text, sa.ForeignKey("tenants.name"), nullable=False),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("study_id", sa.Integer, sa.ForeignKey("studies.id")),
        sa.Column("spec", sa.Text, nullable=False),
        sa.Column("options", sa.Text, nullable=False),
        sa.Column("nice", sa.Integer, nullable=False),
        sa.Column("wanted", sa.Text, nullable=False),
        sa.Column("state", sa.Text, nullable=False),
        sa.Column("reason", sa.Text, nullable=False),
        sa.Column("submitted", real, nullable=False),
        sa.Column("started", real),
        sa.Column("ended", real),
        sqlite_autoincrement=True,
    )
    op.create_index("cluster_jobs_by_state", "cluster_jobs", ["state"])
    op.create_index("cluster_jobs_by_tenant", "cluster_jobs", ["tenant"])
