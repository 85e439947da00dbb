"""Places on nodes: of Cores, and those that are kept for runs that have no room."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence, Set

from tradewind.tenancy.node_pool import NodePool
from tradewind.tenancy.request_queue import QueuedSearch, ResourceRequest
from tradewind.tenancy.resources import SLACK, Amounts, add_amounts, fits_within
from tradewind.tenancy.run_times import RunTimes
from tradewind.tenancy.views import TenantView

_LOOKED_AT = 8
"""Nodes, those with most room, among which the one is chosen that is expected to be free first."""

_BESIDE = 2
"""Nodes with room now at most on which is looked whether a run delays what has its place there."""


class CoreAdmission:
    """Gives Cores a place: never so many that no run can start.

    Cores hold their place as long as their search lives, and runs come and go: on paper 4's cluster 27 Cores of one CPU
    leave three CPUs a node, and no run of four CPUs can ever start. Therefore Cores take a share of the cluster at most
    (but one always has a place if it fits), and each is placed so that its own runs and those of all other searches
    still find a node large enough. Runs that no empty cluster could hold beside their own Core keep nobody out.

    Args:
        pool: The nodes.
        reserve: The largest share of any resource that Cores may take together.
    """

    def __init__(self, pool: NodePool, reserve: float) -> None:
        self._pool, self._reserve = pool, reserve
        self._waiting: dict[str, QueuedSearch] = {}
        self._placed: dict[str, QueuedSearch] = {}

    def wait(self, job: QueuedSearch) -> None:
        """A Core needs a place."""
        self._placed.pop(job.view.job, None)
        self._waiting[job.view.job] = job

    def forget(self, job: QueuedSearch) -> None:
        """A search is over."""
        self._waiting.pop(job.view.job, None)
        self._placed.pop(job.view.job, None)

    def next(
        self, key: Callable[[TenantView], tuple[float, ...]], jobs: Iterable[QueuedSearch]
    ) -> tuple[QueuedSearch, str] | None:
        """The Core that is due next and has a place now, and its node; it counts as placed from now on.

        Args:
            key: The order of tenants.
            jobs: All searches.
        """
        if not self._waiting:
            return None
        others = {demand for job in jobs if job.admitted for demand in self._demands(job)}
        order = sorted(self._waiting.values(), key=lambda job: (key(job.tenant.view), job.nice, job.view.number))
        for job in order:
            if self._placed and not self._within_reserve(job.core):
                continue
            if not fits_within(add_amounts(job.tenant.used, job.core), job.tenant.quota):
                continue
            node = self._pool.fit_core(job.core, list(others | self._demands(job)))
            if node is not None:
                self._placed[job.view.job] = self._waiting.pop(job.view.job)
                return job, node
        return None

    def _demands(self, job: QueuedSearch) -> set[Amounts]:
        """The known demands of a search's runs that could ever be met beside its own Core."""
        asked = {request.demand for request in (*job.waiting, *job.booked.values(), *job.running.values())}
        known = {demand for demand in (job.run, *asked) if any(demand)}
        return {demand for demand in known if self._pool.could_ever_hold(demand, job.core)}

    def _within_reserve(self, core: Amounts) -> bool:
        taken = [sum(each) for each in zip(core, *(job.core for job in self._placed.values()), strict=True)]
        return all(used <= whole * self._reserve + SLACK for used, whole in zip(taken, self._pool.total, strict=True))


class NodeReservations:
    """Nodes that are kept free for demands that found no room for a while.

    Without them a run of a whole node would wait for ever beside a stream of small ones that take each gap at once. One
    node is kept for each demand that waits too long: nothing else starts there until it fits.

    Args:
        pool: The nodes.
        patience: Seconds without room after which a node is kept.
    """

    def __init__(self, pool: NodePool, patience: float) -> None:
        self._pool, self._patience = pool, patience
        self._until: dict[Amounts, float] = {}
        self._kept: dict[Amounts, str] = {}

    def find(self, demand: Amounts) -> str | None:
        """The node for a demand: one that is open to all, or the one that is kept for it."""
        node = self._pool.fit(demand)
        if node is not None or demand not in self._kept:
            return node
        kept = self._kept[demand]
        return kept if self._pool.fits_on(kept, demand) else None

    def placed(self, demand: Amounts) -> None:
        """A demand has found room: what was kept for it is open again."""
        self._until.pop(demand, None)
        kept = self._kept.pop(demand, None)
        if kept is not None:
            self._pool.unkeep(kept)

    def blocked(self, demands: Set[Amounts], now: float) -> float | None:
        """Note which demands wait without room; keep nodes for those that have waited too long.

        Returns:
            When the next of them has waited too long, or None.
        """
        for gone in [demand for demand in self._until if demand not in demands]:
            self.placed(gone)
        due: list[float] = []
        for demand in demands:
            until = self._until.setdefault(demand, now + self._patience)
            if demand in self._kept:
                continue
            if now < until:
                due.append(until)
            elif (node := self._pool.roomiest(demand)) is not None:
                self._pool.keep(node)
                self._kept[demand] = node
        return min(due, default=None)

    def lose(self, node: str) -> None:
        """A node is gone."""
        self._kept = {demand: kept for demand, kept in self._kept.items() if kept != node}


class PlaceBookings:
    """Places that are kept for runs that are due and have no room yet: on which node each starts, in which order.

    A place is booked where it is expected to be free first. From then on nothing takes it but what is expected to end
    before, or leaves it enough room: EASY backfilling. When the place was not free by then, nothing more that counts on
    its end goes before: so a run waits for what was there, and for what took longer than expected.

    Args:
        pool: The nodes.
        times: How long runs take.
    """

    def __init__(self, pool: NodePool, times: RunTimes) -> None:
        self._pool, self._times = pool, times
        self._on: dict[str, list[ResourceRequest]] = {}
        self._kept: dict[str, ResourceRequest] = {}

    def book(self, request: ResourceRequest, now: float) -> bool:
        """Keep a place for a run; False where no node can hold it when what runs there has ended.

        Args:
            request: The run; it uses up what it takes on its node from now on.
            now: The time.
        """
        best: tuple[float, str] | None = None
        for node in self._pool.roomy(request.demand, _LOOKED_AT):
            opens = self._opening(node, self._pool.free_amounts(node), request.demand, now)[0]
            if opens < float("inf") and (best is None or opens < best[0]):
                best = opens, node
        if best is None:
            return False
        opens, request.booked = best
        request.opens = min(opens, request.opens or opens)  # booked anew, it waits for no more than was foreseen first
        self._on.setdefault(request.booked, []).append(request)
        self._pool.book(request.booked, request.demand)
        return True

    def promise(self, request: ResourceRequest, node: str, opens: float, takes_at: float | None = None) -> None:
        """Keep a place for a run for which others are being ended: before all that only wait there.

        Args:
            request: The run.
            node: Where it starts.
            opens: When the others are expected to be gone.
            takes_at: When they are ended, where that is later: those of others go before, that are ended now.
        """
        request.booked, request.opens, request.promised, request.takes_at = node, opens, True, takes_at
        here = self._on.setdefault(node, [])
        before = (each.promised and (each.takes_at is None or takes_at is not None) for each in here)
        here.insert(sum(before), request)
        self._pool.book(node, request.demand)
        if takes_at is not None:
            self._kept[request.id] = request

    def cancel(self, request: ResourceRequest) -> None:
        """Give up the place that is kept for a run."""
        node, request.booked, request.promised, request.takes_at = request.booked, None, False, None
        self._kept.pop(request.id, None)
        here = self._on.get(node or "", [])
        if node is None or request not in here:
            return
        here.remove(request)
        self._pool.unbook(node, request.demand)
        if not here:
            del self._on[node]

    def ready(self, node: str) -> Iterator[tuple[ResourceRequest, str]]:
        """The runs for which places on a node were kept that have room now; the places are no longer kept."""
        while (here := self._on.get(node)) and self._pool.fits_beside(node, here[0].demand):
            request = here[0]
            self.cancel(request)
            yield request, node

    @property
    def kept(self) -> list[ResourceRequest]:
        """The runs for which places are promised, and runs are ended later."""
        return list(self._kept.values())

    def on(self, node: str) -> list[ResourceRequest]:
        """The runs that have a place on a node booked, in their order."""
        return list(self._on.get(node, ()))

    def backfill(self, request: ResourceRequest, now: float, may_pass: Callable[[ResourceRequest], bool]) -> str | None:
        """A node on which places are kept and a run delays none of them; None where there is none.

        Args:
            request: What is to start.
            now: The time.
            may_pass: Says whether it may still be there when some run begins that has its place kept.
        """
        demand, seconds = request.demand, self._times.expect(request)
        for node in self._pool.beside_bookings(demand, _BESIDE):
            first = next((each for each in self._on[node] if not each.promised), None)
            if first is not self._on[node][0] and not self._leaves_promised(node, demand):
                continue
            if first is None:
                return node
            if seconds is not None and now + seconds <= first.opens:
                return node
            if not may_pass(first):
                continue
            wanted = demand
            for each in self._on[node]:
                wanted = tuple(add_amounts(wanted, each.demand))
            if not self._pool.holds(node, wanted):
                continue
            free = self._pool.free_amounts(node, booked=False)
            opens, free = self._opening(node, free, first.demand, now)
            if opens < float("inf") and _enough(free, wanted):
                return node
        return None

    def _leaves_promised(self, node: str, demand: Amounts) -> bool:
        """True when a demand leaves enough for the runs for which others are being ended on a node."""
        free: Sequence[float] = self._pool.free_amounts(node, booked=False)
        for run in self._times.ends_on(node):
            if run.taken_for is not None:
                free = add_amounts(free, run.demand)
        for each in self._on[node]:
            if each.promised:
                free = [f - d for f, d in zip(free, each.demand, strict=True)]
        return _enough(free, demand)

    def _opening(self, node: str, free: Amounts, demand: Amounts, now: float) -> tuple[float, Amounts]:
        """The time at which a demand is expected to have room on a node, and what is free there by then."""
        if _enough(free, demand):
            return now, free
        for run in self._times.ends_on(node):
            free = tuple(add_amounts(free, run.demand))
            if _enough(free, demand):
                return max(now, run.since + run.foreseen), free
        return float("inf"), free


def _enough(free: Sequence[float], demand: Sequence[float]) -> bool:
    """True when all amounts of a demand are free; of what it does not take, more may be placed than there is."""
    return not any(wanted > 0 and wanted > has + SLACK for wanted, has in zip(demand, free, strict=True))
