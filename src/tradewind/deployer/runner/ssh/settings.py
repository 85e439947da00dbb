"""The settings of the ssh runner."""

from __future__ import annotations

from pydantic import Field

from tradewind import plugins
from tradewind.deployer.ssh_connection import SshSettings
from tradewind.deployer.ssh_target import Host


class SshRunnerSettings(plugins.Settings):
    """Settings of the ssh runner."""

    ssh: SshSettings = Field(
        SshSettings(), description="How machines are reached, where neither the provisioner nor the host says it"
    )
    hosts: tuple[Host, ...] = Field(
        (),
        description="Machines to use when the provisioner gives none, the one with the fewest runs first "
        "(provisioner none with hosts keeps runs apart instead)",
    )
    load_hosts: tuple[Host, ...] = Field(
        (),
        description="Machines for load generators (job.load), which then run beside no application; several take turns",
    )
    folder: str = Field(
        "~/.tradewind/far", min_length=1, description="The folder on the machines below which everything is kept"
    )
    grace: float = Field(
        0.5, ge=0, le=60, description="Seconds between SIGTERM and SIGKILL at the wall time and when a run is cancelled"
    )
    groups: bool = Field(True, description="Hold runs to their memory by control groups, where the login may make them")
    send_gib: float = Field(2.0, gt=0, description="The most that a working folder, or the inputs, may have, in GiB")
    bring_gib: float = Field(2.0, gt=0, description="The most that is brought back of a run, in GiB")
    patience: float = Field(
        10.0, gt=0, le=600, description="Seconds that a machine may take to answer a request that needs no transfer"
    )

    @property
    def far_folder(self) -> str:
        """The folder as a login shell finds it: one below the home is relative."""
        return self.folder.removeprefix("~/") if self.folder.startswith("~/") else self.folder
