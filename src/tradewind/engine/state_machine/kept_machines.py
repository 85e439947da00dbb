"""Machines that are kept after a run for the next one on the same offer: which there are, and what they cost."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from tradewind.engine.state_machine.budget import Ledger
from tradewind.engine.state_machine.search_policy import KeepPolicy
from tradewind.problem import Billing, MachineLease, Offer, Run, TakenMachines, Trial, round_money

_LATE_SECONDS = 30.0
"""Money is set aside for so long beyond the end of a lease: what decides on the next trials may take that long."""


def lease_account(cluster: str) -> str:
    """The name of the money that is set aside for keeping machines, in the ledger."""
    return f"{cluster} kept"


class KeptMachines:
    """The machines that no run has now, each with the row of the run that has left them.

    Money for all the time that they may be kept is set aside before they are; what they have cost is a part of the
    cost of the run that left them, and of what its trial has spent.

    Args:
        policy: How long machines are kept, or None where they are not.
        billing: How time becomes money.
        ledger: The money of the search.
    """

    def __init__(self, policy: KeepPolicy | None, billing: Billing, ledger: Ledger) -> None:
        self._policy = policy
        self._billing = billing
        self._ledger = ledger
        self._rows: dict[str, Run] = {}  # cluster -> the run that has left it
        self._asked: dict[str, MachineLease] = {}  # run -> the lease that begins with its end
        self._leaving: set[str] = set()

    def __len__(self) -> int:
        return len(self._rows)

    @property
    def rows(self) -> list[Run]:
        """The rows of the runs that have left them, with what they have cost so far."""
        return list(self._rows.values())

    @property
    def leases(self) -> list[MachineLease]:
        """The leases, the one that ends first first."""
        found = [run.lease for run in self._rows.values() if run.lease is not None]
        return sorted(found, key=lambda lease: (lease.until, lease.cluster))

    @property
    def staying(self) -> list[MachineLease]:
        """The leases of machines that nobody is giving back, the one that ends first first."""
        return [lease for lease in self.leases if lease.cluster not in self._leaving]

    def take_up(self, runs: Iterable[Run]) -> list[str]:
        """Charge the ended runs of earlier processes, and take up the leases of those whose machines are still kept.

        Returns:
            The tags of the machines that are kept.
        """
        for run in runs:
            if not run.state.ended:
                continue
            lease = run.lease
            if lease is None or lease.ended is not None:
                self._ledger.settle(run.run_id, run.cost)
                continue
            self._ledger.settle(run.run_id, run.own_cost)
            self._rows[lease.cluster] = run
            self._ledger.take_over(lease_account(lease.cluster), lease.reserved)
            self._ledger.meter(lease_account(lease.cluster), lease.cost)
        return list(self._rows)

    # ------------------------------------------------------------------ keeping

    def ask(self, run: Run, offer: Offer, cluster: str, seconds: float, expires: float, now: float) -> bool:
        """Set money aside for keeping the machines of a run that is all but over; False where they are not kept.

        Args:
            run: The run; what was set aside for it and is not used up is free from now on.
            offer: Its machines.
            cluster: Their tag.
            seconds: Seconds that they have been billed for.
            expires: When anyone may destroy them.
            now: The runner's clock.
        """
        if self._policy is None or now + self._policy.seconds > expires:
            return False
        wanted = self._billing.further_cost(seconds, self._policy.seconds + _LATE_SECONDS, offer.hourly)
        # Until the run is written off it may pass into the next unit that is billed.
        self._ledger.shrink(run.run_id, run.cost + 2 * self._billing.unit_cost(offer.hourly))
        if self._ledger.free is not None and wanted > self._ledger.free:
            return False
        self._ledger.reserve(lease_account(cluster), wanted)
        self._asked[run.run_id] = MachineLease(
            cluster, seconds, expires, now, now + self._policy.seconds, wanted, offer.key, offer.hourly
        )
        return True

    def begin(self, run: Run) -> Run:
        """The row of an ended run, with its lease if its machines are kept; to be written with its end, then `put`."""
        asked, lease = self._asked.pop(run.run_id, None), run.lease
        if asked is None:
            return run
        if lease is None:  # they were lost, or somebody ended the run: they are gone
            self._ledger.settle(lease_account(asked.cluster), 0.0)
            return run
        assert self._policy is not None
        until = min(lease.since + self._policy.seconds, lease.expires)
        lease = replace(asked, seconds=lease.seconds, since=lease.since, until=until)
        return replace(run, lease=lease)

    def put(self, run: Run) -> None:
        """Take in the row of a run that is settled: its machines, where they are kept, may be taken over now."""
        if run.lease is not None:
            self._rows[run.lease.cluster] = run

    def meter(self, now: float) -> None:
        """Note what keeping them has cost until now."""
        for cluster, run in self._rows.items():
            assert run.lease is not None
            cost = max(run.lease.cost, self._cost(run.lease, now))
            if cost != run.lease.cost:
                self._rows[cluster] = _charged(run, cost)
                self._ledger.meter(lease_account(cluster), cost)

    def _cost(self, lease: MachineLease, until: float) -> float:
        return self._billing.further_cost(lease.seconds, until - lease.since, lease.hourly)

    # ------------------------------------------------------------------ taking over, giving back

    def of_offer(self, offer: Offer) -> MachineLease | None:
        """The machines of an offer that are kept the longest, or None."""
        fit = [each for each in self.staying if each.offer_key == offer.key]
        return fit[-1] if fit else None

    def lasts(self, lease: MachineLease, now: float, wall: float | None) -> bool:
        """True when machines do not expire before a run on them could end.

        Args:
            lease: The machines.
            now: The runner's clock.
            wall: Seconds that the run may take, or None where nothing limits it.
        """
        return self._policy is not None and lease.expires >= now + self._policy.span(wall)

    def first_wanted(self, waiting: Iterable[Trial]) -> list[Trial]:
        """Trials in the order in which they are launched: those that machines are kept for come first."""
        keys = {lease.offer_key for lease in self.staying}
        return sorted(waiting, key=lambda trial: trial.offer.key not in keys)

    def free_without(self, lease: MachineLease) -> float | None:
        """USD that are free once some machines are not kept any more; None without a limit."""
        return self._ledger.free_without(lease_account(lease.cluster))

    def take(self, lease: MachineLease, run_id: str, now: float) -> tuple[TakenMachines, Run]:
        """Let a run take machines over.

        Returns:
            What its row says of them, and the row of the run that had left them: both are written together.
        """
        left = self.end(lease.cluster, now, run_id)
        seconds = lease.seconds + max(0.0, now - lease.since)
        return TakenMachines(lease.cluster, seconds, lease.expires), left

    def end(self, cluster: str, until: float, taken_by: str = "") -> Run:
        """The row of a run whose machines are gone, or are taken over, and were paid for until then."""
        run = self._rows.pop(cluster)
        self._leaving.discard(cluster)
        lease = run.lease
        assert lease is not None
        cost = max(lease.cost, self._cost(lease, until))
        self._ledger.settle(lease_account(cluster), cost)
        return _charged(run, cost, ended=max(until, lease.since), taken_by=taken_by)

    def knows(self, cluster: str) -> bool:
        """True for machines that are kept now."""
        return cluster in self._rows

    def due(self, now: float) -> list[MachineLease]:
        """Machines whose time is over, or that are kept for no more reason."""
        return [lease for lease in self.staying if self._policy is None or lease.until <= now]

    def give_back(self, leases: Sequence[MachineLease]) -> list[str]:
        """Note that machines are being given back; those that were not yet, by their tags."""
        new = [lease.cluster for lease in leases if lease.cluster not in self._leaving]
        self._leaving.update(new)
        return new


def _charged(run: Run, cost: float, ended: float | None = None, taken_by: str = "") -> Run:
    """The row of a run, charged with what its lease has cost so far."""
    assert run.lease is not None
    lease = replace(run.lease, cost=cost, ended=ended, taken_by=taken_by)
    return replace(run, cost=round_money(run.own_cost + cost), lease=lease)
