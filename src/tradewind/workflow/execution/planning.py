"""Has what is left of a run planned anew, in a thread of its own, while the rest of it goes on."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from tradewind.errors import TradewindError
from tradewind.workflow.execution.events import Guided, PlanFailed, Planned, Replan
from tradewind.workflow.execution.guide import Guide, guide_for
from tradewind.workflow.execution.journal import History
from tradewind.workflow.execution.options import Options
from tradewind.workflow.execution.replan import plan_rest
from tradewind.workflow.execution.state import ExecutionMachine
from tradewind.workflow.graph import Numbers, Workflow
from tradewind.workflow.planner.base import Planner
from tradewind.workflow.platform import Platform


@dataclass(frozen=True)
class NewPlan:
    """What is left has been planned; ``finish`` has the ends of ``tasks``, in seconds from the beginning of the run.

    Where somebody decides during the run, nothing is known of the ends.
    """

    planned: Planned | Guided
    tasks: tuple[int, ...]
    finish: Numbers | None


class Planning:
    """Plans what is left.

    Args:
        flow: The workflow.
        platform: All machines.
        seconds: What each task takes on each machine, in seconds of the plan.
        planner: Plans; or decides during the run (`Options.online`).
        options: How the plan is carried out.
        history: The journal of the run.
        post: Takes what comes of it, from the thread.

    Attributes:
        fatal: Why nothing came of it, or None.
    """

    def __init__(
        self,
        flow: Workflow,
        platform: Platform,
        seconds: Numbers,
        planner: Planner,
        options: Options,
        history: History,
        post: Callable[[NewPlan | PlanFailed], None],
    ) -> None:
        self._flow, self._platform, self._seconds = flow, platform, seconds
        self._planner, self._options, self._history, self._post = planner, options, history, post
        self.fatal: TradewindError | None = None

    def begin(self, asked: Replan, machine: ExecutionMachine) -> None:
        """Begin to plan what is left, with the machines as busy as they are now."""
        busy = self._busy(asked.vms, machine)
        threading.Thread(target=self._plan, args=(asked.tasks, asked.vms, busy), daemon=True).start()

    def _busy(self, vms: Sequence[int], machine: ExecutionMachine) -> dict[int, float]:
        """Seconds of the plan until each machine has a free slot; what is armed there counts as if it ran."""
        now, starts = time.time(), self._history.attempts
        left: dict[int, dict[int, float]] = {vm: {} for vm in vms}
        for task, (vm, attempt) in machine.places.items():
            if vm in left:
                gone = (now - starts[self._flow.tasks[task].id, attempt].at) / self._options.scale
                left[vm][task] = max(0.0, float(self._seconds[task, vm]) - gone)
        busy = {}
        for vm, ends in left.items():
            if (armed := machine.armed.get(vm)) is not None:
                begin = max(ends.pop(task) for task in armed.after)
                ends[armed.task] = begin + float(self._seconds[armed.task, vm])
            used = sum(self._flow.tasks[task].cores for task in ends)
            busy[vm] = min(ends.values()) if ends and used >= self._platform.vms[vm].slots else 0.0
        return busy

    def _plan(self, tasks: tuple[int, ...], vms: tuple[int, ...], busy: Mapping[int, float]) -> None:
        """Plan; a planner may take seconds."""
        try:
            if (guide := self.guide(tasks, vms, booted=True)) is not None:
                self._post(NewPlan(Guided(guide), tasks, None))
                return
            orders, _, _, finish = plan_rest(self._flow, self._platform, tasks, vms, busy, self._planner)
        except TradewindError as error:
            self.fatal = error
            self._post(PlanFailed())
            return
        now = self._history.clock(time.time())
        self._post(NewPlan(Planned(orders), tasks, now + finish * self._options.scale))

    def guide(self, tasks: Sequence[int], vms: Sequence[int], *, booted: bool) -> Guide | None:
        """Who decides during the run, where somebody is to.

        Args:
            tasks: The tasks that are left, sorted.
            vms: The machines that are left, sorted.
            booted: The machines are up, or as good as.
        """
        if not self._options.online:
            return None

        def clock() -> float:
            return self._history.clock(time.time()) / self._options.scale

        return guide_for(self._flow, self._platform, tasks, vms, self._planner, clock, booted=booted)
