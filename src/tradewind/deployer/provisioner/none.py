"""Makes nothing: the machines are there already."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pydantic import Field

from tradewind import plugins
from tradewind.deployer.provisioner.base import Cluster, ClusterState, Provisioner
from tradewind.errors import DeployError
from tradewind.problem import Machine, Offer


class NoneSettings(plugins.Settings):
    """Settings of the provisioner of machines that are there already."""

    hosts: tuple[str, ...] = Field((), description="Addresses of the machines; empty means this machine")


class NoneProvisioner(Provisioner):
    """Uses machines that are there already: this one, or a list of hosts; nothing is made or destroyed."""

    name = "none"
    Settings = NoneSettings
    settings: NoneSettings

    def make(self, run_id: str, owner: str, expires: float, offer: Offer) -> Cluster:
        """The first ``offer.nodes`` hosts, or this machine.

        Raises:
            DeployError: The list is shorter than that.
        """
        hosts = self.settings.hosts
        if hosts and len(hosts) < offer.nodes:
            raise DeployError(
                f"{offer.nodes} machines are wanted and provisioner none has {len(hosts)}",
                hint="list more hosts, or allow fewer nodes in the space",
                retryable=False,
            )
        machines = tuple(Machine(host, host) for host in hosts[: offer.nodes]) or (Machine("localhost"),)
        return Cluster(run_id, ClusterState.READY, machines)

    def poll(self, clusters: Sequence[Cluster]) -> Mapping[str, Cluster]:
        """As they are."""
        return {cluster.run_id: cluster for cluster in clusters}

    def find(self, owner: str | None) -> list[Cluster]:
        """None: nothing was made."""
        return []

    def destroy(self, cluster: Cluster) -> Cluster:
        """Let go of the machines, which stay as they are."""
        return Cluster(cluster.run_id, ClusterState.GONE)
