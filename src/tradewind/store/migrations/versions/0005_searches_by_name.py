"""Searches of a tenant are found by their name: how long those took that ended before."""

from __future__ import annotations

from alembic import op

revision = "0005"
down_revision = "0004"


def upgrade() -> None:
    """Make the index; it serves for all of a tenant as well."""
    op.create_index("cluster_jobs_by_name", "cluster_jobs", ["tenant", "name"])
    op.drop_index("cluster_jobs_by_tenant", "cluster_jobs")
