"""The queue of requests for resources, in the order in which they are due."""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from tradewind.errors import InputError
from tradewind.problem import Payer
from tradewind.tenancy.preemption.place_claim import PlaceClaim
from tradewind.tenancy.preemption.policy import PreemptionPolicy
from tradewind.tenancy.resources import Amounts
from tradewind.tenancy.views import JobView, TenantView

QueueKey = tuple[float, ...]
T = TypeVar("T")

LENGTHS = 20
"""Runs of a search, the last ones, from which is foreseen how long its next one takes."""


@dataclass(slots=True)
class ResourceRequest:
    """A run that waits or runs.

    Attributes:
        id: The run's id in the cluster.
        job: The search that it is of.
        demand: What it takes.
        node: Where it runs, or None while it waits.
        since: When it was started.
        stopping: It was asked to stop.
        chance: How likely it is to bring what its search is after; None where not said.
        seconds: How long its searcher's model expects it to take; None where not said.
        longest: After how many seconds it is ended; None where that is not known.
        foreseen: How many seconds it counts with while it runs; see `tradewind.tenancy.run_times.RunTimes`.
        charged: The dominant share times seconds that were counted as its tenant's use.
        booked: The node on which a place is kept for it, or None.
        opens: When that place was expected to be free.
        turn: The key of its tenant when it was chosen; None where others were passed over for it.
        repeatable: It may be taken: its trial can be run again.
        taken: How often runs of its trial were taken.
        price: USD per hour that it costs.
        promised: The place that is kept for it is one that runs of others are ended for, now or soon.
        takes_at: When they are ended; None where they are being ended, and for all other runs.
        taken_for: The run that gets its place; it is being ended.
        pays: Who pays it then.
    """

    id: str
    job: QueuedSearch
    demand: Amounts
    node: str | None = None
    since: float = 0.0
    stopping: bool = False
    chance: float | None = None
    seconds: float | None = None
    longest: float | None = None
    foreseen: float = 0.0
    charged: float = 0.0
    booked: str | None = None
    opens: float = 0.0
    turn: QueueKey | None = None
    repeatable: bool = False
    taken: int = 0
    price: float = 0.0
    promised: bool = False
    takes_at: float | None = None
    taken_for: ResourceRequest | None = None
    pays: Payer = "owner"


@dataclass(slots=True, eq=False)
class Tenant:
    """A tenant and what it uses.

    Attributes:
        view: What rules see of it.
        quota: The most that it may use; infinite where not limited.
        used: What its runs and Cores use now.
        jobs: Its searches, by id.
        number: Its number by arrival, which settles ties.
        version: Counts its changes: what the queue noted before is void.
        heaps: Its searches with requests, by the demand of their next one; what has changed since is among them.
        spent: Amount times seconds of all its ended runs.
        waits: It has a request that may be started.
        preempt: Its policy, where its work may end runs of others.
        taken: What is being taken from it, and not gone yet.
        claim: Its claim to places of others since its work came.
        why_not: Why it takes nothing though its policy says so; empty where nothing keeps it from that.
    """

    view: TenantView
    quota: Amounts
    used: list[float]
    number: int
    jobs: dict[str, QueuedSearch] = field(default_factory=dict)
    version: int = 0
    heaps: dict[Amounts, list[tuple[QueueKey, int, int, QueuedSearch]]] = field(default_factory=dict)
    spent: list[float] = field(default_factory=list)
    waits: bool = False
    preempt: PreemptionPolicy | None = None
    taken: list[float] = field(default_factory=list)
    claim: PlaceClaim = field(default_factory=PlaceClaim)
    why_not: str = ""


@dataclass(slots=True, eq=False)
class QueuedSearch:
    """A search and its requests.

    Attributes:
        view: What priorities see of it.
        tenant: Whose it is.
        core: What its Core takes.
        run: The largest demand of a run that is known.
        nice: Smaller goes first within its tenant.
        admitted: Its Core has a place, or needs none.
        core_node: Where its Core runs, or None.
        paused: Nothing more is started.
        waiting: Requests, the oldest first.
        booked: Requests for which places are kept, by id.
        running: Requests, by id.
        version: Counts its changes.
        skipped: Offers that it declined since it took one.
        lengths: Seconds for which the last of its runs had their places.
        core_use: What stands for the use of its Core, while that has a place.
        last: Its run that ended last, and for how many seconds that had its place, until its result comes.
    """

    view: JobView
    tenant: Tenant
    core: Amounts
    run: Amounts
    nice: int = 0
    admitted: bool = True
    core_node: str | None = None
    paused: bool = False
    waiting: deque[ResourceRequest] = field(default_factory=deque)
    booked: dict[str, ResourceRequest] = field(default_factory=dict)
    running: dict[str, ResourceRequest] = field(default_factory=dict)
    version: int = 0
    skipped: int = 0
    lengths: deque[float] = field(default_factory=lambda: deque(maxlen=LENGTHS))
    core_use: ResourceRequest | None = None
    last: tuple[ResourceRequest, float] | None = None

    @property
    def wants(self) -> bool:
        """True while it runs something, or is not paused: its tenant is not away."""
        return bool(self.running) or not self.paused

    @property
    def waits(self) -> int:
        """The number of requests that do not run, those among them for which places are kept."""
        return len(self.waiting) + len(self.booked)

    @property
    def under_way(self) -> int:
        """The number of requests that run, or for which places are kept."""
        return len(self.running) + len(self.booked)

    @property
    def ready(self) -> bool:
        """True when it has a request that may be started."""
        return bool(self.waiting) and self.admitted and not self.paused


class Queue:
    """The searches with requests: a heap of tenants for each demand, and for each of these a heap of its searches.

    What has changed is entered again, and what was noted of it before is dropped when it comes up. Finding the next one
    among n takes log n, times the number of different demands.

    Args:
        tenant_key: The order of tenants.
        job_key: The order of the searches of a tenant.
        came: Called when a tenant has something that waits, and had nothing before.
    """

    def __init__(
        self,
        tenant_key: Callable[[TenantView], QueueKey],
        job_key: Callable[[JobView], QueueKey],
        came: Callable[[TenantView], None] = lambda tenant: None,
    ) -> None:
        self._tenant_key, self._job_key, self._came = tenant_key, job_key, came
        self._heaps: dict[Amounts, list[tuple[QueueKey, int, int, Tenant]]] = {}

    def enter(self, job: QueuedSearch) -> None:
        """Note a search that has changed, or its tenant."""
        job.version += 1
        if job.ready:
            heap = job.tenant.heaps.setdefault(job.waiting[0].demand, [])
            number = job.view.number
            heapq.heappush(heap, ((job.nice, *self._job_key(job.view)), number, job.version, job))
        self.enter_tenant(job.tenant)

    def enter_tenant(self, tenant: Tenant) -> None:
        """Note a tenant that has changed: what it uses, its weight, or which of its searches wait."""
        tenant.version += 1
        numbers = [job.view.number for job in (self._first(tenant, demand) for demand in list(tenant.heaps)) if job]
        waited, tenant.waits = tenant.waits, bool(numbers)
        if not numbers:
            return
        if not waited:
            self._came(tenant.view)
        tenant.view.oldest = min(numbers)
        key = self._tenant_key(tenant.view)
        for demand in tenant.heaps:
            heap = self._heaps.setdefault(demand, [])
            heapq.heappush(heap, (key, tenant.number, tenant.version, tenant))

    def demands(self) -> Iterator[Amounts]:
        """The different demands that wait."""
        return iter(list(self._heaps))

    def first(self, demand: Amounts) -> tuple[tuple[QueueKey, int, QueueKey, int], QueuedSearch] | None:
        """The search that is due next among those whose next request has a demand, and its place in the order."""
        heap = self._heaps.get(demand)
        while heap:
            key, number, version, tenant = heap[0]
            if version == tenant.version and (job := self._first(tenant, demand)) is not None:
                job_key, job_number, _, _ = tenant.heaps[demand][0]
                return (key, number, job_key, job_number), job
            heapq.heappop(heap)
        self._heaps.pop(demand, None)
        return None

    def hide(self, job: QueuedSearch) -> None:
        """Leave a search out until it is entered again."""
        job.version += 1

    def hide_tenant(self, tenant: Tenant, demand: Amounts) -> None:
        """Leave a tenant's requests of a demand out until the tenant is entered again."""
        heapq.heappop(self._heaps[demand])

    def _first(self, tenant: Tenant, demand: Amounts) -> QueuedSearch | None:
        heap = tenant.heaps.get(demand)
        while heap:
            _, _, version, job = heap[0]
            if version == job.version:
                return job
            heapq.heappop(heap)
        tenant.heaps.pop(demand, None)
        return None


def require_known(there: Mapping[str, T], name: str, what: str) -> T:
    """The entry of a name.

    Raises:
        InputError: Nothing has it.
    """
    if name not in there:
        raise InputError(f"there is no {what} {name!r}", hint=f"there are {', '.join(list(there)[:8]) or 'none'}")
    return there[name]
