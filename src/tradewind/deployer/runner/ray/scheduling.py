"""Which task of a Ray cluster carries out which run, without input and output.

Which run a task carries out is decided when it begins: the one that has waited longest of those with its resources.
When that has ended the task takes the next one, and if there is none it keeps its place for a moment: whoever asked for
the run that has ended soon knows what is next, sooner than Ray's scheduler hears of a free place, which nodes report
every tenth of a second. It leaves when what has waited longest wants other resources, and after some seconds in any
case: others use the cluster, too, and only Ray knows of them.

Like `tradewind.deployer.runner.ray.node_executor` it is sent to the cluster by value.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Mapping, Sequence


def fitting_nodes(wanted: Mapping[str, float], nodes: Sequence[Mapping[str, float]]) -> int:
    """How many nodes are large enough, were they free.

    Args:
        wanted: What a run asks for on each of its nodes, by Ray's names.
        nodes: What the nodes have in all.
    """
    return sum(all(node.get(name, 0) >= amount for name, amount in wanted.items()) for node in nodes)


def shortage(wanted: Mapping[str, float], count: int, nodes: Sequence[Mapping[str, float]]) -> str:
    """What there is too little of for a run that needs so many nodes, in words.

    Args:
        wanted: What it asks for on each.
        count: How many nodes it needs.
        nodes: What the nodes have in all.
    """
    most = {name: max((node.get(name, 0) for node in nodes), default=0) for name in wanted}
    return (
        f"nodes with {_words(wanted)}: {fitting_nodes(wanted, nodes)} of the {count} needed; "
        f"the most that one has: {_words(most)}"
    )


def why_waits(wanted: Mapping[str, float], count: int, nodes: Sequence[Mapping[str, float]]) -> str:
    """Why a run has no node: there is none, or not as many, or they are taken.

    Args:
        wanted: What it asks for on each.
        count: How many nodes it needs.
        nodes: What the nodes have in all.
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


TASK_REUSE_SECONDS = 10.0
"""How long after its beginning a task takes further runs."""


class RayTask:
    """A task of Ray's that carries out runs.

    Attributes:
        kind: The resources that it has, or waits for.
        run: The run that it carries out, or None.
        unwanted: It gets no run.
        spare: It keeps its place for a run.
        until: Until when it takes further runs.
    """

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.run: str | None = None
        self.unwanted = False
        self.spare = False
        self.until = 0.0


class TaskAssignment:
    """The runs that wait or are carried out, and the tasks.

    Of each kind at least as many tasks are on their way as runs wait. Where a task takes a second run, the one that was
    started for that run takes another one, or finds nothing and ends.

    Attributes:
        runs: The task of each run by name, None while it waits.
        tasks: By number.
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
            run: Its name.
            kind: The resources that it must have.

        Returns:
            The number of a task that is to be started for it, or None; and tasks that need not keep their places.
        """
        self._count += 1
        spare = [number for number, task in self.tasks.items() if task.spare]
        mine = [number for number in spare if self.tasks[number].kind == kind][:1]
        for number in mine or spare:  # one of another kind may have the place that this run needs
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
        """A task begins: its run, or None where it shall end."""
        task = self.tasks[number]
        task.until = now + TASK_REUSE_SECONDS
        if task.unwanted:
            return None
        self._coming[task.kind].remove(number)
        return self._give(number, self._first(task.kind)) if self._waiting[task.kind] else None

    def follow(self, number: int, now: float) -> str | None:
        """The run that follows in a task whose last one has ended, or None; it may be `RayTask.spare` then."""
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
        """A task has ended, however it did: the run that is lost with it, or None."""
        task = self.tasks.pop(number)
        task.spare = False
        coming, waiting = self._coming[task.kind], self._waiting[task.kind]
        if number not in coming:
            return task.run
        coming.remove(number)  # it never began
        return waiting[-1] if len(coming) < len(waiting) else None

    def end(self, run: str) -> bool:
        """A run is over, or lost; False when it was already."""
        if run not in self.runs:
            return False
        if self.runs.pop(run) is None:
            next(names for names in self._waiting.values() if run in names).remove(run)
        self._turns.pop(run, None)
        return True

    def spare_task(self, kind: str) -> int | None:
        """A task that is on its way and has nothing to do any more, and gets no run from now on; None without one."""
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
