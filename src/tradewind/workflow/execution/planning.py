"""Has what is left of a run planned anew, in a thread of its own, while the rest of it goes on."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tradewind.errors import TradewindError
from tradewind.workflow.execution.events import Guided, PlanFailed, Planned, Replan
from tradewind.workflow.execution.guide import Guide, guide_for
from tradewind.workflow.execution.journal import History
from tradewind.workflow.execution.options import Options
from tradewind.workflow.execution.replan import UnderWay, plan_rest
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
        under_way = self._under_way(machine)
        threading.Thread(target=self._plan, args=(asked.tasks, asked.vms, under_way), daemon=True).start()

    def _under_way(self, machine: ExecutionMachine) -> list[UnderWay]:
        """What runs and what is armed, with the seconds of the plan that each takes yet."""
        now, starts = time.time(), self._history.attempts
        found = []
        for task, (vm, attempt) in machine.places.items():
            gone = (now - starts[self._flow.tasks[task].id, attempt].at) / self._options.scale
            found.append(UnderWay(task, vm, max(0.0, float(self._seconds[task, vm]) - gone)))
        for vm, armed in machine.armed.items():
            found.append(UnderWay(armed.task, vm, float(self._seconds[armed.task, vm]), armed.after))
        return found

    def _plan(self, tasks: tuple[int, ...], vms: tuple[int, ...], under_way: Sequence[UnderWay]) -> None:
        """Plan; a planner may take seconds."""
        try:
            if (guide := self.guide(tasks, vms, booted=True)) is not None:
                self._post(NewPlan(Guided(guide), tasks, None))
                return
            orders, _, _, finish = plan_rest(self._flow, self._platform, tasks, vms, under_way, self._planner)
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
