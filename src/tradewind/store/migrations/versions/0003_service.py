"""The service: users, applications, requests, and notices of them."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    """Make the tables."""
    real = sa.Float(53)
    op.create_table(
        "users",
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("name", sa.Text, nullable=False, unique=True),
        sa.Column("password", sa.Text),
        sa.Column("role", sa.Text, nullable=False),
        sa.Column("tenant", sa.Text, sa.ForeignKey("tenants.name"), nullable=False),
        sa.Column("email", sa.Text, nullable=False),
        sa.Column("settings", sa.Text, nullable=False),
        sa.Column("state", sa.Text, nullable=False),
        sa.Column("created", real, nullable=False),
        sqlite_autoincrement=True,
    )
    op.create_table(
        "tokens",
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("user_id", sa.Integer, sa.ForeignKey("users.id"), nullable=False),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("digest", sa.Text, nullable=False, unique=True),
        sa.Column("created", real, nullable=False),
        sa.Column("used", real),
        sa.Column("expires", real),
        sqlite_autoincrement=True,
    )
    op.create_index("tokens_by_user", "tokens", ["user_id"])
    op.create_table(
        "sessions",
        sa.Column("digest", sa.Text, primary_key=True),
        sa.Column("user_id", sa.Integer, sa.ForeignKey("users.id"), nullable=False),
        sa.Column("created", real, nullable=False),
        sa.Column("seen", real, nullable=False),
        sa.Column("expires", real, nullable=False),
        sa.Column("address", sa.Text, nullable=False),
        sa.Column("agent", sa.Text, nullable=False),
    )
    op.create_index("sessions_by_user", "sessions", ["user_id"])
    op.create_table(
        "attempts",
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("key", sa.Text, nullable=False),
        sa.Column("at", real, nullable=False),
    )
    op.create_index("attempts_by_key", "attempts", ["key", "at"])
    op.create_index("attempts_by_time", "attempts", ["at"])
    op.create_table(
        "audit",
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("at", real, nullable=False),
        sa.Column("user", sa.Text, nullable=False),
        sa.Column("tenant", sa.Text, nullable=False),
        sa.Column("address", sa.Text, nullable=False),
        sa.Column("action", sa.Text, nullable=False),
        sa.Column("subject", sa.Text, nullable=False),
        sa.Column("outcome", sa.Text, nullable=False),
        sa.Column("details", sa.Text, nullable=False),
        sqlite_autoincrement=True,
    )
    op.create_index("audit_by_tenant", "audit", ["tenant", "id"])
    op.create_table(
        "backends",
        sa.Column("name", sa.Text, primary_key=True),
        sa.Column("document", sa.Text, nullable=False),
        sa.Column("users", sa.Text, nullable=False),
        sa.Column("created", real, nullable=False),
    )
    op.create_table(
        "applications",
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("tenant", sa.Text, nullable=False),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("version", sa.Integer, nullable=False),
        sa.Column("document", sa.Text, nullable=False),
        sa.Column("author", sa.Text, nullable=False),
        sa.Column("trusted", sa.Boolean, nullable=False),
        sa.Column("state", sa.Text, nullable=False),
        sa.Column("created", real, nullable=False),
        sa.UniqueConstraint("tenant", "name", "version", name="applications_once"),
        sqlite_autoincrement=True,
    )
    op.create_table(
        "uploads",
        sa.Column("tenant", sa.Text, primary_key=True),
        sa.Column("digest", sa.Text, primary_key=True),
        sa.Column("size", sa.BigInteger, nullable=False),
        sa.Column("data", sa.LargeBinary, nullable=False),
        sa.Column("used", real, nullable=False),
    )
    op.create_index("uploads_by_digest", "uploads", ["digest"])
    op.create_index("uploads_by_use", "uploads", ["used"])
    op.create_table(
        "requests",
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("tenant", sa.Text, sa.ForeignKey("tenants.name"), nullable=False),
        sa.Column("user_id", sa.Integer, sa.ForeignKey("users.id"), nullable=False),
        sa.Column("kind", sa.Text, nullable=False),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("application_id", sa.Integer, sa.ForeignKey("applications.id")),
        sa.Column("key", sa.Text),
        sa.Column("state", sa.Text, nullable=False),
        sa.Column("wanted", sa.Text, nullable=False),
        sa.Column("problem", sa.Text, nullable=False),
        sa.Column("hint", sa.Text, nullable=False),
        sa.Column("cost", real, nullable=False),
        sa.Column("reserved", real, nullable=False),
        sa.Column("study_id", sa.Integer, sa.ForeignKey("studies.id")),
        sa.Column("cluster", sa.Text, nullable=False),
        sa.Column("cluster_job", sa.Integer, sa.ForeignKey("cluster_jobs.id")),
        sa.Column("created", real, nullable=False),
        sa.Column("updated", real, nullable=False),
        sa.Column("started", real),
        sa.Column("ended", real),
        sa.Column("hold_token", sa.Text),
        sa.Column("hold_holder", sa.Text),
        sa.Column("hold_expires", real),
        sa.Column("progress", sa.Text, nullable=False),
        sa.Column("plan", sa.Text, nullable=False),
        sa.Column("document", sa.Text, nullable=False),
        sa.UniqueConstraint("user_id", "key", name="requests_once"),
        sqlite_autoincrement=True,
    )
    op.create_index("requests_by_study", "requests", ["study_id"])
    op.create_index("cluster_jobs_by_study", "cluster_jobs", ["study_id"])
    op.create_index("requests_by_tenant", "requests", ["tenant", "id"])
    op.create_index("requests_by_state", "requests", ["state", "tenant", "id"])
    op.create_table(
        "request_events",
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("request_id", sa.Integer, sa.ForeignKey("requests.id"), nullable=False),
        sa.Column("at", real, nullable=False),
        sa.Column("stage", sa.Text, nullable=False),
        sa.Column("text", sa.Text, nullable=False),
        sa.Column("details", sa.Text, nullable=False),
        sqlite_autoincrement=True,
    )
    op.create_index("request_events_by_request", "request_events", ["request_id", "id"])
    op.create_table(
        "service_values",
        sa.Column("name", sa.Text, primary_key=True),
        sa.Column("value", sa.Text, nullable=False),
    )
    _make_what_is_told()


def _make_what_is_told() -> None:
    """Links to results, and notices."""
    real = sa.Float(53)
    op.create_table(
        "links",
        sa.Column("digest", sa.Text, primary_key=True),
        sa.Column("request_id", sa.Integer, sa.ForeignKey("requests.id"), nullable=False),
        sa.Column("path", sa.Text, nullable=False),
        sa.Column("created", real, nullable=False),
        sa.Column("expires", real),
    )
    op.create_index("links_by_request", "links", ["request_id"])
    op.create_table(
        "notices",
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("request_id", sa.Integer, sa.ForeignKey("requests.id")),
        sa.Column("user_id", sa.Integer, sa.ForeignKey("users.id"), nullable=False),
        sa.Column("kind", sa.Text, nullable=False),
        sa.Column("target", sa.Text, nullable=False),
        sa.Column("delivery", sa.Text, nullable=False),
        sa.Column("document", sa.Text, nullable=False),
        sa.Column("state", sa.Text, nullable=False),
        sa.Column("problem", sa.Text, nullable=False),
        sa.Column("attempts", sa.Integer, nullable=False),
        sa.Column("created", real, nullable=False),
        sa.Column("due", real, nullable=False),
        sa.Column("ended", real),
        sa.Column("hold_token", sa.Text),
        sa.Column("hold_expires", real),
        sqlite_autoincrement=True,
    )
    op.create_index("notices_by_request", "notices", ["request_id"])
    op.create_index("notices_by_state", "notices", ["state", "due"])
    op.create_index("notices_by_user", "notices", ["user_id", "id"])
