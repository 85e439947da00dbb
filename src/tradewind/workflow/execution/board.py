"""Where every task and every machine of a plan that is carried out is: accounts only, nothing is decided here."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence

from tradewind.workflow.execution.arming import ArmedTask
from tradewind.workflow.execution.task_states import ExecutionGraph, TaskState, VmState


class ExecutionState:
    """Where every task and every machine is.

    Args:
        graph: The workflow and its machines.
        order: The tasks of each machine, in the plan's order.

    Attributes:
        steps: Where each task is.
        presence: Where each machine is.
        attempts: How often each task was started.
        places: The machine and the attempt of each task that runs.
        armed: By machine, the task that it begins by itself; nothing else is started there meanwhile.
    """

    def __init__(self, graph: ExecutionGraph, order: Mapping[int, Sequence[int]]) -> None:
        self.graph = graph
        self.steps = [TaskState.WAITING] * len(graph.parents)
        self.presence = [VmState.COMING] * len(graph.slots)
        self.attempts = [0] * len(graph.parents)
        self.places: dict[int, tuple[int, int]] = {}
        self.armed: dict[int, ArmedTask] = {}
        self._queues = [deque(order.get(vm, ())) for vm in range(len(graph.slots))]
        self._free = list(graph.slots)
        self._spare = [0] * len(graph.slots) if graph.rooms is None else list(graph.rooms)
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
        return tuple(task for task, step in enumerate(self.steps) if step is TaskState.WAITING)

    @property
    def vms(self) -> tuple[int, ...]:
        """The machines that are not lost; one that was given back can be asked for again."""
        return tuple(vm for vm, there in enumerate(self.presence) if there is not VmState.LOST)

    def _room(self, task: int, vm: int) -> bool:
        """Whether a machine has the free slots and the memory for a task."""
        return self._free[vm] >= self.graph.cores[task] and self._spare[vm] >= self.graph.needs(task)

    def _place(self, task: int, vm: int, attempt: int) -> None:
        """A task runs on a machine."""
        self.steps[task] = TaskState.RUNNING
        self.places[task] = (vm, attempt)
        self._running[vm].add(task)
        self._free[vm] -= self.graph.cores[task]
        self._spare[vm] -= self.graph.needs(task)
        self._ready.pop(task, None)

    def _release(self, task: int) -> None:
        """A task runs no longer."""
        vm, _ = self.places.pop(task)
        self._running[vm].discard(task)
        self._free[vm] += self.graph.cores[task]
        self._spare[vm] += self.graph.needs(task)
        self.steps[task] = TaskState.WAITING
        self._ready[task] = None

    def _complete(self, task: int) -> None:
        """A task has ended well."""
        self.steps[task] = TaskState.DONE
        self._left -= 1
        self._ready.pop(task, None)
        for child in self._children[task]:
            self._unmet[child] -= 1
            if not self._unmet[child] and self.steps[child] is TaskState.WAITING:
                self._ready[child] = None

    def _block(self, task: int) -> None:
        """A task has failed for good: all that needs it is left out."""
        self.steps[task] = TaskState.FAILED
        self._ready.pop(task, None)
        self._left -= 1
        found = [task]
        while found:
            for child in self._children[found.pop()]:
                if self.steps[child] is TaskState.WAITING:
                    self.steps[child] = TaskState.BLOCKED
                    self._left -= 1
                    found.append(child)

    def _withdraw(self, vm: int) -> None:
        """Put what is armed back to the front of its queue; it counts as no failure and no loss."""
        armed = self.armed.pop(vm, None)
        if armed is not None:
            self.steps[armed.task] = TaskState.WAITING
            self._queues[vm].appendleft(armed.task)
            if not self._unmet[armed.task]:
                self._ready[armed.task] = None

    def _idle(self, vm: int) -> bool:
        """Whether nothing runs on a machine, and nothing is to run there any more by the order."""
        queue = self._queues[vm]
        while queue and self.steps[queue[0]] is not TaskState.WAITING:
            queue.popleft()
        return not (queue or self._running[vm] or vm in self.armed)
