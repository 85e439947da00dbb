"""When the machines of a plan are asked for, and how long one that does not come is waited for."""

from __future__ import annotations

import time
from collections.abc import Collection, Sequence

import numpy as np

from tradewind.workflow.execution.journal import RunHistory
from tradewind.workflow.execution.options import ExecutionOptions
from tradewind.workflow.execution.task_states import VmState
from tradewind.workflow.platform import Platform
from tradewind.workflow.schedule import Schedule, vm_request_times


class VmRequests:
    """When each machine is asked for.

    Args:
        platform: The machines.
        schedule: The plan.
        options: How it is carried out.
        history: The journal of the run.
    """

    def __init__(self, platform: Platform, schedule: Schedule, options: ExecutionOptions, history: RunHistory) -> None:
        self._options, self._history = options, history
        ahead = None if options.online else options.ahead  # who decides during the run decides about what is there
        self._due = vm_request_times(platform, schedule, ahead) * options.scale
        self._asked: dict[int, float] = {}

    def later(self, kept: Collection[int]) -> frozenset[int]:
        """The machines that are not asked for yet.

        Args:
            kept: Those that are there already.
        """
        now = self._history.clock(time.time())
        return frozenset(vm for vm, due in enumerate(self._due) if due > now and vm not in kept)

    def due(self, presence: Sequence[VmState], late: float) -> list[int]:
        """The machines to ask for now, each once: a new plan asks for what it needs by itself.

        Args:
            presence: Where each machine is.
            late: Seconds that the run is behind its plan. One that is ahead needs its machines earlier; one that is
                behind may catch up, so that they are there when they were to be.
        """
        waiting = [vm for vm, there in enumerate(presence) if there is VmState.LATER]
        if not waiting or self._history.began is None:
            return []
        now = self._history.clock(time.time()) + max(0.0, -late)
        due = [vm for vm in waiting if self._due[vm] <= now]
        self._due[due] = np.inf
        return due

    def asked(self, vms: Collection[int]) -> None:
        """Some machines have been asked for now."""
        self._asked |= dict.fromkeys(vms, time.time())

    def overdue(self, presence: Sequence[VmState], come: Collection[int]) -> list[int]:
        """The machines that were asked for long ago and have not come; each is named once.

        Args:
            presence: Where each machine is.
            come: Those that are there, and only wait for the beginning.
        """
        if self._history.began is None:
            return []
        long_ago = time.time() - self._options.give_up
        over = [vm for vm, at in self._asked.items() if max(self._history.began, at) <= long_ago]
        for vm in over:
            del self._asked[vm]
        return [vm for vm in over if presence[vm] is VmState.COMING and vm not in come]
