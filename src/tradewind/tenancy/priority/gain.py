"""Expected gain for what it takes."""

from __future__ import annotations

from pydantic import Field

from tradewind.plugins import Settings
from tradewind.tenancy.priority.base import Priority
from tradewind.tenancy.views import JobView


class GainSettings(Settings):
    """Settings of the order by expected gain."""

    usual: float = Field(
        30.0,
        ge=1,
        description="Results after which a search usually has what it is after; up to about so many, searches whose"
        " runs are short go first, and later those that have used least",
    )


class GainPriority(Priority):
    """The search that expects most of its next run, for each second and share of the cluster that it takes, goes first.

    What a search expects is the chance that its next run brings what it is after. That chance is not known: before the
    first result it is Beta(1, ``usual`` - 1), so 1 / ``usual`` in the mean, and after n results that were not it, while
    r runs whose results would have to fail as well are on their way, 1 / (``usual`` + n + r). A chance that falls with
    service, for each second, is Gittins' index: Aalto, Ayesta and Righter, "On the Gittins index in the M/G/1 queue",
    Queueing Systems 63, 2009. A second is one of the search's runs in the mean. What the values are, and what the
    searcher's model says, does not count.

    A search without a result gets one run before all others, and more of them after all others: how long its runs take
    is not known before.
    """

    name = "gain"
    Settings = GainSettings
    settings: GainSettings

    def key(self, job: JobView) -> tuple[float, ...]:
        """See `Priority.key`."""
        if not job.seconds:
            return (1.0 if job.running else -1.0, float(job.running))
        mean = max(sum(job.seconds) / len(job.seconds), 1e-9)
        return (0.0, (self.settings.usual + len(job.seconds) + job.running) * mean * (job.share or 1.0))
