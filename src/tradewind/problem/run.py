"""A run: one attempt at one trial on real (or simulated, or recorded) machines."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from enum import StrEnum
from pathlib import Path
from typing import Any, Literal

from tradewind.problem.configuration import Configuration
from tradewind.problem.offer import Offer, round_money


class RunState(StrEnum):
    """The life of a run; the words are those of the wire.

    ``pending -> booting -> bootstrapping -> submitting -> executing -> collecting -> done``, and from any of
    them to ``failed``, ``timed_out``, ``preempted`` or ``cancelled``.
    """

    PENDING = "pending"
    BOOTING = "booting"
    BOOTSTRAPPING = "bootstrapping"
    SUBMITTING = "submitting"
    EXECUTING = "executing"
    COLLECTING = "collecting"
    DONE = "done"
    FAILED = "failed"
    TIMED_OUT = "timed_out"
    PREEMPTED = "preempted"
    CANCELLED = "cancelled"

    @property
    def ended(self) -> bool:
        """True when nothing more will happen to the run."""
        return self in _ENDED


_ENDED = frozenset({RunState.DONE, RunState.FAILED, RunState.TIMED_OUT, RunState.PREEMPTED, RunState.CANCELLED})


class Fault(StrEnum):
    """The cause of an unsuccessful run.

    ``job``: the program's or the configuration's (a non-zero exit, out of memory): the searcher learns of it.
    ``architecture``: the program or its image is for another processor architecture than the machines: as job, but no
    fault of configurations on machines with another one.
    ``infrastructure``: a machine, network or engine: the run is repeated, the searcher learns nothing.
    ``capacity``: there were no such machines, or a quota was used up: as infrastructure, but repeated elsewhere.
    ``credentials``: somebody does not know us, whatever the configuration: the searcher learns nothing, and the search
    ends until that is mended.
    ``prerequisite``: what every run needs is not there (an input, a secret, the image): as credentials.
    """

    JOB = "job"
    ARCHITECTURE = "architecture"
    INFRASTRUCTURE = "infrastructure"
    CAPACITY = "capacity"
    CREDENTIALS = "credentials"
    PREREQUISITE = "prerequisite"


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of what a run may use. None means no limit.

    Attributes:
        cpus: CPUs on each node.
        memory_bytes: Memory on each node.
        wall_seconds: Time from its start; a run that reaches it ends as `RunState.TIMED_OUT`.
        log_bytes: The most that is kept of stdout and of stderr, each.
        asked: False when nobody asked for ``wall_seconds``: it only keeps a run from going on for ever, and an engine
            with a limit of its own may end the run sooner.
        gpus: GPUs on each node: a whole number, or a part of one that others share; None is what the offer has.
    """

    cpus: float | None = None
    memory_bytes: int | None = None
    wall_seconds: float | None = None
    log_bytes: int | None = None
    asked: bool = True
    gpus: float | None = None


@dataclass(frozen=True, slots=True)
class Machine:
    """A machine that a provisioner made, or that was there already.

    Attributes:
        id: The provider's id.
        address: Where runners reach it; empty for this machine.
        data: What the provisioner needs to find it again (JSON-able).
    """

    id: str
    address: str = ""
    data: Mapping[str, Any] = field(default_factory=dict)


LOCALHOST = Machine("localhost")
"""This machine, which nobody makes and nobody lends."""


@dataclass(frozen=True, slots=True)
class Load:
    """A load generator beside the application under test: the job's command is the application, this drives it.

    The application is started first. When it is ready the load is started, and finds it at the host and port of
    ``TRADEWIND_APPLICATION_HOST`` and ``TRADEWIND_APPLICATION_PORT``. The run ends when the load does, and has its
    exit code, output and metrics; the application is ended then, and its output is kept as ``application.stdout``
    and ``application.stderr``. An application that ends first has failed, and so has the run.

    Attributes:
        argv: The command of the load generator, its templates filled in.
        image: Its container image; the job's own without it.
        env: Its environment variables, beside the job's.
        port: The port that the application listens on, or None if it is not asked over the network.
        ready_path: An HTTP path that must answer with a status below 400, or empty: an open port is enough.
        ready_pattern: A regular expression that a line of the application's output must match, or empty.
        ready_seconds: How long the application may take to become ready.
        cpus: CPUs that it is held to, or None.
        memory_bytes: Memory that it is held to, or None.
    """

    argv: tuple[str, ...]
    image: str | None = None
    env: Mapping[str, str] = field(default_factory=dict)
    port: int | None = None
    ready_path: str = ""
    ready_pattern: str = ""
    ready_seconds: float = 60.0
    cpus: int | None = None
    memory_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class WorkflowJob:
    """A workflow that is planned on the machines of a run and runs there as a whole, instead of a command.

    In a job its texts are templates; in a request they are filled in.

    Attributes:
        file: Its file.
        planner: The planner's name by ``use``, and its settings.
        tasks: By activity or task, or a pattern of them, what is changed: ``scale``, ``cores`` and ``memory``.
        lenient: Accept sizes and run times below zero.
        declared_edges: Keep declared edges only, without those that files imply.
        measured: Results of runs, or their folders, whose run times are taken.
    """

    file: str
    planner: Mapping[str, str]
    tasks: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    lenient: bool = False
    declared_edges: bool = False
    measured: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class CheckpointPlan:
    """Folder and interval of the checkpoints at which the interrupted runs of a trial begin again.

    Attributes:
        folder: The folder on this machine, the same for all runs of the trial.
        every: Seconds of work between two checkpoints of the program.
        origin: The folder of another trial's checkpoints, at whose latest one the first run begins; or None.
        kept: The latest checkpoint stays when the trial has succeeded, for other trials to begin at.
    """

    folder: Path
    every: float
    origin: Path | None = None
    kept: bool = False


@dataclass(frozen=True, slots=True)
class Gang:
    """Runs on one machine that need each other: there is room for all of them, or none of them begins.

    Attributes:
        name: Unique over all gangs; it may be part of the name of a file.
        title: How it is called in messages to others who wait for room.
        cpus: CPUs of all of them together.
        memory_bytes: Memory of all of them together.
        gpus: GPUs of all of them together.
    """

    name: str
    title: str
    cpus: float
    memory_bytes: int = 0
    gpus: int = 0


@dataclass(frozen=True, slots=True)
class TenantShare:
    """A tenant of those that share a machine.

    Attributes:
        name: The tenant's name.
        weight: Its share against others.
    """

    name: str
    weight: float = 1.0


@dataclass(frozen=True, slots=True)
class RunRequest:
    """Everything that a deployer needs to carry out a run.

    Attributes:
        run_id: Unique over all users and machines; it is the name and the tag of everything created for the run.
        owner: Who pays; a tag of everything created for the run.
        expires: Seconds since the epoch after which anyone may destroy what is left of the run.
        argv: The command, its templates filled in.
        env: Environment variables, templates filled in; the runner adds its own ``TRADEWIND_*``.
        secrets: Name -> reference, resolved by the runner as late as possible.
        workdir: The user's folder.
        folder: The run's own folder on this machine: logs, outputs and metrics end up in it.
        offer: The machines, with their price at launch.
        configuration: The configuration.
        limits: What it may use.
        image: Container image, or None.
        inputs: Files and URLs to stage.
        outputs: Glob patterns to keep.
        fidelity: Share of the input that is run.
        load: The load generator beside the application, or None.
        ports: Ports of the job that are made reachable from outside, for runners in containers.
        results: The address that what the run kept is uploaded to, or empty.
        places: How servers of inputs and results are entered, by the beginning of their address; passwords are
            references.
        parameters: The job's parameters, in which it differs from other jobs of the same program.
        checkpoint: The checkpoints of the trial, or None where the program makes none.
        workflow: The workflow that is run instead of the command, or None.
        machines_expire: The tag of when anyone may destroy machines that are made for the run, where they may be kept
            after it; without it they expire with the run.
        gang: The runs that it needs beside it, where they share this machine; or None.
        tenant: Whose it is, where a cluster or a service has started it; or None.
    """

    run_id: str
    owner: str
    expires: float
    argv: tuple[str, ...]
    folder: Path
    workdir: Path
    offer: Offer
    configuration: Configuration
    env: Mapping[str, str] = field(default_factory=dict)
    secrets: Mapping[str, str] = field(default_factory=dict)
    limits: Limits = field(default_factory=Limits)
    image: str | None = None
    inputs: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()
    fidelity: float = 1.0
    load: Load | None = None
    ports: tuple[int, ...] = ()
    results: str = ""
    places: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    parameters: Mapping[str, float | str] = field(default_factory=dict)
    checkpoint: CheckpointPlan | None = None
    workflow: WorkflowJob | None = None
    machines_expire: float | None = None
    gang: Gang | None = None
    tenant: TenantShare | None = None


@dataclass(frozen=True, slots=True)
class Handle:
    """Reference by which a restarted process finds a run again.

    Attributes:
        run_id: The run.
        runner: The entry-point name of its runner.
        data: What that runner needs (JSON-able): a pid, a job id, a container id.
    """

    run_id: str
    runner: str
    data: Mapping[str, Any] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """A JSON-able document."""
        return asdict(self)

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> Handle:
        """The handle of a document that `to_json` made."""
        return cls(document["run_id"], document["runner"], dict(document["data"]))


@dataclass(frozen=True, slots=True)
class Usage:
    """Resources that a run used, as far as its runner can tell; None means unknown.

    Attributes:
        peak_memory_bytes: The largest resident memory of its process tree, on the node that used most.
        cpu_seconds: CPU time of all its processes.
        profile: Low-level metrics by name, for searchers that learn from them.
        resumed_seconds: Seconds of work that interrupted runs had done before the checkpoint that the run began at; 0
            for one that began at the beginning.
    """

    peak_memory_bytes: int | None = None
    cpu_seconds: float | None = None
    profile: Mapping[str, float] = field(default_factory=dict)
    resumed_seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class RunStatus:
    """State of one run, from a poll.

    Attributes:
        state: Where it is.
        runtime: Seconds that it has been executing so far, or took in all.
        reason: In words, when it ended otherwise than `RunState.DONE`, or why it waits.
        fault: Whose fault that is.
        exit_code: Of the program; negative for a signal; None while running or unknown.
        usage: What it used.
    """

    state: RunState
    runtime: float = 0.0
    reason: str = ""
    fault: Fault | None = None
    exit_code: int | None = None
    usage: Usage = field(default_factory=Usage)


@dataclass(frozen=True, slots=True)
class RunOutput:
    """Output of a run, as interpreters read it.

    Attributes:
        stdout: The file with the standard output; it may be missing, empty, huge or not UTF-8.
        stderr: The file with the standard error.
        metrics_file: The file that ``tradewind.report()`` wrote, as JSON lines; it may be missing.
        folder: The run's folder, with the kept outputs.
        exit_code: Of the program, or None if it was cut short.
        runtime: Seconds.
        cost: USD, this run.
        offer: The machines, with their price at launch.
        configuration: The configuration.
        truncated: True when the logs were cut at the limit.
        recorded: The metrics that were read of an earlier run, where this one is answered by its record and the record
            does not have its whole logs; otherwise None.
    """

    stdout: Path
    stderr: Path
    metrics_file: Path
    folder: Path
    exit_code: int | None
    runtime: float
    cost: float
    offer: Offer
    configuration: Configuration
    truncated: bool = False
    recorded: Mapping[str, float] | None = None


@dataclass(frozen=True, slots=True)
class TakenMachines:
    """Machines that were made for an earlier run, and that a run goes on with.

    Attributes:
        cluster: The run that they were made for, which is their tag.
        seconds: Seconds that they had been billed for when they were taken over.
        expires: The tag of when anyone may destroy them, in seconds since the epoch.
    """

    cluster: str
    seconds: float
    expires: float


@dataclass(frozen=True, slots=True)
class MachineLease:
    """Machines that are kept after a run, for the next one on the same offer.

    It is in the row of the run before they are kept. Once it has ended they are gone, or another run has them.

    Attributes:
        cluster: The run that they were made for, which is their tag.
        seconds: Seconds that they had been billed for when the run was over.
        expires: The tag of when anyone may destroy them, in seconds since the epoch.
        since: When the run was over, in seconds since the epoch: until then they are on its own bill.
        until: When they are given back if no run wants them.
        reserved: USD set aside for keeping them.
        offer_key: The key of their offer.
        hourly: USD per hour, all of them.
        cost: USD that keeping them has cost so far; it is a part of the cost of the run.
        ended: When they were given back or taken over, or None as long as they are kept.
        taken_by: The run that has taken them over, or empty.
    """

    cluster: str
    seconds: float
    expires: float
    since: float
    until: float = 0.0
    reserved: float = 0.0
    offer_key: str = ""
    hourly: float = 0.0
    cost: float = 0.0
    ended: float | None = None
    taken_by: str = ""


Payer = Literal["owner", "taker", "cluster"]
"""Who pays a run that was taken: its own search, the tenant that it was taken for, or nobody on the cluster."""


@dataclass(frozen=True, slots=True)
class RunPreemption:
    """The taking of a run: on a shared cluster it was ended so that another tenant gets its place.

    Attributes:
        tenant: The tenant that it was taken for; empty for a reader who may not know it.
        pays: Who pays it.
        at: When that was decided, in seconds since the epoch.
        cost: USD that it has cost and that its search does not pay.
        why: Why that tenant may have it, in words that follow its name; empty where that is not known.
    """

    tenant: str
    pays: Payer = "owner"
    at: float = 0.0
    cost: float = 0.0
    why: str = ""

    @property
    def taker(self) -> str:
        """The tenant that it was taken for, in words."""
        return f"tenant {self.tenant}" if self.tenant else "another tenant"

    @property
    def words(self) -> str:
        """The reason of the run's end."""
        return f"taken for {self.taker}"


@dataclass(frozen=True, slots=True)
class Run:
    """The row of a run in the store, written before anything is created and changed until it is settled.

    Attributes:
        run_id: Unique over everything.
        trial: Number of its trial.
        attempt: 1 for the first.
        state: Where it is.
        reserved: USD set aside for it while it is not settled.
        cost: USD it has cost so far, keeping its machines after it included.
        runtime: Seconds it has executed.
        handle: The runner's handle, once there is one.
        machines: The provisioner's machines, once there are any.
        started: Seconds since the epoch, or None.
        ended: Seconds since the epoch, or None.
        exit_code: Of the program.
        reason: Why it ended otherwise than done, or what keeps it from going on.
        fault: Whose fault.
        usage: What it used.
        folder: Its folder on this machine.
        offer_key: The key of the offer that it was launched on; attempts of a trial may have different ones.
        results: The address that what it kept is uploaded to, or empty; it is complete where SHA256SUMS is there.
        code: Digest of the files of the program's folder when it began, or empty where they are not watched.
        taken: Machines of an earlier run that it goes on with; None where they were made for it.
        lease: Its machines, where they are or were kept after it.
        preemption: For whom it is being, or was, taken; None where it was not.
    """

    run_id: str
    trial: int
    attempt: int = 1
    state: RunState = RunState.PENDING
    reserved: float = 0.0
    cost: float = 0.0
    runtime: float = 0.0
    handle: Handle | None = None
    machines: tuple[Machine, ...] = ()
    started: float | None = None
    ended: float | None = None
    exit_code: int | None = None
    reason: str = ""
    fault: Fault | None = None
    usage: Usage = field(default_factory=Usage)
    folder: str = ""
    offer_key: str = ""
    results: str = ""
    code: str = ""
    taken: TakenMachines | None = None
    lease: MachineLease | None = None
    preemption: RunPreemption | None = None

    @property
    def own_cost(self) -> float:
        """USD that it has cost without what its machines cost while they were kept after it."""
        return self.cost if self.lease is None else round_money(self.cost - self.lease.cost)

    @property
    def cluster(self) -> str:
        """The tag of its machines: the run that they were made for."""
        return self.run_id if self.taken is None else self.taken.cluster

    def paid(self) -> Run:
        """The row of a run that was taken, and that is gone: what it has cost is with whoever pays it."""
        assert self.preemption is not None
        ended = replace(self, state=RunState.CANCELLED, reason=self.preemption.words, fault=None)
        if self.preemption.pays == "owner":
            return ended
        preemption = replace(self.preemption, cost=self.own_cost)
        return replace(ended, cost=round_money(self.cost - self.own_cost), preemption=preemption)

    def without_taker(self) -> Run:
        """The row for a reader who may not know which tenant the run was taken for."""
        if self.preemption is None:
            return self
        hidden = replace(self.preemption, tenant="")
        return replace(self, preemption=hidden, reason=self.reason.replace(self.preemption.words, hidden.words))

    def resumed_at(self, seconds: float) -> Run:
        """The row of a run that began at a checkpoint, which has saved so many seconds of work."""
        return replace(self, usage=replace(self.usage, resumed_seconds=seconds))
