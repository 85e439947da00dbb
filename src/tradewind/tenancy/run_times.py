"""Run times as the allocator foresees them, and what of them counts as use."""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Iterator

from tradewind.tenancy.request_queue import LENGTHS, QueuedSearch, ResourceRequest

_UNKNOWN = 1.0
"""Seconds of a run where nobody knows how long any run takes; all count alike then."""

_LONGER = 0.25
"""A run that takes longer than foreseen is foreseen to take this share of what it has taken longer still, or more."""

_CORE = 10.0
"""Seconds for which the use of a Core is counted at a time: nobody knows how long it lives."""

_SEEN = 100


class RunTimes:
    """Foresees how long runs take, and knows what runs on which node.

    A run is expected to take as long as the last runs of its search took in the mean; before the first one, as long as
    its searcher's model says, as runs of earlier searches like it took, or as long as it may take at most.
    """

    def __init__(self) -> None:
        self._on: dict[str, dict[str, ResourceRequest]] = {}
        self._ends: list[tuple[float, int, ResourceRequest]] = []
        self._number = 0
        self._seen: deque[float] = deque(maxlen=_SEEN)

    def expect(self, request: ResourceRequest) -> float | None:
        """Seconds that a run is expected to take; None where nothing is known of it."""
        job = request.job
        if known := [*job.lengths, *job.view.seconds[-LENGTHS:]]:
            mean: float | None = sum(known) / len(known)
        else:
            mean = request.seconds or job.view.usual_seconds or request.longest
        return mean if mean is None or request.longest is None else min(mean, request.longest)

    def foresee(self, request: ResourceRequest) -> float:
        """Seconds with which a run counts; where nothing is known of it, as long as others took."""
        usual = sum(self._seen) / len(self._seen) if self._seen else _UNKNOWN
        return max(self.expect(request) or usual, 1e-6)

    def longest(self, job: QueuedSearch) -> float | None:
        """Seconds that a run of a search takes at most, as far as that is known; None where nothing is."""
        limits = [
            each.longest
            for each in (*job.waiting, *job.booked.values(), *job.running.values())
            if each.longest is not None
        ]
        seen = [*job.lengths, *job.view.seconds, *(each.foreseen for each in job.running.values())]
        if not seen and not limits and job.view.usual_seconds is not None:
            seen = [job.view.usual_seconds]
        return max(limits) if limits else max(seen, default=None)

    def begin(self, request: ResourceRequest, *, core: bool = False) -> None:
        """A run has begun, or a Core that is as good as one."""
        if core:
            request.foreseen = _CORE
        else:
            request.foreseen = self.foresee(request)
            self._on.setdefault(request.node or "", {})[request.id] = request
        self._push(request)

    def end_by(self, request: ResourceRequest, moment: float) -> None:
        """A run is being ended."""
        request.foreseen = moment - request.since
        self._push(request)

    def end(self, request: ResourceRequest, now: float) -> None:
        """A run is gone; one that was stopped says nothing about others."""
        here = self._on.get(request.node or "", {})
        if here.pop(request.id, None) is not None and not request.stopping:
            request.job.lengths.append(now - request.since)
            self._seen.append(now - request.since)
        if not here:
            self._on.pop(request.node or "", None)
        request.foreseen = 0.0  # what is noted of its end is void

    def late(self, now: float) -> Iterator[ResourceRequest]:
        """The runs that have taken longer than foreseen; they are foreseen to take longer from now on."""
        while self._ends and self._ends[0][0] <= now:
            ends, _, request = heapq.heappop(self._ends)
            if not request.foreseen or ends < request.since + request.foreseen:
                continue  # it is gone, or this was noted before
            ran = now - request.since
            on_node = request.id in self._on.get(request.node or "", {})
            request.foreseen = ran + (max(_LONGER * ran, 1e-6) if on_node else _CORE)
            self._push(request)
            yield request

    def ends_on(self, node: str) -> list[ResourceRequest]:
        """The runs on a node, in the order of their expected ends."""
        return sorted(self._on.get(node, {}).values(), key=lambda each: each.since + each.foreseen)

    def _push(self, request: ResourceRequest) -> None:
        self._number += 1
        heapq.heappush(self._ends, (request.since + request.foreseen, self._number, request))
