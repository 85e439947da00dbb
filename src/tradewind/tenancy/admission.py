"""Which Cores get a place: never so many that no run can start."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from tradewind.tenancy.node_pool import NodePool
from tradewind.tenancy.request_queue import QueuedSearch
from tradewind.tenancy.resources import SLACK, Amounts, add_amounts, fits_within, format_amounts
from tradewind.tenancy.views import TenantView


class CoreAdmission:
    """Cores that wait, and the reserve that they share.

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
        """What the runs of a search take, as far as it is known, and could ever be given beside its own Core."""
        asked = {request.demand for request in (*job.waiting, *job.running.values())}
        known = {demand for demand in (job.run, *asked) if any(demand)}
        return {demand for demand in known if self._pool.could_ever_hold(demand, job.core)}

    def _within_reserve(self, core: Amounts) -> bool:
        taken = [sum(each) for each in zip(core, *(job.core for job in self._placed.values()), strict=True)]
        return all(used <= whole * self._reserve + SLACK for used, whole in zip(taken, self._pool.total, strict=True))


def impossible_reason(job: QueuedSearch, demand: Amounts, pool: NodePool) -> str:
    """Why a run can never be started, in words; empty where it can, or could with more or larger nodes.

    Args:
        job: The search.
        demand: What the run takes.
        pool: The nodes.
    """
    name = pool.kinds.mapping
    wanted = f"it takes {format_amounts(name(demand))}"
    if any(job.core):
        wanted += f" beside the {format_amounts(name(job.core))} of its Core"
    if not fits_within(add_amounts(demand, job.core), job.tenant.quota):
        quota = name([most if most < float("inf") else 0.0 for most in job.tenant.quota])
        return f"{wanted}, and tenant {job.tenant.view.name} has a quota of {format_amounts(quota)}"
    begun = job.running or job.view.values  # it found room before: a node is gone that may come back
    nothing = (0.0,) * len(demand)
    if not begun and pool.could_ever_hold(demand, nothing) and not pool.could_ever_hold(demand, job.core):
        return f"{wanted}, and no node is large enough for both"
    return ""
