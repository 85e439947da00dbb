"""Which Cores get a place: never so many that no run can start."""

from __future__ import annotations

from collections.abc import Callable

from tradewind.tenancy.pool import Pool
from tradewind.tenancy.queue import Job
from tradewind.tenancy.resources import SLACK, Amounts, plus, within
from tradewind.tenancy.views import TenantView


class Admission:
    """Cores that wait, and the reserve that they share.

    Cores hold their place as long as their search lives, and runs come and go: on paper 4's cluster 27 Cores of one CPU
    leave three CPUs a node, and no run of four CPUs can ever start. Therefore Cores take a share of the cluster at most
    (but one always has a place if it fits), and each is placed so that the runs of all admitted searches still find a
    node large enough.

    Args:
        pool: The nodes.
        reserve: The largest share of any resource that Cores may take together.
    """

    def __init__(self, pool: Pool, reserve: float) -> None:
        self._pool, self._reserve = pool, reserve
        self._waiting: dict[str, Job] = {}
        self._placed: dict[str, Job] = {}

    def wait(self, job: Job) -> None:
        """A Core needs a place."""
        self._placed.pop(job.view.job, None)
        self._waiting[job.view.job] = job

    def forget(self, job: Job) -> None:
        """A search is over."""
        self._waiting.pop(job.view.job, None)
        self._placed.pop(job.view.job, None)

    def next(self, key: Callable[[TenantView], tuple[float, ...]]) -> tuple[Job, str] | None:
        """The Core that is due next and has a place now, and its node; it counts as placed from now on."""
        order = sorted(self._waiting.values(), key=lambda job: (key(job.tenant.view), job.nice, job.view.number))
        for job in order:
            if self._placed and not self._within_reserve(job.core):
                continue
            if not within(plus(job.tenant.used, job.core), job.tenant.quota):
                continue
            demands = list({other.run for other in (*self._placed.values(), job) if any(other.run)})
            node = self._pool.fit_core(job.core, demands)
            if node is not None:
                self._placed[job.view.job] = self._waiting.pop(job.view.job)
                return job, node
        return None

    def _within_reserve(self, core: Amounts) -> bool:
        taken = [sum(each) for each in zip(core, *(job.core for job in self._placed.values()), strict=True)]
        return all(used <= whole * self._reserve + SLACK for used, whole in zip(taken, self._pool.total, strict=True))
