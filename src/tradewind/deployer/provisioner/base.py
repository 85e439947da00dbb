"""The contract of a provisioner."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any, ClassVar

from tradewind.plugins import Capability, Plugin, Settings
from tradewind.problem import Machine, Offer
from tradewind.utils.clock import Clock, SystemClock


class MakesMachines(Capability):
    """Creates machines that cost money until they are destroyed."""


class TagsMachines(Capability):
    """Puts owner, run and expiry tags into the create call, and lists by them."""


class ReachableBySsh(Capability):
    """Machines accept SSH: ``Machine.data["ssh"]`` says how, in the keys of `SshTarget`."""


class RunsDocker(Capability):
    """Machines have a container engine, which the SSH login may use."""


class SharesFolder(Capability):
    """The machines of one cluster see a common folder: ``Machine.data["shared"]`` is its path there."""


class TurnsOffMachines(Capability):
    """Machines turn themselves off when their lease ends, whatever became of the controlling process."""


class ClusterState(StrEnum):
    """States of a cluster between its creation and its end; ``unknown`` counts as alive."""

    BOOTING = "booting"
    READY = "ready"
    GONE = "gone"
    FAILED = "failed"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Cluster:
    """Machines made for one run.

    Attributes:
        run_id: The run, which is also their tag.
        state: Where they are.
        machines: The machines, once they are ready.
        setup_seconds: Billed seconds that booting took so far.
        reason: Why it failed, in words.
        data: What the provisioner needs to find them again (JSON-able). ``created`` (seconds since the epoch) and
            ``price_per_hour`` (USD, all machines) are what ``tradewind reap`` shows, where the provider knows them;
            those that tag machines tag them with both.
        owner: The tag of who pays, as far as it is known.
        crowded: It failed because there was no room for it, so that another offer may do.
        expires: The tag of when anyone may destroy them, in seconds since the epoch, or None.
        vanished: The provider shows none of the machines: nothing is paid for them, though destroying may have to clean
            up after them.
    """

    run_id: str
    state: ClusterState
    machines: tuple[Machine, ...] = ()
    setup_seconds: float = 0.0
    reason: str = ""
    data: Mapping[str, Any] = field(default_factory=dict)
    owner: str = ""
    expires: float | None = None
    crowded: bool = False
    vanished: bool = False


class Provisioner(Plugin, ABC):
    """Makes machines and gives them back.

    Args:
        settings: The settings of the provisioner, of the type `Settings` of its class.
        data_folder: Below it the provisioner may keep what it needs between processes.

    Attributes:
        clock: The clock that its machines live on; the deployer sets it to its runner's.
        patience_seconds: Seconds that giving machines back may take before it is reported as failed.
    """

    clock: Clock = SystemClock()
    patience_seconds: ClassVar[float] = 30.0

    def __init__(self, *, settings: Settings, data_folder: Path) -> None:
        self.settings = settings
        self.data_folder = data_folder

    @property
    def gives_machines(self) -> bool:
        """True when runs get machines from it, with these settings; without, they take place where the runner says."""
        return isinstance(self, MakesMachines)

    def refuses(self, offer: Offer) -> str:
        """Say why it can never make the machines of an offer (another provider's, no such region); else an empty text.

        It is asked before a search begins, for all offers of the space: no network, no money.
        """
        return ""

    @abstractmethod
    def make(self, run_id: str, owner: str, expires: float, offer: Offer) -> Cluster:
        """Start to make the machines of an offer, tagged with the arguments; making them again finds them.

        Booting is waited for by `poll`. A provisioner that inherits `CallsNetwork` may take its time here and in
        `destroy`: both are called in threads, for several runs at a time, while `poll` is called in another.

        Raises:
            CapacityError: The provider has no such machines now, or the quota is used up.
            CredentialsError: The provider does not know us.
            DeployError: The provider refused for another reason; ``retryable`` says whether trying again may help.
                Where machines were there and were taken back, ``paid_seconds`` says for how long.
        """

    def abandon(self, run_id: str) -> None:
        """Have a `make` that is going on in another thread end soon, with an error: its run is to end.

        It returns at once. What has been made by then, `make` takes back, or `find` finds. It may come before `make`
        has begun, or after it has ended. Where making does not take long, its end is waited for.
        """

    @abstractmethod
    def poll(self, clusters: Sequence[Cluster]) -> Mapping[str, Cluster]:
        """Give the present state of some clusters, by run id."""

    @abstractmethod
    def find(self, owner: str | None) -> list[Cluster]:
        """List all clusters of an owner that are not certainly gone, by tag; of all owners without one.

        Each says its ``owner`` and ``expires``. Nothing is noted at the provider: they may be somebody else's.
        """

    @abstractmethod
    def destroy(self, cluster: Cluster) -> Cluster:
        """Give the machines back; not finding them is success. The state tells when they are gone.

        Raises:
            TeardownError: The provider refused; the machines may still cost money.
        """

    def next_change(self, clusters: Sequence[Cluster]) -> float:
        """Seconds on the clock after which some clusters that are not ready, or not gone, should be polled again."""
        return 1.0

    def close(self) -> None:
        """Give back what this object holds; machines are not touched."""
