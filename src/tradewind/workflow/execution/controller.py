"""Carries out a plan: machines from a runner, tasks on them, everything written down before it is done."""

from __future__ import annotations

import heapq
import os
import secrets
import selectors
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tradewind.errors import TradewindError
from tradewind.utils.units import count
from tradewind.workflow.execution.connections import AgentConnectionPool, AttemptReport
from tradewind.workflow.execution.events import (
    Arm,
    ArmedTaskBegun,
    AttemptEnded,
    AttemptOutcome,
    ExecutionEnding,
    ExecutionEvent,
    ExecutionInstruction,
    ExecutionInterrupted,
    Finish,
    GiveBack,
    GuideReady,
    MachineLost,
    MachineSilent,
    MachineUp,
    OrderPlanned,
    PlanFailed,
    Recall,
    Replan,
    TaskLaunch,
    VmDue,
)
from tradewind.workflow.execution.journal import (
    RunHistory,
    RunJournal,
    attempt_key,
    end_record,
    start_record,
)
from tradewind.workflow.execution.machines.engine import PilotEngine
from tradewind.workflow.execution.machines.limits import SpendingLimits, planned_costs
from tradewind.workflow.execution.machines.transfers import FileHub, FilesMoved
from tradewind.workflow.execution.options import ExecutionOptions, ExecutionProgress, execution_progress
from tradewind.workflow.execution.pilots import (
    PilotConnected,
    PilotLost,
    PilotManager,
    PilotReport,
    PilotSettings,
    PilotWaits,
)
from tradewind.workflow.execution.recovery import departures, pilot_owner, recover
from tradewind.workflow.execution.replanning import ActiveTask, OnlineGuide, guide_for, plan_remaining
from tradewind.workflow.execution.run_folder import WorkflowRunFolder, start_order, written_files
from tradewind.workflow.execution.state_machine import ExecutionMachine
from tradewind.workflow.execution.task_states import ABSENT, ExecutionGraph, TaskState, VmState
from tradewind.workflow.files import Plan
from tradewind.workflow.graph import Numbers, Workflow
from tradewind.workflow.planner.base import Planner
from tradewind.workflow.platform import Platform
from tradewind.workflow.schedule import Schedule, vm_request_times

_TICK_SECONDS = 0.1


class VmRequests:
    """Decides when each machine of a plan is requested, and how long one that does not come is waited for.

    Args:
        platform: The machines.
        schedule: The plan.
        options: Settings of the run.
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

    def due(self, vm_states: Sequence[VmState], late: float) -> list[int]:
        """The machines to ask for now, each once: a new plan asks for what it needs by itself.

        Args:
            vm_states: State of each machine.
            late: Seconds that the run is behind its plan. One that is ahead needs its machines earlier; one that is
                behind may catch up, so that they are there when they were to be.
        """
        waiting = [vm for vm, there in enumerate(vm_states) if there is VmState.LATER]
        if not waiting or self._history.began is None:
            return []
        now = self._history.clock(time.time()) + max(0.0, -late)
        due = [vm for vm in waiting if self._due[vm] <= now]
        self._due[due] = np.inf
        return due

    def mark_requested(self, vms: Collection[int]) -> None:
        """Note that some machines have been requested now."""
        self._asked |= dict.fromkeys(vms, time.time())

    def overdue(self, vm_states: Sequence[VmState], come: Collection[int]) -> list[int]:
        """The machines that were asked for long ago and have not come; each is named once.

        Args:
            vm_states: State of each machine.
            come: Those that are there, and only wait for the beginning.
        """
        if self._history.began is None:
            return []
        long_ago = time.time() - self._options.give_up
        over = [vm for vm, at in self._asked.items() if max(self._history.began, at) <= long_ago]
        for vm in over:
            del self._asked[vm]
        return [vm for vm in over if vm_states[vm] is VmState.COMING and vm not in come]


@dataclass(frozen=True)
class NewPlan:
    """A new plan of what is left; ``finish`` has the ends of ``tasks``, in seconds from the beginning of the run.

    Where somebody decides during the run, nothing is known of the ends.
    """

    planned: OrderPlanned | GuideReady
    tasks: tuple[int, ...]
    finish: Numbers | None


class Replanner:
    """Plans what is left of a run in a thread of its own, while the rest of it goes on.

    Args:
        flow: The workflow.
        platform: All machines.
        seconds: What each task takes on each machine, in seconds of the plan.
        planner: Plans; or decides during the run (`ExecutionOptions.online`).
        options: Settings of the run.
        history: The journal of the run.
        post: Takes the result, from the thread.

    Attributes:
        fatal: Error that ended the planning, or None.
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
        """List the running and the armed tasks, with the seconds of the plan that each takes yet."""
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
        """Make the guide that decides during the run; None where the plan's order is followed.

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


class Controller:
    """Carries out one plan in one folder; a later one in the same folder goes on where it was ended.

    Args:
        plan: The plan.
        folder: The run's folder.
        journal: Its journal, open.
        engine: Gives the machines.
        terms: Settings of the pilots.
        options: Settings of the run.
        planner: Plans what is left when a machine or a task is lost, or decides during the run
            (`ExecutionOptions.online`).
        digest: Digest of the plan, which the journal keeps.
        watch: Called with the progress some times a second.
        wanted: Returns False once the run is to stop.
    """

    def __init__(
        self,
        plan: Plan,
        folder: WorkflowRunFolder,
        journal: RunJournal,
        engine: PilotEngine,
        terms: PilotSettings,
        options: ExecutionOptions,
        planner: Planner,
        digest: str,
        watch: Callable[[ExecutionProgress], None] = lambda progress: None,
        wanted: Callable[[], bool] = lambda: True,
    ) -> None:
        self._plan, self._flow, self._platform = plan, plan.flow, plan.platform
        self._folder, self._journal, self._engine = folder, journal, engine
        self._terms, self._options, self._planner = terms, options, planner
        self._digest, self._watch, self._wanted = digest, watch, wanted
        self.history = RunHistory()
        for record in journal.records:
            self.history.take(record)
        cores, slots = [task.cores for task in self._flow.tasks], [vm.slots for vm in self._platform.vms]
        amounts, rooms = (each.tolist() for each in self._platform.scarce(self._flow))
        graph = ExecutionGraph(
            self._flow.parents, cores, slots, self._platform.fits(self._flow).tolist(), amounts, rooms,
            self._flow.priorities,
        )  # fmt: skip
        self._seconds = self._platform.seconds(self._flow)
        planned = plan.schedule.finish - plan.schedule.start
        self._seconds[np.arange(len(self._flow)), plan.schedule.vm] = planned
        self._vm_requests = VmRequests(self._platform, plan.schedule, options, self.history)
        self._planning = Replanner(
            self._flow, self._platform, self._seconds, planner, options, self.history, self._post
        )
        guide = self._planning.guide(range(len(self._flow)), range(len(self._platform.vms)), booted=False)
        order, retry_limits = plan.schedule.order_in(plan.flow), options.retry_limits
        self.machine = ExecutionMachine(graph, order, retry_limits, guide, give_back=options.give_back)
        self.fatal: TradewindError | None = None
        self._reasons: dict[int, str] = {}
        self._finish = plan.schedule.finish * options.scale  # by the newest plan, from the beginning of the run
        self._late = 0.0
        self._events: deque[ExecutionEvent] = deque()
        self._reports: deque[PilotReport | FilesMoved | NewPlan | PlanFailed] = deque()
        self._hub: FileHub | None = None
        self._limits = SpendingLimits(options.budget, options.deadline)
        self._notes: list[str] = []
        self._waits_for = ""
        self._last_loss = ""
        self._unwritten: list[dict[str, Any]] = []
        self._numbers: dict[int, int] = {}
        self._held: list[tuple[float, int]] = []
        self._gather_until = float("inf")

    # ------------------------------------------------------------------ the whole of it

    def run(self) -> ExecutionEnding:
        """Carry out the plan.

        Returns:
            The way that it ended.

        Raises:
            TradewindError: No machine could be had at all, or the run's folder cannot be used.
        """
        secret = self._folder.prepare()
        run_id = self.history.header["run"] if self.history.header else self._begin()
        last = self.history.last
        self._record({"e": "session", "pid": os.getpid(), **self._engine.session(secret)})
        vms = self._platform.vms
        deployer = self._engine.deployer(pilot_owner(run_id), self._platform.billing)
        reserve = planned_costs(self._platform, self._plan.schedule, self._options).__getitem__
        pilots = self._pilots = PilotManager(
            deployer, self._engine.rows, vms, self._folder, run_id, secret, self._terms, reserve, self._post
        )
        if pilots.apart:
            self._hub = FileHub(self._folder.path, pilots.stream, [vm.name for vm in vms], self._post)
        self._fleet = AgentConnectionPool(pilots.unheard, self._terms.silence)
        self._wake, self._wake_sender = socket.socketpair()
        for end in (self._wake, self._wake_sender):
            end.setblocking(False)
        try:
            names = {vm.name: place for place, vm in enumerate(vms)}
            self._numbers = {names[name]: n for name, n in self.history.pilots.items() if name in names}
            kept = pilots.alive(self._numbers)
            left = [name for name in self.history.there if names[name] not in kept]
            self._record(*departures(self._folder, self.history, left, last=last, linger=self._terms.linger))
            there = {vms[vm].name: (vm, self._numbers[vm]) for vm in kept}
            opened = recover(self._flow, self._folder, self.history, there, self._record)
            only = [task for task in range(len(self._flow)) if task not in opened.finished]
            self._folder.stage(self._flow, self._options.inputs, only=only)
            todo = self.machine.handle(replace(opened, later=self._vm_requests.later(kept)))
            self._carry_out([each for each in todo if not isinstance(each, Recall)])  # they are among those below
            if self.machine.ending is None:
                needed = [vm for vm, there in enumerate(self.machine.vm_states) if there is VmState.COMING]
                self._vm_requests.mark_requested(needed)
                pilots.open(self._numbered([vm for vm in needed if vm not in kept]))
                self._loop()
        finally:
            pilots.halt()
            for report in self._reports:  # machines that came at the last moment end, too
                if isinstance(report, PilotConnected):
                    self._fleet.add(report.vm, report.connection, report.offset)
            self._fleet.stop()
            if self._hub is not None:
                self._hub.close()
            try:
                pilots.close()
            finally:
                self._close()
        assert self.machine.ending is not None
        self._record({"e": "stop", "ending": self.machine.ending.value})
        if self.machine.ending is ExecutionEnding.MACHINES and self.fatal is not None:
            raise self.fatal
        return self.machine.ending

    def _begin(self) -> str:
        run_id = f"tw{secrets.token_hex(5)}"
        how = {"scale": self._options.scale, "synthetic": self._options.synthetic}
        self._record({"e": "run", "run": run_id, "plan": self._digest, **how})
        return run_id

    def _numbered(self, vms: Sequence[int]) -> dict[int, int]:
        """Number the next pilot of each of some machines, and write that into the journal."""
        fresh = {vm: self._numbers.get(vm, 0) + 1 for vm in vms}
        names = [each.name for each in self._platform.vms]
        self._record(*({"e": "pilot", "vm": names[vm], "pilot": number} for vm, number in fresh.items()))
        self._numbers |= fresh
        return fresh

    def _record(self, *records: dict[str, Any]) -> None:
        """Write records, after those that were noted before."""
        for record in records:
            self._note(record)
        if self._unwritten:
            unwritten, self._unwritten = self._unwritten, []
            self._journal.write(*unwritten)

    def _note(self, record: dict[str, Any]) -> None:
        """Add a record that is written with the next ones, before anything is done that follows from it."""
        dated = {"at": time.time(), **record}
        self.history.take(dated)
        self._unwritten.append(dated)

    def _close(self) -> None:
        self._record(*({"e": "down", "vm": name, "lost": False} for name in self.history.there))
        self._fleet.close()
        self._wake.close()
        self._wake_sender.close()
        self._watch(self.progress())

    # ------------------------------------------------------------------ events

    def _post(self, report: PilotReport | FilesMoved | NewPlan | PlanFailed) -> None:
        """Take a report from another thread."""
        self._reports.append(report)
        try:
            self._wake_sender.send(b"!")
        except OSError:  # it is full, so the loop wakes; or the run is over
            return

    def _loop(self) -> None:
        self._fleet.selector.register(self._wake, selectors.EVENT_READ)
        shown = 0.0
        while self.machine.ending is None:
            now = time.time()
            pause = min([_TICK_SECONDS, *(max(0.0, moment - now) for moment, _ in self._held[:1])])
            for report in self._fleet.wait(pause, self._wake):
                self._take_report(report)
                self._settle()  # what ends next may have been armed until now
            while self._reports:
                self._report(self._reports.popleft())
            self._release()
            for vm in self._vm_requests.overdue(self.machine.vm_states, {vm for _, vm in self._held}):
                self._pilots.give_up(vm)  # what was planned for it is given to the others
            self._events += map(VmDue, self._vm_requests.due(self.machine.vm_states, self._late))
            if not self._wanted() or self._over():
                self._events.append(ExecutionInterrupted())
            self._settle()
            if time.monotonic() - shown > 0.2:
                shown = time.monotonic()
                self._journal.write()  # who has taken the run from us has the machines, too
                self._watch(self.progress())
                self._notes.clear()

    def _over(self) -> bool:
        """True when the run is to end because of its money or its time."""
        limits = self._limits
        return limits.given and limits.over(self.history, self._platform, self._options.scale, self._pilots.cost)

    def _settle(self) -> None:
        while self._events and self.machine.ending is None:
            self._carry_out(self.machine.handle(self._events.popleft()))
        self._record()

    def _report(self, report: PilotReport | FilesMoved | NewPlan | PlanFailed) -> None:
        match report:
            case FilesMoved():
                self._take_files(report)
            case PilotConnected(vm, connection, host, offset):
                self._fleet.add(vm, connection, offset)
                if self.machine.vm_states[vm] is VmState.BACK:  # an earlier session could not send it that any more
                    self._fleet.let_go(vm)
                for task, (where, attempt) in self.machine.places.items():
                    if where == vm:  # it may not have heard of it, or tell again how it ended
                        self._send(task, vm, attempt)
                if (armed := self.machine.armed.get(vm)) is not None:
                    self._send(armed.task, vm, armed.attempt, armed.after)
                held = any(vm == each for _, each in self._held)
                if not held and self.machine.vm_states[vm] is VmState.COMING:
                    self._record({"e": "up", "vm": self._platform.vms[vm].name, "host": host})
                    self._hold(vm)
            case PilotLost(vm, reason, fatal):
                self.fatal = fatal or self.fatal
                self._lose(vm, reason)
            case PilotWaits(_, reason):
                if reason != self._waits_for:  # they wait for the same
                    self._waits_for = reason
                    self._notes.append(f"machines are waited for: {reason}")
            case NewPlan(planned, tasks, finish):
                self._record({"e": "plan", "tasks": len(tasks), "planner": self._planner.name})
                if finish is not None:
                    self._finish[list(tasks)], self._late = finish, 0.0
                self._events.append(planned)
            case PlanFailed():
                self.fatal = self._planning.fatal
                self._events.append(report)

    def _hold(self, vm: int) -> None:
        """Let a machine wait for the others before the first task, and for its own start if that is only played."""
        now = time.time()
        if self.history.began is None and self._gather_until == float("inf"):
            self._gather_until = now + self._options.gather
        began, it = float("inf"), self._platform.vms[vm]
        if self.history.began is not None:
            began = self.history.boots_from(it.name, now)
        boot = it.boot_seconds * self._options.scale if self._options.synthetic else 0.0
        heapq.heappush(self._held, (max(now, began + boot), vm))

    def _release(self) -> None:
        now = time.time()
        if self.history.began is None and self._held:
            awaited = sum(there is VmState.COMING for there in self.machine.vm_states)
            if len(self._held) < awaited and now < self._gather_until:
                return
            self._record({"e": "began"})
            held, self._held = self._held, []
            for _, vm in held:
                self._hold(vm)
        while self._held and self._held[0][0] <= time.time():
            self._events.append(MachineUp(heapq.heappop(self._held)[1]))

    def _give_back(self, vm: int) -> None:
        self._record({"e": "down", "vm": self._platform.vms[vm].name, "lost": False})
        self._held = [each for each in self._held if each[1] != vm]
        heapq.heapify(self._held)
        self._fleet.let_go(vm)
        if self._hub is not None:
            self._hub.leave(vm)
        self._pilots.give_back(vm)

    def _recall(self, vm: int) -> None:
        name = self._platform.vms[vm].name
        self._notes.append(f"{name} is asked for{' again' if name in self.history.pilots else ''}")
        self._vm_requests.mark_requested([vm])
        self._pilots.fetch(self._numbered([vm]))

    def _lose(self, vm: int, reason: str) -> None:
        if self.machine.vm_states[vm] is VmState.LOST or self.machine.vm_states[vm] in ABSENT:
            return
        self._fleet.drop(vm)
        if self._hub is not None:
            self._hub.leave(vm)
        self._held = [each for each in self._held if each[1] != vm]
        heapq.heapify(self._held)
        self._notes.append(reason)
        self._last_loss = reason
        self._record({"e": "down", "vm": self._platform.vms[vm].name, "lost": True, "reason": reason})
        self._events.append(MachineSilent(vm))
        self._settle()
        ended = True
        while ended and self.machine.ending is None:
            ended = False
            for task, attempt in self._there(vm):
                if (result := self._folder.end(self._flow.tasks[task].id, attempt)) is not None:
                    ended = True  # its machine was lost before it could say so
                    self._ended(task, attempt, result, 0.0)
            self._settle()  # and so another may have begun there
        if self.machine.ending is not None:
            return
        for task, attempt in self._there(vm):
            self._record(self._end(task, attempt, {"outcome": "lost", "reason": reason}, 0.0))
        self._events.append(MachineLost(vm))

    def _there(self, vm: int) -> list[tuple[int, int]]:
        """The tasks that run on a machine, each with its attempt."""
        return [(task, attempt) for task, (where, attempt) in self.machine.places.items() if where == vm]

    def _take_report(self, report: AttemptReport) -> None:
        name, _, attempt = report.key.rpartition("#")
        task = self._flow.index.get(name, -1)
        if self._hub is not None and task >= 0 and report.result["outcome"] in ("done", "failed"):
            self._hub.fetch(report.vm, self._left_by(task, int(attempt), report.result["outcome"]), report)
        elif self.machine.places.get(task, (-1, -1)) == (report.vm, int(attempt)):
            self._ended(task, int(attempt), report.result, report.offset)

    def _left_by(self, task: int, attempt: int, outcome: str) -> list[str]:
        """Names below the run's folder of what an attempt has left."""
        it = self._flow.tasks[task]
        if not it.command:
            return []
        folder = self._folder.attempt(it.id, attempt)
        outputs = [f"files/{name}" for name in written_files(it)] if outcome == "done" else []
        return [f"{folder}/stdout", f"{folder}/stderr", *outputs]

    def _take_files(self, moved: FilesMoved) -> None:
        """Go on with what was waiting for files: a task that is to begin, or one that has ended."""
        about = moved.about
        if isinstance(about, AttemptReport):
            name, _, number = about.key.rpartition("#")
            task, attempt, result = self._flow.index[name], int(number), about.result
            if moved.trouble and result["outcome"] == "done":
                result = {**result, "outcome": "failed", "reason": moved.trouble}
        else:
            task, attempt = about
            result = {"outcome": "failed", "reason": moved.trouble, "began": time.time(), "seconds": 0.0}
        if self.machine.places.get(task, (-1, -1)) != (moved.vm, attempt):
            return
        if isinstance(about, AttemptReport):
            self._ended(task, attempt, result, about.offset)
        elif moved.trouble:
            self._ended(task, attempt, result, 0.0)
        else:
            self._order(task, moved.vm, attempt)

    def _ended(self, task: int, attempt: int, result: dict[str, Any], offset: float) -> None:
        if result["outcome"] not in ("done", "failed", "lost"):
            return  # it was stopped, because we wanted it
        outcome = AttemptOutcome(result["outcome"])
        record = self._end(task, attempt, result, offset)
        self._note(record)
        if outcome is AttemptOutcome.DONE:
            self._late = self.history.clock(record["finish"]) - float(self._finish[task])
        else:
            self._notes.append(f"{self._flow.tasks[task].id} {outcome} (attempt {attempt}): {result['reason']}")
            self._reasons[task] = result["reason"]
        self._events.append(AttemptEnded(task, attempt, outcome))

    def _end(self, task: int, attempt: int, result: dict[str, Any], offset: float) -> dict[str, Any]:
        return end_record(self._flow.tasks[task].id, attempt, result, offset)

    # ------------------------------------------------------------------ instructions

    def _carry_out(self, instructions: Sequence[ExecutionInstruction]) -> None:
        records = [
            self._record_of(each) for each in instructions if isinstance(each, TaskLaunch | ArmedTaskBegun | Arm)
        ]
        if records:
            self._record(*records)
        for each in instructions:
            match each:
                case TaskLaunch(task, vm, attempt):
                    self._send(task, vm, attempt)
                case Arm(task, vm, attempt, after):
                    self._send(task, vm, attempt, after)
                case Replan(tasks, vms):
                    self._notes.append(f"planning {count(len(tasks), 'task')} again for {count(len(vms), 'machine')}")
                    self._planning.begin(each, self.machine)
                case GiveBack(vm):
                    self._give_back(vm)
                case Recall(vm):
                    self._recall(vm)
                case ArmedTaskBegun(task, vm, attempt) if self._hub is not None:
                    self._send(task, vm, attempt)
                case ArmedTaskBegun() | Finish():
                    pass

    def _record_of(self, each: TaskLaunch | ArmedTaskBegun | Arm) -> dict[str, Any]:
        task, vm = self._flow.tasks[each.task].id, self._platform.vms[each.vm].name
        record = start_record(task, each.attempt, vm, self._numbers[each.vm])
        return record if not isinstance(each, Arm) else {**record, "e": "arm", "after": self._keys(each.after)}

    def _keys(self, tasks: Collection[int]) -> list[str]:
        """The attempts that some tasks which run are at, as machines know them."""
        return [attempt_key(self._flow.tasks[task].id, self.machine.places[task][1]) for task in sorted(tasks)]

    def _send(self, task: int, vm: int, attempt: int, after: Collection[int] = ()) -> None:
        """Give a task to a machine: at once, or when its files are there.

        A machine that does not see the run's folder begins nothing by itself: the outputs before are brought here
        first. Files of a task that it will be given are sent meanwhile.
        """
        if self._hub is None:
            self._order(task, vm, attempt, after)
            return
        it = self._flow.tasks[task]
        names = [f"files/{name}" for name in it.inputs if not name.startswith("/")] if it.command else []
        self._hub.send(vm, names, None if after else (task, attempt))

    def _order(self, task: int, vm: int, attempt: int, after: Collection[int] = ()) -> None:
        seconds = float(self._seconds[task, vm]) * self._options.scale
        known = self._flow.producers
        it = self._flow.tasks[task]
        common = [name for name in it.outputs if len(known[name]) > 1]
        order = start_order(
            it, attempt, self._folder, isolated=self._options.isolated, seconds=seconds, common=common,
            apart=self._hub is not None, gpus=self._terms.gpus, log_bytes=self._terms.log_bytes,
        )  # fmt: skip
        self._fleet.send(vm, {**order, "after": self._keys(after)})

    @property
    def limit(self) -> TradewindError | None:
        """The limit of money or time that ended the run, or None."""
        return self._limits.reached

    @property
    def reason(self) -> str:
        """Reason that what is left cannot be planned, or that no machine is left; empty where it ended otherwise."""
        if self.machine.ending is ExecutionEnding.MACHINES:
            return self._last_loss
        why = self._planning.fatal
        return why.message if why is not None and self.machine.ending is ExecutionEnding.IMPOSSIBLE else ""

    @property
    def failed(self) -> dict[str, str]:
        """The tasks that failed for good, with the reason of each."""
        failed = [task for task, step in enumerate(self.machine.task_states) if step is TaskState.FAILED]
        return {self._flow.tasks[task].id: self._reasons.get(task, "it lost its machine too often") for task in failed}

    def progress(self) -> ExecutionProgress:
        """Progress of the run."""
        finish = self._finish + self._late
        return execution_progress(self.machine, self.history, self._platform, finish, tuple(self._notes))
