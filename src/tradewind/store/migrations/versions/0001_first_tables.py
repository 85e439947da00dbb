"""The first tables: studies, trials and runs."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None


def upgrade() -> None:
    """Make the tables."""
    real = sa.Float(53)
    op.create_table(
        "studies",
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("problem_key", sa.Text, nullable=False),
        sa.Column("spec", sa.Text, nullable=False),
        sa.Column("created", real, nullable=False),
        sa.Column("state", sa.Text, nullable=False),
        sa.Column("reason", sa.Text, nullable=False),
        sa.Column("seed", sa.BigInteger, nullable=False),
        sa.Column("elapsed", real, nullable=False),
        sa.Column("searcher_state", sa.Text, nullable=False),
        sa.Column("owner", sa.Text, nullable=False),
        sa.Column("hold_token", sa.Text),
        sa.Column("hold_holder", sa.Text),
        sa.Column("hold_since", real),
        sa.Column("hold_expires", real),
        sqlite_autoincrement=True,
    )
    op.create_index("studies_by_name", "studies", ["name"])
    op.create_table(
        "trials",
        sa.Column("study_id", sa.Integer, sa.ForeignKey("studies.id"), primary_key=True),
        sa.Column("number", sa.Integer, primary_key=True),
        sa.Column("state", sa.Text, nullable=False),
        sa.Column("key", sa.Text, nullable=False),
        sa.Column("objective", real),
        sa.Column("cost", real),
        sa.Column("runtime", real),
        sa.Column("feasible", sa.Boolean),
        sa.Column("censored", sa.Boolean),
        sa.Column("fidelity", real, nullable=False),
        sa.Column("spent", real, nullable=False),
        sa.Column("price_per_hour", real),
        sa.Column("nodes", sa.Integer, nullable=False),
        sa.Column("provider", sa.Text, nullable=False),
        sa.Column("instance_type", sa.Text, nullable=False),
        sa.Column("attempts", sa.Integer, nullable=False),
        sa.Column("created", real, nullable=False),
        sa.Column("started", real),
        sa.Column("ended", real),
        sa.Column("configuration", sa.Text, nullable=False),
        sa.Column("proposal", sa.Text, nullable=False),
        sa.Column("offer", sa.Text, nullable=False),
        sa.Column("observation", sa.Text),
    )
    op.create_index("trials_by_state", "trials", ["study_id", "state"])
    op.create_index("trials_by_objective", "trials", ["study_id", "feasible", "objective"])
    op.create_table(
        "runs",
        sa.Column("study_id", sa.Integer, primary_key=True),
        sa.Column("run_id", sa.Text, primary_key=True),
        sa.Column("trial", sa.Integer, nullable=False),
        sa.Column("attempt", sa.Integer, nullable=False),
        sa.Column("state", sa.Text, nullable=False),
        sa.Column("reserved", real, nullable=False),
        sa.Column("cost", real, nullable=False),
        sa.Column("runtime", real, nullable=False),
        sa.Column("started", real),
        sa.Column("ended", real),
        sa.Column("exit_code", sa.BigInteger),
        sa.Column("details", sa.Text, nullable=False),
        sa.ForeignKeyConstraint(["study_id", "trial"], ["trials.study_id", "trials.number"]),
    )
    op.create_index("runs_by_state", "runs", ["study_id", "state", "cost", "reserved"])
    op.create_index("runs_by_trial", "runs", ["study_id", "trial", "attempt"])
