"""Tenants with a preemption policy."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"


def upgrade() -> None:
    """Make the column; nobody took anything before."""
    op.add_column("tenants", sa.Column("preempt", sa.Text, nullable=False, server_default="{}"))
