"""The cluster that a search is for, or was taken by."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    """Add the column; what was submitted before is for any cluster."""
    op.add_column("cluster_jobs", sa.Column("cluster", sa.Text, nullable=False, server_default=""))
