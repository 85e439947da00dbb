"""Assignment of runs to the tasks of a Ray cluster, and why a run waits for a node; no input or output.

The run that a task carries out is chosen when the task begins: the one that has waited longest of those with its
resources. When that has ended the task takes the next one, and if there is none it keeps its resources for a moment:
whoever asked for the run that has ended soon knows what is next, sooner than Ray's scheduler hears of free resources,
which nodes report every tenth of a second. It leaves when what has waited longest wants other resources, and after some
seconds in any case: others use the cluster, too, and only Ray knows of them.

Like `tradewind.deployer.runner.ray.node_executor` this module is sent to the cluster by value.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Mapping, Sequence

TASK_REUSE_SECONDS = 10.0
"""Seconds after its beginning in which a task takes further runs."""


class RayTask:
    """A Ray task that carries out runs, one after the other.

    Attributes:
        kind: The resources that it has, or waits for, as JSON.
        run: The run that it carries out, or None.
        unwanted: True when it gets no run any more.
        spare: True while it has no run and keeps its resources for the next one.
        until: The time of the monotonic clock until which it takes further runs.
    """

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.run: str | None = None
        self.unwanted = False
        self.spare = False
        self.until = 0.0


class TaskAssignment:
    """Assigns runs to tasks, given when both come and go.

    Of each kind of resources at least as many tasks are on their way as runs wait. Where a task takes a second run, the
    one that was started for that run takes another one, or finds nothing and ends.

    Attributes:
        runs: The number of the task of each run, by the run's name; None while it waits.
        tasks: The tasks, by number.
    """

    def __init__(self) -> None:
        self.runs: dict[str, int | None] = {}
        self.tasks: dict[int, RayTask] = {}
        self._waiting: defaultdict[str, deque[str]] = defaultdict(deque)  # by kind
        self._coming: defaultdict[str, list[int]] = defaultdict(list)  # tasks that have not begun, by kind
        self._turns: dict[str, int] = {}
        self._count = 0

    def add(self, run: str, kind: str) -> tuple[int | None, list[int]]:
        """Take a new run.

        Args:
            run: The run's name.
            kind: The resources that it must have, as JSON.

        Returns:
            The number of a task that is to be started for it, or None; and the numbers of tasks that need not keep
            their resources any longer.
        """
        self._count += 1
        spare = [number for number, task in self.tasks.items() if task.spare]
        mine = [number for number in spare if self.tasks[number].kind == kind][:1]
        for number in mine or spare:  # one of another kind may have the resources that this run needs
            self.tasks[number].spare = False
        if mine:
            self._give(mine[0], run)
            return None, mine
        self.runs[run] = None
        self._turns[run] = self._count
        self._waiting[kind].append(run)
        if len(self._coming[kind]) >= len(self._waiting[kind]):
            return None, spare
        self.tasks[self._count] = RayTask(kind)
        self._coming[kind].append(self._count)
        return self._count, spare

    def begin(self, number: int, now: float) -> str | None:
        """Give a task that begins its run; None where it shall end."""
        task = self.tasks[number]
        task.until = now + TASK_REUSE_SECONDS
        if task.unwanted:
            return None
        self._coming[task.kind].remove(number)
        return self._give(number, self._first(task.kind)) if self._waiting[task.kind] else None

    def follow(self, number: int, now: float) -> str | None:
        """Give a task whose run has ended the next one, or None; the task may be `RayTask.spare` then."""
        task = self.tasks[number]
        task.run = None
        if now > task.until:
            return None
        fronts = [(self._turns[names[0]], kind) for kind, names in self._waiting.items() if names]
        if not fronts:
            task.spare = True
            return None
        return self._give(number, self._first(task.kind)) if min(fronts)[1] == task.kind else None

    def leave(self, number: int) -> str | None:
        """Remove a task that has ended, however it did; the run that is lost with it, or None."""
        task = self.tasks.pop(number)
        task.spare = False
        coming, waiting = self._coming[task.kind], self._waiting[task.kind]
        if number not in coming:
            return task.run
        coming.remove(number)  # it never began
        return waiting[-1] if len(coming) < len(waiting) else None

    def end(self, run: str) -> bool:
        """Remove a run that is over, or lost; False when it was removed before."""
        if run not in self.runs:
            return False
        if self.runs.pop(run) is None:
            next(names for names in self._waiting.values() if run in names).remove(run)
        self._turns.pop(run, None)
        return True

    def spare_task(self, kind: str) -> int | None:
        """Pick a task that has not begun and that no waiting run needs; it gets no run any more. None without one."""
        coming = self._coming[kind]
        if len(coming) <= len(self._waiting[kind]):
            return None
        number = coming.pop()
        self.tasks[number].unwanted = True
        return number

    def _first(self, kind: str) -> str:
        return self._waiting[kind].popleft()

    def _give(self, number: int, run: str) -> str:
        self.runs[run] = number
        self.tasks[number].run = run
        return run


def fitting_nodes(wanted: Mapping[str, float], nodes: Sequence[Mapping[str, float]]) -> int:
    """Count the nodes that would be large enough for a run if they were free.

    Args:
        wanted: The amounts that the run asks for on each of its nodes, by Ray's names.
        nodes: The total amounts of each node, by Ray's names.
    """
    return sum(all(node.get(name, 0) >= amount for name, amount in wanted.items()) for node in nodes)


def shortage(wanted: Mapping[str, float], count: int, nodes: Sequence[Mapping[str, float]]) -> str:
    """A sentence that says of which resources the nodes have too little for a run.

    Args:
        wanted: The amounts that the run asks for on each of its nodes, by Ray's names.
        count: How many nodes it needs.
        nodes: The total amounts of each node, by Ray's names.
    """
    most = {name: max((node.get(name, 0) for node in nodes), default=0) for name in wanted}
    return (
        f"nodes with {_words(wanted)}: {fitting_nodes(wanted, nodes)} of the {count} needed; "
        f"the most that one has: {_words(most)}"
    )


def why_waits(wanted: Mapping[str, float], count: int, nodes: Sequence[Mapping[str, float]]) -> str:
    """A sentence that says why a run has no node: there is none, or not as many, or others use them.

    Args:
        wanted: The amounts that the run asks for on each of its nodes, by Ray's names.
        count: How many nodes it needs.
        nodes: The total amounts of each node, by Ray's names.
    """
    if not wanted:
        return ""
    if fitting_nodes(wanted, nodes) < count:
        return shortage(wanted, count, nodes)
    return f"{_words(wanted)}{f' on each of {count} nodes' if count > 1 else ''}: taken by others for now"


def _words(amounts: Mapping[str, float]) -> str:
    return ", ".join(f"{name} {_amount(name, amount)}" for name, amount in amounts.items())


def _amount(name: str, amount: float) -> str:
    return f"{amount / 2**30:.3g} GiB" if name in ("memory", "object_store_memory") else f"{amount:g}"
