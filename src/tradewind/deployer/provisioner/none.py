"""Makes nothing: the machines are there already."""

from __future__ import annotations

import fcntl
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pydantic import Field

from tradewind import plugins
from tradewind.deployer.provisioner.base import Cluster, ClusterState, Provisioner, ReachableBySsh
from tradewind.deployer.ssh_connection import SshSettings
from tradewind.deployer.ssh_target import Host
from tradewind.errors import DeployError
from tradewind.problem import LOCALHOST, Machine, Offer
from tradewind.utils.atomic_files import write_atomically
from tradewind.utils.units import count

_LOOK_SECONDS = 0.2
_Leases = dict[str, dict[str, Any]]


class NoneSettings(plugins.Settings):
    """Settings of the provisioner of machines that are there already."""

    hosts: tuple[Host, ...] = Field((), description="The machines; empty means this machine")
    ssh: SshSettings = Field(
        SshSettings(), description="How the hosts are reached, where they do not say it themselves"
    )


class NoneProvisioner(Provisioner, ReachableBySsh):
    """Uses machines that are there already: this one, or a list of hosts; nothing is made or destroyed.

    A host is lent to one run at a time, unless it is ``shared``; a run waits until enough hosts are free. What is lent
    is noted below the data folder. A run that is never heard of again gives its hosts back when it expires; what it
    waited for them does not count.
    """

    name = "none"
    Settings = NoneSettings
    settings: NoneSettings

    def __init__(self, *, settings: plugins.Settings, data_folder: Path) -> None:
        super().__init__(settings=settings, data_folder=data_folder)
        self._file = data_folder / "hosts" / "lent.json"

    @property
    def gives_machines(self) -> bool:
        """True where hosts are given."""
        return bool(self.settings.hosts)

    def refuses(self, offer: Offer) -> str:
        """Refuse offers with more nodes than there are hosts."""
        hosts = self.settings.hosts
        return (
            f"it has {count(len(hosts), 'node')} to offer, not {offer.nodes}"
            if hosts and len(hosts) < offer.nodes
            else ""
        )

    def make(self, run_id: str, owner: str, expires: float, offer: Offer) -> Cluster:
        """Borrow ``offer.nodes`` hosts, or this machine; without enough free hosts the run waits.

        Raises:
            DeployError: There are fewer hosts than that, or what is lent cannot be noted.
        """
        hosts = self.settings.hosts
        if not hosts:
            return Cluster(run_id, ClusterState.READY, (LOCALHOST,))
        if self.refuses(offer):
            raise DeployError(
                f"provisioner none has {count(len(hosts), 'host')}, {offer.nodes} wanted",
                hint="list more hosts, or allow fewer nodes in the space",
                retryable=False,
            )
        return self._borrow(run_id, owner, expires, expires - self.clock.now(), offer.nodes)

    def _borrow(self, run_id: str, owner: str, expires: float, lasts: float, nodes: int) -> Cluster:
        with self._lent() as lent:
            expires = max(expires, self.clock.now() + lasts)
            own = [host for host in self.settings.hosts if lent.get(host.name, {}).get("run_id") == run_id]
            free = [host for host in self.settings.hosts if host.shared or host.name not in lent]
            chosen = own if len(own) >= nodes else [*own, *(host for host in free if host not in own)][:nodes]
            data = {"nodes": nodes, "owner": owner, "expires": expires, "lasts": lasts}
            if len(chosen) < nodes:
                return Cluster(run_id, ClusterState.BOOTING, data=data, owner=owner, expires=expires)
            for host in chosen:
                if not host.shared:
                    lent[host.name] = {"run_id": run_id, "owner": owner, "expires": expires}
        return self._ready(run_id, chosen, owner, expires)

    def _ready(self, run_id: str, hosts: Sequence[Host], owner: str, expires: float | None) -> Cluster:
        machines = [Machine(host.name, host.host, {"ssh": host.facts(self.settings.ssh)}) for host in hosts]
        return Cluster(run_id, ClusterState.READY, tuple(machines), owner=owner, expires=expires)

    def poll(self, clusters: Sequence[Cluster]) -> Mapping[str, Cluster]:
        """Give the clusters as they are; those that wait get hosts that have become free."""
        found = {}
        for cluster in clusters:
            if cluster.state is ClusterState.BOOTING:
                cluster = self._borrow(cluster.run_id, **cluster.data)
            found[cluster.run_id] = cluster
        return found

    def find(self, owner: str | None) -> list[Cluster]:
        """List the hosts that are lent to the runs of an owner, or of all."""
        if not self.settings.hosts:
            return []
        with self._lent() as lent:
            hosts = {host.name: host for host in self.settings.hosts}
            runs: dict[str, list[str]] = {}
            for name, lease in lent.items():
                if owner in (None, lease["owner"]):
                    runs.setdefault(lease["run_id"], []).append(name)
            return [
                self._ready(
                    run_id,
                    [hosts.get(name) or Host(host=name) for name in names],
                    lent[names[0]]["owner"],
                    lent[names[0]]["expires"],
                )
                for run_id, names in runs.items()
            ]

    def destroy(self, cluster: Cluster) -> Cluster:
        """Give borrowed hosts back; they stay as they are."""
        if self.settings.hosts:
            with self._lent() as lent:
                for name in [name for name, lease in lent.items() if lease["run_id"] == cluster.run_id]:
                    del lent[name]
        return Cluster(cluster.run_id, ClusterState.GONE)

    def next_change(self, clusters: Sequence[Cluster]) -> float:
        """Seconds until the leases are looked at again: hosts may become free at any time."""
        return _LOOK_SECONDS

    @contextmanager
    def _lent(self) -> Iterator[_Leases]:
        """Hold the leases, by host, for one process at a time; changes are written back."""
        try:
            self._file.parent.mkdir(parents=True, exist_ok=True)
            with self._file.with_suffix(".lock").open("a") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX)
                try:
                    before = self._file.read_text(encoding="utf-8")
                except FileNotFoundError:
                    before = "{}"
                now = self.clock.now()
                lent: _Leases = {name: lease for name, lease in json.loads(before).items() if lease["expires"] > now}
                yield lent
                after = json.dumps(lent)
                if after != before:
                    write_atomically(self._file, after)
        except (OSError, ValueError, KeyError) as error:
            raise DeployError(
                f"which hosts are lent cannot be noted in {self._file}: {error}", hint="remove it if nothing runs"
            ) from error
