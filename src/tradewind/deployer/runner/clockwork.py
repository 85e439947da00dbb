"""What runners share whose runs are answered at once and end on a simulated clock."""

from __future__ import annotations

import json
import math
import time
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tradewind import plugins
from tradewind.clock import SimulatedClock
from tradewind.deployer.environment import METRICS
from tradewind.deployer.runner.base import LimitsTime, Runner, Simulates, SurvivesController
from tradewind.deployer.runner.endings import gone, timed_out
from tradewind.deployer.runner.files import folder_error
from tradewind.deployer.runner.notes import Notes
from tradewind.problem import Fault, Handle, Machine, RunRequest, RunState, RunStatus, Usage


@dataclass(frozen=True, slots=True)
class Answer:
    """What a run would do.

    Attributes:
        seconds: How long it takes.
        failed: Why it fails at the end of them, or empty.
        metrics: What it measures, by name.
        profile: Low-level metrics of it, by name.
    """

    seconds: float
    failed: str = ""
    metrics: Mapping[str, float] = field(default_factory=dict)
    profile: Mapping[str, float] = field(default_factory=dict)


class ClockworkRunner(Runner, Simulates, LimitsTime, SurvivesController):
    """Knows how a run ends as soon as it is submitted, and lets it end on a simulated clock.

    A note of each run is kept below the data folder until it is settled, so that another process finds it again.

    Args:
        settings: Its settings.
        data_folder: Notes are kept below it, in a folder of the runner's name.
        start: First time on the clock, in seconds since 1970; now without it.
    """

    def __init__(self, *, settings: plugins.Settings, data_folder: Path, start: float | None = None) -> None:
        super().__init__(settings=settings, data_folder=data_folder)
        self._notes = Notes(data_folder / self.name, ".run")
        self._plans: dict[str, dict[str, Any]] = {}
        # A whole start, so that adding run times rounds the same way whenever the search is made.
        begin = math.floor(time.time()) if start is None else start
        known = [note.content["started"] for note in self._notes.all(None) if "started" in note.content]
        self._clock = SimulatedClock(max([begin, *known]))

    @property
    def clock(self) -> SimulatedClock:
        """The simulated clock; after a restart it goes on from the latest start of a run that is still open."""
        return self._clock

    @abstractmethod
    def answer(self, request: RunRequest) -> Answer:
        """What a run does, whatever its time limit."""

    def submit(self, request: RunRequest, machines: Sequence[Machine]) -> Handle:
        """Answer a run and plan its end; see `Runner.submit`."""
        plan = self._plan(request.run_id, request.owner)
        if plan is None:
            plan = self._planned(request)
            try:
                request.folder.mkdir(parents=True, exist_ok=True)
                if plan["state"] == RunState.DONE:
                    line = json.dumps(plan.pop("metrics")) + "\n"
                    (request.folder / METRICS).write_text(line, encoding="utf-8")
                plan.pop("metrics", None)
            except OSError as error:
                raise folder_error(error, request.folder) from error
            self._notes.write(request.owner, request.run_id, plan)
            self._plans[request.run_id] = plan
        return Handle(request.run_id, self.name, plan)

    def _planned(self, request: RunRequest) -> dict[str, Any]:
        wall = request.limits.wall_seconds
        found = self.answer(request)
        plan: dict[str, Any] = {
            "run_id": request.run_id,
            "owner": request.owner,
            "started": self._clock.now(),
            "reason": "",
            "metrics": {},
        }
        if wall is not None and found.seconds > wall:
            reason = timed_out(wall)
            return {**plan, "seconds": wall, "state": "timed_out", "reason": reason}
        if found.failed:
            return {**plan, "seconds": found.seconds, "state": "failed", "reason": found.failed}
        profile = {"profile": dict(found.profile)} if found.profile else {}
        return {**plan, "seconds": found.seconds, "state": "done", "metrics": dict(found.metrics), **profile}

    def poll(self, handles: Sequence[Handle]) -> Mapping[str, RunStatus]:
        """Where some runs are on the clock; see `Runner.poll`."""
        return {handle.run_id: self._status(handle) for handle in handles}

    def _status(self, handle: Handle) -> RunStatus:
        plan = self._plan(handle.run_id, handle.data.get("owner", "")) or handle.data
        if "started" not in plan:
            return gone("it was never planned")
        now, end = self._clock.now(), plan["started"] + plan["seconds"]
        cancelled = plan.get("cancelled")
        if cancelled is not None and cancelled < end:
            runtime = cancelled - plan["started"]
            return RunStatus(RunState.CANCELLED, runtime=runtime, reason=plan["reason"])
        if now < end:
            return RunStatus(RunState.EXECUTING, runtime=max(0.0, now - plan["started"]))
        state = RunState(plan["state"])
        return RunStatus(
            state,
            runtime=plan["seconds"],
            reason=plan["reason"],
            fault=None if state is RunState.DONE else Fault.JOB,
            exit_code={RunState.DONE: 0, RunState.FAILED: 1}.get(state),
            usage=Usage(profile=plan.get("profile", {})),
        )

    def wait(self, handles: Sequence[Handle], seconds: float) -> None:
        """Jump to the end of the next run, or ``seconds`` ahead, whichever comes first."""
        until = self._clock.now() + max(0.0, seconds)
        for handle in handles:
            plan = self._plan(handle.run_id, handle.data.get("owner", "")) or handle.data
            if "started" in plan:
                until = min(until, plan["started"] + plan["seconds"])
        self._clock.advance_to(until)

    def cancel(self, handle: Handle, reason: str = "") -> None:
        """End a run at this moment of the clock; see `Runner.cancel`."""
        if self._status(handle).state.ended:
            return
        owner = handle.data.get("owner", "")
        plan = dict(self._plan(handle.run_id, owner) or handle.data)
        plan |= {"cancelled": self._clock.now(), "reason": reason}
        self._plans[handle.run_id] = plan
        self._notes.write(owner, handle.run_id, plan)

    def find(self, owner: str | None) -> list[Handle]:
        """All runs of an owner, or of all, that are not settled; see `Runner.find`."""
        return [Handle(note.run_id, self.name, note.content) for note in self._notes.all(owner)]

    def forget(self, handle: Handle) -> None:
        """Remove the plan of a settled run."""
        self._plans.pop(handle.run_id, None)
        self._notes.remove(handle.data.get("owner", ""), handle.run_id)

    def _plan(self, run_id: str, owner: str) -> Mapping[str, Any] | None:
        if run_id not in self._plans:
            found = self._notes.read(owner, run_id)
            if found is None:
                return None
            self._plans[run_id] = found
        return self._plans[run_id]
