"""The base of runners that know the result of a run at once and let it end on a simulated clock."""

from __future__ import annotations

import json
import math
import time
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from tradewind import plugins
from tradewind.deployer.environment import METRICS
from tradewind.deployer.runner.base import LimitsTime, Runner, Simulates, SurvivesController
from tradewind.deployer.runner.exit_reasons import lost_status, timeout_reason
from tradewind.deployer.runner.handle import HandleData
from tradewind.deployer.runner.run_files import RunNotes, folder_error
from tradewind.problem import Fault, Handle, Machine, RunRequest, RunState, RunStatus, Usage
from tradewind.utils.clock import SimulatedClock
from tradewind.utils.log_copies import write_copies


@dataclass(frozen=True, slots=True)
class SimulatedOutcome:
    """The result that a run would have without a time limit.

    Attributes:
        seconds: Its run time.
        failed: The reason for which it fails at the end of them, or empty.
        metrics: Its metrics, by name.
        profile: Its low-level metrics, by name.
        files: Files that it leaves in its folder instead of the metrics, as `copy_run_files` made them.
        state: The state in which it ends, where ``failed`` does not say it; ``failed`` is its reason then.
        fault: The cause, where it ends otherwise than done; the job's without it.
        exit_code: Of the program; without it 0, or 1 for a failed one.
        usage: The resources that it uses; what ``profile`` has without it.
    """

    seconds: float
    failed: str = ""
    metrics: Mapping[str, float] = field(default_factory=dict)
    profile: Mapping[str, float] = field(default_factory=dict)
    files: Mapping[str, Any] | None = None
    state: RunState | None = None
    fault: Fault | None = None
    exit_code: int | None = None
    usage: Usage | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedRunPlan(HandleData):
    """The course of a run on the simulated clock, which is the data of a handle of a `SimulatedRunner`.

    Attributes:
        started: The time when it began, on the clock; None for a run that was never planned.
        seconds: Its run time.
        state: The state in which it ends.
        reason: The reason of that state, or of its cancellation.
        cancelled: The time when it was cancelled, on the clock, or None.
        profile: Its low-level metrics, by name.
        fault: The cause of an end that is not done; the job without it.
        exit_code: Of the program; without it 0, or 1 for a failed one.
        peak_memory_bytes: Memory that it used, or None.
        cpu_seconds: CPU time that it used, or None.
    """

    started: float | None = None
    seconds: float = 0.0
    state: str = RunState.DONE
    reason: str = ""
    cancelled: float | None = None
    profile: Mapping[str, float] = field(default_factory=dict)
    fault: str = ""
    exit_code: int | None = None
    peak_memory_bytes: int | None = None
    cpu_seconds: float | None = None


_EXIT_CODES = {RunState.DONE: 0, RunState.FAILED: 1}


class SimulatedRunner(Runner, Simulates, LimitsTime, SurvivesController):
    """Knows how a run ends as soon as it is submitted, and lets it end on a simulated clock.

    A note of each run is kept below the data folder until it is settled, so that another process finds it again.

    Args:
        settings: The settings of the plugin.
        data_folder: Notes are kept below it, in a folder of the runner's name.
        start: The first time on the clock, in seconds since the epoch; the present time without it.
    """

    def __init__(self, *, settings: plugins.Settings, data_folder: Path, start: float | None = None) -> None:
        super().__init__(settings=settings, data_folder=data_folder)
        self._notes = RunNotes(data_folder / self.name, ".run")
        self._plans: dict[str, SimulatedRunPlan] = {}
        # A whole start, so that adding run times rounds the same way whenever the search is made.
        begin = math.floor(time.time()) if start is None else start
        plans = [SimulatedRunPlan.from_json(note.content) for note in self._notes.all(None)]
        known = [plan.started for plan in plans if plan.started is not None]
        self._clock = SimulatedClock(max([begin, *known]))

    @property
    def clock(self) -> SimulatedClock:
        """The simulated clock; after a restart it goes on from the latest start of a run that is still open."""
        return self._clock

    @abstractmethod
    def answer(self, request: RunRequest) -> SimulatedOutcome:
        """Compute the result of a run, whatever its time limit."""

    def submit(self, request: RunRequest, machines: Sequence[Machine]) -> Handle:
        """Compute the result of a run and plan its end; see `Runner.submit`."""
        plan = self._plan(request.run_id, request.owner)
        if plan is None:
            answer = self.answer(request)
            plan = self._planned(request, answer)
            try:
                request.folder.mkdir(parents=True, exist_ok=True)
                if answer.files is not None and plan.seconds == answer.seconds:
                    write_copies(request.folder, answer.files)
                elif plan.state == RunState.DONE:
                    line = json.dumps(dict(answer.metrics)) + "\n"
                    (request.folder / METRICS).write_text(line, encoding="utf-8")
            except OSError as error:
                raise folder_error(error, request.folder) from error
            self._notes.write(request.owner, request.run_id, plan.to_json())
            self._plans[request.run_id] = plan
        return plan.handle(request.run_id, self.name)

    def _planned(self, request: RunRequest, answer: SimulatedOutcome) -> SimulatedRunPlan:
        wall = request.limits.wall_seconds
        plan = SimulatedRunPlan(owner=request.owner, started=self._clock.now(), seconds=answer.seconds)
        if wall is not None and answer.seconds > wall and answer.state is not RunState.TIMED_OUT:
            return replace(plan, seconds=wall, state=RunState.TIMED_OUT, reason=timeout_reason(wall))
        usage = answer.usage or Usage(profile=answer.profile)
        plan = replace(
            plan,
            fault=answer.fault.value if answer.fault is not None else "",
            exit_code=answer.exit_code,
            peak_memory_bytes=usage.peak_memory_bytes,
            cpu_seconds=usage.cpu_seconds,
            profile=dict(usage.profile),
        )
        if answer.state is not None or answer.failed:
            return replace(plan, state=answer.state or RunState.FAILED, reason=answer.failed)
        return plan

    def poll(self, handles: Sequence[Handle]) -> Mapping[str, RunStatus]:
        """The statuses of some runs at this moment of the clock; see `Runner.poll`."""
        return {handle.run_id: self._status(handle) for handle in handles}

    def _status(self, handle: Handle) -> RunStatus:
        plan = self._plan_of(handle)
        if plan.started is None:
            return lost_status("it was never planned")
        now, end = self._clock.now(), plan.started + plan.seconds
        if plan.cancelled is not None and plan.cancelled < end:
            return RunStatus(RunState.CANCELLED, runtime=plan.cancelled - plan.started, reason=plan.reason)
        if now < end:
            return RunStatus(RunState.EXECUTING, runtime=max(0.0, now - plan.started))
        state = RunState(plan.state)
        return RunStatus(
            state,
            runtime=plan.seconds,
            reason=plan.reason,
            fault=None if state is RunState.DONE else Fault(plan.fault or Fault.JOB),
            exit_code=plan.exit_code if plan.exit_code is not None else _EXIT_CODES.get(state),
            usage=Usage(plan.peak_memory_bytes, plan.cpu_seconds, plan.profile),
        )

    def wait(self, handles: Sequence[Handle], seconds: float) -> None:
        """Move the clock to the end of the next run, or ``seconds`` ahead, whichever comes first."""
        until = self._clock.now() + max(0.0, seconds)
        for plan in map(self._plan_of, handles):
            if plan.started is not None:
                until = min(until, plan.started + plan.seconds)
        self._clock.advance_to(until)

    def cancel(self, handle: Handle, reason: str = "") -> None:
        """End a run at this moment of the clock; see `Runner.cancel`."""
        if self._status(handle).state.ended:
            return
        plan = replace(self._plan_of(handle), cancelled=self._clock.now(), reason=reason)
        self._plans[handle.run_id] = plan
        self._notes.write(plan.owner, handle.run_id, plan.to_json())

    def find(self, owner: str | None) -> list[Handle]:
        """All runs of an owner, or of all, that are not settled; see `Runner.find`."""
        return [SimulatedRunPlan.from_json(n.content).handle(n.run_id, self.name) for n in self._notes.all(owner)]

    def forget(self, handle: Handle) -> None:
        """Remove the plan of a settled run."""
        self._plans.pop(handle.run_id, None)
        self._notes.remove(SimulatedRunPlan.of(handle).owner, handle.run_id)

    def _plan(self, run_id: str, owner: str) -> SimulatedRunPlan | None:
        if run_id not in self._plans:
            found = self._notes.read(owner, run_id)
            if found is None:
                return None
            self._plans[run_id] = SimulatedRunPlan.from_json(found)
        return self._plans[run_id]

    def _plan_of(self, handle: Handle) -> SimulatedRunPlan:
        if handle.run_id in self._plans:
            return self._plans[handle.run_id]
        given = SimulatedRunPlan.of(handle)
        return self._plan(handle.run_id, given.owner) or given
