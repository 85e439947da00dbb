"""Tables of measured runs as problems with a known truth: any CSV with the run time of each configuration."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tradewind.deployer.runner.recorded_runs import WORDS_OF_SUCCESS, CsvLayout, RecordedRun, read_csv
from tradewind.errors import NoOfferError, RecordError
from tradewind.problem import (
    Billing,
    Budget,
    Categorical,
    Configuration,
    Constraints,
    Job,
    Objective,
    Offer,
    Ordinal,
    Parameter,
    Space,
    StudyTerms,
    Value,
)
from tradewind.problem.configuration import plain_number
from tradewind.testing.problems import KnownOutcome, KnownProblem
from tradewind.utils.suggestions import did_you_mean

MACHINES = ("instance", "instance_type", "machine_type", "vm_type", "vm_flavor", "machine", "vm", "type", "flavor")
NODES = ("nodes", "node_count", "n_nodes", "machines", "scaleout", "scale_out", "instance_count", "n_workers")
PRICES = ("price_per_hour", "price", "hourly_price", "usd_per_hour")
_MOST_VALUES = 200


@dataclass(frozen=True)
class TableColumns:
    """The meaning of the columns of a table.

    Attributes:
        time: Column of the run time.
        unit: Seconds in one unit of it.
        machine: Column of the instance type; one of `MACHINES` that is there without it, else all machines are alike.
        nodes: Column of the number of machines; one of `NODES` that is there without it, else one machine.
        price: Column of USD per machine and hour; one of `PRICES` that is there without it, else 1 USD.
        cost: Column of USD per run, which goes before prices.
        status: Column that says whether a run went well, or empty.
        parameters: Columns that can be chosen; all that are no figure of a run without it.
        metrics: Columns that a run measures.
        where: Column -> value: only rows with these values are read.
    """

    time: str = "runtime"
    unit: float = 1.0
    machine: str = ""
    nodes: str = ""
    price: str = ""
    cost: str = ""
    status: str = ""
    parameters: tuple[str, ...] = ()
    metrics: tuple[str, ...] = ()
    where: tuple[tuple[str, str], ...] = ()


class TableResolver:
    """A selector for a table: the offer of each row; what has no row is not sold.

    Args:
        names: The parameters, all of them.
        offers: The offer of each row, by the values of its parameters in that order.
    """

    def __init__(self, names: Sequence[str], offers: Mapping[tuple[Value, ...], Offer]) -> None:
        self.machine_parameters = tuple(names)
        self._offers = offers

    def resolve(self, configuration: Configuration) -> Offer:
        """The offer of a configuration.

        Raises:
            NoOfferError: The table has no such row.
        """
        offer = self._offers.get(tuple(configuration[name] for name in self.machine_parameters))
        if offer is None:
            raise NoOfferError(f"the table has no row of {configuration}")
        return offer


@dataclass(frozen=True)
class RecordedProblem:
    """A table as a problem.

    Attributes:
        problem: The problem: the least cost, or run time, before the deadline.
        mean: Mean USD of a run over all configurations.
        best: Objective of the optimum.
    """

    problem: KnownProblem
    mean: float
    best: float


def read_table(
    path: Path,
    columns: TableColumns,
    *,
    deadline: float | None = None,
    quantile: float | None = None,
    objective: str = "cost",
) -> RecordedProblem:
    """Read a CSV with one measured run a row; runs of one configuration are taken together by their mean.

    Args:
        path: The file; ``.gz`` is unpacked.
        columns: The meaning of its columns.
        deadline: Seconds that a run may take.
        quantile: Share of the configurations that meet the deadline, in place of ``deadline``.
        objective: ``cost`` or ``runtime``.

    Raises:
        RecordError: With file and line.
    """
    runs = _read_runs(path, columns)
    names = _parameter_names(path, runs, columns)
    rows: dict[tuple[str, ...], list[RecordedRun]] = {}
    for run in runs:
        rows.setdefault(tuple(run.values[name] for name in names), []).append(run)
    parameters = [_parameter(path, name, [key[i] for key in rows]) for i, name in enumerate(names)]
    offers: dict[tuple[Value, ...], Offer] = {}
    outcomes: dict[tuple[Value, ...], KnownOutcome] = {}
    for key, same in rows.items():
        values = tuple(p.coerce(_value(text)) for p, text in zip(parameters, key, strict=True))
        seconds = float(np.mean([run.seconds for run in same]))
        failed = next((run.failed for run in same if run.failed), "")
        outcomes[values] = KnownOutcome(seconds, failed)
        offers[values] = _offer(path, same, columns, seconds, "/".join(key))
    times = sorted(one.runtime for one in outcomes.values() if not one.failed)
    if not times:
        raise RecordError("no run in it went well", file=str(path))
    if quantile is not None:
        deadline = times[min(len(times) - 1, int(quantile * len(times)))]
    space = Space(parameters)
    problem = KnownProblem(
        job=Job(path.stem, ("true",), workdir=Path("/")),
        space=space,
        objective=Objective(objective),
        constraints=Constraints(deadline),
        budget=Budget(),
        resolver=TableResolver(space.names, offers),
        terms=StudyTerms(billing=Billing(granularity_seconds=1e-4)),
        truth=lambda configuration, _: outcomes[tuple(configuration[name] for name in space.names)],
    )
    candidates = problem.candidates
    every = [candidates.configuration(i) for i in range(len(candidates))]
    values_of = [value for each in every if (value := problem.value(each)) is not None]
    if not values_of:
        raise RecordError("no run in it meets the deadline", file=str(path), hint="raise --deadline")
    return RecordedProblem(problem, float(np.mean([problem.bill(each) for each in every])), min(values_of))


def _read_runs(path: Path, columns: TableColumns) -> list[RecordedRun]:
    layout = CsvLayout(
        columns.time,
        columns.unit,
        cost=columns.cost,
        status=columns.status,
        ok=WORDS_OF_SUCCESS,
        where=dict(columns.where),
    )
    runs = read_csv(path, layout)
    if not runs:
        raise RecordError("no row is left in it", file=str(path), hint="see --where")
    return runs


def _parameter_names(path: Path, runs: Sequence[RecordedRun], columns: TableColumns) -> tuple[str, ...]:
    header = list(runs[0].values)
    for name in (*columns.parameters, *filter(None, (columns.machine, columns.nodes, columns.price))):
        if name not in header:
            raise RecordError(
                f"there is no column {name!r}", file=str(path), line=1, hint=did_you_mean(name, header, "columns:")
            )
    if columns.parameters:
        return columns.parameters
    figures = {columns.time, columns.cost, columns.status, columns.price, *columns.metrics, *PRICES}
    figures |= {name for name, _ in columns.where}
    names = []
    for name in [name for name in header if name and name not in figures]:
        different = {run.values[name] for run in runs}
        if len(different) > _MOST_VALUES and len(different) > len(runs) / 2:
            raise RecordError(
                f"the column {name!r} has {len(different)} values: is it a parameter, or a figure of a run?",
                file=str(path),
                line=1,
                hint="name the parameters with --parameters, or the figures with --metrics",
            )
        names += [name] if len(different) > 1 else []
    if not names:
        raise RecordError("no column of it varies that could be chosen", file=str(path), line=1)
    return tuple(names)


def _value(text: str) -> Value:
    try:
        return plain_number(float(text))
    except ValueError:
        return text


def _parameter(path: Path, name: str, texts: Sequence[str]) -> Parameter:
    values = list(dict.fromkeys(_value(text) for text in texts))
    if all(isinstance(value, int | float) and math.isfinite(value) for value in values):
        return Ordinal(name=name, values=tuple(sorted(values, key=float)))
    if any(value == "" for value in values):
        raise RecordError(
            f"the column {name!r} is empty in some rows", file=str(path), hint="use --where or --parameters"
        )
    return Categorical(name=name, values=tuple(str(value) for value in values))


def _offer(path: Path, runs: Sequence[RecordedRun], columns: TableColumns, seconds: float, key: str) -> Offer:
    """The machines of a row; a recorded cost gives the price that leads to it."""
    values = runs[0].values

    def named(given: str, usual: Sequence[str]) -> str:
        return given or next((name for name in usual if name in values), "")

    machine = values.get(named(columns.machine, MACHINES), "") or "machine"
    count = values.get(named(columns.nodes, NODES), "") or "1"
    price = values.get(named(columns.price, PRICES), "") or "1"
    try:
        nodes, hourly = int(float(count)), float(price)
    except ValueError:
        raise RecordError(f"{count} machines at {price} USD an hour are no numbers", file=runs[0].place) from None
    costs = [run.metrics["recorded_cost"] for run in runs if "recorded_cost" in run.metrics]
    if costs and seconds > 0:
        hourly = float(np.mean(costs)) * 3600.0 / seconds / nodes
    # The key of a row: its trials are its own, although other rows run on the same machines.
    return Offer("table", f"{machine}@{key}", 1, 1, hourly).times(max(1, nodes))
