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
    MetaData,
    PrimaryKeyConstraint,
    String,
    Table,
    Text,
)

REVISIONS = ("0001", "0002")
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
    Column("hold_token", Text),
    Column("hold_holder", Text),
    Column("hold_since", Float(53)),
    Column("hold_expires", Float(53)),
    Index("studies_by_name", "name"),
    # Without it SQLite gives the number of a deleted study to the next one.
    sqlite_autoincrement=True,
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

tenants = Table(
    "tenants",
    metadata,
    Column("name", Text, primary_key=True),
    Column("weight", Float(53), nullable=False),
    Column("priority", Integer, nullable=False),
    Column("quota", Text, nullable=False),
    Column("created", Float(53), nullable=False),
)

clusters = Table(
    "clusters",
    metadata,
    Column("name", Text, primary_key=True),
    Column("settings", Text, nullable=False),
    Column("snapshot", Text, nullable=False),
    Column("updated", Float(53), nullable=False),
    Column("hold_token", Text),
    Column("hold_holder", Text),
    Column("hold_expires", Float(53)),
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
    Index("cluster_jobs_by_state", "state"),
    Index("cluster_jobs_by_tenant", "tenant"),
    sqlite_autoincrement=True,
)
