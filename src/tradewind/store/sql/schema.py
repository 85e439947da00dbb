"""The tables of the store, as SQLAlchemy Core sees them; the migrations bring an older store to them."""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Float,
    ForeignKey,
    ForeignKeyConstraint,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    PrimaryKeyConstraint,
    String,
    Table,
    Text,
    UniqueConstraint,
    false,
)

REVISIONS = ("0001", "0002", "0003", "0004", "0005", "0006", "0007", "0008", "0009", "0010", "0011", "0012")
"""The schema versions that this program knows, the oldest first; the last one is what it works with."""

VERSION_TABLE = "tradewind_version"
"""The table with the version row: it tells a Tradewind store from another program's database."""

metadata = MetaData()

# As Alembic makes it; apart, because Alembic does not count it among the tables that it compares.
version = Table(
    VERSION_TABLE,
    MetaData(),
    Column("version_num", String(32), nullable=False),
    PrimaryKeyConstraint("version_num", name=f"{VERSION_TABLE}_pkc"),
)

studies = Table(
    "studies",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("name", Text, nullable=False),
    Column("problem_key", Text, nullable=False),
    Column("spec", Text, nullable=False),
    Column("created", Float(53), nullable=False),
    Column("state", Text, nullable=False),
    Column("reason", Text, nullable=False),
    Column("seed", BigInteger, nullable=False),
    Column("elapsed", Float(53), nullable=False),
    Column("searcher_state", Text, nullable=False),
    Column("owner", Text, nullable=False),
    Column("kind", Text, nullable=False, server_default="search"),
    Index("studies_by_name", "name"),
    # Without it SQLite gives the number of a deleted study to the next one.
    sqlite_autoincrement=True,
)

# Who holds what. The workers of a study that several share have a seat each, which is the token of its lease.
leases = Table(
    "leases",
    metadata,
    Column("kind", Text, primary_key=True),
    Column("subject", Text, primary_key=True),
    Column("seat", Text, primary_key=True),
    Column("token", Text),
    Column("holder", Text),
    Column("since", Float(53)),
    # Where nobody holds a study: when it was let go.
    Column("expires", Float(53)),
    sqlite_with_rowid=False,
)

# The plain columns stand before the documents: a report over 100,000 trials then reads little of each row.
trials = Table(
    "trials",
    metadata,
    Column("study_id", Integer, ForeignKey("studies.id"), primary_key=True),
    Column("number", Integer, primary_key=True),
    Column("state", Text, nullable=False),
    Column("key", Text, nullable=False),
    Column("objective", Float(53)),
    Column("cost", Float(53)),
    Column("runtime", Float(53)),
    Column("feasible", Boolean),
    Column("censored", Boolean),
    Column("fidelity", Float(53), nullable=False),
    Column("spent", Float(53), nullable=False),
    Column("price_per_hour", Float(53)),
    Column("nodes", Integer, nullable=False),
    Column("provider", Text, nullable=False),
    Column("instance_type", Text, nullable=False),
    Column("attempts", Integer, nullable=False),
    Column("created", Float(53), nullable=False),
    Column("started", Float(53)),
    Column("ended", Float(53)),
    Column("configuration", Text, nullable=False),
    Column("proposal", Text, nullable=False),
    Column("offer", Text, nullable=False),
    Column("observation", Text),
    Index("trials_by_state", "study_id", "state"),
    Index("trials_by_objective", "study_id", "feasible", "objective"),
)

runs = Table(
    "runs",
    metadata,
    Column("study_id", Integer, primary_key=True),
    Column("run_id", Text, primary_key=True),
    Column("trial", Integer, nullable=False),
    Column("attempt", Integer, nullable=False),
    Column("state", Text, nullable=False),
    Column("reserved", Float(53), nullable=False),
    Column("cost", Float(53), nullable=False),
    Column("runtime", Float(53), nullable=False),
    Column("started", Float(53)),
    Column("ended", Float(53)),
    Column("exit_code", BigInteger),
    Column("details", Text, nullable=False),
    ForeignKeyConstraint(["study_id", "trial"], ["trials.study_id", "trials.number"]),
    # Covers the sums of `status`: no row of a run is read for them.
    Index("runs_by_state", "study_id", "state", "cost", "reserved"),
    Index("runs_by_trial", "study_id", "trial", "attempt"),
)

# The trials that workers have changed: who has each of them now, and its place in the order of all changes of a study.
shared_trials = Table(
    "shared_trials",
    metadata,
    Column("study_id", Integer, ForeignKey("studies.id"), primary_key=True),
    Column("trial", Integer, primary_key=True),
    Column("changed", BigInteger, nullable=False),
    Column("worker", Text),
    Index("shared_trials_by_change", "study_id", "changed"),
)

# What is known of a run of a workflow beside its row among the studies; a plan may be megabytes, which no list reads.
workflow_runs = Table(
    "workflow_runs",
    metadata,
    Column("study_id", Integer, ForeignKey("studies.id"), primary_key=True),
    Column("folder", Text, nullable=False),
    Column("plan", Text, nullable=False),
)

# The journal of a run: what was done is never changed, and read in the order of its numbers.
workflow_records = Table(
    "workflow_records",
    metadata,
    Column("study_id", Integer, ForeignKey("studies.id"), primary_key=True),
    Column("number", Integer, primary_key=True),
    Column("at", Float(53), nullable=False),
    Column("kind", Text, nullable=False),
    Column("task", Text),
    Column("attempt", Integer),
    Column("machine", Text),
    Column("document", Text, nullable=False),
    # One tree and not two: what is written for each task is half as much.
    sqlite_with_rowid=False,
)

tenants = Table(
    "tenants",
    metadata,
    Column("name", Text, primary_key=True),
    Column("weight", Float(53), nullable=False),
    Column("priority", Integer, nullable=False),
    Column("quota", Text, nullable=False),
    Column("created", Float(53), nullable=False),
    Column("preempt", Text, nullable=False, server_default="{}"),
)

clusters = Table(
    "clusters",
    metadata,
    Column("name", Text, primary_key=True),
    Column("settings", Text, nullable=False),
    Column("snapshot", Text, nullable=False),
    Column("updated", Float(53), nullable=False),
)

# What a tenant will pay for runs of others that it takes, until their searches have noted that they were taken.
preemption_promises = Table(
    "preemption_promises",
    metadata,
    Column("cluster", Text, primary_key=True),
    Column("request", Text, primary_key=True),
    Column("tenant", Text, nullable=False),
    Column("study_id", Integer),
    Column("trial", Integer, nullable=False),
    Column("dollars", Float(53), nullable=False),
)

cluster_jobs = Table(
    "cluster_jobs",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("tenant", Text, ForeignKey("tenants.name"), nullable=False),
    Column("name", Text, nullable=False),
    Column("study_id", Integer, ForeignKey("studies.id")),
    Column("spec", Text, nullable=False),
    Column("options", Text, nullable=False),
    Column("nice", Integer, nullable=False),
    Column("wanted", Text, nullable=False),
    Column("state", Text, nullable=False),
    Column("reason", Text, nullable=False),
    Column("submitted", Float(53), nullable=False),
    Column("started", Float(53)),
    Column("ended", Float(53)),
    Column("cluster", Text, nullable=False, server_default=""),
    Column("simulated", Boolean, nullable=False, server_default=false()),
    Index("cluster_jobs_by_state", "state"),
    Index("cluster_jobs_by_name", "tenant", "name"),
    Index("cluster_jobs_by_study", "study_id"),
    sqlite_autoincrement=True,
)

users = Table(
    "users",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("name", Text, nullable=False, unique=True),
    Column("password", Text),
    Column("role", Text, nullable=False),
    Column("tenant", Text, ForeignKey("tenants.name"), nullable=False),
    Column("email", Text, nullable=False),
    Column("settings", Text, nullable=False),
    Column("state", Text, nullable=False),
    Column("created", Float(53), nullable=False),
    sqlite_autoincrement=True,
)

# Tokens, session cookies and links are kept as digests: a copy of the database opens no door.
tokens = Table(
    "tokens",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("user_id", Integer, ForeignKey("users.id"), nullable=False),
    Column("name", Text, nullable=False),
    Column("digest", Text, nullable=False, unique=True),
    Column("created", Float(53), nullable=False),
    Column("used", Float(53)),
    Column("expires", Float(53)),
    Index("tokens_by_user", "user_id"),
    sqlite_autoincrement=True,
)

sessions = Table(
    "sessions",
    metadata,
    Column("digest", Text, primary_key=True),
    Column("user_id", Integer, ForeignKey("users.id"), nullable=False),
    Column("created", Float(53), nullable=False),
    Column("seen", Float(53), nullable=False),
    Column("expires", Float(53), nullable=False),
    Column("address", Text, nullable=False),
    Column("agent", Text, nullable=False),
    Index("sessions_by_user", "user_id"),
)

attempts = Table(
    "attempts",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("key", Text, nullable=False),
    Column("at", Float(53), nullable=False),
    Index("attempts_by_key", "key", "at"),
    Index("attempts_by_time", "at"),
)

audit = Table(
    "audit",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("at", Float(53), nullable=False),
    Column("user", Text, nullable=False),
    Column("tenant", Text, nullable=False),
    Column("address", Text, nullable=False),
    Column("action", Text, nullable=False),
    Column("subject", Text, nullable=False),
    Column("outcome", Text, nullable=False),
    Column("details", Text, nullable=False),
    Index("audit_by_tenant", "tenant", "id"),
    sqlite_autoincrement=True,
)

backends = Table(
    "backends",
    metadata,
    Column("name", Text, primary_key=True),
    Column("document", Text, nullable=False),
    Column("users", Text, nullable=False),
    Column("created", Float(53), nullable=False),
)

applications = Table(
    "applications",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("tenant", Text, nullable=False),
    Column("name", Text, nullable=False),
    Column("version", Integer, nullable=False),
    Column("document", Text, nullable=False),
    Column("author", Text, nullable=False),
    Column("trusted", Boolean, nullable=False),
    Column("state", Text, nullable=False),
    Column("created", Float(53), nullable=False),
    UniqueConstraint("tenant", "name", "version", name="applications_once"),
    sqlite_autoincrement=True,
)

# Files that users hand in with a form: in the database, because any server may carry out the request.
uploads = Table(
    "uploads",
    metadata,
    Column("tenant", Text, primary_key=True),
    Column("digest", Text, primary_key=True),
    Column("size", BigInteger, nullable=False),
    Column("data", LargeBinary, nullable=False),
    Column("used", Float(53), nullable=False),
    Index("uploads_by_digest", "digest"),
    Index("uploads_by_use", "used"),
)

requests = Table(
    "requests",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("tenant", Text, ForeignKey("tenants.name"), nullable=False),
    Column("user_id", Integer, ForeignKey("users.id"), nullable=False),
    Column("kind", Text, nullable=False),
    Column("name", Text, nullable=False),
    Column("application_id", Integer, ForeignKey("applications.id")),
    Column("key", Text),
    Column("state", Text, nullable=False),
    Column("wanted", Text, nullable=False),
    Column("problem", Text, nullable=False),
    Column("hint", Text, nullable=False),
    Column("cost", Float(53), nullable=False),
    Column("reserved", Float(53), nullable=False),
    Column("study_id", Integer, ForeignKey("studies.id")),
    Column("cluster", Text, nullable=False),
    Column("cluster_job", Integer, ForeignKey("cluster_jobs.id")),
    Column("created", Float(53), nullable=False),
    Column("updated", Float(53), nullable=False),
    Column("started", Float(53)),
    Column("ended", Float(53)),
    Column("progress", Text, nullable=False),
    Column("plan", Text, nullable=False),
    Column("document", Text, nullable=False),
    UniqueConstraint("user_id", "key", name="requests_once"),
    Index("requests_by_study", "study_id"),
    Index("requests_by_tenant", "tenant", "id"),
    Index("requests_by_state", "state", "tenant", "id"),
    sqlite_autoincrement=True,
)

# What lists are searched by: the values of forms, each as the text that it is written as and as the number that it is.
request_parameters = Table(
    "request_parameters",
    metadata,
    Column("request_id", Integer, ForeignKey("requests.id"), primary_key=True),
    Column("name", Text, primary_key=True),
    Column("text", Text, nullable=False),
    Column("number", Float(53)),
    Index("request_parameters_by_text", "name", "text", "request_id"),
    Index("request_parameters_by_number", "name", "number", "request_id"),
)

request_events = Table(
    "request_events",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("request_id", Integer, ForeignKey("requests.id"), nullable=False),
    Column("at", Float(53), nullable=False),
    Column("stage", Text, nullable=False),
    Column("text", Text, nullable=False),
    Column("details", Text, nullable=False),
    Index("request_events_by_request", "request_id", "id"),
    sqlite_autoincrement=True,
)

links = Table(
    "links",
    metadata,
    Column("digest", Text, primary_key=True),
    Column("request_id", Integer, ForeignKey("requests.id"), nullable=False),
    Column("path", Text, nullable=False),
    Column("created", Float(53), nullable=False),
    Column("expires", Float(53)),
    Index("links_by_request", "request_id"),
)

notices = Table(
    "notices",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("request_id", Integer, ForeignKey("requests.id")),
    Column("user_id", Integer, ForeignKey("users.id"), nullable=False),
    Column("kind", Text, nullable=False),
    Column("target", Text, nullable=False),
    Column("delivery", Text, nullable=False),
    Column("document", Text, nullable=False),
    Column("state", Text, nullable=False),
    Column("problem", Text, nullable=False),
    Column("attempts", Integer, nullable=False),
    Column("created", Float(53), nullable=False),
    Column("due", Float(53), nullable=False),
    Column("ended", Float(53)),
    Index("notices_by_request", "request_id"),
    Index("notices_by_state", "state", "due"),
    Index("notices_by_user", "user_id", "id"),
    sqlite_autoincrement=True,
)

# What all servers of one database share: keys that they sign with, and what the administrator has set.
service_values = Table(
    "service_values",
    metadata,
    Column("name", Text, primary_key=True),
    Column("value", Text, nullable=False),
)
