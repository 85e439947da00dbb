"""Optimal schedules of small workflows by constraint programming."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
from pydantic import Field

from tradewind import plugins
from tradewind.errors import MissingProgramError
from tradewind.utils.dependencies import install_command
from tradewind.workflow.bounds import lower_bound
from tradewind.workflow.graph import Indices, Numbers, Workflow
from tradewind.workflow.planner.base import Planner
from tradewind.workflow.planner.list_scheduling import MachineArrays, by_rank
from tradewind.workflow.platform import Platform
from tradewind.workflow.schedule import Schedule

if TYPE_CHECKING:
    from collections.abc import Sequence

_UNITS = 1_000_000
"""Whole units of time in HEFT's makespan: how finely time is divided."""

_MOST_UNITS = 2**40
"""Units of memory, or of another resource, that all tasks together may take in the model."""

_CLOSE = 1e-5
"""A plan is proven when it is no more than this share above what is proven to be impossible."""


class CpSatSettings(plugins.Settings):
    """Settings of CP-SAT."""

    seconds: float = Field(10.0, gt=0, description="Time that the solver may take")
    work: float | None = Field(
        None, gt=0, description="The solver's own measure of work instead of a time: the same plan on any machine"
    )
    workers: int = Field(1, ge=1, description="Threads of the solver; with several, equal plans are not promised")


def _no_package() -> MissingProgramError:
    return MissingProgramError(
        "the package ortools is not installed, which the planner cp_sat needs", hint=install_command("optimal")
    )


def _find_package() -> None:
    if not plugins.installed("ortools"):
        raise _no_package()


class CpSatPlanner(Planner):
    """CP-SAT: proves a schedule optimal, or the best it finds in its time; for up to about fifty tasks.

    Needs the extra ``optimal``. Machines that are alike are one resource of as many units as they have slots, so that
    no time is spent on telling them apart; where tasks of several cores would not fit together, each machine is its
    own, and so where memory can run out. Under local storage every task is given the time to fetch all its files, and
    the plan is tightened afterwards: that one is not proven. Perron and Furnon, OR-Tools,
    https://developers.google.com/optimization.

    Attributes:
        proven: True when no plan is shorter than the last one by more than a hundred-thousandth of it.
        bound: Seconds that no schedule can beat, as far as the last plan's search has shown; 0 under local storage.
    """

    Settings = CpSatSettings
    needs = (_find_package,)
    settings: CpSatSettings
    proven = False
    bound = 0.0

    def plan(self, flow: Workflow, platform: Platform) -> Schedule:
        """See `Planner.plan`.

        Raises:
            WorkflowError: A task fits on no machine.
            MissingProgramError: OR-Tools is not installed.
        """
        try:
            from ortools.sat.python import cp_model
        except ImportError:
            raise _no_package() from None
        machines = MachineArrays(flow, platform)
        first = machines.insert(by_rank(flow, machines.upward(machines.means)))
        self.proven, self.bound = False, 0.0
        if first.makespan <= 0:
            self.proven = platform.storage != "local"
            return first
        model = _Model(flow, platform, machines.longest(), first, cp_model)
        solver = cp_model.CpSolver()
        solver.parameters.max_time_in_seconds = self.settings.seconds
        if self.settings.work is not None:
            solver.parameters.max_time_in_seconds = math.inf
            solver.parameters.max_deterministic_time = self.settings.work
        solver.parameters.relative_gap_limit = _CLOSE
        # Without these, five tasks on two machines can take for ever where time is divided finely.
        solver.parameters.use_hard_precedences_in_cumulative = True
        solver.parameters.exploit_all_precedences = True
        solver.parameters.num_workers = self.settings.workers
        solver.parameters.random_seed = self.seed % 2**31
        status = solver.solve(model.model)
        if platform.storage != "local":
            self.proven = status == cp_model.OPTIMAL and model.exact
            # Lengths were rounded up: a path of all tasks is the most that this can have added.
            shown = solver.best_objective_bound * model.unit - len(flow) * model.unit
            self.bound = max(0.0, shown) if model.exact else 0.0
        self.said = "proven optimal" if self.proven else f"not proven optimal in {solver.wall_time:.1f} s"
        if not model.exact:
            self.said = "not proven optimal: amounts of memory this large are rounded"
        if status not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
            return first
        found = machines.follow(model.schedule(solver))
        return found if found.makespan <= first.makespan else first


class _Model:
    """The constraints of a workflow on classes of machines.

    Attributes:
        exact: False where amounts were rounded: up what tasks take, down what machines have. A plan is one all the
            same.
    """

    def __init__(self, flow: Workflow, platform: Platform, seconds: Numbers, first: Schedule, cp_model: Any) -> None:
        self.unit = first.makespan / _UNITS
        self.flow, self.platform = flow, platform
        self._seconds = seconds
        needs, rooms = ([[int(each) for each in column] for column in part.T] for part in platform.scarce(flow))
        # The solver multiplies amounts with times. Those that are too large for that are counted in larger units.
        self._units = [-(-sum(column) // _MOST_UNITS) for column in needs]
        self.exact = all(sum(column) <= _MOST_UNITS * math.gcd(*column) for column in needs)
        self._amounts, self._rooms = needs, rooms
        self.classes = _classes(flow, platform)
        self.model = model = cp_model.CpModel()
        horizon = _UNITS + 2 * len(flow)
        self._ends = [model.new_int_var(0, horizon, f"end{task}") for task in range(len(flow))]
        self._starts = [model.new_int_var(0, horizon, f"start{task}") for task in range(len(flow))]
        self._on: list[dict[int, Any]] = [{} for _ in range(len(flow))]
        for number, vms in enumerate(self.classes):
            self._add_class(number, vms, first)
        for task in range(len(flow)):
            model.add_exactly_one(self._on[task].values())
            for parent in flow.parents[task]:
                model.add(self._starts[task] >= self._ends[parent])
            model.add_hint(self._starts[task], round(first.start[task] / self.unit))
            model.add_hint(self._ends[task], round(first.finish[task] / self.unit))
        end = model.new_int_var(0, horizon, "makespan")
        for task, children in enumerate(flow.children):
            if not children:
                model.add(end >= self._ends[task])
        # What is known helps to prove: rounding up made no length shorter.
        model.add(end >= math.floor(lower_bound(flow, platform) / self.unit))
        model.minimize(end)

    def _add_class(self, number: int, vms: Sequence[int], first: Schedule) -> None:
        """The tasks that could run on a class: optional intervals that share its slots."""
        model, boot = self.model, math.ceil(self.platform.vms[vms[0]].boot_seconds / self.unit)
        intervals, demands, there_tasks = [], [], []
        for task in range(len(self.flow)):
            took = self._seconds[task, vms[0]]
            if not np.isfinite(took):
                continue
            there = model.new_bool_var(f"on{task}_{number}")
            self._on[task][number] = there
            length = max(1, math.ceil(took / self.unit))  # a task of no length needs a free slot too
            intervals.append(
                model.new_optional_interval_var(self._starts[task], length, self._ends[task], there, f"{task}_{number}")
            )
            demands.append(self.flow.tasks[task].cores)
            there_tasks.append(task)
            if boot:
                model.add(self._starts[task] >= boot).only_enforce_if(there)
            model.add_hint(there, int(first.vm[task]) in vms)
        model.add_cumulative(intervals, demands, sum(self.platform.vms[vm].slots for vm in vms))
        for column, rooms, larger in zip(self._amounts, self._rooms, self._units, strict=True):
            taken = [column[task] for task in there_tasks]
            if any(taken):
                unit = math.gcd(*taken) if self.exact else larger
                whole = [-(-amount // unit) for amount in taken]
                model.add_cumulative(intervals, whole, min(rooms[vms[0]], sum(taken)) // unit)

    def schedule(self, solver: Any) -> Schedule:
        """The solution, on machines: within a class, each task on the first one with enough free slots."""
        start = np.array([solver.value(each) for each in self._starts])
        finish = np.array([solver.value(each) for each in self._ends])
        vm = np.full(len(self.flow), -1, dtype=np.int32)
        sequence = Schedule(vm, start.astype(float), finish.astype(float)).sequence(self.flow)
        lanes: dict[int, list[int]] = {v: [0] * machine.slots for v, machine in enumerate(self.platform.vms)}
        for task in sequence:
            number = next(n for n, there in self._on[task].items() if solver.value(there))
            vm[task] = self._take(lanes, self.classes[number], int(task), start, finish)
        return Schedule(vm, start * self.unit, finish * self.unit)

    def _take(self, lanes: dict[int, list[int]], vms: Sequence[int], task: int, start: Indices, finish: Indices) -> int:
        for vm in vms:
            free = [lane for lane, until in enumerate(lanes[vm]) if until <= start[task]]
            if len(free) >= self.flow.tasks[task].cores:
                for lane in free[: self.flow.tasks[task].cores]:
                    lanes[vm][lane] = int(finish[task])
                return vm
        raise AssertionError("the solver placed more tasks on a class than it has slots")


def _classes(flow: Workflow, platform: Platform) -> tuple[tuple[int, ...], ...]:
    """Machines that are alike; each its own where what a task takes could be spread over two of them."""
    if not platform.tight(flow) and (flow.needs[0] == 1 or all(vm.slots == 1 for vm in platform.vms)):
        return platform.classes_for(flow)
    return tuple((vm,) for vms in platform.classes_for(flow) for vm in vms)
