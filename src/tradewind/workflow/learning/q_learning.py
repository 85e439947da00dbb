"""Q-learning as paper 3 (WorkflowSim4RL) has it: a table of values, from which each activation gets its machine."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

import numpy as np
from pydantic import Field

from tradewind.errors import WorkflowError
from tradewind.workflow.graph import Numbers, Workflow
from tradewind.workflow.learning.arrays import EpisodeArrays, schedule
from tradewind.workflow.platform import Platform
from tradewind.workflow.schedule import Schedule
from tradewind.workflow.simulator.reference import Director, SimulationState
from tradewind.workflow.simulator.world import World, WorldSettings

KeyedBy = Literal["machine", "activation", "activity"]

BUCKETS = 8
"""Rows of an activity: by the power of two of the number of ready tasks, up to 2⁷."""

TRANSITIONS = (
    ("idle", "ready", "allocate"),
    ("idle", "ready", "-"),
    ("idle", "running", "-"),
    ("idle", "running", "end"),
    ("running", "ready", "-"),
    ("running", "running", "-"),
    ("running", "running", "end"),
)
"""State of the machine, state of the workflow and action: the rows of the paper's Table 1."""


class QLearningSettings(WorldSettings):
    """Settings of Q-learning; the defaults are the paper's, but for ``explore``, which it does not give."""

    episodes: int = Field(100, ge=1, description="Simulated runs to learn from")
    weight: float = Field(0.5, ge=0, le=1, description="Weight of execution time against queue time in the index P_i")
    learning_rate: float = Field(1.0, gt=0, le=1, description="How much of a new value replaces the old one")
    discount: float = Field(0.5, ge=0, lt=1, description="Weight of what follows a decision (gamma)")
    initial: float = Field(0.2, description="What every value of the table begins with")
    explore: float = Field(
        0.2, ge=0, le=1, description="Chance of a machine at random; the paper names 80 % for the best as an example"
    )
    keyed_by: KeyedBy = Field(
        "machine",
        description="What the table has a value for: each machine (the paper), each activation on each machine, or "
        "each activity and length of the queue on each class of machines",
    )


class QPolicy:
    """A table of values, and the rules by which it is learned and followed.

    Where the paper leaves something open, this is what is done:

    - The state at a decision is that of Table 1: machines idle or running, the workflow ready or running. Activations
      are allocated to idle machines only, in the order in which they became ready; so all decisions are made in (idle,
      ready), and the values of ``-`` and ``end``, for which the paper gives no reward, stay as they began.
    - After an allocation the next state is (idle, ready) if a machine and an activation are left, whose best value is
      that of the best allocation; else one whose best action is ``-``.
    - The time of an activation on a machine (te) is the one last seen there; before the first episode each was run on
      each machine alone.
    - Mean and deviation of the index are taken over the allocations of the running execution so far. Between the two
      thresholds the reward is 0.
    - α and γ are constant: the superscript t of equation 4 is read as an index.
    - Of equal values the first machine is taken.

    Olimpio, Nascimento, Paes and de Oliveira, "WorkflowSim4RL: Aprendizado por Reforço Aplicado ao Escalonamento de
    Workflows Científicos em Nuvens", section 3.2 and equation 4.

    Args:
        flow: The workflow.
        platform: The machines that its tasks run on.
        settings: Settings of the method.
        seed: Seed of the random choices.

    Attributes:
        table: The value of each allocation; one row a state of the activation, one column a choice of machine.
        efficiency: The efficiency of each machine (paper: rle).
        times: Seconds of each task on each machine, as last seen.
        chance: State of the generator of choices.
    """

    def __init__(self, flow: Workflow, platform: Platform, settings: QLearningSettings, seed: int = 0) -> None:
        self.arrays, self.settings = EpisodeArrays(flow, platform), settings
        tasks, vms = len(flow), len(platform.vms)
        self.buckets = BUCKETS if settings.keyed_by == "activity" else 1
        self.columns = np.arange(vms)
        self.names = [vm.name for vm in platform.vms]
        if settings.keyed_by == "machine":
            self.rows, self.labels = np.zeros(tasks, dtype=np.int64), [""]
        elif settings.keyed_by == "activation":
            self.rows, self.labels = np.arange(tasks), [task.id for task in flow.tasks]
        else:
            self.labels = sorted({task.activity for task in flow.tasks})
            self.rows = np.array([self.labels.index(task.activity) for task in flow.tasks], dtype=np.int64)
            self.names = []
            for place, machines in enumerate(platform.classes_for(flow)):
                self.columns[list(machines)] = place
                first = platform.vms[machines[0]]
                self.names.append(first.kind or f"speed {first.speed:g} x {first.slots}")
        self.table = np.full((max(len(self.labels), 1) * self.buckets, len(self.names)), settings.initial)
        self.efficiency = np.zeros(vms)
        self.times = self.arrays.seconds.copy()
        self.chance = np.array([1 + seed % 2147483646], dtype=np.int64)

    def collect(self, world: World) -> None:
        """Run each activation alone on each machine that it fits on, for the first episode's times (section 3.2)."""
        self.times = times = self.arrays.seconds.copy()
        world = replace(world, last_ends_well=True)
        if self.settings.certain:
            return
        for task in range(times.shape[0]):
            for vm in np.flatnonzero(np.isfinite(self.arrays.stated[task])).tolist():
                reading, stated = float(self.arrays.reading[task]), float(self.arrays.stated[task, vm])
                times[task, vm] = world.duration(task, vm, 0.0, world.retries, reading, stated)[0]

    def learn(self, world: World) -> Schedule:
        """One episode; the table changes."""
        return self._run(world, self.settings.explore, self.settings.learning_rate, keep=True)

    def run(self, world: World) -> Schedule:
        """Simulate the table in a world, without learning and without random choices, compiled."""
        return self._run(world, 0.0, 0.0, keep=False)

    def _run(self, world: World, explore: float, rate: float, *, keep: bool) -> Schedule:
        from tradewind.workflow.learning import kernel

        changed: tuple[Numbers, Numbers, Any] = self.table, self.efficiency, self.chance
        turn = -np.array(self.arrays.flow.priorities, dtype=float)

        def episode(given: kernel.EpisodeInput) -> kernel.EpisodeState:
            nonlocal changed
            changed = self.table.copy(), self.efficiency.copy(), self.chance.copy()
            table, efficiency, chance = changed
            numbers = np.array(
                [self.settings.weight, rate, self.settings.discount, explore, self.settings.initial], dtype=float
            )
            return kernel.q_episode(
                given, table, self.rows, self.buckets, self.columns, efficiency, self.times, numbers, chance, turn
            )

        done = schedule(self.arrays.run(world, episode))
        if keep:
            self.table, self.efficiency, self.chance = changed
            self.see(done)
        return done

    def see(self, done: Schedule) -> None:
        """Remember how long each task took on the machine that it was on."""
        self.times[np.arange(len(done.vm)), done.vm] = done.finish - done.start

    def director(self, *, learning: bool = False) -> QDirector:
        """Make the director of one run.

        Args:
            learning: True to choose at random at times, and to change the table.
        """
        return QDirector(self, learning=learning)

    def state(self) -> dict[str, Any]:
        """Return what was learned, but for the times, as a document."""
        return {
            "table": self.table.tolist(),
            "efficiency": self.efficiency.tolist(),
            "chance": int(self.chance[0]),
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Restore what `state` gave.

        Raises:
            WorkflowError: The table is of another shape.
        """
        table, efficiency = np.array(state["table"], dtype=float), np.array(state["efficiency"], dtype=float)
        if table.shape != self.table.shape or efficiency.shape != self.efficiency.shape:
            raise WorkflowError(f"a table of {table.shape} is not one of {self.table.shape}")
        self.table, self.efficiency = table, efficiency
        self.chance = np.array([int(state["chance"])], dtype=np.int64)

    def lines(self) -> Iterator[Sequence[str | float]]:
        """The table for people: a heading, then one line for each state and action of each machine."""
        if self.settings.keyed_by == "machine":
            yield "machine", "machine_state", "workflow_state", "action", "q"
            for place, name in enumerate(self.names):
                for machine, workflow, action in TRANSITIONS:
                    value = float(self.table[0, place]) if action == "allocate" else self.settings.initial
                    yield name, machine, workflow, action, value
            return
        row, column = ("activation", "machine") if self.settings.keyed_by == "activation" else ("activity", "class")
        yield row, "ready_from", column, "q"
        for place, label in enumerate(self.labels):
            for bucket in range(self.buckets):
                for at, name in enumerate(self.names):
                    yield label, 2**bucket, name, float(self.table[place * self.buckets + bucket, at])


class QDirector(Director):
    """A table of values in one run, simulated or real.

    Args:
        policy: The table; it changes if the director learns.
        learning: True to choose at random at times, and to change the table.
    """

    def __init__(self, policy: QPolicy, *, learning: bool = False) -> None:
        self._policy, self._learning = policy, learning
        self._seen = np.zeros(3)
        self._since: dict[int, float] = {}

    def pick(self, ready: Sequence[int], state: SimulationState) -> tuple[int, int] | None:
        """See `Director.pick`: the first ready task that fits, on the idle machine of the highest value."""
        from tradewind.workflow.learning import kernel

        policy, settings = self._policy, self._policy.settings
        for task in ready:
            self._since.setdefault(task, state.now)
        free, spare = np.array(state.free, dtype=np.int64), policy.arrays.spare(state)
        explore = settings.explore if self._learning else 0.0
        for at, task in enumerate(ready):
            row = kernel.row_of(policy.rows, task, len(ready), policy.buckets)
            vm = int(
                kernel.choose_machine(
                    policy.table, row, policy.columns, free, spare, task, policy.arrays.cores, policy.arrays.amounts,
                    policy.arrays.stated[task], explore, policy.chance,
                )
            )  # fmt: skip
            if vm < 0:
                continue
            waited = state.now - self._since.pop(task)
            if self._learning:
                free[vm] -= policy.arrays.cores[task]
                others = [*ready[:at], *ready[at + 1 :]]
                following = settings.initial
                if others and free.max() > 0:
                    after = others[min(at, len(others) - 1)]
                    following = float(
                        policy.table[kernel.row_of(policy.rows, after, len(others), policy.buckets)].max()
                    )
                kernel.credit(
                    policy.table, row, int(policy.columns[vm]), following, float(policy.times[task, vm]), waited,
                    self._seen, policy.efficiency, vm, settings.weight, settings.learning_rate, settings.discount,
                )  # fmt: skip
            return task, vm
        return None
