"""The state machine of a plan that is carried out: events in, instructions out, no input and output.

`ExecutionMachine.handle` is the only method that changes anything. Whoever carries out its instructions does so in
order, and feeds back what happens as further events.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from tradewind.errors import WorkflowError
from tradewind.workflow.execution.events import (
    Arm,
    ArmedTaskBegun,
    AttemptEnded,
    AttemptOutcome,
    ExecutionEnding,
    ExecutionEvent,
    ExecutionInstruction,
    ExecutionInterrupted,
    ExecutionOpened,
    Finish,
    GiveBack,
    GuideReady,
    MachineLost,
    MachineSilent,
    MachineUp,
    OrderPlanned,
    PlanFailed,
    Recall,
    Replan,
    TaskLaunch,
    VmDue,
)
from tradewind.workflow.execution.task_states import (
    ABSENT,
    ArmedTask,
    ExecutionGraph,
    RetryLimits,
    TaskState,
    VmState,
    awaited_tasks,
)

if TYPE_CHECKING:
    from tradewind.workflow.execution.replanning import OnlineGuide


class ExecutionState:
    """State of every task and every machine of a plan; it keeps accounts, and decides nothing.

    Args:
        graph: The workflow and its machines.
        order: The tasks of each machine, in the plan's order.

    Attributes:
        task_states: State of each task.
        vm_states: State of each machine.
        attempts: Number of starts of each task.
        places: The machine and the attempt of each task that runs.
        armed: By machine, the task that it begins by itself; nothing else is started there meanwhile.
    """

    def __init__(self, graph: ExecutionGraph, order: Mapping[int, Sequence[int]]) -> None:
        self.graph = graph
        self.task_states = [TaskState.WAITING] * len(graph.parents)
        self.vm_states = [VmState.COMING] * len(graph.slots)
        self.attempts = [0] * len(graph.parents)
        self.places: dict[int, tuple[int, int]] = {}
        self.armed: dict[int, ArmedTask] = {}
        self._queues = [deque(order.get(vm, ())) for vm in range(len(graph.slots))]
        self._free = list(graph.slots)
        self._spare = [list(room) for room in graph.rooms] or [[] for _ in graph.slots]
        self._running: list[set[int]] = [set() for _ in graph.slots]
        self._children: list[list[int]] = [[] for _ in graph.parents]
        for task, parents in enumerate(graph.parents):
            for parent in parents:
                self._children[parent].append(task)
        self._unmet = [len(parents) for parents in graph.parents]
        self._ready = {task: None for task, count in enumerate(self._unmet) if not count}  # as they became ready
        self._left = len(graph.parents)

    @property
    def left(self) -> tuple[int, ...]:
        """The tasks that wait for their turn."""
        return tuple(task for task, step in enumerate(self.task_states) if step is TaskState.WAITING)

    @property
    def vms(self) -> tuple[int, ...]:
        """The machines that are not lost; one that was given back can be asked for again."""
        return tuple(vm for vm, there in enumerate(self.vm_states) if there is not VmState.LOST)

    def _room(self, task: int, vm: int) -> bool:
        """True when a machine has the free slots and all else for a task."""
        enough = all(there >= takes for there, takes in zip(self._spare[vm], self.graph.needs(task), strict=True))
        return self._free[vm] >= self.graph.cores[task] and enough

    def _in_turn(self, tasks: Iterable[int]) -> list[int]:
        """Ready tasks, those of the highest priority first, then in the order in which they became ready."""
        priorities = self.graph.priorities
        return sorted(tasks, key=lambda task: -priorities[task]) if priorities else list(tasks)

    def _use(self, task: int, vm: int, times: int) -> None:
        """Take what a task uses of a machine; -1 times gives it back."""
        self._free[vm] -= times * self.graph.cores[task]
        for place, takes in enumerate(self.graph.needs(task)):
            self._spare[vm][place] -= times * takes

    def _place(self, task: int, vm: int, attempt: int) -> None:
        """Note that a task runs on a machine."""
        self.task_states[task] = TaskState.RUNNING
        self.places[task] = (vm, attempt)
        self._running[vm].add(task)
        self._use(task, vm, 1)
        self._ready.pop(task, None)

    def _release(self, task: int) -> None:
        """Note that a task runs no longer."""
        vm, _ = self.places.pop(task)
        self._running[vm].discard(task)
        self._use(task, vm, -1)
        self.task_states[task] = TaskState.WAITING
        self._ready[task] = None

    def _complete(self, task: int) -> None:
        """Note that a task has ended well."""
        self.task_states[task] = TaskState.DONE
        self._left -= 1
        self._ready.pop(task, None)
        for child in self._children[task]:
            self._unmet[child] -= 1
            if not self._unmet[child] and self.task_states[child] is TaskState.WAITING:
                self._ready[child] = None

    def _block(self, task: int) -> None:
        """Leave out all that needs a task which has failed for good."""
        self.task_states[task] = TaskState.FAILED
        self._ready.pop(task, None)
        self._left -= 1
        found = [task]
        while found:
            for child in self._children[found.pop()]:
                if self.task_states[child] is TaskState.WAITING:
                    self.task_states[child] = TaskState.BLOCKED
                    self._left -= 1
                    found.append(child)

    def _withdraw(self, vm: int) -> None:
        """Put what is armed back to the front of its queue; it counts as no failure and no loss."""
        armed = self.armed.pop(vm, None)
        if armed is not None:
            self.task_states[armed.task] = TaskState.WAITING
            self._queues[vm].appendleft(armed.task)
            if not self._unmet[armed.task]:
                self._ready[armed.task] = None

    def _idle(self, vm: int) -> bool:
        """True when nothing runs on a machine, and nothing is to run there any more by the order."""
        queue = self._queues[vm]
        while queue and self.task_states[queue[0]] is not TaskState.WAITING:
            queue.popleft()
        return not (queue or self._running[vm] or vm in self.armed)


class ExecutionMachine(ExecutionState):
    """The state machine of a plan that is carried out: events in, instructions out.

    Each machine starts its tasks in the order of the plan: a task begins when all before it on its machine have begun,
    its parents have ended, and enough is free. Where all that the next one waits for runs on its machine, it is
    armed: given to the machine beforehand. With a guide there is no order: it is asked for a task and its machine
    whenever something has happened.

    Args:
        graph: The workflow and its machines.
        order: The tasks of each machine, in the plan's order.
        retry_limits: Limits of repeated attempts.
        guide: Decides during the run; None to follow the order.
        give_back: True to give a machine back when the order has nothing more for it. One that is needed after all,
            because another one was lost or a task failed, is asked for again. With a guide all stay until the end.

    Attributes:
        ending: Reason that it is over, or None.
    """

    def __init__(
        self,
        graph: ExecutionGraph,
        order: Mapping[int, Sequence[int]],
        retry_limits: RetryLimits,
        guide: OnlineGuide | None = None,
        *,
        give_back: bool = False,
    ) -> None:
        super().__init__(graph, order)
        self.retry_limits = retry_limits
        self.ending: ExecutionEnding | None = None
        self._guide = guide
        self._gives_back = give_back
        self._failures = [0] * len(graph.parents)
        self._losses = [0] * len(graph.parents)
        self._moved: dict[int, int] = {}  # tasks that are tried once more, on a machine that they have not failed on
        self._planning = False
        self._stuck = False

    # ------------------------------------------------------------------ the one method that changes anything

    def handle(self, event: ExecutionEvent) -> list[ExecutionInstruction]:
        """Take one event, and decide what follows from it.

        Args:
            event: The event.

        Returns:
            The instructions to carry out, in this order.
        """
        if self.ending is not None:
            return []
        out: list[ExecutionInstruction] = []
        match event:
            case ExecutionOpened():
                self._open(event)
                if event.replan:
                    out += self._replan()
            case VmDue(vm):
                if self.vm_states[vm] is VmState.LATER and not self._idle(vm):
                    out += self._recall(vm)
            case MachineUp(vm):
                if self.vm_states[vm] is VmState.COMING:
                    self.vm_states[vm] = VmState.UP
            case MachineSilent(vm):
                if self.vm_states[vm] is VmState.UP:
                    self.vm_states[vm] = VmState.COMING
            case MachineLost(vm):
                out += self._lose(vm)
            case AttemptEnded():
                out += self._end(event)
            case OrderPlanned(order):
                out += self._take(order)
            case GuideReady(guide):
                self._planning, self._guide = False, guide
                # What has been lost since somebody new was asked for, he does not know of.
                out += [] if set(guide.vms) <= set(self.vms) else self._replan()
            case PlanFailed():
                self._planning = False
                return self._finish(ExecutionEnding.IMPOSSIBLE)
            case ExecutionInterrupted():
                return self._finish(ExecutionEnding.INTERRUPTED)
        return out + self._advance()

    def _finish(self, ending: ExecutionEnding) -> list[ExecutionInstruction]:
        self.ending = ending
        return [Finish(ending)]

    def _open(self, event: ExecutionOpened) -> None:
        for vm in event.later:
            self.vm_states[vm] = VmState.LATER
        for task, count in event.attempts.items():
            self.attempts[task] = count
        for task in event.finished:
            self._complete(task)
        for task, (vm, attempt) in event.running.items():
            self._place(task, vm, attempt)
        for vm, armed in event.armed.items():
            for queue in self._queues:
                if armed.task in queue:
                    queue.remove(armed.task)
            self._hold(armed, vm)

    # ------------------------------------------------------------------ ends, failures and losses

    def _end(self, event: AttemptEnded) -> list[ExecutionInstruction]:
        place = self.places.get(event.task)
        if place is None or place[1] != event.attempt:
            return []  # an attempt that was given up
        vm, task = place[0], event.task
        self._release(task)
        begun = self._pull(vm, task, well=event.outcome is AttemptOutcome.DONE)
        if self._guide is not None:
            self._guide.ended(task, vm, failed=event.outcome is not AttemptOutcome.DONE)
        if event.outcome is AttemptOutcome.DONE:
            self._complete(task)
            return begun
        if event.outcome is AttemptOutcome.LOST:
            return self._lost(task, vm)
        self._failures[task] += 1
        if self._failures[task] > self.retry_limits.retries:
            return self._give_up(task)
        last = self._failures[task] == self.retry_limits.retries
        vm = self._other(task, vm) if last else vm
        if last:
            self._moved[task] = vm
        self._queues[vm].appendleft(task)
        return self._recall(vm)

    def _other(self, task: int, vm: int) -> int:
        """The machine with the shortest queue on which a task fits and has not just failed; that one, if none other.

        One that is there comes before one that would have to be asked for.
        """
        others = [
            (self.vm_states[other] in ABSENT, len(self._queues[other]), other)
            for other in self.vms
            if other != vm and self.vm_states[other] is not VmState.COMING
            if self.graph.fit(task, other)
        ]
        return min(others)[2] if others else vm

    def _lost(self, task: int, vm: int) -> list[ExecutionInstruction]:
        """Run a task again that lost its machine, or was lost on it; not for ever."""
        self._losses[task] += 1
        if self._losses[task] > self.retry_limits.losses:
            return self._give_up(task)
        if self.vm_states[vm] is not VmState.LOST:
            self._queues[vm].appendleft(task)
        return []

    def _give_up(self, task: int) -> list[ExecutionInstruction]:
        """Leave out all that needs a task which failed for good, and have the rest planned anew."""
        self._block(task)
        return self._replan()

    def _lose(self, vm: int) -> list[ExecutionInstruction]:
        if self.vm_states[vm] is VmState.LOST or self.vm_states[vm] in ABSENT:
            return []
        self.vm_states[vm] = VmState.LOST
        self._withdraw(vm)
        orphans = any(self.task_states[task] is TaskState.WAITING for task in self._queues[vm])
        self._queues[vm].clear()
        out: list[ExecutionInstruction] = []
        for task, (where, _) in sorted(self.places.items()):
            if where == vm:
                orphans = True
                self._release(task)
                if self._guide is not None:
                    self._guide.ended(task, vm, failed=True)
                out += self._lost(task, vm)
        orphans = orphans or self._guide is not None  # who decides must know of every machine
        return out or (self._replan() if orphans else [])

    # ------------------------------------------------------------------ what a machine begins by itself

    def _arm(self, task: int, vm: int) -> list[ExecutionInstruction]:
        """Give the next task to its machine beforehand, if it is certain what it waits for."""
        running = self._running[vm]
        if vm in self.armed or self._planning or task in self._moved or self._unmet[task] > len(running):
            return []
        missing = [parent for parent in self.graph.parents[task] if self.task_states[parent] is not TaskState.DONE]
        after = awaited_tasks(self.graph, task, missing, running, self._free[vm], self._spare[vm])
        if after is None:
            return []
        self.attempts[task] += 1
        self._queues[vm].popleft()
        self._hold(ArmedTask(task, self.attempts[task], frozenset(after)), vm)
        return [Arm(task, vm, self.attempts[task], after)]

    def _hold(self, armed: ArmedTask, vm: int) -> None:
        self.armed[vm] = armed
        self.task_states[armed.task] = TaskState.ARMED
        self._ready.pop(armed.task, None)

    def _pull(self, vm: int, ended: int, *, well: bool) -> list[ExecutionInstruction]:
        """Settle what is armed on a machine after the end of a task there: it has begun, or is not armed any more."""
        armed = self.armed.get(vm)
        if armed is None or ended not in armed.after:
            return []
        if not well:  # the machine has forgotten it, so that this attempt has not been
            self._withdraw(vm)
            self.attempts[armed.task] -= 1
            return []
        if left := armed.after - {ended}:
            self.armed[vm] = replace(armed, after=left)
            return []
        del self.armed[vm]
        self._place(armed.task, vm, armed.attempt)
        return [ArmedTaskBegun(armed.task, vm, armed.attempt)]

    # ------------------------------------------------------------------ plans of what is left

    def _replan(self) -> list[ExecutionInstruction]:
        tasks, vms = self.left, self.vms
        if self._guide is not None:
            tasks = tuple(sorted({*tasks, *self.places}))
        if self._planning or not tasks or not vms:
            return []
        self._planning = True
        return [Replan(tasks, vms)]

    def _take(self, order: Mapping[int, Sequence[int]]) -> list[ExecutionInstruction]:
        self._planning = False
        placed: set[int] = set()
        moved = {
            task: vm
            for task, vm in self._moved.items()
            if self.task_states[task] is TaskState.WAITING and self.vm_states[vm] is not VmState.LOST
        }
        for vm, queue in enumerate(self._queues):
            queue.clear()
            if self.vm_states[vm] is VmState.LOST:
                continue
            queue.extend(
                task for task in order.get(vm, ()) if self.task_states[task] is TaskState.WAITING and task not in moved
            )
            queue.extendleft(task for task, where in moved.items() if where == vm)
            placed.update(queue)
        needed = [each for vm, queue in enumerate(self._queues) if queue for each in self._recall(vm)]
        # What has lost its machine since the plan was asked for is not in it.
        return needed + ([] if placed.issuperset(self.left) else self._replan())

    # ------------------------------------------------------------------ what can be started

    def _advance(self) -> list[ExecutionInstruction]:
        out = self._follow() if self._guide is None else self._ask(self._guide)
        if out:
            self._stuck = False
        elif not self.places and not self._planning:
            out = self._conclude()
            return out if self.ending is not None else out + self._give_back()
        return out + self._give_back()

    def _ask(self, guide: OnlineGuide) -> list[ExecutionInstruction]:
        """Start what the guide decides, after what is tried for the last time on a machine of its own."""
        out: list[ExecutionInstruction] = []
        up = [there is VmState.UP for there in self.vm_states]
        pinned = {task: vm for task, vm in self._moved.items() if task in self._ready and up[vm]}
        for task, vm in pinned.items():
            if self._room(task, vm):
                out.append(self._launch(task, vm))
        while ready := self._in_turn(task for task in self._ready if task not in pinned):
            free = [count if there else 0 for count, there in zip(self._free, up, strict=True)]
            picked = guide.pick(ready, free, self._spare)
            if picked is None:
                break
            task, vm = picked
            if task not in self._ready or not (up[vm] and self._room(task, vm) and self.graph.fit(task, vm)):
                raise WorkflowError(f"who decides has placed task {task} on machine {vm}, which cannot start it now")
            out.append(self._launch(task, vm))
        return out

    def _follow(self) -> list[ExecutionInstruction]:
        """Start what is due by the order of each machine."""
        out: list[ExecutionInstruction] = []
        for vm, queue in enumerate(self._queues):
            if self.vm_states[vm] is VmState.LATER and self._awaited(vm):
                out += self._recall(vm)
            if self.vm_states[vm] is not VmState.UP or vm in self.armed:
                continue
            while queue:
                task = queue[0]
                if self.task_states[task] is TaskState.WAITING:
                    if self._unmet[task] or not self._room(task, vm):
                        out += self._arm(task, vm)
                        break
                    out.append(self._launch(task, vm))
                queue.popleft()
        return out

    def _awaited(self, vm: int) -> bool:
        """True when the first task of a machine could begin now: its parents have ended earlier than planned."""
        return not self._idle(vm) and bool(self.graph.parents[(task := self._queues[vm][0])]) and not self._unmet[task]

    def _give_back(self) -> list[ExecutionInstruction]:
        """Let go of the machines that the order has nothing more for."""
        if not self._gives_back or self._planning or self._guide is not None:
            return []
        idle = [
            vm for vm, there in enumerate(self.vm_states) if there in (VmState.UP, VmState.COMING) and self._idle(vm)
        ]
        for vm in idle:
            self.vm_states[vm] = VmState.BACK
        return [GiveBack(vm) for vm in idle]

    def _recall(self, vm: int) -> list[ExecutionInstruction]:
        """Ask for a machine that is not there, because it was given back or not asked for yet."""
        if self.vm_states[vm] not in ABSENT:
            return []
        self.vm_states[vm] = VmState.COMING
        return [Recall(vm)]

    def _launch(self, task: int, vm: int) -> TaskLaunch:
        self.attempts[task] += 1
        self._place(task, vm, self.attempts[task])
        return TaskLaunch(task, vm, self.attempts[task])

    def _conclude(self) -> list[ExecutionInstruction]:
        """Conclude where nothing runs and nothing can be started."""
        if not self._left:
            return self._finish(
                ExecutionEnding.FAILED if TaskState.FAILED in self.task_states else ExecutionEnding.DONE
            )
        if not self.vms:
            return self._finish(ExecutionEnding.MACHINES)
        coming = [vm for vm, there in enumerate(self.vm_states) if there is VmState.COMING]
        if coming and not (self._gives_back and self._guide is None and all(map(self._idle, coming))):
            return []  # those with nothing to do are given back instead
        if later := [vm for vm, there in enumerate(self.vm_states) if there is VmState.LATER and not self._idle(vm)]:
            return [each for vm in later for each in self._recall(vm)]  # nothing else is left to be done
        if self._stuck:
            return self._finish(ExecutionEnding.IMPOSSIBLE)
        # An order that somebody wrote by hand may wait for itself.
        self._stuck = True
        return self._replan()
