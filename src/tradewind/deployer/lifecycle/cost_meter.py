"""Counts what the machines of one run cost."""

from __future__ import annotations

from dataclasses import replace

from tradewind.deployer.provisioner.base import Cluster, ClusterState
from tradewind.problem import Billing, Run, TakenMachines


class CostMeter:
    """Adds up the time that a run is billed for.

    A run without machines of its own is billed for the time that it executed. Machines that were made for it are paid
    for from the moment they were asked for until they were last sent away: booting as the provisioner measured it,
    then all that passes while they are there, whether a program runs on them or inputs and outputs are being copied.
    Providers stop billing when they take the order to destroy. Where they refused it, or show the machines as ready all
    the same, they are asked again, and the machines are paid for until then; ones on their way down are not.

    Args:
        billing: How time becomes money.
        makes: True when machines are made for the run.
    """

    def __init__(self, billing: Billing, *, makes: bool) -> None:
        self._billing = billing
        self._makes = makes
        self._setup_seconds = 0.0
        self._least_cost = 0.0
        self._earlier: Run | None = None
        self._ready_at: float | None = None
        self._until = float("-inf")
        self._taken: TakenMachines | None = None
        self._known = self._present = self._leaving = self._accepted = False

    def resume(self, run: Run) -> None:
        """Go on with a run of an earlier process: it has cost what its row says, and its machines may be old."""
        self._earlier = run
        self._least_cost = run.cost

    def take_over(self, taken: TakenMachines, now: float) -> None:
        """Go on with machines that were paid for until ``now`` by others: their set-up is not paid for again."""
        self._taken, self._ready_at = taken, now

    def paid(self, seconds: float) -> None:
        """Note seconds for which machines were there that came up in vain."""
        if self._taken is None:
            self._setup_seconds = max(self._setup_seconds, seconds)

    def note(self, cluster: Cluster, now: float) -> None:
        """Take in where the machines are, at ``now`` on the clock that they live on."""
        self._known = True
        self.paid(cluster.setup_seconds)
        # What is unknown counts as alive.
        self._present = cluster.state is not ClusterState.GONE and not cluster.vanished
        if cluster.state is ClusterState.READY:
            self._accepted = False
            if self._ready_at is None:
                begun = self._begun(cluster)
                self._ready_at = now if begun is None else min(now, begun + self._setup_seconds)

    def _begun(self, cluster: Cluster) -> float | None:
        """Time when machines that an earlier process may have made were asked for; None for those made just now."""
        if self._earlier is None:
            return None
        created = cluster.data.get("created")
        if created is not None:
            return float(created)
        return self._earlier.started if self._earlier.handle is not None else None

    def note_destroy_request(self, now: float) -> None:
        """Note that the machines are asked to go: from now on they are paid for only if that was in vain."""
        if not self._accepted:
            self._leaving = False
            self.tick(now)
        self._leaving = True

    def accepted(self) -> None:
        """Note that the provider has taken the order: the time that the machines take to go is not billed."""
        self._accepted = True

    def tick(self, now: float) -> None:
        """Count the time up to ``now``, unless the machines are gone or were sent away."""
        if self._present and not self._leaving:
            self._until = max(self._until, now)

    def cost(self, run: Run, hourly: float) -> float | None:
        """USD that a run has cost so far; None as long as nothing was started for it.

        Args:
            run: The row with the time that it has executed.
            hourly: USD per hour for all machines together.
        """
        # A handle that was found after a failed submission counts only when the job has really run.
        submitted = run.handle is not None and (run.started is not None or run.runtime > 0)
        if not self._makes:
            return self._billing.cost(run.runtime, hourly) if submitted else None
        if not (submitted or self._known or self._setup_seconds > 0):
            return None
        used = self._used(run)
        if self._taken is not None:
            return max(self._billing.further_cost(self._taken.seconds, used, hourly), self._least_cost)
        billing = replace(self._billing, setup_seconds=self._setup_seconds)
        return max(billing.cost(used, hourly), self._least_cost)

    def _used(self, run: Run) -> float:
        """Seconds for which the run had machines that were ready."""
        held = self._until - self._ready_at if self._ready_at is not None else 0.0
        return max(run.runtime, held, 0.0)

    @property
    def until(self) -> float:
        """The moment up to which the machines are counted."""
        return self._until

    def machine_seconds(self, run: Run) -> float:
        """Seconds that the machines have been billed for, by this run and by those that had them before."""
        before = self._setup_seconds if self._taken is None else self._taken.seconds
        return before + self._used(run)
