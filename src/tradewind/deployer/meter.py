"""What one run costs: of the time it executed, or of the time for which it held machines that were made for it."""

from __future__ import annotations

from dataclasses import replace

from tradewind.deployer.provisioner.base import Cluster, ClusterState
from tradewind.problem import Billing, Run


class CostMeter:
    """Adds up the time that a run is billed for.

    A run without machines of its own is billed for the time that it executed. Machines that were made for it are paid
    for from the moment they were asked for until they were last told to go: booting as the provisioner measured it,
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
        self._known = self._present = self._leaving = self._accepted = False

    def resume(self, run: Run) -> None:
        """Go on with a run of an earlier process: it has cost what its row says, and its machines may be old."""
        self._earlier = run
        self._least_cost = run.cost

    def paid(self, seconds: float) -> None:
        """Note seconds for which machines were there that came up in vain."""
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
        """When machines that an earlier process may have made were asked for; None for those made just now."""
        if self._earlier is None:
            return None
        created = cluster.data.get("created")
        if created is not None:
            return float(created)
        return self._earlier.started if self._earlier.handle is not None else None

    def note_destroy_request(self, now: float) -> None:
        """The machines are asked to go: what passes from now on is paid for only if that was in vain."""
        if not self._accepted:
            self._leaving = False
            self.tick(now)
        self._leaving = True

    def accepted(self) -> None:
        """The provider has taken the order: how long the machines take to go is its own affair."""
        self._accepted = True

    def tick(self, now: float) -> None:
        """Time has passed; the machines have been there all the while unless they are gone or were told to go."""
        if self._present and not self._leaving:
            self._until = max(self._until, now)

    def cost(self, run: Run, hourly: float) -> float | None:
        """USD that a run has cost so far; None as long as nothing was started for it.

        Args:
            run: Its row.
            hourly: USD per hour for all machines together.
        """
        # A handle that was found after a failed submission counts only when the job has really run.
        submitted = run.handle is not None and (run.started is not None or run.runtime > 0)
        if not self._makes:
            return self._billing.cost(run.runtime, hourly) if submitted else None
        if not (submitted or self._known or self._setup_seconds > 0):
            return None
        held = self._until - self._ready_at if self._ready_at is not None else 0.0
        billing = replace(self._billing, setup_seconds=self._setup_seconds)
        return max(billing.cost(max(run.runtime, held), hourly), self._least_cost)
