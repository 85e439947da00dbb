"""The contract of a runner."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path

from tradewind.clock import Clock, SystemClock
from tradewind.plugins import Capability, Plugin, Settings
from tradewind.problem import Handle, Machine, Offer, RunRequest, RunStatus


class LimitsCpu(Capability):
    """Holds a run to the CPUs of its offer."""


class LimitsMemory(Capability):
    """Ends a run that takes more memory than its offer has, and says so."""


class LimitsTime(Capability):
    """Ends a run at its wall time by itself, even when the controlling process is gone."""


class Simulates(Capability):
    """Has a clock of its own: nothing is really run and no time really passes."""


class ThisMachine(Capability):
    """Runs on this machine only, whatever the offer says: offers of other providers are refused."""


class SurvivesController(Capability):
    """Runs go on when the controlling process is killed, and are found again."""


class Runner(Plugin, ABC):
    """Runs jobs on machines.

    All methods return at once. A runner keeps nothing in memory that it needs to find a run again: the handle,
    the run's folder and the tags of the run (`RunRequest.run_id` and ``owner``) are enough for another process.

    Args:
        settings: Its settings.
        data_folder: Below it the runner may keep what it needs between processes.
    """

    def __init__(self, *, settings: Settings, data_folder: Path) -> None:
        self.settings = settings
        self.data_folder = data_folder

    @property
    def clock(self) -> Clock:
        """The clock that its runs take place on."""
        return SystemClock()

    @property
    def kill_seconds(self) -> float:
        """Seconds that a run may go on after its wall time at most, until all its processes are gone."""
        return 0.0

    def room(self, offer: Offer, running: Sequence[Offer]) -> bool:
        """True when a run on ``offer`` may start beside those on ``running`` without disturbing them."""
        return True

    @abstractmethod
    def submit(self, request: RunRequest, machines: Sequence[Machine]) -> Handle:
        """Start a run. Submitting a run that was submitted already returns its handle and starts nothing.

        Raises:
            DeployError: It could not be started; ``retryable`` says whose fault it is.
            MissingProgramError: The command, or the engine's program, is not there.
        """

    @abstractmethod
    def poll(self, handles: Sequence[Handle]) -> Mapping[str, RunStatus]:
        """Where some runs are, by run id, in as few calls to the engine as possible.

        A run whose state cannot be told is reported as executing: unknown counts as alive. One that is certainly
        gone without a result is reported as preempted, the infrastructure's fault.
        """

    def wait(self, handles: Sequence[Handle], seconds: float) -> None:
        """Return when one of the runs may have changed, or after ``seconds`` on the runner's clock."""
        self.clock.sleep(seconds)

    @abstractmethod
    def cancel(self, handle: Handle) -> None:
        """End a run with all its processes; one that has ended already, or was never there, is no error."""

    @abstractmethod
    def find(self, owner: str) -> list[Handle]:
        """The handles of all runs of an owner that are still there, by tag, whoever started them."""

    def collect(self, handle: Handle, request: RunRequest) -> None:
        """Bring stdout, stderr, the metrics file and the kept outputs into the run's folder, if they are elsewhere.

        The names there are ``stdout``, ``stderr``, ``metrics.jsonl`` and ``outputs/``.
        """

    def forget(self, handle: Handle) -> None:
        """Remove what the runner kept of a run that is settled in the store; the run's folder stays."""

    def close(self) -> None:
        """Give back what this object holds; runs are not touched."""
