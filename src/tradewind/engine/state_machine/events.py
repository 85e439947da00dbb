"""Events that go into the state machine of a search, and instructions that come out of it."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tradewind.problem import Offer, Proposal, Run, RunPreemption, Trial

# ---------------------------------------------------------------------- events


@dataclass(frozen=True, slots=True)
class SearchOpened:
    """The search starts, or goes on after an earlier process.

    Attributes:
        trials: All trials of the store, by number.
        runs: All runs of the store.
        elapsed: Wall-clock seconds that earlier sessions used.
        reports: What the ended trials reported while they ran, by number, as pairs of step and value.
        enqueued: What the user wants tried before all that the searcher proposes.
    """

    trials: Sequence[Trial] = ()
    runs: Sequence[Run] = ()
    elapsed: float = 0.0
    reports: Mapping[int, Collection[tuple[float, float]]] = field(default_factory=dict)
    enqueued: Sequence[PricedProposal] = ()


@dataclass(frozen=True, slots=True)
class PricedProposal:
    """A proposal with the offer that the selector found for it.

    Attributes:
        proposal: What the searcher proposed.
        offer: The offer, or None where nobody sells it.
        key: The trial key, or the configuration's own where nobody sells it.
        reason: Why nobody sells it.
    """

    proposal: Proposal
    offer: Offer | None
    key: str
    reason: str = ""


@dataclass(frozen=True, slots=True)
class ProposalsMade:
    """The searcher proposed something."""

    proposals: Sequence[PricedProposal]


@dataclass(frozen=True, slots=True)
class ConfigurationEnqueued:
    """The user wants a configuration tried before all that the searcher proposes.

    It makes a trial, stored at once, unless there is one of the same key or the budget leaves none.
    """

    proposal: PricedProposal


@dataclass(frozen=True, slots=True)
class ChangedElsewhere:
    """Other workers of a study that several share have changed trials.

    Attributes:
        trials: As they are stored now, in the order of the changes.
        runs: All runs of these.
    """

    trials: Sequence[Trial]
    runs: Sequence[Run]


@dataclass(frozen=True, slots=True)
class NothingProposed:
    """The searcher has nothing to propose.

    Attributes:
        reason: In words.
        final: False when it only waits for a trial on its way.
    """

    reason: str
    final: bool


@dataclass(frozen=True, slots=True)
class RunChanged:
    """A run is somewhere else, or has cost more."""

    run: Run


@dataclass(frozen=True, slots=True)
class OutputInterpreted:
    """The output of a finished run was read, or could not be.

    Attributes:
        run_id: The run.
        metrics: What was read; None if it could not be.
        reason: Why not, in words.
    """

    run_id: str
    metrics: Mapping[str, float] | None
    reason: str = ""


@dataclass(frozen=True, slots=True)
class RunReported:
    """A run has reported intermediate results of the metric that the stopper judges by.

    Attributes:
        run_id: The run.
        points: Pairs of step and value, in the order in which they were reported.
        final: The run is over, and these are all of its points.
    """

    run_id: str
    points: Collection[tuple[float, float]]
    final: bool = False


@dataclass(frozen=True, slots=True)
class Tick:
    """Time has passed."""


@dataclass(frozen=True, slots=True)
class Interrupted:
    """The user wants the search to stop now; it can be resumed."""


@dataclass(frozen=True, slots=True)
class LaunchPermitted:
    """A trial that wanted to run may do so.

    Attributes:
        trial: Number of the trial.
    """

    trial: int


@dataclass(frozen=True, slots=True)
class RunPreempted:
    """Another tenant of the cluster gets the place of a run: it is ended, and its trial is run again later.

    Attributes:
        run_id: The run.
        preemption: For whom, and who pays.
    """

    run_id: str
    preemption: RunPreemption


@dataclass(frozen=True, slots=True)
class MachinesFree:
    """A run is all but over, and its machines could be kept for the next one.

    Attributes:
        run_id: The run.
        seconds: Seconds that its machines have been billed for.
        expires: When anyone may destroy them, in seconds since the epoch.
    """

    run_id: str
    seconds: float
    expires: float


@dataclass(frozen=True, slots=True)
class KeptMachinesChanged:
    """Machines that are kept were lost, or are gone.

    Attributes:
        cluster: Their tag.
        gone: True when they are not there any more; False when they are no good any more.
        until: They were paid for until then, in seconds since the epoch.
    """

    cluster: str
    gone: bool
    until: float


SearchEvent = (
    SearchOpened
    | ProposalsMade
    | ConfigurationEnqueued
    | ChangedElsewhere
    | NothingProposed
    | RunChanged
    | OutputInterpreted
    | RunReported
    | Tick
    | Interrupted
    | LaunchPermitted
    | RunPreempted
    | MachinesFree
    | KeptMachinesChanged
)

# ---------------------------------------------------------------------- instructions


@dataclass(frozen=True, slots=True)
class AskSearcher:
    """Ask the searcher for up to ``count`` proposals."""

    count: int


@dataclass(frozen=True, slots=True)
class WriteRows:
    """Store these rows, all or none, before the next instruction is carried out."""

    trials: Sequence[Trial] = ()
    runs: Sequence[Run] = ()
    study: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def joined(cls, parts: Sequence[WriteRows]) -> WriteRows:
        """The rows of several instructions, each row as the last of them has it."""
        trials = {trial.number: trial for part in parts for trial in part.trials}
        runs = {run.run_id: run for part in parts for run in part.runs}
        study = {name: value for part in parts for name, value in part.study.items()}
        return cls(tuple(trials.values()), tuple(runs.values()), study)


@dataclass(frozen=True, slots=True)
class Launch:
    """Start a run.

    Attributes:
        trial: The trial of the run.
        run: Its row, stored already.
        wall_seconds: The time after which it must end, or None.
        again: An earlier process may have started it: it is found again, never started twice.
        unwanted: Why it is only found again to be ended, or empty.
        repeats: Its trial is run again then: what it has saved of its work stays.
    """

    trial: Trial
    run: Run
    wall_seconds: float | None
    again: bool = False
    unwanted: str = ""
    repeats: bool = False


@dataclass(frozen=True, slots=True)
class RequestPermit:
    """A trial would run, if it had leave; only of a search that asks for it (`Policy.gated`)."""

    trial: Trial


@dataclass(frozen=True, slots=True)
class WithdrawPermit:
    """A trial that wanted to run, or has leave to, does not want to any more.

    Attributes:
        trial: Number of the trial.
    """

    trial: int


@dataclass(frozen=True, slots=True)
class CancelRun:
    """End a run and give its machines back.

    Attributes:
        run_id: Which.
        reason: In words.
        waits: The search goes no further until its machines are gone. Without it, that comes as `RunChanged`.
        repeats: Its trial is run again: what it has saved of its work stays.
    """

    run_id: str
    reason: str
    waits: bool = False
    repeats: bool = False


@dataclass(frozen=True, slots=True)
class KeepMachines:
    """The answer to `MachinesFree`.

    Attributes:
        run_id: The run.
        keep: False to give its machines back with it.
    """

    run_id: str
    keep: bool


@dataclass(frozen=True, slots=True)
class WatchMachines:
    """Watch machines that an earlier process has kept; `KeptMachinesChanged` says what becomes of them."""

    cluster: str


@dataclass(frozen=True, slots=True)
class GiveBackMachines:
    """Give machines back that were kept; `KeptMachinesChanged` says when they are gone.

    Attributes:
        cluster: Their tag.
        waits: The search goes no further until they are gone.
    """

    cluster: str
    waits: bool = False


@dataclass(frozen=True, slots=True)
class InterpretOutput:
    """Read the output of a finished run."""

    trial: Trial
    run: Run


@dataclass(frozen=True, slots=True)
class TellSearcher:
    """Tell the searcher of an ended trial."""

    trial: Trial


@dataclass(frozen=True, slots=True)
class SettleRun:
    """The run's end is stored: what was kept of it may be forgotten."""

    run_id: str


@dataclass(frozen=True, slots=True)
class StopSearch:
    """The search is over.

    Attributes:
        reason: In words.
        interrupted: True when the user stopped it.
        trouble: What has to be mended before it can go on, or what took its runs; empty where it came to its end.
    """

    reason: str
    interrupted: bool = False
    trouble: str = ""


SearchInstruction = (
    AskSearcher
    | WriteRows
    | RequestPermit
    | WithdrawPermit
    | Launch
    | CancelRun
    | KeepMachines
    | WatchMachines
    | GiveBackMachines
    | InterpretOutput
    | TellSearcher
    | SettleRun
    | StopSearch
)
