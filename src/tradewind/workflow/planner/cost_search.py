"""Plans for a deadline and a budget, by local search."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace

import numpy as np
from pydantic import Field

from tradewind.errors import NothingFeasibleError
from tradewind.plugins import Settings
from tradewind.problem.job_spec.values import PositiveDuration, PositiveMoney
from tradewind.utils.units import format_duration, format_money
from tradewind.workflow.bounds import lower_bound
from tradewind.workflow.graph import Numbers, Workflow
from tradewind.workflow.planner.base import Planner
from tradewind.workflow.planner.ic_pcp import critical_paths
from tradewind.workflow.planner.list_scheduling import MachineArrays, above_children, by_rank
from tradewind.workflow.platform import Platform
from tradewind.workflow.schedule import Schedule, figures

_CLOSE = 1e-9


class CostSearchSettings(Settings):
    """Settings of the search for money."""

    deadline: PositiveDuration | None = Field(None, description="Time within which the workflow has to end: 90m")
    budget: PositiveMoney | None = Field(None, description="USD, this run, that it may cost: $2")
    seconds: float = Field(2.0, gt=0, description="Processor time that it may take")
    turns: int | None = Field(None, ge=1, description="Changes to try instead of a time: the same plan on any machine")


@dataclass(frozen=True)
class _Genes:
    """Decisions from which a plan is made.

    Attributes:
        ranks: The priority of each task.
        used: True for each machine that may be used.
        pinned: The machine of each task, or -1 where it is chosen.
        thrift: Seconds of delay that a task takes to save one USD.
    """

    ranks: Numbers
    used: np.ndarray[tuple[int, ...], np.dtype[np.bool_]]
    pinned: np.ndarray[tuple[int, ...], np.dtype[np.int64]]
    thrift: float


class CostSearchPlanner(Planner):
    """Cost search: the cheapest plan that ends by a deadline, or the fastest that a budget pays for.

    With a deadline, or with nothing, the cheapest; with a budget alone, the fastest within it; with both, the cheapest
    that keeps both. A machine is paid from its start to the end of its last task, in whole billing units. The search is
    an iterated local search over which machines are used, priorities, how many seconds a dollar is worth where machines
    are compared, and tasks that are pinned to a machine; each change is planned by insertion as in HEFT. The cost model
    and the problem are those of Abrishami, Naghibzadeh and Epema, "Deadline-constrained workflow scheduling algorithms
    for Infrastructure as a Service clouds", FGCS 29(1), 2013.
    """

    Settings = CostSearchSettings
    settings: CostSearchSettings

    def plan(self, flow: Workflow, platform: Platform) -> Schedule:
        """See `Planner.plan`.

        Raises:
            WorkflowError: A task fits on no machine.
            NothingFeasibleError: No plan was found that keeps the deadline and the budget.
        """
        until = time.process_time() + self.settings.seconds
        machines = MachineArrays(flow, platform)
        chance = np.random.default_rng(self.seed)
        best, found = self._first(machines)
        now, value, turn, gained = best, self._value(machines, found), 0, 0
        most = value
        while turn < self.settings.turns if self.settings.turns is not None else time.process_time() < until:
            turn += 1
            stuck = turn - gained > 500
            trial = _changed(best if stuck else now, machines, chance, 3 if stuck else 1)
            plan = _made(machines, trial)
            if plan is None:
                continue
            new = self._value(machines, plan)
            if stuck or new <= value:
                gained = turn if stuck or new < value else gained
                now, value = trial, new
            if new < most:
                best, most, found = trial, new, plan
        self._demand(machines, found)
        return found

    def _first(self, machines: MachineArrays) -> tuple[_Genes, Schedule]:
        """The best of IC-PCP, and of HEFT on the first machines by price, by price of speed, by speed, one to all."""
        platform = machines.platform
        prices = np.array([vm.price_per_hour for vm in platform.vms])
        ranks = machines.upward(machines.means)
        pinned = np.full(len(machines.flow), -1)
        tried = []
        for order in (np.argsort(prices), np.argsort(prices / platform.speeds), np.argsort(-platform.speeds)):
            for count in range(1, len(platform.vms) + 1):
                used = np.zeros(len(platform.vms), dtype=np.bool_)
                used[order[:count]] = True
                genes = _Genes(ranks, used, pinned, 0.0)
                plan = _made(machines, genes)
                if plan is not None:
                    tried.append((genes, plan))
        if self.settings.deadline is not None:
            # Critical paths kept together: what no priority and no price of time alone finds.
            paths = critical_paths(machines, self.settings.deadline)
            genes = _Genes(-paths.start, np.ones(len(platform.vms), dtype=np.bool_), paths.vm.astype(np.int64), 0.0)
            if (plan := _made(machines, genes)) is not None:
                tried.append((genes, plan))
        return min(tried, key=lambda each: self._value(machines, each[1]))

    def _value(self, machines: MachineArrays, plan: Schedule) -> tuple[float, float, float]:
        """Rank of a plan: its excess over the limits, then the figure to minimise, then the tie breaker."""
        given = self.settings
        cost = _cost(machines, plan)
        late = max(0.0, plan.makespan / given.deadline - 1.0 - _CLOSE) if given.deadline else 0.0
        dear = max(0.0, cost / given.budget - 1.0 - _CLOSE) if given.budget else 0.0
        if given.budget and not given.deadline:
            return late + dear, plan.makespan, cost
        return late + dear, cost, plan.makespan

    def _demand(self, machines: MachineArrays, plan: Schedule) -> None:
        """Raise unless the plan keeps deadline and budget."""
        given, flow = self.settings, machines.flow
        cost = _cost(machines, plan)
        if self._value(machines, plan)[0] == 0.0:
            self.said = f"{format_money(cost)} for this run"
            return
        bound = lower_bound(flow, machines.platform)
        if given.deadline and bound > given.deadline:
            raise NothingFeasibleError(
                f"no plan of workflow {flow.name} on these machines ends within {format_duration(given.deadline)}: "
                f"none can end before {format_duration(bound)}",
                hint="give faster or more machines, or a later deadline",
            )
        asked = [f"within {format_duration(given.deadline)}"] if given.deadline else []
        asked += [f"for {format_money(given.budget)}"] if given.budget else []
        raise NothingFeasibleError(
            f"no plan of workflow {flow.name} on these machines was found {' and '.join(asked)}: the nearest takes "
            f"{format_duration(plan.makespan)} and costs {format_money(cost)}",
            hint="give other machines, a later deadline or more money",
        )


def _cost(machines: MachineArrays, plan: Schedule) -> float:
    """Compute the USD of a plan."""
    return figures(machines.flow, machines.platform, plan, 0.0).cost


def _made(machines: MachineArrays, genes: _Genes) -> Schedule | None:
    """The plan that genes make; None when a task has no machine."""
    prices = np.array([vm.price_per_hour / 3600.0 for vm in machines.platform.vms])
    seconds = machines.seconds
    bonus = np.where(np.isfinite(seconds), seconds, 0.0) * prices[None, :] * genes.thrift
    bonus[:, ~genes.used] = np.inf
    pinned = np.flatnonzero(genes.pinned >= 0)
    bonus[pinned] = np.inf
    bonus[pinned, genes.pinned[pinned]] = 0.0
    if not (np.isfinite(seconds) & np.isfinite(bonus)).any(axis=1).all():
        return None
    return machines.insert(by_rank(machines.flow, genes.ranks), bonus)


def _changed(genes: _Genes, machines: MachineArrays, chance: np.random.Generator, times: int) -> _Genes:
    """Genes with some changes."""
    tasks, vms = machines.seconds.shape
    for _ in range(times):
        kind = chance.integers(5)
        if kind == 0:
            used = genes.used.copy()
            used[chance.integers(vms)] ^= True
            genes = replace(genes, used=used)
        elif kind == 1:
            thrift = 0.0 if chance.random() < 0.2 else (genes.thrift or 1000.0) * float(chance.lognormal(0.0, 1.0))
            genes = replace(genes, thrift=thrift)
        elif kind == 2:
            ranks = genes.ranks.copy()
            ranks[chance.integers(tasks)] += ranks.max() * 0.3 * chance.standard_normal()
            genes = replace(genes, ranks=above_children(machines.flow, np.maximum(ranks, 0.0)))
        else:
            pinned = genes.pinned.copy()
            free = kind == 3 and chance.random() < 0.5
            some = chance.integers(tasks, size=1 + int(chance.random() ** 3 * 0.3 * tasks))
            pinned[some] = -1 if free else chance.integers(vms)
            genes = replace(genes, pinned=pinned)
    return genes
