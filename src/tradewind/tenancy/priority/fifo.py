"""First come, first served."""

from __future__ import annotations

from tradewind.tenancy.priority.base import Priority
from tradewind.tenancy.views import JobView


class FifoPriority(Priority):
    """First come, first served: the search that was submitted first goes first, as long as it has a run to start."""

    name = "fifo"

    def key(self, job: JobView) -> tuple[float, ...]:
        """See `Priority.key`."""
        return (float(job.number),)
