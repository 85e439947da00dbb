"""Places of one server that several requests want: they are offered by the allocator of shared clusters."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence

from tradewind import plugins
from tradewind.tenancy import events as ev
from tradewind.tenancy.allocator import AllocationPolicy, Allocator
from tradewind.tenancy.resources import ResourceKinds

_HERE = "here"


class OfferedPlaces:
    """The capacity of one server, shared between tenants as ``fair_share`` shares a cluster; threads may ask at once.

    Args:
        capacity: The amounts that there are, by kind. Who asks for more than that gets all of it.
        clock: Seconds that never go back.
    """

    def __init__(self, capacity: Mapping[str, float], clock: Callable[[], float] = time.monotonic) -> None:
        between, within = plugins.create("fairness", "fair_share", {}), plugins.create("priority", "fifo", {})
        self._capacity = dict(capacity)
        self._allocator = Allocator(AllocationPolicy(between, within, ResourceKinds(tuple(capacity))))
        self._clock = clock
        self._lock = threading.RLock()
        self._handle(ev.NodeJoined(_HERE, capacity))

    def ask(
        self,
        wanted: Sequence[tuple[str, str, str, Mapping[str, float]]],
        weights: Mapping[str, float],
        over: Iterable[tuple[str, float | None]] = (),
    ) -> None:
        """Ask for places, all of them at one moment: who is due gets one at once, if there is room.

        Args:
            wanted: Name of the place, of what it is for, of the tenant, and the amounts by kind. Of one tenant's, what
                was named first gets the first places.
            weights: The weights of tenants; one that is not among them has 1.
            over: Places that are taken back at the same moment, else they would go to whoever waits: the name of one
                and None. After it, what it was for and the seconds of its program: only those count.
        """
        with self._lock:
            events: list[ev.AllocatorEvent] = []
            for name, took in over:
                if took is None:
                    events.append(ev.RequestEnded(name))
                elif name in self._allocator.jobs:
                    events.append(ev.ResultReported(name, 0.0, took))
            for name, job, tenant, demand in wanted:
                events += self._known(job, tenant, weights, events)
                events.append(ev.RequestMade(job, name, self._limited(demand)))
            self._handle(*events)

    def adopt(self, name: str, job: str, tenant: str, demand: Mapping[str, float], weight: float = 1.0) -> None:
        """Give a place to what has begun already, whether there is room or not."""
        with self._lock:
            if name not in self.given([name]):
                self.give_up(name)
                known = self._known(job, tenant, {tenant: weight}, ())
                self._handle(*known, ev.RequestAdopted(job, name, self._limited(demand), _HERE))

    def given(self, names: Iterable[str]) -> set[str]:
        """Names, of some, that have a place now."""
        with self._lock:
            self._handle(ev.AllocatorTick())
            found = map(self._allocator.requests.get, names)
            return {request.id for request in found if request is not None and request.node is not None}

    def end(self, name: str) -> None:
        """Take a place back: what had it is over."""
        self._handle(ev.RequestEnded(name))

    def give_up(self, name: str) -> None:
        """Take a place back that was not used, or is not wanted any more: it says nothing of how long others take."""
        self._handle(ev.RequestWithdrawn(name), ev.RequestEnded(name))

    def forget(self, job: str) -> None:
        """Take all places back that were for one thing."""
        with self._lock:
            found = self._allocator.jobs.get(job)
            running = list(found.running) if found is not None else []
            self._handle(ev.JobEnded(job), *map(ev.RequestEnded, running))

    def _known(
        self, job: str, tenant: str, weights: Mapping[str, float], before: Sequence[ev.AllocatorEvent]
    ) -> list[ev.AllocatorEvent]:
        """The events that make a tenant known, with its weight as it is now, and what it wants places for."""
        weight, found = weights.get(tenant, 1.0), self._allocator.tenants.get(tenant)
        events: list[ev.AllocatorEvent] = []
        if found is None or found.view.weight != weight:
            events.append(ev.TenantSet(tenant, weight))
        submitted = ev.JobSubmitted(job, tenant)
        if job not in self._allocator.jobs and submitted not in before:
            events.append(submitted)
        return events

    def _limited(self, demand: Mapping[str, float]) -> dict[str, float]:
        return {kind: min(amount, self._capacity[kind]) for kind, amount in demand.items() if kind in self._capacity}

    def _handle(self, *events: ev.AllocatorEvent) -> None:
        with self._lock:
            self._allocator.handle_all(events, self._clock())
