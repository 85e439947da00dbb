"""Answers runs from recorded ones, on a simulated clock."""

from __future__ import annotations

import functools
import math
import random
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, model_validator

from tradewind import plugins
from tradewind.deployer.runner.base import AnswersFromRecords
from tradewind.deployer.runner.exit_reasons import timeout_reason
from tradewind.deployer.runner.recorded_runs import (
    FRACTION,
    WORDS_OF_SUCCESS,
    CsvLayout,
    RecordedRun,
    RecordedRunTable,
    RecordedTrialRun,
    canonical_text,
    read_csv,
    read_records,
)
from tradewind.deployer.runner.simulated import SimulatedOutcome, SimulatedRunner
from tradewind.errors import RecordError
from tradewind.problem import Instance, Nodes, Parameter, RunRequest, RunState, Space, Value
from tradewind.utils.units import format_duration

_SHOWN = 8


class ReplaySettings(plugins.Settings):
    """Settings of the replay runner."""

    file: Path | None = Field(None, description="CSV with one recorded run a line and a header; .gz is unpacked")
    records: Path | None = Field(None, description="Recorded trials that tradewind export --format records wrote")
    columns: dict[str, str] = Field(
        default_factory=dict,
        description="Parameter -> column, where they differ in name; the offer's facts (instance_type, nodes, region) "
        "may be mapped too",
    )
    ignore: tuple[str, ...] = Field(
        (), description="Parameters that the recorded runs do not depend on, and that need no column"
    )
    time: str = Field("runtime", description="Column of the run time")
    unit: float = Field(1.0, gt=0, description="Seconds in one unit of the time column (0.001 for milliseconds)")
    cost: str = Field("", description="Column of the recorded cost; it becomes the metric recorded_cost")
    status: str = Field("", description="Column that tells whether the run went well")
    ok: tuple[str, ...] = Field(WORDS_OF_SUCCESS, description="What stands there if it did")
    metrics: Annotated[
        dict[str, str], BeforeValidator(lambda v: v, json_schema_input_type=dict[str, str] | list[str])
    ] = Field(default_factory=dict, description="Metric -> column, or the columns that are metrics")
    where: dict[str, str | int | float | bool] = Field(
        default_factory=dict, description="Column -> value: only these rows are read"
    )
    delimiter: str = Field(",", min_length=1, max_length=1, description="Between columns")
    repeat: Literal["number", "first", "mean", "random"] = Field(
        "number",
        description="Which answer a configuration gets that was recorded several times; number: of records that of the "
        "trial of the same number, where it had this configuration, and otherwise the first",
    )
    noise: float = Field(0.0, ge=0, description="Sigma of a log-normal factor of mean 1 on every run time")
    nearest: bool = Field(False, description="Answer a configuration without a record by the nearest one")
    seed: int = Field(0, description="For repeat: random and noise; together with the run's id")
    start: float | None = Field(None, description="First time on the clock, in seconds since 1970; now if empty")

    @model_validator(mode="before")
    @classmethod
    def _metrics_by_name(cls, given: Any) -> Any:
        listed = given.get("metrics") if isinstance(given, dict) else None
        if isinstance(listed, list | tuple) and all(isinstance(name, str) for name in listed):
            return {**given, "metrics": {name: name for name in listed}}
        return given

    @model_validator(mode="after")
    def _one_source(self) -> ReplaySettings:
        if (self.file is None) == (self.records is None):
            raise ValueError("give either file (a CSV) or records (exported trials)")
        return self


@functools.lru_cache(maxsize=8)
def _table(settings: str, _changed: int) -> RecordedRunTable:
    """The table of some settings; a benchmark that makes many searches over one file reads it once."""
    given = ReplaySettings.model_validate_json(settings)
    if given.records is not None:
        runs = read_records(given.records)
    else:
        assert given.file is not None
        layout = CsvLayout(
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
    return RecordedRunTable(runs)


class ReplayRunner(SimulatedRunner, AnswersFromRecords):
    """Answers runs from recorded ones, on a simulated clock: a search of hours takes a second.

    A configuration is looked up by the columns that bear the names of its parameters (see ``columns``), and so are the
    job's parameters where there are such columns. Its run takes the recorded time, on a clock that jumps; metrics go
    into the run's metrics file. Of exported ``records`` that have the logs, those are put into the run's folder for the
    job's interpreters; without them the recorded metrics count, whatever the interpreters. A configuration that was
    never recorded fails, unless ``nearest`` is set. A parameter
    with several values and no column is refused at the start, ``instance`` and ``nodes`` too (``columns: {nodes: n}``),
    unless it is under ``ignore``. Time limits are kept to the second.
    """

    name = "replay"
    Settings = ReplaySettings
    settings: ReplaySettings

    def __init__(self, *, settings: ReplaySettings, data_folder: Path) -> None:
        super().__init__(settings=settings, data_folder=data_folder, start=settings.start)
        len(self.table)  # a wrong file is the user's mistake: it stops the search before its first trial

    @property
    def table(self) -> RecordedRunTable:
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

    @property
    def _source(self) -> str:
        return str(self.settings.file or self.settings.records)

    def _asked(self, names: Iterable[str]) -> tuple[str, ...]:
        """The parameters that recorded runs are distinguished by: those that are not ignored."""
        return tuple(name for name in names if name not in self.settings.ignore)

    def covers(self, space: Space, parameters: Mapping[str, Value]) -> None:
        """Refuse parameters that have no column or no row; see `AnswersFromRecords.covers`."""
        self._refuse_unknown(space, parameters)
        for name in self._asked(space.names):
            if name in self.table.columns or _settled(space[name], self.settings.columns):
                continue
            there = [column for column in self.table.columns if column and column not in self.settings.columns]
            raise RecordError(
                f"no column {name!r} (columns: {', '.join(there)})",
                file=self._source,
                hint=f"map it with columns: {{{name}: COLUMN}}, or list it under ignore:",
            )

    def _refuse_unknown(self, space: Space, parameters: Mapping[str, Value]) -> None:
        """Refuse names under ``columns`` that nothing has, and job parameters with which no run was recorded."""
        offers = [o for each in space.parameters if isinstance(each, Instance) for o in each.offers.values()]
        for name in self.settings.columns if offers else ():
            own = name in space.names or name in parameters or name == FRACTION
            if not own and all(offer.attribute(name) is None for offer in offers):
                raise RecordError(
                    f"columns maps {name!r}, which is no parameter and no fact of an offer",
                    file=self._source,
                    hint="instance_type, nodes, region, ... are facts of an offer",
                )
        asked = tuple(name for name in self._asked(parameters) if name in self.table.columns)
        if self.settings.nearest or self.table.exactly(asked, parameters.get):
            return
        words = ", ".join(f"{name}={canonical_text(parameters[name])}" for name in asked)
        there = f"{asked[0]} is {_some(self.table.values(asked[0]))} there" if len(asked) == 1 else ""
        hint = f"{there}; " * bool(there) + "nearest: true takes the nearest"
        raise RecordError(f"no run was recorded with {words}", file=self._source, hint=hint)

    def answer(self, request: RunRequest) -> SimulatedOutcome:
        """Look a run up; see `SimulatedRunner.answer`."""
        found, same = self._look_up(request)
        if found is None:
            return self._unknown(request)
        if found.measured:
            return _measured_outcome(found)
        facts, wall = found.trial, request.limits.wall_seconds
        assert facts is not None  # a row of a CSV is measured
        if facts.state is not RunState.TIMED_OUT or (same and (wall is None or found.seconds <= wall)):
            return _unmeasured_outcome(found, facts)
        if wall is not None and found.failed == timeout_reason(wall):
            # Cut at the same limit: what it took is a little more, since to end a program takes a moment.
            return _unmeasured_outcome(found, facts)
        if wall is not None and wall <= found.seconds:
            return SimulatedOutcome(math.inf)  # it took longer than it may now
        return self._unknown(request, f" that went on for longer than {format_duration(found.seconds)}")

    def _unknown(self, request: RunRequest, longer: str = "") -> SimulatedOutcome:
        parameters = {name: canonical_text(value) for name, value in request.parameters.items()}
        chosen = {**parameters, **request.configuration}
        if request.fidelity != 1.0:
            chosen[FRACTION] = request.fidelity
        words = ", ".join(f"{name}={value}" for name, value in chosen.items())
        return SimulatedOutcome(0.0, f"no run was recorded for {words}{longer}")

    def recorded_metrics(self, request: RunRequest) -> Mapping[str, float] | None:
        """The metrics of a recorded trial whose logs the record does not have; see `AnswersFromRecords`."""
        if self.settings.records is None:
            return None
        found, _ = self._look_up(request)
        return None if found is None or (found.trial is not None and found.trial.whole_logs) else found.metrics

    @classmethod
    def answers_from_studies(cls, settings: Mapping[str, Any]) -> bool:
        """True with ``records``; see `AnswersFromRecords`."""
        return settings.get("records") is not None

    def _look_up(self, request: RunRequest) -> tuple[RecordedRun | None, bool]:
        """The recorded run that answers, and whether it is the one of the same number.

        It is one that was cut short where there is none that was not.
        """

        def value(name: str) -> Value | None:
            if name in request.configuration:
                return request.configuration[name]
            if name in request.parameters:
                return request.parameters[name]
            return request.fidelity if name == FRACTION else request.offer.attribute(name)

        table = self.table
        asked = self._asked((*request.configuration, *request.parameters))
        names = table.names(asked, tuple(self.settings.columns))
        if not names:
            raise RecordError(
                "no column has the name of a parameter",
                file=self._source,
                hint="map them with columns: {parameter: column}",
            )
        # Without the owner's tag, which is drawn anew for each study, equal seeds give equal searches.
        own = request.run_id.removeprefix(request.owner)
        chance = random.Random(f"{self.settings.seed}/{own}")  # noqa: S311
        if self.settings.repeat == "number" and (known := _RUN_NUMBER.fullmatch(own)):
            same = table.of_attempt(int(known[1]), int(known[2]), names, value)
            if same is not None:
                return self._with_noise(same, chance), True
        alike = table.exactly(names, value)
        found = [run for run in alike if run.measured]
        if not found and self.settings.nearest:
            found = table.nearest(names, value)
        if found:
            return self._with_noise(_choose(found, self.settings.repeat, chance), chance), False
        cut = [run for run in alike if run.trial is not None and run.trial.state is RunState.TIMED_OUT]
        return max(cut, key=lambda run: run.seconds, default=None), False

    def _with_noise(self, run: RecordedRun, chance: random.Random) -> RecordedRun:
        sigma = self.settings.noise
        factor = math.exp(chance.gauss(-0.5 * sigma * sigma, sigma)) if sigma else 1.0
        return replace(run, seconds=run.seconds * factor)


_RUN_NUMBER = re.compile(r"-(\d+)-(\d+)")
"""A run's id without its owner: the numbers of its trial and of its attempt."""


def _measured_outcome(found: RecordedRun) -> SimulatedOutcome:
    facts = found.trial
    if facts is None:
        return SimulatedOutcome(found.seconds, found.failed, found.metrics, found.profile)
    return SimulatedOutcome(
        found.seconds,
        found.failed,
        found.metrics,
        found.profile,
        files=facts.logs if facts.whole_logs else None,
        state=facts.state,
        fault=facts.fault,
        exit_code=facts.exit_code,
        usage=facts.usage,
    )


def _unmeasured_outcome(found: RecordedRun, facts: RecordedTrialRun) -> SimulatedOutcome:
    """The outcome of a run that was cut short or lost, as it was."""
    return SimulatedOutcome(
        found.seconds, found.failed, files=facts.logs, state=facts.state, fault=facts.fault, usage=facts.usage
    )


def _settled(parameter: Parameter, mapped: Mapping[str, str]) -> bool:
    """True when a parameter has one value only, or when the mapped facts of the offer distinguish its values."""
    if parameter.levels is not None and len(parameter.levels) == 1:
        return True
    if isinstance(parameter, Instance):
        types: dict[tuple[object, ...], str] = {}  # the same type takes as long in another region, or on spot
        offers = parameter.offers.values()
        return all(
            types.setdefault(tuple(offer.attribute(name) for name in mapped), offer.instance_type)
            == offer.instance_type
            for offer in offers
        )
    if isinstance(parameter, Nodes):
        return "nodes" in mapped
    if parameter.attribute is None:
        return False
    # An attribute only chooses the machine: where the machine's type is looked up, it says no more.
    return parameter.attribute in mapped or bool({"instance_type", "type"} & set(mapped))


def _some(values: Sequence[str]) -> str:
    """The first of some values, in words."""
    return ", ".join(values[:_SHOWN]) + (", ..." if len(values) > _SHOWN else "")


def _choose(found: Sequence[RecordedRun], repeat: str, chance: random.Random) -> RecordedRun:
    if repeat in ("first", "number") or len(found) == 1:
        return found[0]
    if repeat == "random":
        return chance.choice(found)
    good = [run for run in found if not run.failed] or found
    names = set.intersection(*(set(run.metrics) for run in good))
    return RecordedRun(
        good[0].values,
        math.fsum(run.seconds for run in good) / len(good),
        good[0].failed,
        {name: math.fsum(run.metrics[name] for run in good) / len(good) for name in sorted(names)},
        good[0].place,
    )
