"""The events that an allocator takes, and the instructions that it gives."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tradewind.problem import Payer
from tradewind.tenancy.preemption.policy import PreemptionPolicy

# ---------------------------------------------------------------------- events


@dataclass(frozen=True, slots=True)
class NodeJoined:
    """A node is there, or has another capacity than before.

    Attributes:
        node: The node's name, unique in the cluster.
        capacity: What it has, by name of the resource.
    """

    node: str
    capacity: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class NodeLost:
    """A node is gone, with all that ran there."""

    node: str


@dataclass(frozen=True, slots=True)
class NodeDrained:
    """A node takes no more work; what runs there ends by itself."""

    node: str


@dataclass(frozen=True, slots=True)
class TenantSet:
    """A tenant is there, or has changed.

    Attributes:
        tenant: The tenant's name.
        weight: Its share against others: with weight 2 it is due twice what weight 1 is.
        priority: Under strict priority, a larger number goes first.
        quota: The most that it may use at a time, by name; what is not named is not limited.
        preempt: Its policy, where its work may end runs of others.
    """

    tenant: str
    weight: float = 1.0
    priority: int = 0
    quota: Mapping[str, float] = field(default_factory=dict)
    preempt: PreemptionPolicy | None = None


@dataclass(frozen=True, slots=True)
class JobSubmitted:
    """A search wants to run.

    Attributes:
        job: Its id, unique in the cluster.
        tenant: Whose it is.
        core: What its Core takes as long as it lives, by name; nothing where it is a part of the allocator's process.
        run: The largest demand of its runs, by name, as far as it is known: Cores are placed so that it can be met.
        nice: Within its tenant a smaller number goes first, whatever the policy says.
        recalled: What the priority remembered of it before the allocator was started again.
    """

    job: str
    tenant: str
    core: Mapping[str, float] = field(default_factory=dict)
    run: Mapping[str, float] = field(default_factory=dict)
    nice: int = 0
    recalled: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SimilarSearchesEnded:
    """Searches like one are over: of the same job, by the same searcher, with the same aim.

    Attributes:
        job: The search.
        results: How many results each of them took.
        seconds: How long a run of them took in the mean.
    """

    job: str
    results: Sequence[int]
    seconds: float


@dataclass(frozen=True, slots=True)
class RequestMade:
    """A search has a run to start.

    Attributes:
        job: Whose run.
        request: Its id, unique in the cluster.
        demand: What it takes while it runs, by name.
        chance: How likely it is, by the searcher's model, to bring what the search is after; None where it has not
            said. What is no probability counts as not said.
        seconds: How long the model expects it to take, likewise.
        longest: The seconds after which it is ended; None where nothing ends it.
        repeatable: It may be taken for another tenant: its trial can be run again.
        taken: How often runs of its trial were taken.
        price: USD per hour that it costs.
    """

    job: str
    request: str
    demand: Mapping[str, float]
    chance: float | None = None
    seconds: float | None = None
    longest: float | None = None
    repeatable: bool = False
    taken: int = 0
    price: float = 0.0


@dataclass(frozen=True, slots=True)
class RequestAdopted:
    """A run was found that runs already: the allocator was started again.

    Attributes:
        job: Whose run.
        request: The run's id, unique in the cluster.
        demand: What it takes, by name.
        node: Where it runs, or None where that is not known: any node counts for it then.
        repeatable: It may be taken for another tenant: its trial can be run again.
        taken: How often runs of its trial were taken.
        price: USD per hour that it costs.
    """

    job: str
    request: str
    demand: Mapping[str, float]
    node: str | None = None
    repeatable: bool = False
    taken: int = 0
    price: float = 0.0


@dataclass(frozen=True, slots=True)
class RequestWithdrawn:
    """A search does not want a run any more that may have been started or not."""

    request: str


@dataclass(frozen=True, slots=True)
class RequestEnded:
    """A run is gone, however it ended: what it took is free."""

    request: str


@dataclass(frozen=True, slots=True)
class PreemptionDeclined:
    """A run that was to be taken goes on.

    Attributes:
        request: The run.
        reason: Why, where it is for who pays; its tenant takes nothing for a while then.
    """

    request: str
    reason: str = ""


@dataclass(frozen=True, slots=True)
class ResultReported:
    """A search got a result.

    Attributes:
        job: The search.
        value: Of the objective; smaller is better, infinite where the trial failed.
        seconds: How long the run took.
        demand: What the run took, by name, where it was never started or adopted here: an earlier cluster ran it.
        chance: How likely it was, as was said when it was asked for, to bring what the search is after; None where
            that was not said.
    """

    job: str
    value: float
    seconds: float
    demand: Mapping[str, float] = field(default_factory=dict)
    chance: float | None = None


@dataclass(frozen=True, slots=True)
class ResultsReset:
    """All results of a search will be reported again from the first: its Core was started again."""

    job: str


@dataclass(frozen=True, slots=True)
class JobPaused:
    """No further run of a search is to be started; what runs goes on."""

    job: str


@dataclass(frozen=True, slots=True)
class JobResumed:
    """A paused search goes on."""

    job: str


@dataclass(frozen=True, slots=True)
class JobReniced:
    """A search gets another place within its tenant."""

    job: str
    nice: int


@dataclass(frozen=True, slots=True)
class JobEnded:
    """A search is over, or was cancelled: what waits is dropped, what runs is stopped, its Core's place is free."""

    job: str


@dataclass(frozen=True, slots=True)
class AllocatorTick:
    """Time has passed."""


AllocatorEvent = (
    NodeJoined | NodeLost | NodeDrained | TenantSet | JobSubmitted | SimilarSearchesEnded | RequestMade
    | RequestAdopted | RequestWithdrawn | RequestEnded | PreemptionDeclined | ResultReported | ResultsReset | JobPaused
    | JobResumed | JobReniced | JobEnded | AllocatorTick
)  # fmt: skip

# ---------------------------------------------------------------------- instructions


@dataclass(frozen=True, slots=True)
class StartCore:
    """Start the Core of a search on a node."""

    job: str
    node: str


@dataclass(frozen=True, slots=True)
class CoreLost:
    """The node of a Core is gone; it is started again elsewhere when there is room."""

    job: str
    node: str


@dataclass(frozen=True, slots=True)
class StartRun:
    """Start a run on a node."""

    request: str
    job: str
    node: str


@dataclass(frozen=True, slots=True)
class StopRun:
    """Stop a run; its place is free only when `RequestEnded` says that it is gone."""

    request: str
    job: str
    node: str


@dataclass(frozen=True, slots=True)
class PreemptRun:
    """End a run whose place another tenant gets; it is free only when `RequestEnded` says that it is gone.

    Attributes:
        request: The run.
        job: Its search.
        node: Where it runs.
        tenant: The tenant that gets the place.
        pays: Who pays the run.
        wanted: The run of that tenant for which the place is.
        why: Why that tenant may have it, in words that follow its name.
    """

    request: str
    job: str
    node: str
    tenant: str
    pays: Payer
    wanted: str = ""
    why: str = ""


@dataclass(frozen=True, slots=True)
class RunLost:
    """The node of a run is gone: the infrastructure's fault, not the program's."""

    request: str
    job: str
    node: str


@dataclass(frozen=True, slots=True)
class RequestRefused:
    """A run can never be started: no node is large enough, or its tenant's quota too small; why, in words."""

    request: str
    job: str
    reason: str


@dataclass(frozen=True, slots=True)
class WakeAt:
    """Send an `AllocatorTick` at this time, if nothing happens before."""

    at: float


AllocatorInstruction = StartCore | CoreLost | StartRun | StopRun | PreemptRun | RunLost | RequestRefused | WakeAt
