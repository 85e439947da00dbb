"""Pretends to make machines, on whatever clock the runs take place."""

from __future__ import annotations

import fcntl
import json
import random
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pydantic import Field

from tradewind import plugins
from tradewind.deployer.provisioner.base import Cluster, ClusterState, MakesMachines, Provisioner, TagsMachines
from tradewind.errors import DeployError, TeardownError
from tradewind.problem import Machine, Offer
from tradewind.utils.units import count

_Fleet = dict[str, dict[str, Any]]


class SimulatedSettings(plugins.Settings):
    """Settings of the simulated provisioner."""

    boot: float = Field(60.0, ge=0, description="Seconds until machines are ready")
    shutdown: float = Field(0.0, ge=0, description="Seconds until destroyed machines are gone")
    failures: float = Field(0.0, ge=0, le=1, description="Share of the clusters that do not come up")
    refusals: float = Field(0.0, ge=0, lt=1, description="Share of the requests to destroy that are refused")
    quota: int | None = Field(None, ge=0, description="Machines at the same time, over all owners")
    seed: int = Field(0, description="For failures and refusals, together with the run's id")


class SimulatedProvisioner(Provisioner, MakesMachines, TagsMachines):
    """Pretends to make machines: they boot, fail, hit a quota and must be given back like real ones.

    Its fleet is a file below the data folder, so that another process sees it and a test can look for leaks.
    """

    name = "simulated"
    Settings = SimulatedSettings
    settings: SimulatedSettings

    def __init__(self, *, settings: plugins.Settings, data_folder: Path) -> None:
        super().__init__(settings=settings, data_folder=data_folder)
        self._file = data_folder / "simulated-fleet.json"

    def make(self, run_id: str, owner: str, expires: float, offer: Offer) -> Cluster:
        """Start to boot the machines of an offer; see `Provisioner.make`.

        Raises:
            DeployError: The quota is used up.
        """
        with self._fleet() as fleet:
            if run_id not in fleet:
                self._drop_gone(fleet)
                used = sum(entry["nodes"] for entry in fleet.values())
                quota = self.settings.quota
                if quota is not None and used + offer.nodes > quota:
                    raise DeployError(
                        f"the quota of {count(quota, 'machine')} is used up: {used} are there, {offer.nodes} wanted"
                    )
                fleet[run_id] = {
                    "owner": owner,
                    "expires": expires,
                    "nodes": offer.nodes,
                    "offer": offer.key,
                    "price": offer.hourly,
                    "created": self.clock.now(),
                    "ready": self.clock.now() + self.settings.boot,
                    "fails": self._chance("boot", run_id) < self.settings.failures,
                    "gone": None,
                    "refused": 0,
                }
            return self._cluster(run_id, fleet[run_id])

    def poll(self, clusters: Sequence[Cluster]) -> Mapping[str, Cluster]:
        """Give the state of some clusters on the clock; see `Provisioner.poll`."""
        with self._fleet() as fleet:
            self._drop_gone(fleet)
            return {cluster.run_id: self._cluster(cluster.run_id, fleet.get(cluster.run_id)) for cluster in clusters}

    def find(self, owner: str | None) -> list[Cluster]:
        """All clusters of an owner, or of all, that are not gone; see `Provisioner.find`."""
        with self._fleet() as fleet:
            self._drop_gone(fleet)
            mine = [self._cluster(run_id, entry) for run_id, entry in fleet.items() if owner in (None, entry["owner"])]
        return [cluster for cluster in mine if cluster.state is not ClusterState.GONE]

    def destroy(self, cluster: Cluster) -> Cluster:
        """Give machines back; see `Provisioner.destroy`.

        Raises:
            TeardownError: The simulated provider refused.
        """
        with self._fleet() as fleet:
            entry = fleet.get(cluster.run_id)
            if entry is not None and entry["gone"] is None:
                turn = entry["refused"]
                if self._chance(f"destroy {turn}", cluster.run_id) < self.settings.refusals:
                    entry["refused"] = turn + 1
                    refused = True
                else:
                    entry["billed"] = self.clock.now()
                    entry["gone"] = self.clock.now() + self.settings.shutdown
                    refused = False
            else:
                refused = False
            answer = self._cluster(cluster.run_id, entry)
            if answer.state is ClusterState.GONE:
                fleet.pop(cluster.run_id, None)
        if refused:
            raise TeardownError(f"the simulated provider did not destroy the machines of run {cluster.run_id}")
        return answer

    def next_change(self, clusters: Sequence[Cluster]) -> float:
        """Seconds until the next cluster is ready or gone."""
        now = self.clock.now()
        moments = [
            moment for c in clusters for moment in (c.data.get("ready"), c.data.get("gone")) if moment is not None
        ]
        return min((moment - now for moment in moments if moment > now), default=1.0)

    def _cluster(self, run_id: str, entry: Mapping[str, Any] | None) -> Cluster:
        if entry is None:
            return Cluster(run_id, ClusterState.GONE)
        now = self.clock.now()
        # Providers stop billing when they are asked to destroy.
        setup = max(0.0, min(now, entry["ready"], entry.get("billed", now)) - entry["created"])
        tags: dict[str, Any] = {
            "data": {
                "ready": entry["ready"],
                "gone": entry["gone"],
                "created": entry["created"],
                "price_per_hour": entry.get("price"),
            },
            "owner": entry["owner"],
            "expires": entry["expires"],
        }
        machines = tuple(Machine(f"{run_id}-{i}", f"{run_id}-{i}.simulated") for i in range(entry["nodes"]))
        if entry["gone"] is not None and now >= entry["gone"]:
            return Cluster(run_id, ClusterState.GONE, setup_seconds=setup, **tags)
        if now < entry["ready"] or entry["gone"] is not None:
            # Also on their way down: they are there, cost money, and are not ready.
            return Cluster(run_id, ClusterState.BOOTING, machines, setup, **tags)
        if entry["fails"]:
            return Cluster(run_id, ClusterState.FAILED, machines, setup, "the simulated machines did not boot", **tags)
        return Cluster(run_id, ClusterState.READY, machines, setup, **tags)

    def _drop_gone(self, fleet: _Fleet) -> None:
        for name in [name for name in fleet if self._cluster(name, fleet[name]).state is ClusterState.GONE]:
            del fleet[name]

    def _chance(self, what: str, run_id: str) -> float:
        return random.Random(f"{self.settings.seed}/{what}/{run_id}").random()  # noqa: S311

    @contextmanager
    def _fleet(self) -> Iterator[_Fleet]:
        """The fleet, for one process at a time; what is changed is written back."""
        try:
            self._file.parent.mkdir(parents=True, exist_ok=True)
            with self._file.open("a+", encoding="utf-8") as file:
                fcntl.flock(file, fcntl.LOCK_EX)
                file.seek(0)
                before = file.read()
                fleet: _Fleet = json.loads(before) if before else {}
                yield fleet
                after = json.dumps(fleet)
                if after != before:
                    file.seek(0)
                    file.truncate()
                    file.write(after)
        except (OSError, ValueError) as error:
            raise DeployError(f"the simulated fleet {self._file} cannot be used: {error}") from error
