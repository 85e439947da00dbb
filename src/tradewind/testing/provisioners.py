"""Conformance suite of provisioners: inherit `ProvisionerConformance` and give the fixture ``bench``."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import ClassVar

import pytest

from tradewind.deployer.provisioner.base import Cluster, ClusterState, MakesMachines, Provisioner, TagsMachines
from tradewind.problem import Offer

_OFFER = Offer("local", "small", 1, 1, 0.1, nodes=2)
_LATER = 4e9
_TURNS = 200
_LONG_SECONDS = 600.0

Bench = Callable[[], Provisioner]
"""Makes another object of the provisioner, over the same data folder and clock."""


def settled(provisioner: Provisioner, cluster: Cluster, wanted: ClusterState) -> Cluster:
    """Wait on the provisioner's clock until a cluster is in a state.

    Raises:
        AssertionError: It does not get there.
    """
    for _ in range(_TURNS):
        if cluster.state is wanted:
            return cluster
        pause = provisioner.next_change([cluster])
        assert pause > 0, "a wait of nothing would be a busy loop"
        provisioner.clock.sleep(pause)
        cluster = provisioner.poll([cluster])[cluster.run_id]
    raise AssertionError(f"the cluster is still {cluster}")


class ProvisionerConformance:
    """The suite. A subclass gives the fixture ``bench``; its provisioner must not fail on purpose.

    Attributes:
        offer: What is made; two machines.
    """

    offer: ClassVar[Offer] = _OFFER

    @pytest.fixture
    def bench(self, tmp_path: Path) -> Iterator[Bench]:
        """The provisioner under test."""
        raise NotImplementedError

    def test_machines_come_and_go(self, bench: Bench) -> None:
        """Machines become ready, one for each node, and are gone after they were destroyed."""
        provisioner = bench()
        cluster = settled(provisioner, provisioner.make("run-1", "owner-a", _LATER, self.offer), ClusterState.READY)
        assert cluster.run_id == "run-1"
        assert cluster.machines
        assert cluster.setup_seconds >= 0
        if isinstance(provisioner, MakesMachines):
            assert len(cluster.machines) == self.offer.nodes
            assert len({machine.id for machine in cluster.machines}) == self.offer.nodes
        settled(provisioner, provisioner.destroy(cluster), ClusterState.GONE)
        assert provisioner.find("owner-a") == []

    def test_making_again_finds_them(self, bench: Bench) -> None:
        """The same run gets the same machines, also in another process."""
        first, second = bench(), bench()
        made = first.make("run-1", "owner-a", _LATER, self.offer)
        again = second.make("run-1", "owner-a", _LATER, self.offer)
        one = settled(first, made, ClusterState.READY)
        other = settled(second, again, ClusterState.READY)
        assert [machine.id for machine in one.machines] == [machine.id for machine in other.machines]
        settled(second, second.destroy(other), ClusterState.GONE)

    def test_they_are_found_by_their_owner_from_another_process(self, bench: Bench) -> None:
        """All machines of an owner are found by tag, and no others."""
        first, second = bench(), bench()
        if not isinstance(first, TagsMachines):
            assert first.find("owner-a") == []
            return
        first.make("run-1", "owner-a", _LATER, self.offer)
        first.make("run-2", "owner-b", _LATER, self.offer)
        [mine] = second.find("owner-a")
        [theirs] = second.find("owner-b")
        assert (mine.run_id, theirs.run_id) == ("run-1", "run-2")
        assert (mine.owner, mine.expires) == ("owner-a", _LATER)
        assert 0 <= second.clock.now() - mine.data["created"] < _LONG_SECONDS
        assert mine.data["price_per_hour"] == self.offer.hourly
        assert {(each.owner, each.run_id) for each in second.find(None)} >= {("owner-a", "run-1"), ("owner-b", "run-2")}
        for cluster in (mine, theirs):
            settled(second, second.destroy(cluster), ClusterState.GONE)
        assert first.find("owner-a") == first.find("owner-b") == []

    def test_destroying_is_repeatable_and_not_found_is_success(self, bench: Bench) -> None:
        """Machines may be destroyed twice, and strangers once."""
        provisioner = bench()
        cluster = provisioner.make("run-1", "owner-a", _LATER, self.offer)
        for _ in range(2):
            gone = settled(provisioner, provisioner.destroy(cluster), ClusterState.GONE)
            assert gone.run_id == "run-1"
        stranger = Cluster("nobody", ClusterState.UNKNOWN)
        assert settled(provisioner, provisioner.destroy(stranger), ClusterState.GONE)

    def test_machines_may_be_destroyed_while_they_boot(self, bench: Bench) -> None:
        """Nothing is left of machines that were destroyed too early."""
        provisioner = bench()
        cluster = provisioner.make("run-1", "owner-a", _LATER, self.offer)
        settled(provisioner, provisioner.destroy(cluster), ClusterState.GONE)
        assert provisioner.find("owner-a") == []

    def test_setup_time_stands_still_once_they_are_ready(self, bench: Bench) -> None:
        """Setup is the time until machines are ready, and no longer."""
        provisioner = bench()
        cluster = settled(provisioner, provisioner.make("run-1", "owner-a", _LATER, self.offer), ClusterState.READY)
        provisioner.clock.sleep(0.05)
        later = provisioner.poll([cluster])["run-1"]
        assert later.setup_seconds == cluster.setup_seconds
        settled(provisioner, provisioner.destroy(later), ClusterState.GONE)
