"""Expected gain for what it takes."""

from __future__ import annotations

from pydantic import Field

from tradewind.plugins import Settings
from tradewind.tenancy.priority.base import Priority
from tradewind.tenancy.views import JobView

_KNOWN = 3.0
"""Runs of its own that the mean seconds of earlier searches count as."""


class GainSettings(Settings):
    """Settings of the order by expected gain."""

    usual: float = Field(
        30.0,
        ge=1,
        description="Results after which a search usually has what it is after; up to about so many, searches whose"
        " runs are short go first, and later those that have used least",
    )
    believed: float = Field(
        3.0,
        ge=0,
        description="What the models of searchers promise counts up to so many successes; 0 for not at all",
    )
    recalled: float = Field(
        10.0,
        ge=0,
        description="Earlier searches that were like it count as so many at most; 0 for not at all",
    )
    foreseen: float = Field(
        0.0,
        ge=0,
        le=1,
        description="Weight of the seconds that the searcher's model expects of the next run, beside the mean of the"
        " runs so far",
    )


class GainPriority(Priority):
    """The search that expects most of its next run, for each second and share of the cluster that it takes, goes first.

    What a search expects is the chance that its next run brings what it is after. That chance is not known: before the
    first result it is Beta(1, ``usual`` - 1), so 1 / ``usual`` in the mean. After n results that were not it, while
    r runs whose results would have to fail as well are on their way, it is (1 + S) / (``usual`` + n + r). S is what the
    searcher's model has promised: the sum of the chances that it gave these runs before they began, as if so much of
    each had been a success. A search whose searcher has no model promises nothing. A model that promises in vain gives
    way: S counts up to ``believed``.

    Where E searches like it have ended before, after L results all together, each of them was a success of the same
    chance, and all their other results were failures: it is (1 + S + E) / (``usual`` + L + n + r), Beta's posterior.
    More than ``recalled`` of them count as so many, by the mean of their lengths. Their run times count as three runs
    of its own. So a cluster gets better with the jobs that come again.

    A chance for each second is Gittins' index where it falls with service: Aalto,
    Ayesta and Righter, "On the Gittins index in the M/G/1 queue", Queueing Systems 63, 2009. A second is one of the
    search's runs in the mean.

    The chance of the next run alone is not the index, although it is the model's own: it rises and falls from run to
    run, and a search would be put off just before it learns. Raw values and expected improvements do not count, for
    their units differ from search to search.

    A search without a result and without earlier ones gets one run before all others, and more of them after all
    others: how long its runs take is not known before.
    """

    name = "gain"
    Settings = GainSettings
    settings: GainSettings

    def key(self, job: JobView) -> tuple[float, ...]:
        """See `Priority.key`."""
        earlier = min(float(len(job.earlier)), self.settings.recalled)
        took, spent = float(len(job.seconds)), sum(job.seconds)
        if earlier and job.usual_seconds is not None:
            took, spent = took + _KNOWN, spent + _KNOWN * job.usual_seconds
        if not took:
            return (1.0 if job.running else -1.0, float(job.running))
        seconds = spent / took
        if job.expected is not None:
            seconds += self.settings.foreseen * (job.expected - seconds)
        runs = self.settings.usual + len(job.seconds) + job.running
        hits = 1.0 + min(max(job.promised, 0.0), self.settings.believed)
        if earlier:
            runs += earlier * sum(job.earlier) / len(job.earlier)
            hits += earlier
        return (0.0, runs / hits * max(seconds, 1e-9) * (job.share or 1.0))
