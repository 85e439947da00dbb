"""Rows of the tables of shared clusters: tenants, their searches, and the clusters."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import sqlalchemy as sa

from tradewind.store.sql.schema import tenants


def make_tenant(connection: sa.engine.Connection, name: str, created: float = 0.0) -> None:
    """Make a tenant of weight 1 without quota, unless there is one of that name.

    Args:
        connection: In a transaction.
        name: The tenant's name.
        created: Seconds since the epoch; now without it.
    """
    if connection.execute(sa.select(tenants.c.name).where(tenants.c.name == name)).first() is None:
        row = {"name": name, "weight": 1.0, "priority": 0, "quota": "{}", "created": created or time.time()}
        # On PostgreSQL another one may have been quicker: that one is as good.
        with contextlib.suppress(sa.exc.IntegrityError), connection.begin_nested():
            connection.execute(sa.insert(tenants).values(row))


JobIntent = Literal["run", "pause", "cancel"]
JobState = Literal["queued", "running", "paused", "done", "failed", "cancelled"]

OPEN_JOB_STATES: tuple[JobState, ...] = ("queued", "running", "paused")
"""The states of a search that is not over."""


@dataclass(frozen=True, slots=True)
class TenantRow:
    """A tenant.

    Attributes:
        name: The tenant's name, unique in the store.
        weight: Its share against others.
        priority: Larger goes first under strict priority.
        quota: The most that it may use at a time, by name of the resource.
        created: Seconds since the epoch.
        preempt: Its preemption policy, as `tradewind.tenancy.preemption.policy` reads it; empty where it takes nothing.
    """

    name: str
    weight: float = 1.0
    priority: int = 0
    quota: Mapping[str, float] = field(default_factory=dict)
    created: float = 0.0
    preempt: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class JobRow:
    """A search that was submitted to a cluster.

    Attributes:
        id: The store's own number.
        tenant: Whose it is.
        name: The job's name.
        spec: The whole specification, as a JSON-able document.
        options: How it is run: ``core`` (thread or process), ``target``.
        study_id: Its study, once it has begun.
        nice: Its place within its tenant; smaller goes first.
        wanted: What its owner wants of it.
        state: What it is.
        reason: Why it ended, in words.
        submitted: Seconds since the epoch.
        started: When its Core was first started.
        ended: When it was over.
        cluster: The cluster that it is for, or that has taken it; empty for whichever comes first.
        simulated: Nobody pays its runs, which are simulated or looked up; False as long as it has no study, because its
            cluster may run it for real.
    """

    id: int
    tenant: str
    name: str
    spec: Mapping[str, Any]
    options: Mapping[str, Any] = field(default_factory=dict)
    study_id: int | None = None
    nice: int = 0
    wanted: JobIntent = "run"
    state: JobState = "queued"
    reason: str = ""
    submitted: float = 0.0
    started: float | None = None
    ended: float | None = None
    cluster: str = ""
    simulated: bool = False


@dataclass(frozen=True, slots=True)
class ClusterRow:
    """A cluster.

    Attributes:
        name: The cluster's name, unique in the store.
        settings: What it was started with.
        snapshot: What it was like last.
        updated: When that was, seconds since the epoch.
        holder: Who runs it (host and pid); empty when nobody does.
    """

    name: str
    settings: Mapping[str, Any]
    snapshot: Mapping[str, Any]
    updated: float
    holder: str = ""
