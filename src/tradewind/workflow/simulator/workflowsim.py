"""WorkflowSim 1.0, event by event: its makespans, for those who compare with published ones.

Its rules are not those of a real machine: a VM runs one task at a time whatever its cores, time is cut into steps of
0.11 s, and lengths are whole numbers of instructions. Chen and Deelman, "WorkflowSim: A toolkit for simulating
scientific workflows in distributed environments", e-Science 2012; the order of events is that of CloudSim 3.0.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Literal, Protocol

from tradewind.workflow.graph import Workflow

Storage = Literal["SHARED", "LOCAL"]

SHARED_RATE = 15.0
"""MB/s of the shared file system."""

LOCAL_RATE = 1000.0
"""MB/s between a VM and wherever a file is."""

HEFT_RATE = 1000.0
"""WorkflowSim's bandwidth of every VM, which its HEFT reads as Mbit/s."""

_MILLION = 1_000_000
_STEP, _LOOK, _PAUSE, _EARLY = 0.1, 0.11, 0.01, 0.111
_START = 0.1
_STAGE_IN_LENGTH = 110
_STAGE_IN = -1


@dataclass(frozen=True, slots=True)
class WorkflowSimVm:
    """A virtual machine as WorkflowSim has them.

    Attributes:
        mips: Speed of one core; 1000 is the reference.
        cores: Cores, which decide only which VM a policy prefers.
    """

    mips: float
    cores: int = 1


@dataclass(frozen=True, slots=True)
class WorkflowSimResult:
    """Result of a simulation.

    Attributes:
        makespan: Seconds until the last task has ended.
        starts: Start of each task, in seconds.
        ends: End of each task, in seconds.
        vms: The VM of each task.
    """

    makespan: float
    starts: tuple[float, ...]
    ends: tuple[float, ...]
    vms: tuple[int, ...]


@dataclass
class _Job:
    """A task on its way; the stage-in job has the number -1."""

    number: int
    length: int
    done: int = 0
    vm: int = -1
    start: float = 0.0
    end: float = 0.0
    total: int = 0


WorkflowSimPolicy = Callable[["WorkflowSim", "list[_Job]"], "list[tuple[_Job, int]]"]
"""Type of a policy: takes the queue, in order, and returns the jobs to place now with their VMs."""


@dataclass
class WorkflowSim:
    """One simulation by the rules of WorkflowSim.

    Args:
        workflow: The workflow.
        vms: The VMs, in order.
        policy: One of `POLICIES`, or ``DHEFT`` or ``HEFT``.
        storage: Place of the files: ``SHARED`` or ``LOCAL``.
    """

    workflow: Workflow
    vms: Sequence[WorkflowSimVm]
    policy: str
    storage: Storage = "SHARED"
    now: float = 0.0
    busy: list[bool] = field(default_factory=list)
    replicas: dict[str, set[int]] = field(default_factory=dict)
    plan: Sequence[int] | None = None

    def run(self) -> WorkflowSimResult:
        """Run the simulation."""
        self.busy = [False] * len(self.vms)
        self.replicas = {}
        plans = {"DHEFT": dheft, "HEFT": heft}
        self.plan = plans[self.policy](self.workflow, self.vms) if self.policy in plans else None
        jobs = _Events(self, _static if self.plan is not None else POLICIES[self.policy]).run()
        return WorkflowSimResult(
            max(job.end for job in jobs),
            tuple(job.start for job in jobs),
            tuple(job.end for job in jobs),
            tuple(job.vm for job in jobs),
        )

    def length(self, job: _Job) -> int:
        """Instructions of a job, without transfers."""
        return job.length

    def idle(self) -> list[int]:
        """The VMs that run nothing, in order."""
        return [vm for vm, busy in enumerate(self.busy) if not busy]

    def inputs(self, job: _Job) -> Sequence[str]:
        """The files that a job has to be given."""
        return () if job.number == _STAGE_IN else self.workflow.real_inputs[job.number]

    def bytes(self, name: str) -> float:
        """The size of a file; an empty one counts as one byte."""
        return float(self.workflow.sizes.get(name, 0) or 1)

    def transfer(self, job: _Job, vm: int) -> float:
        """Seconds that bringing a job's inputs to a VM takes; LOCAL leaves replicas there."""
        seconds = 0.0
        for name in self.inputs(job):
            if self.storage == "SHARED":
                seconds += self.bytes(name) / _MILLION / SHARED_RATE
            elif vm not in self.replicas.setdefault(name, set()):
                seconds += self.bytes(name) / _MILLION / LOCAL_RATE
                self.replicas[name].add(vm)
        return seconds


_DATACENTER, _ENGINE, _SCHEDULER = range(3)


class _Events:
    """The messages between the three entities, in the order in which CloudSim delivers them.

    All that is due at one time is delivered, then each entity works through its own; what is sent for the same time is
    delivered in the next round.
    """

    def __init__(self, sim: WorkflowSim, place: WorkflowSimPolicy) -> None:
        self._sim, self._place = sim, place
        self._center = _Datacenter(sim)
        self._jobs = [_Job(n, int(max(1000.0 * task.runtime, 100.0))) for n, task in enumerate(sim.workflow.tasks)]
        self._stage_in = _Job(_STAGE_IN, _STAGE_IN_LENGTH)
        self._received: set[int] = set()
        self._submitted: set[int] = set()
        self._queue: list[_Job] = []
        self._count = itertools.count()
        self._waiting: list[tuple[float, int, int, Callable[[], None]]] = []

    def run(self) -> list[_Job]:
        """Deliver messages until none is due; returns the jobs as they ended."""
        sim = self._sim
        sim.now = _START
        self._send(_ENGINE, self._submit)
        while self._waiting:
            sim.now = self._waiting[0][0]
            due = []
            while self._waiting and self._waiting[0][0] == sim.now:
                due.append(heapq.heappop(self._waiting))
            for entity in (_DATACENTER, _ENGINE, _SCHEDULER):
                for _, _, whose, act in due:
                    if whose == entity:
                        act()
        return self._jobs

    def _send(self, entity: int, act: Callable[[], None], delay: float = 0.0) -> None:
        heapq.heappush(self._waiting, (self._sim.now + delay, next(self._count), entity, act))

    def _submit(self) -> None:
        """Engine: hand over all jobs whose parents have been received."""
        parents, received = self._sim.workflow.parents, self._received
        ready = [self._stage_in] if _STAGE_IN not in self._submitted else []
        if _STAGE_IN in received:
            fresh = (job for job in self._jobs if job.number not in self._submitted)
            ready = [job for job in fresh if received.issuperset(parents[job.number])]
        self._submitted.update(job.number for job in ready)
        if ready:
            self._send(_SCHEDULER, partial(self._batch, ready))

    def _receive(self, job: _Job) -> None:
        """Engine: a job has come back."""
        self._received.add(job.number)
        if len(self._submitted) <= len(self._jobs):
            self._send(_ENGINE, self._submit)

    def _batch(self, ready: list[_Job]) -> None:
        """Scheduler: new jobs."""
        self._queue.extend(ready)
        self._send(_SCHEDULER, self._update)

    def _return(self, job: _Job) -> None:
        """Scheduler: a job has ended."""
        self._sim.busy[job.vm] = False
        self._send(_ENGINE, partial(self._receive, job))
        self._send(_SCHEDULER, self._update)

    def _update(self) -> None:
        """Scheduler: place what can be placed."""
        for job, vm in self._place(self._sim, self._queue):
            self._sim.busy[vm] = True
            self._queue.remove(job)
            job.vm = vm
            self._send(_DATACENTER, partial(self._start, job))

    def _tick(self) -> None:
        """Datacenter: look at what runs, and report what has ended."""
        self._look()
        self._report()

    def _start(self, job: _Job) -> None:
        """Datacenter: a job begins."""
        self._look()
        self._send(_DATACENTER, self._tick, self._center.take(job))
        self._report()

    def _look(self) -> None:
        following = self._center.progress()
        if following is not None:
            self._send(_DATACENTER, self._tick, following - self._sim.now)

    def _report(self) -> None:
        for job in self._center.finished():
            self._send(_SCHEDULER, partial(self._return, job))


class _Datacenter:
    """The datacenter: work done on each VM, looked at in steps."""

    def __init__(self, sim: WorkflowSim) -> None:
        self._sim = sim
        self._on: dict[int, _Job] = {}
        self._last = 0.0
        self._ended: list[_Job] = []

    def progress(self) -> float | None:
        """Account for the work since the last look; the time of the next look, if there is to be one."""
        sim = self._sim
        now = sim.now
        if not (now < _EARLY or now > self._last + _PAUSE):
            return None
        following = float("inf")
        for vm in sorted(self._on):
            job, mips = self._on[vm], sim.vms[vm].mips
            job.done += int(mips * (now - self._last) * _MILLION)
            remaining = max(0, (job.total * _MILLION - job.done) // _MILLION)
            if remaining == 0:
                job.end = now
                self._ended.append(job)
                del self._on[vm]
                continue
            following = min(following, max(now + remaining / mips, now + _STEP))
        self._last = now
        if following == float("inf"):
            return None
        return max(following, now + _LOOK)

    def take(self, job: _Job) -> float:
        """Start a job on its VM; its nominal duration in seconds."""
        sim = self._sim
        mips = sim.vms[job.vm].mips
        job.total = int(job.length + mips * sim.transfer(job, job.vm))
        job.start = sim.now
        self._on[job.vm] = job
        return job.total / mips

    def finished(self) -> list[_Job]:
        """The jobs that have ended since this was last asked."""
        ended, self._ended = self._ended, []
        if self._sim.storage == "LOCAL":
            for job in ended:
                for name in () if job.number == _STAGE_IN else self._sim.workflow.tasks[job.number].outputs:
                    self._sim.replicas.setdefault(name, set()).add(job.vm)
        return ended


def _by_order(sim: WorkflowSim, queue: Sequence[_Job]) -> list[tuple[_Job, int]]:
    return list(zip(queue, sim.idle(), strict=False))


def _fastest_first(sim: WorkflowSim, queue: Sequence[_Job]) -> list[tuple[_Job, int]]:
    idle = sorted(sim.idle(), key=lambda vm: (-sim.vms[vm].mips * sim.vms[vm].cores, vm))
    return list(zip(queue, idle, strict=False))


def _round_robin(sim: WorkflowSim, queue: Sequence[_Job]) -> list[tuple[_Job, int]]:
    return _by_order(sim, sorted(queue, key=lambda job: job.number))


def _shortest(sim: WorkflowSim, queue: Sequence[_Job]) -> list[tuple[_Job, int]]:
    return _fastest_first(sim, sorted(queue, key=sim.length))


def _longest(sim: WorkflowSim, queue: Sequence[_Job]) -> list[tuple[_Job, int]]:
    return _fastest_first(sim, sorted(queue, key=lambda job: -sim.length(job)))


def _data_aware(sim: WorkflowSim, queue: Sequence[_Job]) -> list[tuple[_Job, int]]:
    if sim.storage == "SHARED":
        return _by_order(sim, queue)
    placed = []
    idle = sim.idle()
    for job in queue:
        if not idle:
            break

        def missing(vm: int, job: _Job = job) -> float:
            return sum(sim.bytes(name) for name in sim.inputs(job) if vm not in sim.replicas.get(name, ()))

        vm = min(idle, key=lambda each: (missing(each), each))
        idle.remove(vm)
        placed.append((job, vm))
    return placed


def _static(sim: WorkflowSim, queue: Sequence[_Job]) -> list[tuple[_Job, int]]:
    assert sim.plan is not None
    placed, idle = [], set(sim.idle())
    for job in queue:
        vm = 0 if job.number == _STAGE_IN else sim.plan[job.number]
        if vm in idle:
            idle.remove(vm)
            placed.append((job, vm))
    return placed


POLICIES: dict[str, WorkflowSimPolicy] = {
    "FCFS": _by_order,
    "ROUNDROBIN": _round_robin,
    "MINMIN": _shortest,
    "MAXMIN": _longest,
    "MCT": _fastest_first,
    "DATA": _data_aware,
}
"""WorkflowSim's policies by their names there; none is the textbook's algorithm of that name."""


Busy = list[tuple[float, float]]
"""Busy times of a VM in the order in which WorkflowSim keeps them, which is not always that of time."""


class HasMips(Protocol):
    """A VM, as far as HEFT looks at it."""

    @property
    def mips(self) -> float:
        """Speed of one core."""


def heft(flow: Workflow, vms: Sequence[HasMips]) -> list[int]:
    """Make WorkflowSim's HEFT plan, the VM of each task; equal ranks in the order of the file.

    It knows no shared file system, and fixes VMs, not the order on them.
    """
    lengths = [int(max(1000.0 * task.runtime, 100.0)) for task in flow.tasks]
    costs = [[length / vm.mips for vm in vms] for length in lengths]
    sending = _sending(flow)
    ranks = [0.0] * len(flow)
    for task in map(int, flow.order[::-1]):
        below = (sending[task, child] + ranks[child] for child in flow.children[task])
        ranks[task] = sum(costs[task]) / len(vms) + max(below, default=0.0)
    plan, ends = [0] * len(flow), [0.0] * len(flow)
    busy: list[Busy] = [[] for _ in vms]
    # Equal ranks of a parent and its child occur where a task is so short that adding it changes nothing.
    for task in sorted(range(len(flow)), key=lambda each: (-ranks[each], int(flow.places[each]))):
        best, least, ready = 0, float("inf"), 0.0
        for vm in range(len(vms)):
            arrivals = (ends[p] + (sending[p, task] if plan[p] != vm else 0.0) for p in flow.parents[task])
            arrival = max(arrivals, default=0.0)
            _, start = _slot(busy[vm], arrival, costs[task][vm])
            if start + costs[task][vm] < least:
                best, least, ready = vm, start + costs[task][vm], arrival
        place, start = _slot(busy[best], ready, costs[task][best])
        busy[best].insert(place, (start, start + costs[task][best]))
        plan[task], ends[task] = best, least
    return plan


def _sending(flow: Workflow) -> dict[tuple[int, int], float]:
    """Seconds that files need from each task to each of its children, bytes over Mbit/s."""
    found = {}
    for task, children in enumerate(flow.children):
        for child in children:
            wanted = frozenset(flow.tasks[child].inputs)
            size = sum(flow.sizes.get(name, 0) or 1 for name in flow.tasks[task].outputs if name in wanted)
            found[task, child] = size / 1_000_000 * 8.0 / HEFT_RATE
    return found


def _slot(busy: Busy, ready: float, cost: float) -> tuple[int, float]:
    """Find the index in the list of a VM that a task would get, and its start; the list may end up unsorted."""
    if not busy:
        return 0, ready
    if len(busy) == 1:
        if ready >= busy[0][1]:
            return 1, ready
        return (0, ready) if ready + cost <= busy[0][0] else (1, busy[0][1])
    place, start = len(busy), max(ready, busy[-1][1])
    for at in range(len(busy) - 1, 0, -1):
        if ready > busy[at - 1][1]:
            if ready + cost <= busy[at][0]:
                start = ready  # and its place stays at the end of the list: the fault
            break
        if busy[at - 1][1] + cost <= busy[at][0]:
            place, start = at, busy[at - 1][1]
    if ready + cost <= busy[0][0]:
        return 0, ready
    return place, start


def dheft(flow: Workflow, vms: Sequence[WorkflowSimVm]) -> list[int]:
    """WorkflowSim's DHEFT plan: the VM of each task.

    Its transfer times are bytes over MB/s, a million times too long; the plan fixes VMs, not the order on them.
    """
    plan = [-1] * len(flow)
    finish = [0.0] * len(flow)
    available = [0.0] * len(vms)
    lengths = [int(max(1000.0 * task.runtime, 100.0)) for task in flow.tasks]
    outputs = [frozenset(task.outputs) for task in flow.tasks]
    while any(vm < 0 for vm in plan):
        wave = [n for n in range(len(flow)) if plan[n] < 0 and all(plan[parent] >= 0 for parent in flow.parents[n])]
        for n in wave:
            arrivals = [
                finish[parent]
                + sum(int(flow.sizes.get(f, 0) or 1) for f in flow.tasks[n].inputs if f in outputs[parent]) / LOCAL_RATE
                for parent in flow.parents[n]
            ]
            best, least = 0, float("inf")
            for vm, machine in enumerate(vms):
                end = max([available[vm], *arrivals]) + lengths[n] / machine.mips
                if end < least:
                    best, least = vm, end
            plan[n], finish[n], available[best] = best, least, least
    return plan
