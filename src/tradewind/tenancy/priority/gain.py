"""Expected improvement for what it takes."""

from __future__ import annotations

from tradewind.tenancy.priority.base import Priority
from tradewind.tenancy.views import JobView


class GainPriority(Priority):
    """The search that expects most of its next run, for each second and share of the cluster that it takes, goes first.

    What a search expects is read from its own results, whatever its searcher is: from the tail of the best of them, as
    if they were drawn at random (`tradewind.tenancy.expect`); the searcher's own model, if it has one, is not asked. A
    search that gives no expectation counts with the chance that the next of n + 1 random draws is the best of them,
    1 / (n + 1), whatever the values were. A search without a result goes before all others.
    """

    name = "gain"

    def key(self, job: JobView) -> tuple[float, ...]:
        """See `Priority.key`."""
        share = job.share or 1.0
        if job.gain is not None:
            return (-job.gain / share,)
        if not job.values:
            return (float("-inf"),)
        mean = sum(job.seconds) / len(job.seconds)
        # Runs on their way count as draws: otherwise one search would take everything at once.
        return (-1.0 / (len(job.values) + job.running + 1) / max(mean, 1e-9) / share,)
