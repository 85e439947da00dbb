"""Answers runs from recorded ones, on a simulated clock."""

from __future__ import annotations

import functools
import glob
import json
import math
import random
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import quote

from pydantic import BeforeValidator, Field, model_validator

from tradewind import plugins
from tradewind.clock import SimulatedClock
from tradewind.deployer.environment import METRICS
from tradewind.deployer.runner.base import LimitsTime, Runner, Simulates, SurvivesController
from tradewind.deployer.runner.files import document, folder_error, replace_document
from tradewind.deployer.runner.records import FRACTION, Layout, Recorded, Table, read_csv, read_records
from tradewind.errors import DeployError, RecordError
from tradewind.problem import Fault, Handle, Machine, RunRequest, RunState, RunStatus, Usage, Value
from tradewind.units import format_duration


class ReplaySettings(plugins.Settings):
    """Settings of the replay runner."""

    file: Path | None = Field(None, description="CSV with one recorded run a line and a header; .gz is unpacked")
    records: Path | None = Field(None, description="Recorded trials that tradewind export --records wrote")
    columns: dict[str, str] = Field(
        default_factory=dict,
        description="Parameter -> column, where they differ in name; the offer's facts (instance_type, nodes, region) "
        "may be mapped too",
    )
    time: str = Field("runtime", description="Column of the run time")
    unit: float = Field(1.0, gt=0, description="Seconds in one unit of the time column (0.001 for milliseconds)")
    cost: str = Field("", description="Column of the recorded cost; it becomes the metric recorded_cost")
    status: str = Field("", description="Column that tells whether the run went well")
    ok: tuple[str, ...] = Field(
        ("ok", "done", "success", "succeeded", "completed", "true", "0"), description="What stands there if it did"
    )
    metrics: Annotated[
        dict[str, str], BeforeValidator(lambda v: v, json_schema_input_type=dict[str, str] | list[str])
    ] = Field(default_factory=dict, description="Metric -> column, or the columns that are metrics")
    where: dict[str, str | int | float | bool] = Field(
        default_factory=dict, description="Column -> value: only these rows are read"
    )
    delimiter: str = Field(",", min_length=1, max_length=1, description="Between columns")
    repeat: Literal["first", "mean", "random"] = Field(
        "first", description="Which answer a configuration gets that was recorded several times"
    )
    noise: float = Field(0.0, ge=0, description="Sigma of a log-normal factor of mean 1 on every run time")
    nearest: bool = Field(False, description="Answer a configuration without a record by the nearest one")
    seed: int = Field(0, description="For repeat: random and noise; together with the run's id")
    start: float | None = Field(None, description="First time on the clock, in seconds since 1970; now if empty")

    @model_validator(mode="before")
    @classmethod
    def _metrics_by_name(cls, given: Any) -> Any:
        if isinstance(given, dict) and isinstance(given.get("metrics"), list | tuple):
            return {**given, "metrics": {name: name for name in given["metrics"]}}
        return given

    @model_validator(mode="after")
    def _one_source(self) -> ReplaySettings:
        if (self.file is None) == (self.records is None):
            raise ValueError("give either file (a CSV) or records (exported trials)")
        return self


@functools.lru_cache(maxsize=8)
def _table(settings: str, _changed: int) -> Table:
    """The table of some settings; a benchmark that makes many searches over one file reads it once."""
    given = ReplaySettings.model_validate_json(settings)
    if given.records is not None:
        runs = read_records(given.records)
    else:
        assert given.file is not None
        layout = Layout(
            given.time,
            given.unit,
            given.columns,
            given.cost,
            given.status,
            given.ok,
            given.metrics,
            {name: str(value) for name, value in given.where.items()},
            given.delimiter,
        )
        runs = read_csv(given.file, layout)
    if not runs:
        raise RecordError(
            "there is no recorded run in it", file=str(given.records or given.file), hint="see the setting where"
        )
    return Table(runs)


class ReplayRunner(Runner, Simulates, LimitsTime, SurvivesController):
    """Answers runs from recorded ones, on a simulated clock: a search of hours takes a second.

    A configuration is looked up by the columns that bear the names of its parameters (see ``columns``). Its run takes
    the recorded time, on a clock that jumps; metrics go into the run's metrics file. A configuration that was never
    recorded fails, unless ``nearest`` is set. Time limits are kept to the second.
    """

    name = "replay"
    Settings = ReplaySettings
    settings: ReplaySettings

    def __init__(self, *, settings: plugins.Settings, data_folder: Path) -> None:
        super().__init__(settings=settings, data_folder=data_folder)
        self._folder = data_folder / "replay"
        self._plans: dict[str, dict[str, Any]] = {}
        # A whole start, so that adding run times rounds the same way whenever the search is made.
        begin = math.floor(time.time()) if self.settings.start is None else self.settings.start
        known = [plan["started"] for note in self._folder.glob("*/*.run") if (plan := document(note))]
        self._clock = SimulatedClock(max([begin, *known]))
        len(self.table)  # a wrong file is the user's mistake: it stops the search before its first trial

    @property
    def clock(self) -> SimulatedClock:
        """The simulated clock; after a restart it goes on from the latest start of a run that is still open."""
        return self._clock

    @property
    def table(self) -> Table:
        """The recorded runs.

        Raises:
            RecordError: The file cannot be read, or has an error; with file and line.
        """
        path = self.settings.file or self.settings.records
        assert path is not None
        try:
            changed = path.stat().st_mtime_ns
        except OSError:
            changed = 0  # the reader says what is wrong
        return _table(self.settings.model_dump_json(), changed)

    def submit(self, request: RunRequest, machines: Sequence[Machine]) -> Handle:
        """Look a run up and plan its end; see `Runner.submit`."""
        plan = self._plan(request.run_id, request.owner)
        if plan is None:
            plan = self._planned(request)
            note = self._note(request.owner, request.run_id)
            try:
                request.folder.mkdir(parents=True, exist_ok=True)
                if plan["state"] == RunState.DONE:
                    line = json.dumps(plan.pop("metrics")) + "\n"
                    (request.folder / METRICS).write_text(line, encoding="utf-8")
                plan.pop("metrics", None)
                note.parent.mkdir(parents=True, exist_ok=True)
                replace_document(note, plan)
            except OSError as error:
                raise folder_error(error, request.folder) from error
            self._plans[request.run_id] = plan
        return Handle(request.run_id, self.name, plan)

    def _planned(self, request: RunRequest) -> dict[str, Any]:
        wall = request.limits.wall_seconds
        found = self._answer(request)
        plan: dict[str, Any] = {
            "run_id": request.run_id,
            "owner": request.owner,
            "started": self._clock.now(),
            "reason": "",
            "metrics": {},
        }
        if found is None:
            words = ", ".join(f"{name}={value}" for name, value in request.configuration.items())
            return {**plan, "seconds": 0.0, "state": "failed", "reason": f"no run was recorded for {words}"}
        if wall is not None and found.seconds > wall:
            reason = f"it reached its time limit of {format_duration(wall)}"
            return {**plan, "seconds": wall, "state": "timed_out", "reason": reason}
        if found.failed:
            return {**plan, "seconds": found.seconds, "state": "failed", "reason": found.failed}
        profile = {"profile": dict(found.profile)} if found.profile else {}
        return {**plan, "seconds": found.seconds, "state": "done", "metrics": dict(found.metrics), **profile}

    def _answer(self, request: RunRequest) -> Recorded | None:
        def value(name: str) -> Value | None:
            if name in request.configuration:
                return request.configuration[name]
            return request.fidelity if name == FRACTION else request.offer.attribute(name)

        table = self.table
        names = table.names(tuple(request.configuration), tuple(self.settings.columns))
        if not names:
            raise RecordError(
                "no column has the name of a parameter",
                file=str(self.settings.file or self.settings.records),
                hint="map them with columns: {parameter: column}",
            )
        found = table.exactly(names, value) or (table.nearest(names, value) if self.settings.nearest else [])
        if not found:
            return None
        # Without the owner's tag, which is drawn anew for each study, equal seeds give equal searches.
        chance = random.Random(f"{self.settings.seed}/{request.run_id.removeprefix(request.owner)}")  # noqa: S311
        chosen = _choose(found, self.settings.repeat, chance)
        sigma = self.settings.noise
        factor = math.exp(chance.gauss(-0.5 * sigma * sigma, sigma)) if sigma else 1.0
        return replace(chosen, seconds=chosen.seconds * factor)

    def poll(self, handles: Sequence[Handle]) -> Mapping[str, RunStatus]:
        """Where some runs are on the clock; see `Runner.poll`."""
        return {handle.run_id: self._status(handle) for handle in handles}

    def _status(self, handle: Handle) -> RunStatus:
        plan = self._plan(handle.run_id, handle.data.get("owner", "")) or handle.data
        if "started" not in plan:
            reason = "the run is gone without a result: it was never planned"
            return RunStatus(RunState.PREEMPTED, reason=reason, fault=Fault.INFRASTRUCTURE)
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

    def cancel(self, handle: Handle) -> None:
        """End a run at this moment of the clock; see `Runner.cancel`."""
        if self._status(handle).state.ended:
            return
        owner = handle.data.get("owner", "")
        plan = dict(self._plan(handle.run_id, owner) or handle.data)
        plan |= {"cancelled": self._clock.now(), "reason": str(handle.data.get("reason", ""))}
        self._plans[handle.run_id] = plan
        try:
            replace_document(self._note(owner, handle.run_id), plan)
        except OSError as error:
            raise DeployError(f"the cancelled run cannot be noted: {error.strerror}") from error

    def find(self, owner: str | None) -> list[Handle]:
        """All runs of an owner, or of all, that are not settled; see `Runner.find`."""
        owners = "*" if owner is None else glob.escape(quote(owner, safe=""))
        notes = sorted(self._folder.glob(f"{owners}/*.run"))
        return [
            Handle(plan["run_id"], self.name, plan) for note in notes if (plan := document(note)) and "run_id" in plan
        ]

    def forget(self, handle: Handle) -> None:
        """Remove the plan of a settled run."""
        self._plans.pop(handle.run_id, None)
        self._note(handle.data.get("owner", ""), handle.run_id).unlink(missing_ok=True)

    def _plan(self, run_id: str, owner: str) -> Mapping[str, Any] | None:
        if run_id not in self._plans:
            found = document(self._note(owner, run_id))
            if found is None:
                return None
            self._plans[run_id] = found
        return self._plans[run_id]

    def _note(self, owner: str, run_id: str) -> Path:
        return self._folder / quote(owner, safe="") / f"{quote(run_id, safe='')}.run"


def _choose(found: Sequence[Recorded], repeat: str, chance: random.Random) -> Recorded:
    if repeat == "first" or len(found) == 1:
        return found[0]
    if repeat == "random":
        return chance.choice(found)
    good = [run for run in found if not run.failed] or found
    names = set.intersection(*(set(run.metrics) for run in good))
    return Recorded(
        good[0].values,
        math.fsum(run.seconds for run in good) / len(good),
        good[0].failed,
        {name: math.fsum(run.metrics[name] for run in good) / len(good) for name in sorted(names)},
        good[0].place,
    )
