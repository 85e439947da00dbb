"""The contract of a runner, and the capabilities that one can have."""

from __future__ import annotations

import socket
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from tradewind.deployer.checkpoints import FOLDER, CheckpointLook, copy_files, look_at_files
from tradewind.errors import TradewindError
from tradewind.plugins import Capability, Plugin, Settings
from tradewind.problem import Handle, Machine, Offer, RunRequest, RunState, RunStatus, Space, Value, WorkflowJob
from tradewind.utils.clock import Clock, SystemClock


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


class UsesMachines(Capability):
    """Runs on the machines that a provisioner gives it, by their addresses; without any, on this machine."""


class HasOwnMachines(Capability):
    """Has an engine that finds the machines itself (a cluster): there is nothing for a provisioner to make."""


class UsesImages(Capability):
    """Runs the job in the container image that the job names."""


class NeedsImages(Capability):
    """Runs jobs in container images only: the job must name one."""


class SeveralNodes(Capability):
    """Runs one job on all machines of an offer with several nodes, and tells the job where they are."""


class DrivesLoad(Capability):
    """Runs a load generator beside the application under test (``job.load``); the run ends when the load does."""


class HasOwnFiles(Capability):
    """Works on copies of the job's files: ``collect`` brings the outputs too, and none are taken from here."""


class AnswersFromRecords(Capability):
    """Answers runs from recorded ones, and refuses a space that its records cannot tell apart."""

    @abstractmethod
    def covers(self, space: Space, parameters: Mapping[str, Value]) -> None:
        """Check that the records have a column for every parameter that varies; returns nothing where they do.

        Args:
            space: The search space.
            parameters: The job's own parameters, the same for all of its runs.

        Raises:
            RecordError: A parameter of the space has several values and no column, or no run was recorded with the
                job's parameters.
        """

    def recorded_metrics(self, request: RunRequest) -> Mapping[str, float] | None:
        """The metrics that were read of the recorded run, where its logs were not kept as a whole.

        Args:
            request: The run that is answered.

        Returns:
            The metrics; None where interpreters are to read what the runner has put into the run's folder.
        """
        return None

    @classmethod
    def answers_from_studies(cls, settings: Mapping[str, Any]) -> bool:
        """True where the records are trials of studies: who is answered must not learn from those studies as well.

        Args:
            settings: The runner's settings as the job YAML has them.
        """
        return False


class RunsWorkflows(Capability):
    """Plans the workflow of a job on a run's machines and runs it as a whole (``job.workflow``); it runs no command."""

    @abstractmethod
    def check_workflow(self, workflow: WorkflowJob, offer: Offer) -> None:
        """Refuse, before anything is run, what can never run.

        Args:
            workflow: A workflow of the space, its texts filled in.
            offer: The machines, as many as it has nodes.

        Raises:
            TradewindError: Its file or its planner is not there or is wrong, or this runner has no such machines.
        """


class SubmitsTogether(Capability):
    """Submits many runs in one call to its engine."""

    @abstractmethod
    def submit_all(self, runs: Sequence[tuple[RunRequest, Sequence[Machine]]]) -> Mapping[str, Handle | TradewindError]:
        """Start some runs; by run id the handle, or the error that `Runner.submit` would have raised.

        Args:
            runs: The requests, each with its machines.
        """


class ListsNodes(Capability):
    """Says which nodes its engine has, so that many searches can share them."""

    @abstractmethod
    def nodes(self) -> Mapping[str, Mapping[str, float]]:
        """The amounts of each node that takes work, by its name: ``cpu``, ``memory`` in GiB, ``gpu``.

        Raises:
            DeployError: The engine cannot be reached.
        """


class StreamsLogs(Capability):
    """Reads logs while the run is running."""

    @abstractmethod
    def read_log(self, handle: Handle, stream: str, offset: int) -> bytes:
        """Read the ``stdout`` or ``stderr`` of a run from a byte on, a few megabytes at most; empty without any.

        Args:
            handle: The run.
            stream: ``stdout`` or ``stderr``.
            offset: The first byte that is wanted, counted from 0.

        Raises:
            DeployError: The engine cannot be reached.
        """


class StreamsReports(Capability):
    """Reads what the program reports (``tradewind.report``) while the run is running."""

    @abstractmethod
    def read_report(self, handle: Handle, offset: int) -> bytes:
        """Read the metrics file of a run from a byte on, a few megabytes at most; empty without any.

        Args:
            handle: The run.
            offset: The first byte that is wanted, counted from 0.

        Raises:
            DeployError: The engine cannot be reached.
        """


class KeepsCheckpoints(Capability):
    """Gives the job a folder for checkpoints (``TRADEWIND_CHECKPOINT``), of which copies are taken while it runs.

    `Runner.submit` puts the latest copy (`tradewind.deployer.checkpoints.CheckpointStore`) into that folder before the
    program starts, where `RunRequest.checkpoint` names a plan.
    """

    def refuses_checkpoints(self, image: str | None) -> str:
        """Give the reason for which it keeps none with these settings, or an empty text, before a search begins.

        Args:
            image: The image of the job, or None.
        """
        return ""

    @abstractmethod
    def look_at_checkpoint(self, handle: Handle) -> CheckpointLook:
        """Look at the checkpoint files of a run.

        Args:
            handle: The run.

        Raises:
            DeployError: The machine does not answer.
        """

    @abstractmethod
    def copy_checkpoint(self, handle: Handle, folder: Path) -> CheckpointLook:
        """Bring the checkpoint files of a run to this machine, all as they were at one moment.

        Args:
            handle: The run.
            folder: The folder that is made for them.

        Returns:
            What was copied.

        Raises:
            DeployError: The machine does not answer, or the files change all the time or cannot be written.
        """


class FolderCheckpoints(KeepsCheckpoints):
    """Keeps checkpoints of jobs whose run folder this machine sees while they run: its own, or one of a shared disk."""

    @abstractmethod
    def checkpoint_parent(self, handle: Handle) -> Path | None:
        """The run's folder as this machine sees it, with the job's folder for checkpoints in it; None if not known.

        Args:
            handle: The run.
        """

    def look_at_checkpoint(self, handle: Handle) -> CheckpointLook:
        """Look at the checkpoint files of a run; see `KeepsCheckpoints.look_at_checkpoint`."""
        parent = self.checkpoint_parent(handle)
        return CheckpointLook() if parent is None else look_at_files(parent / FOLDER)

    def copy_checkpoint(self, handle: Handle, folder: Path) -> CheckpointLook:
        """Copy the checkpoint files of a run; see `KeepsCheckpoints.copy_checkpoint`."""
        parent = self.checkpoint_parent(handle)
        return CheckpointLook() if parent is None else copy_files(parent / FOLDER, folder)


class OpensChannel(Capability):
    """Runs further commands beside a run's program, each with a stream to it, so that the program can be talked to."""

    @abstractmethod
    def open_channel(self, handle: Handle, argv: Sequence[str]) -> socket.socket:
        """Run a command in the working folder of a run that is executing, on its first machine.

        Args:
            handle: The run.
            argv: The command and its arguments.

        Returns:
            A stream that leads to the command's standard input and from its standard output. It ends with the command,
            whose input ends when the stream is shut down or closed.

        Raises:
            UnreachableError: The machine does not answer.
            CredentialsError: It does not let us in.
            DeployError: The command cannot be started.
        """


class Runner(Plugin, ABC):
    """Runs jobs on machines.

    All methods return at once; with `CallsNetwork`, ``submit`` and ``collect`` may take seconds and are called in
    threads, for several runs at a time, while ``poll`` is called in another. A runner keeps nothing in memory that
    it needs to find a run again: the handle, the run's folder and the tags of the run (`RunRequest.run_id` and
    ``owner``) are enough for another process.

    Args:
        settings: The settings of the plugin, of the class's ``Settings``.
        data_folder: The folder below which the runner may keep what it needs between processes.

    Attributes:
        shell_variables: True where a shell sets the job's variables: their names are letters, digits and _ only.
    """

    shell_variables: ClassVar[bool] = False

    def __init__(self, *, settings: Settings, data_folder: Path) -> None:
        self.settings = settings
        self.data_folder = data_folder
        self._woken = threading.Event()

    @property
    def clock(self) -> Clock:
        """The clock that runs take place on: the system's, or a simulated one."""
        return SystemClock()

    @property
    def kill_seconds(self) -> float:
        """Seconds that a run may go on after its wall time at most, until all its processes are gone."""
        return 0.0

    def refuses(self, offer: Offer, *, given: bool) -> str:
        """A reason for which it can never run a job on an offer's machines with these settings, or an empty text.

        It is called before a search begins, for all offers of the space: it uses no network and costs nothing.

        Args:
            offer: The offer.
            given: True when a provisioner gives the machines.

        Raises:
            DeployError: The settings cannot be used.
        """
        return ""

    def room(self, offer: Offer, running: Sequence[Offer]) -> bool:
        """True when a run on ``offer`` may start beside those on ``running`` without disturbing them."""
        return True

    @abstractmethod
    def submit(self, request: RunRequest, machines: Sequence[Machine]) -> Handle:
        """Start a run. Submitting a run that was submitted already returns its handle and starts nothing.

        Args:
            request: The run: command, files, limits, offer.
            machines: The machines of the provisioner, or none where the runner has its own.

        Raises:
            DeployError: It could not be started; ``retryable`` says whose fault it is. `ImageError`,
                `CredentialsError`, `CapacityError` and `UnreachableError` say it more exactly.
            MissingProgramError: The command, or a program of the engine, is not there.
        """

    @abstractmethod
    def poll(self, handles: Sequence[Handle]) -> Mapping[str, RunStatus]:
        """The statuses of some runs, by run id, in as few calls to the engine as possible.

        A run that waits in the engine's queue is reported as submitting. One whose state is unknown is reported as
        executing: unknown counts as alive. One that is certainly gone without a result is reported as preempted, the
        infrastructure's fault. What another data folder's runner has started is only looked at: `find` shows it to
        ``tradewind reap``, and only `cancel` may end it.
        """

    def wait(self, handles: Sequence[Handle], seconds: float) -> None:
        """Return when one of the runs may have changed, when woken, or after ``seconds`` on the runner's clock."""
        self.doze(seconds)

    def wake(self) -> None:
        """Let the `wait` that is under way return now, or else the next one at once; any thread may call it."""
        self._woken.set()

    def doze(self, seconds: float) -> bool:
        """Let so many seconds pass, for `wait`.

        Returns:
            True when `wake` was called before they were over.
        """
        clock = self.clock
        if not isinstance(clock, SystemClock):
            clock.sleep(seconds)
            return False
        woken = self._woken.wait(max(0.0, seconds))
        self._woken.clear()
        return woken

    @abstractmethod
    def cancel(self, handle: Handle, reason: str = "") -> None:
        """End a run with all its processes; one that has ended already, or was never there, is no error.

        Args:
            handle: The run.
            reason: Why it is cancelled, for its status, as far as the engine can keep it.
        """

    @abstractmethod
    def find(self, owner: str | None) -> list[Handle]:
        """The handles of all runs of an owner that are still there, found by tag, whoever started them.

        With None as the owner: of all owners. Those are for looking only: `poll` changes nothing for them, and only
        `cancel` and `forget` do.

        `tradewind.deployer.runner.handle.HandleData` reads and writes their data: they have at least ``owner``, and
        ``expires``, ``created`` and ``price_per_hour`` where the engine keeps them; one that waits has no ``expires``.
        """

    def collect(self, handle: Handle, request: RunRequest) -> None:
        """Bring stdout, stderr, the metrics file and the kept outputs into the run's folder, if they are elsewhere.

        The names there are ``stdout``, ``stderr``, ``metrics.jsonl`` and ``outputs/``.
        """

    def forget(self, handle: Handle) -> None:
        """Remove all that the runner keeps of a run that is settled in the store; the run's folder stays."""

    def close(self) -> None:
        """Release connections, processes and threads of this object; runs are not touched."""


def wait_by_polling(
    runner: Runner,
    handles: Sequence[Handle],
    before: Mapping[str, RunState | None],
    seconds: float,
    every: float,
) -> None:
    """Implement `Runner.wait` for an engine without notifications: poll the runs until one has changed its state.

    Args:
        runner: The runner.
        handles: The runs.
        before: The last known states, by run id; None where there is none, which counts as a change.
        seconds: How long to wait, at most.
        every: Seconds between two polls.
    """
    until = time.monotonic() + seconds
    if any(state is not None and state.ended for state in before.values()):
        return
    while (left := until - time.monotonic()) > 0:
        if runner.doze(min(left, every)):
            return
        if handles and {name: status.state for name, status in runner.poll(handles).items()} != before:
            return
