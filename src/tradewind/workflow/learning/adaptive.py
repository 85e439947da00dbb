"""The adaptive policy: list scheduling that learns, while it runs, how fast each machine really is."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import astuple, dataclass, fields
from typing import TYPE_CHECKING

import numpy as np

from tradewind.workflow.graph import Numbers, Workflow
from tradewind.workflow.learning.arrays import EpisodeArrays, schedule
from tradewind.workflow.planner.list_scheduling import mean_of_fitting
from tradewind.workflow.platform import Platform
from tradewind.workflow.schedule import Schedule
from tradewind.workflow.simulator.reference import Director, SimulationState, simulate
from tradewind.workflow.simulator.world import World

if TYPE_CHECKING:
    from tradewind.workflow.learning.kernel import EpisodeInput, EpisodeState


@dataclass(frozen=True, slots=True)
class AdaptiveWeights:
    """Weights of the adaptive policy, which can be learned; the fields stand in the order of the compiled loops.

    The defaults were learned by ``benchmarks/learning/prepare.py`` over graphs, machines and worlds of all kinds.

    Attributes:
        deviation: Standard deviation of ln(real speed / stated speed) of a machine before anything has run.
        drift: Standard deviation of its change in the mean run time of a task.
        noise: Standard deviation of ln(run time) of one task on a machine of known speed.
        overdue: A task that should have ended is expected to take this share of its time so far in addition.
        caution: Deviations by which a machine is expected to be slower than the mean says; below 0, faster.
        patience: Seconds that a second of waiting for a busy machine counts in addition to itself.
        own: Share of a task's own seconds that is added to its rank.
        fastest: Share of ranks over the fastest machine's seconds, the rest over the mean of all slots (as in HEFT).
    """

    deviation: float = 0.38
    drift: float = 0.11
    noise: float = 0.22
    overdue: float = 0.4
    caution: float = 0.18
    patience: float = -0.04
    own: float = 0.07
    fastest: float = 0.08

    @property
    def array(self) -> Numbers:
        """The weights as the compiled loops take them."""
        return np.array(astuple(self))

    @property
    def free(self) -> Numbers:
        """The weights as numbers without limits, for a search: logarithms of those that are above 0."""
        return np.array(
            [math.log(max(v, 1e-4)) if name in _POSITIVE else v for name, v in zip(NAMES, astuple(self), strict=True)]
        )

    @classmethod
    def of_free(cls, numbers: Sequence[float] | Numbers) -> AdaptiveWeights:
        """Make the weights of the numbers that `free` gives."""
        values = {
            name: math.exp(min(max(float(v), -9.0), 3.0)) if name in _POSITIVE else float(v)
            for name, v in zip(NAMES, numbers, strict=True)
        }
        values["patience"] = max(values["patience"], -0.9)
        values["fastest"] = min(max(values["fastest"], 0.0), 1.0)
        return cls(**values)


NAMES = tuple(each.name for each in fields(AdaptiveWeights))
_POSITIVE = frozenset({"deviation", "drift", "noise", "overdue"})

ONLINE_HEFT = AdaptiveWeights(0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 0.0, 0.0)
"""Weights with which nothing is learned: ranks of HEFT, and each task to where it ends first at stated speeds."""


class AdaptivePolicy:
    """Gives ready tasks, the most urgent first, to the machines where they are expected to end first.

    Ranks are those of HEFT (Topcuoglu, Hariri and Wu, IEEE TPDS 13(3), 2002), the expected ends those of a Kalman
    filter of each machine's speed (Kalman, "A new approach to linear filtering and prediction problems", 1960).

    Args:
        flow: The workflow.
        platform: The machines that its tasks run on.
        weights: Weights that were learned before.
        arrays: The workflow and its machines as arrays, where the caller has them.
    """

    def __init__(
        self, flow: Workflow, platform: Platform, weights: AdaptiveWeights, arrays: EpisodeArrays | None = None
    ) -> None:
        from tradewind.workflow.kernel_plain import upward_ranks

        self.arrays = arrays or EpisodeArrays(flow, platform)
        self.weights = weights
        arrays = self.arrays
        mean = mean_of_fitting(arrays.seconds[:, arrays.lane_vm])
        fastest = arrays.seconds.min(axis=1)
        taken = weights.fastest * fastest + (1.0 - weights.fastest) * mean
        ranks = upward_ranks(flow.order, arrays.child_starts, arrays.children, taken) + weights.own * taken
        place = np.empty(len(flow), dtype=np.int64)
        place[flow.order] = np.arange(len(flow))
        self.turn = np.empty(len(flow))
        self.turn[np.lexsort((place, -ranks))] = np.arange(len(flow))
        self.unit = max(float(mean.mean()), 1e-9) if len(flow) else 1.0

    def run(self, world: World) -> Schedule:
        """Simulate the policy in a world, compiled."""
        return schedule(self.arrays.run(world, self.episode))

    def episode(self, given: EpisodeInput) -> EpisodeState:
        """One compiled episode; see `tradewind.workflow.learning.kernel.adaptive_episode`."""
        from tradewind.workflow.learning import kernel

        arrays = self.arrays
        return kernel.adaptive_episode(
            given, self.turn, self.weights.array, self.unit, arrays.lane_vm, arrays.lane_starts, arrays.stated
        )

    def director(self) -> AdaptiveDirector:
        """Make the director of one run."""
        return AdaptiveDirector(self)


class AdaptiveDirector(Director):
    """The adaptive policy in one run, simulated or real.

    Args:
        policy: The policy.

    Attributes:
        posterior: Mean and variance of ln(real speed / stated) of each machine, and the time of its last update; shape
            (3, machines).
    """

    def __init__(self, policy: AdaptivePolicy) -> None:
        arrays = policy.arrays
        self._policy, self._arrays, self._weights = policy, arrays, policy.weights.array
        self.posterior = np.zeros((3, len(arrays.slots)))
        self.posterior[1, :] = policy.weights.deviation**2
        self._lane_task = np.full(len(arrays.lane_vm), -1, dtype=np.int64)
        self._lane_begin = np.zeros(len(arrays.lane_vm))
        self._chosen = np.empty((2, len(arrays.cores)), dtype=np.int64)
        self._pending: list[tuple[int, int]] | None = None

    def pick(self, ready: Sequence[int], state: SimulationState) -> tuple[int, int] | None:
        """See `Director.pick`: what was decided at this moment, one after the other."""
        from tradewind.workflow.learning import kernel

        if self._pending is None:
            self._pending = self._decide(ready, state)
        if not self._pending:
            self._pending = None
            return None
        task, vm = self._pending.pop(0)
        if len(ready) == 1:
            self._pending = None
        arrays = self._arrays
        kernel.occupy(
            self._lane_task, self._lane_begin, arrays.lane_starts, vm, task, int(arrays.cores[task]), state.now
        )
        return task, vm

    def ended(self, task: int, vm: int, begin: float, now: float, failed: bool) -> None:
        """See `Director.ended`: learn how fast the machine was."""
        from tradewind.workflow.learning import kernel

        arrays = self._arrays
        self._pending = None
        kernel.occupy(self._lane_task, self._lane_begin, arrays.lane_starts, vm, -1, task, now)
        stated, took = float(arrays.stated[task, vm]), now - begin - float(arrays.reading[task])
        if not failed and stated > 0.0 and took > 0.0:
            kernel.observe(self.posterior, vm, stated / took, now, self._weights, self._policy.unit)

    def _decide(self, ready: Sequence[int], state: SimulationState) -> list[tuple[int, int]]:
        from tradewind.workflow.learning import kernel

        arrays = self._arrays
        free = np.array(state.free, dtype=np.int64)
        if not free.any():
            return []
        urgent = np.array(sorted(ready, key=lambda task: self._policy.turn[task]), dtype=np.int64)
        expected = kernel.expect(
            state.now, self.posterior, self._weights, self._policy.unit, arrays.stated, arrays.reading, arrays.boot,
            arrays.lane_vm, self._lane_task, self._lane_begin, arrays.amounts, arrays.rooms,
        )  # fmt: skip
        count = kernel.assign(
            state.now, urgent, len(urgent), expected, arrays.lane_starts, free, arrays.spare(state), arrays.stated,
            arrays.reading, arrays.cores, arrays.amounts, self._policy.weights.patience, self._chosen,
        )  # fmt: skip
        return [(int(self._chosen[0, each]), int(self._chosen[1, each])) for each in range(count)]


def readable(policy: AdaptivePolicy, world: World) -> Schedule:
    """Do the same as `AdaptivePolicy.run` with the readable simulator."""
    return simulate(policy.arrays.flow, policy.arrays.platform, policy.director(), world)
