"""A Gymnasium environment: an agent gives the tasks of a workflow to machines, one after the other.

Importing this module registers ``tradewind/Workflow-v0``::

    import gymnasium
    import tradewind.workflow.learning.environment

    environment = gymnasium.make("tradewind/Workflow-v0", flow=flow, platform=platform, settings={"noise": 0.2})

It needs the extra ``learning``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from tradewind.errors import MissingProgramError
from tradewind.utils.dependencies import install_command
from tradewind.workflow.bounds import lower_bound
from tradewind.workflow.graph import Task, Workflow
from tradewind.workflow.learning.adaptive import ONLINE_HEFT, AdaptivePolicy
from tradewind.workflow.learning.arrays import EpisodeArrays, schedule
from tradewind.workflow.platform import Platform, Vm
from tradewind.workflow.schedule import Schedule
from tradewind.workflow.simulator.world import WorldSettings

try:
    import gymnasium
    from gymnasium import spaces
except ImportError:
    raise MissingProgramError("the environment needs gymnasium", hint=install_command("learning")) from None

if TYPE_CHECKING:
    from tradewind.workflow.learning.kernel import EpisodeInput, EpisodeState

ID = "tradewind/Workflow-v0"

Observation = NDArray[np.float32]

HORIZON = 10.0
"""Lower bounds of the makespan for which speeds are drawn; what runs still longer does so at stated speeds."""

_MOST = 1e6


def example() -> tuple[Workflow, Platform]:
    """A small workflow and four machines, for trying things out."""
    tasks = tuple(Task(f"t{i}", f"a{i % 3}", 1.0 + i * 7 % 5) for i in range(20))
    parents = tuple(tuple(sorted({i // 2, i // 3} - {i})) if i > 3 else () for i in range(20))
    return Workflow("example", tasks, parents), Platform((Vm("a"), Vm("b"), Vm("c", 2.0), Vm("d", 4.0)))


class WorkflowEnv(gymnasium.Env[Observation, np.int64]):
    """One episode is one run of a workflow; each step gives the most urgent ready task to a machine.

    Actions: the number of a machine. A machine that is busy keeps the task in a queue of its own, first come first
    served; a machine that it does not fit on cannot be meant, and the task goes to the widest one that it fits on.

    Observations, all divided by the lower bound of the makespan where they are times: of each machine the time until
    it is free (or a task ends there, where memory or the like is short for the one at hand), the time that the task
    takes there as stated (10⁶ where it does not fit), tasks in its queue, and the mean of ln(real / stated time) seen
    there so far; then the rank of the task, the share of tasks that have ended, and how many are ready.

    Rewards: minus the time that passes until the next decision, divided by the lower bound: their sum is minus the
    makespan over the lower bound.

    Args:
        flow: The workflow; a small one without it.
        platform: The machines; four small ones without it.
        settings: Deviations of the worlds: ``noise``, ``unknown``, ``drift`` and the others of `WorldSettings`.
    """

    metadata: dict[str, Any] = {"render_modes": []}  # noqa: RUF012 as Gymnasium has it

    def __init__(
        self, flow: Workflow | None = None, platform: Platform | None = None, settings: Mapping[str, Any] | None = None
    ) -> None:
        made = example()
        self.flow, self.platform = flow or made[0], platform or made[1]
        self._settings = WorldSettings.model_validate(dict(settings or {}))
        self._arrays = EpisodeArrays(self.flow, self.platform)
        self._turn = AdaptivePolicy(self.flow, self.platform, ONLINE_HEFT, self._arrays).turn
        self._bound = max(lower_bound(self.flow, self.platform), 1e-9)
        self._periods = 1 + int(min(HORIZON * self._bound / self._settings.period, 10_000.0))
        machines = len(self.platform.vms)
        self.action_space = spaces.Discrete(machines)
        self.observation_space = spaces.Box(-_MOST, _MOST, (4 * machines + 3,), np.float32)
        self._given: EpisodeInput
        self._run: EpisodeState

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        """Begin a run, in a world drawn from the seed."""
        from tradewind.workflow.learning import kernel

        super().reset(seed=seed)
        world = self._settings.world(int(self.np_random.integers(1, 2**31)))
        self._given = self._arrays.given(world, self._periods)
        self._run = kernel.begin(self._given)
        machines = len(self.platform.vms)
        self._queues: list[list[int]] = [[] for _ in range(machines)]
        self._committed: set[int] = set()
        self._seen, self._counts = np.zeros(machines), np.zeros(machines)
        self._proceed()
        return self._observe(), {}

    def step(self, action: np.int64) -> tuple[Observation, float, bool, bool, dict[str, Any]]:
        """Give the task to a machine, and let time pass until the next task wants one."""
        before, task, vm = float(self._run.now[0]), self._task(), int(action)
        if task is None:
            raise gymnasium.error.ResetNeeded("the run has ended: reset() begins the next one")
        fits = np.isfinite(self._arrays.stated[task])
        if not fits[vm]:
            vm = int(np.argmax(np.where(fits, self._arrays.slots, 0)))
        self._queues[vm].append(task)
        self._committed.add(task)
        self._start()
        ended = self._task() is None and not self._proceed()
        passed = (float(self._run.finish.max()) if ended else float(self._run.now[0])) - before
        info: dict[str, Any] = {"makespan": self.schedule.makespan} if ended else {}
        return self._observe(), -passed / self._bound, ended, False, info

    @property
    def schedule(self) -> Schedule:
        """Make the schedule of the run so far."""
        return schedule(self._run)

    def _task(self) -> int | None:
        """The most urgent ready task that has no machine."""
        waiting = int(self._run.counts[1])
        return next((int(task) for task in self._run.ready[:waiting] if int(task) not in self._committed), None)

    def _start(self) -> None:
        """Start what machines have in their queues and room for."""
        from tradewind.workflow.learning import kernel

        run = self._run
        for vm, queue in enumerate(self._queues):
            while queue and kernel.has_room(self._given, run, queue[0], vm):
                waiting = run.ready[: run.counts[kernel.WAITING]].tolist()
                task = queue.pop(0)
                self._committed.discard(task)
                kernel.place(self._given, run, waiting.index(task), vm)

    def _proceed(self) -> bool:
        """Let things happen until a task wants a machine; False when all is over."""
        from tradewind.workflow.learning import kernel

        run = self._run
        while (count := kernel.advance(self._given, run, self._turn)) >= 0:
            for code in run.ended[:count].tolist():
                task = code if code >= 0 else -1 - code
                self._learn(task, int(run.vm[task]), failed=code < 0)
            self._start()
            if self._task() is not None:
                return True
        return False

    def _learn(self, task: int, vm: int, *, failed: bool) -> None:
        stated = float(self._arrays.stated[task, vm])
        took = float(self._run.finish[task] - self._run.start[task] - self._arrays.reading[task])
        if not failed and stated > 0 and took > 0:
            self._counts[vm] += 1
            self._seen[vm] += (np.log(took / stated) - self._seen[vm]) / self._counts[vm]

    def _observe(self) -> Observation:
        run, arrays = self._run, self._arrays
        task, now = self._task(), float(run.now[0])
        machines = len(self.platform.vms)
        said = np.zeros(4 * machines + 3)
        free_at = np.maximum(arrays.boot, now)
        for vm, queue in enumerate(self._queues):
            full = run.free[vm] == 0 or (task is not None and (run.spare[vm] < arrays.amounts[task]).any())
            if full:
                running = [t for t in np.flatnonzero(run.vm == vm) if run.finish[t] > now]
                ends = [run.start[t] + arrays.reading[t] + arrays.stated[t, vm] for t in running]
                free_at[vm] = max(now, min(ends, default=now), float(arrays.boot[vm]))
            queued = sum(arrays.reading[t] + arrays.stated[t, vm] for t in queue)
            said[vm] = (free_at[vm] - now + queued / arrays.slots[vm]) / self._bound
            said[2 * machines + vm] = len(queue)
        if task is not None:
            said[machines : 2 * machines] = (arrays.reading[task] + arrays.stated[task]) / self._bound
            said[4 * machines] = 1.0 - self._turn[task] / len(self.flow)
        said[3 * machines : 4 * machines] = self._seen
        said[4 * machines + 1] = float(run.counts[2]) / len(self.flow)
        said[4 * machines + 2] = float(run.counts[1])
        return np.clip(said, -_MOST, _MOST).astype(np.float32)


if ID not in gymnasium.registry:
    gymnasium.register(ID, entry_point=f"{__name__}:WorkflowEnv")
