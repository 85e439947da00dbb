"""Least attained service."""

from __future__ import annotations

from tradewind.tenancy.priority.base import Priority
from tradewind.tenancy.views import JobView


class LeastAttainedPriority(Priority):
    """Least attained service: the search that has used least goes first.

    Runs that have not ended count as long as the search's runs have taken in the mean. Where nobody knows how hard a
    search is, the chance to be done soon falls with the service it got, and this order is near the best: Nuyens and
    Wierman, "The foreground-background queue: a survey", Performance Evaluation 65, 2008.
    """

    name = "least_attained"

    def key(self, job: JobView) -> tuple[float, ...]:
        """See `Priority.key`."""
        mean = sum(job.seconds) / len(job.seconds) if job.seconds else 1.0
        return (job.attained + job.running * mean * job.share,)
