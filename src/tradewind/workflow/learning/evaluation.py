"""Compares a learned policy with a plan that is followed and with a search, in worlds that it has not seen.

Each policy meets the same luck in a world, so that differences say more than means.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from tradewind.plugins import create
from tradewind.workflow.bounds import lower_bound
from tradewind.workflow.graph import Numbers
from tradewind.workflow.learning.adaptive import ONLINE_HEFT, AdaptivePolicy
from tradewind.workflow.learning.arrays import EpisodeArrays, PreparedWorld, schedule
from tradewind.workflow.learning.learners import TESTING, Learner
from tradewind.workflow.schedule import Schedule, ScheduleFigures, figures
from tradewind.workflow.simulator.compiled import replay_plan
from tradewind.workflow.simulator.reference import Director, ScheduleDirector, simulate
from tradewind.workflow.simulator.world import World


def simulate_schedule(arrays: EpisodeArrays, plan: Schedule, world: World | PreparedWorld) -> Schedule:
    """Simulate a plan, each machine running its tasks in their order, compiled.

    Args:
        arrays: The workflow and its machines.
        plan: The plan.
        world: The world, or one that was drawn before.

    Raises:
        WorkflowError: The plan contradicts the graph.
    """
    from tradewind.workflow.learning import kernel

    order_of = plan.order_in(arrays.flow)
    lists = [order_of.get(vm, ()) for vm in range(len(arrays.platform.vms))]
    starts, order = arrays.flow.csr(lists)
    prepared = arrays.prepared(world) if isinstance(world, World) else world
    return schedule(prepared.run(lambda given: kernel.follow(given, starts, order.copy())))


@dataclass(frozen=True, slots=True)
class PairedComparison:
    """Comparison of one policy's makespans with another's in the same worlds.

    Attributes:
        ratio: Geometric mean of the ratio of their makespans; below 1, the first is faster.
        low: Lower end of the 95 % interval of the mean.
        high: Upper end of that interval.
        worlds: Number of worlds.
    """

    ratio: float
    low: float
    high: float
    worlds: int


def compare_pairs(ours: Sequence[float] | Numbers, theirs: Sequence[float] | Numbers) -> PairedComparison:
    """Estimate the ratio of makespans in the same worlds, with a 95 % interval (Student's t over logarithms)."""
    from scipy.stats import t

    logs = np.log(np.asarray(ours, dtype=float) / np.asarray(theirs, dtype=float))
    mean, count = float(logs.mean()), len(logs)
    half = float(t.ppf(0.975, count - 1) * logs.std(ddof=1) / np.sqrt(count)) if count > 1 else float("inf")
    return PairedComparison(float(np.exp(mean)), float(np.exp(mean - half)), float(np.exp(mean + half)), count)


@dataclass(frozen=True, slots=True)
class PolicyResult:
    """One way of running the workflow.

    Attributes:
        name: Name in the table.
        makespan: Seconds as planned, or the geometric mean over the worlds of a test.
        against: Comparison with HEFT's plan in the same worlds, where there is a test.
    """

    name: str
    makespan: float
    against: PairedComparison | None = None


@dataclass(frozen=True)
class PolicyEvaluation:
    """Result of learning: the best plan, and the policy beside others.

    Attributes:
        plan: The best plan, as if every task took what it should take.
        figures: Figures of that plan.
        rows: Results of the policies, the learned one first.
        worlds: Number of worlds that they were tested in; 0 where everything is known.
    """

    plan: Schedule
    figures: ScheduleFigures
    rows: tuple[PolicyResult, ...]
    worlds: int

    @property
    def best(self) -> PolicyResult:
        """The policy of the least makespan."""
        return min(self.rows, key=lambda row: row.makespan)


def evaluate_policy(learner: Learner, best: Schedule | None, *, worlds: int, seconds: float) -> PolicyEvaluation:
    """Compare a learned policy with HEFT, a search and online HEFT.

    Args:
        learner: Learner of the policy.
        best: The best run that was learned from, where it is a plan that holds.
        worlds: Number of worlds to test in, if anything deviates; none of them was learned from.
        seconds: Processor seconds that the search may take.
    """
    flow, platform = learner.flow, learner.platform
    bound = lower_bound(flow, platform)
    nominal = learner.run(learner.nominal)
    if platform.storage == "local":
        # Episodes leave out the time in which files are fetched: none of their plans has the times that it would take.
        nominal, best = simulate(flow, platform, learner.director(), learner.nominal), None
    plan = nominal if best is None or nominal.makespan <= best.makespan else best
    given = create("planner", "heft", {}).plan(flow, platform)
    searched = create("planner", "search", {"seconds": seconds}, seed=learner.seed).plan(flow, platform)
    said = figures(flow, platform, plan, bound)
    plans: Mapping[str, Schedule] = {
        name: replay_plan(flow, platform, each)
        for name, each in (("HEFT, followed", given), ("search, followed", searched))
    }
    if learner.certain:
        rows = (
            PolicyResult(f"{learner.name}, learned", plan.makespan),
            *(PolicyResult(n, p.makespan) for n, p in plans.items()),
        )
        return PolicyEvaluation(plan, said, rows, 0)
    meet = _PolicyRuns(learner, plans)
    lengths: dict[str, list[float]] = {}
    for number in range(worlds):
        met = meet(learner.drawn(TESTING + number))
        for name, length in met.items():
            lengths.setdefault(name, []).append(length)
    rows = tuple(
        PolicyResult(
            name,
            float(np.exp(np.log(each).mean())),
            None if name == "HEFT, followed" else compare_pairs(each, lengths["HEFT, followed"]),
        )
        for name, each in lengths.items()
    )
    return PolicyEvaluation(plan, said, rows, worlds)


class _PolicyRuns:
    """Runs a learned policy, plans that are followed and online HEFT in the same worlds.

    Args:
        learner: Learner of the policy.
        plans: Plans that are followed, by name.
    """

    def __init__(self, learner: Learner, plans: Mapping[str, Schedule]) -> None:
        self._learner, self._plans = learner, plans
        self._learned = f"{learner.name}, learned"
        self._arrays = EpisodeArrays(learner.flow, learner.platform)
        self._online = AdaptivePolicy(learner.flow, learner.platform, ONLINE_HEFT, self._arrays)

    def __call__(self, world: World) -> dict[str, float]:
        """The makespan of each in one world."""
        if self._learner.platform.storage == "local":
            return self._fetching(world)
        prepared = self._arrays.prepared(world)
        return {
            self._learned: self._learner.run(world).makespan,
            **{name: simulate_schedule(self._arrays, each, prepared).makespan for name, each in self._plans.items()},
            "HEFT, online": float(prepared.run(self._online.episode).finish.max()),
        }

    def _fetching(self, world: World) -> dict[str, float]:
        """The same by the readable simulator, which also knows files on the machines' own disks."""
        ways: dict[str, Director] = {
            self._learned: self._learner.director(),
            **{name: ScheduleDirector(each) for name, each in self._plans.items()},
            "HEFT, online": self._online.director(),
        }
        flow, platform = self._learner.flow, self._learner.platform
        return {name: simulate(flow, platform, way, world).makespan for name, way in ways.items()}
