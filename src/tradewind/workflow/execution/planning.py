"""Has what is left of a run planned anew, in a thread of its own, while the rest of it goes on."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tradewind.errors import TradewindError
from tradewind.workflow.execution.events import GuideReady, OrderPlanned, PlanFailed, Replan
from tradewind.workflow.execution.journal import RunHistory
from tradewind.workflow.execution.options import ExecutionOptions
from tradewind.workflow.execution.replan import ActiveTask, plan_remaining
from tradewind.workflow.execution.replanning import OnlineGuide, guide_for
from tradewind.workflow.execution.state_machine import ExecutionMachine
from tradewind.workflow.graph import Numbers, Workflow
from tradewind.workflow.planner.base import Planner
from tradewind.workflow.platform import Platform


@dataclass(frozen=True)
class NewPlan:
    """What is left has been planned; ``finish`` has the ends of ``tasks``, in seconds from the beginning of the run.

    Where somebody decides during the run, nothing is known of the ends.
    """

    planned: OrderPlanned | GuideReady
    tasks: tuple[int, ...]
    finish: Numbers | None


class Replanner:
    """Plans what is left.

    Args:
        flow: The workflow.
        platform: All machines.
        seconds: What each task takes on each machine, in seconds of the plan.
        planner: Plans; or decides during the run (`ExecutionOptions.online`).
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
        options: ExecutionOptions,
        history: RunHistory,
        post: Callable[[NewPlan | PlanFailed], None],
    ) -> None:
        self._flow, self._platform, self._seconds = flow, platform, seconds
        self._planner, self._options, self._history, self._post = planner, options, history, post
        self.fatal: TradewindError | None = None

    def begin(self, asked: Replan, machine: ExecutionMachine) -> None:
        """Begin to plan what is left, with the machines as busy as they are now."""
        active_tasks = self._active_tasks(machine)
        threading.Thread(target=self._plan, args=(asked.tasks, asked.vms, active_tasks), daemon=True).start()

    def _active_tasks(self, machine: ExecutionMachine) -> list[ActiveTask]:
        """What runs and what is armed, with the seconds of the plan that each takes yet."""
        now, starts = time.time(), self._history.attempts
        found = []
        for task, (vm, attempt) in machine.places.items():
            gone = (now - starts[self._flow.tasks[task].id, attempt].at) / self._options.scale
            found.append(ActiveTask(task, vm, max(0.0, float(self._seconds[task, vm]) - gone)))
        for vm, armed in machine.armed.items():
            found.append(ActiveTask(armed.task, vm, float(self._seconds[armed.task, vm]), armed.after))
        return found

    def _plan(self, tasks: tuple[int, ...], vms: tuple[int, ...], active_tasks: Sequence[ActiveTask]) -> None:
        """Plan; a planner may take seconds."""
        try:
            if (guide := self.guide(tasks, vms, booted=True)) is not None:
                self._post(NewPlan(GuideReady(guide), tasks, None))
                return
            orders, _, _, finish = plan_remaining(self._flow, self._platform, tasks, vms, active_tasks, self._planner)
        except TradewindError as error:
            self.fatal = error
            self._post(PlanFailed())
            return
        now = self._history.clock(time.time())
        self._post(NewPlan(OrderPlanned(orders), tasks, now + finish * self._options.scale))

    def guide(self, tasks: Sequence[int], vms: Sequence[int], *, booted: bool) -> OnlineGuide | None:
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
