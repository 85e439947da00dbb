"""Requests, their states and their events as values, without a database."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

RequestKind = Literal["run", "search"]
RequestIntent = Literal["run", "cancel", "delete"]

RequestStage = Literal["booting", "bootstrapping", "submitting", "executing", "collecting"]
RequestEndState = Literal["done", "failed", "timed_out", "preempted", "cancelled"]
RequestState = Literal["pending", RequestStage, RequestEndState, "deleted"]

ACTIVE: tuple[RequestStage, ...] = ("booting", "bootstrapping", "submitting", "executing", "collecting")
"""The states of a request that is being carried out, in their order."""

OPEN: tuple[RequestState, ...] = ("pending", *ACTIVE)
"""The states of a request that is not over."""

ENDED: tuple[RequestEndState, ...] = ("done", "failed", "timed_out", "preempted", "cancelled")
"""The states of a request that is over."""

DELETED: Literal["deleted"] = "deleted"
"""The state of what is left of a request that was removed."""


@dataclass(frozen=True, slots=True)
class RequestRow:
    """A request.

    Attributes:
        id: The store's own number; 0 before it is stored.
        tenant: Whose it is.
        user_id: Number of the user who made it.
        kind: ``run`` (one run) or ``search`` (a study with a budget).
        document: What was asked, as it was given.
        name: What the user calls it.
        key: The user's own key: a second request with the same one is the first.
        application_id: Number of the version of the application that it is of, or None.
        state: ``pending``, a stage of `ACTIVE`, or one of `ENDED`.
        wanted: What becomes of it: ``run``, ``cancel`` or ``delete``.
        problem: Why it did not end well; empty where it did, or has not ended.
        hint: What to do about that; may be empty.
        cost: USD that it has cost so far, total.
        reserved: USD that it may have cost in all when this attempt ends: they count against its tenant's quota while
            it is carried out. 0 where the tenant has none.
        study_id: Its study, from before anything is created for it, or None.
        cluster: The shared cluster that it goes to; empty for one that a server carries out itself.
        cluster_job: Its search in the queue of that cluster, or None.
        created: When it was made, seconds since the epoch.
        updated: When its row last changed.
        started: When it was first carried out, or None.
        ended: When it was over, or None.
        progress: How far it is, for people: trials, best, spent, stage, why it waits.
        plan: What was decided before it began: its configuration.
        hold_holder: Who carries it out (host, pid and start), or None.
        hold_expires: When another one may take it over, or None.
        user: Name of the user who made it; read only.
        application: ``name@version`` of its application, or empty; read only.
    """

    id: int
    tenant: str
    user_id: int
    kind: RequestKind
    document: Mapping[str, Any]
    name: str = ""
    key: str | None = None
    application_id: int | None = None
    state: RequestState = "pending"
    wanted: RequestIntent = "run"
    problem: str = ""
    hint: str = ""
    cost: float = 0.0
    reserved: float = 0.0
    study_id: int | None = None
    cluster: str = ""
    cluster_job: int | None = None
    created: float = 0.0
    updated: float = 0.0
    started: float | None = None
    ended: float | None = None
    progress: Mapping[str, Any] = field(default_factory=dict)
    plan: Mapping[str, Any] = field(default_factory=dict)
    hold_holder: str | None = None
    hold_expires: float | None = None
    user: str = ""
    application: str = ""

    @property
    def over(self) -> bool:
        """True when nothing more happens to it by itself."""
        return self.state in ENDED


@dataclass(frozen=True, slots=True)
class RequestEvent:
    """Something that happened to a request.

    Attributes:
        id: The store's own number: events are committed in its order, so that a reader who has seen one has seen all
            before it.
        request_id: The request.
        at: Seconds since the epoch.
        stage: The request's state from then on.
        text: What happened, in words.
        details: Facts by name.
    """

    id: int
    request_id: int
    at: float
    stage: RequestState
    text: str
    details: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class NewRequestEvent:
    """An event that is not stored yet.

    Attributes:
        stage: The request's state from then on.
        text: What happened, in words.
        details: Facts by name.
        at: Seconds since the epoch; now without it.
    """

    stage: RequestState
    text: str
    details: Mapping[str, Any] = field(default_factory=dict)
    at: float | None = None


@dataclass(frozen=True, slots=True)
class TenantQueueState:
    """The requests of a tenant that wait, and what the tenant uses.

    Attributes:
        tenant: The tenant's name.
        first: Number of the request that has waited longest.
        plan: What was decided of that request.
        cost: USD that it has cost by now, in earlier attempts.
        weight: The tenant's share against others.
        quota: Its limits by name: ``requests`` at a time, ``dollars`` in all.
        running: Its requests that are being carried out, on all servers.
        spent: USD that its requests and its searches on clusters have cost, or may cost where they are not over; 0
            without a quota.
        cluster: The shared cluster that the request goes to, or empty.
    """

    tenant: str
    first: int
    plan: Mapping[str, Any] = field(default_factory=dict)
    cost: float = 0.0
    weight: float = 1.0
    quota: Mapping[str, float] = field(default_factory=dict)
    running: int = 0
    spent: float = 0.0
    cluster: str = ""
