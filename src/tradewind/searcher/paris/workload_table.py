"""The offline table of PARIS: how long workloads took on machines, from earlier studies or a CSV file."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

import numpy as np

from tradewind.errors import RecordError
from tradewind.problem import Candidates, Offer, PastStudy, TrialState, Value
from tradewind.searcher.surrogate.gp import Array

_COLUMNS = ("workload", "instance", "nodes", "runtime")
_PROVIDER = "provider"
_LARGEST = float(np.finfo(np.float32).max)
"""The forests take no greater numbers."""
_FACTS = ("provider", "category", "family", "arch")


class TableMachine(NamedTuple):
    """A machine choice as the table identifies it.

    Attributes:
        instance: The instance type.
        nodes: Number of nodes.
        provider: Provider that sells it; empty where a file does not say, which means any that sells such a type.
    """

    instance: str
    nodes: int
    provider: str = ""

    def __str__(self) -> str:
        return f"{self.nodes}x{self.provider}/{self.instance}" if self.provider else f"{self.nodes}x{self.instance}"


@dataclass(frozen=True, slots=True)
class WorkloadMeasurement:
    """One run of one workload.

    Attributes:
        workload: Name of the workload.
        machine: Machine choice that it ran on.
        seconds: Run time.
        counters: Low-level metrics by name.
    """

    workload: str
    machine: TableMachine
    seconds: float
    counters: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class WorkloadTable:
    """Measurements as arrays; of several of one workload on one machine the median.

    Attributes:
        workloads: Names of the workloads, sorted.
        machines: The machine choices that can be bought now; one that is sold twice stands there twice.
        seconds: Run times, shape (workloads, machines), NaN where not measured.
        counters: Low-level metrics by name, each of the shape of ``seconds``.
    """

    workloads: Sequence[str]
    machines: Sequence[TableMachine]
    seconds: Array
    counters: Mapping[str, Array]

    @classmethod
    def of(cls, runs: Sequence[WorkloadMeasurement], machines: Sequence[TableMachine]) -> WorkloadTable:
        """Tabulate some measurements; those on other machines are left out.

        Args:
            runs: The measurements, in any order.
            machines: The machines that can be bought now.
        """
        place: dict[TableMachine, list[int]] = {}
        for i, machine in enumerate(machines):
            place.setdefault(machine, []).append(i)
            if machine.provider:
                place.setdefault(machine._replace(provider=""), []).append(i)
        used = [run for run in runs if run.machine in place and math.isfinite(run.seconds) and run.seconds > 0]
        names = sorted({run.workload for run in used})
        row = {name: i for i, name in enumerate(names)}
        shape = len(names), len(machines)
        cells: dict[tuple[int, int], list[WorkloadMeasurement]] = {}
        for run in used:
            for column in place[run.machine]:
                cells.setdefault((row[run.workload], column), []).append(run)
        seconds = np.full(shape, np.nan)
        counters = {name: np.full(shape, np.nan) for name in sorted({n for run in used for n in run.counters})}
        for cell, found in cells.items():
            seconds[cell] = float(np.median([run.seconds for run in found]))
            for name, values in counters.items():
                known = [run.counters[name] for run in found if is_usable_counter(run.counters.get(name, math.nan))]
                values[cell] = float(np.median(known)) if known else np.nan
        return cls(names, machines, seconds, counters)

    @cached_property
    def known(self) -> Array:
        """Logarithms of the seconds, shape (workloads, machines)."""
        logs: Array = np.log(self.seconds)
        return logs

    def together(self, pair: tuple[int, int]) -> list[int]:
        """The workloads that were measured on both of two machines."""
        return np.flatnonzero(np.isfinite(self.seconds[:, list(pair)]).all(axis=1)).tolist()

    @property
    def most_together(self) -> int:
        """Number of workloads that were measured on the same two different machines, for the best such two."""
        measured = np.isfinite(self.seconds)
        # Thousands are for sale, and few were measured: a square of all would take gigabytes.
        used = np.flatnonzero(measured.any(axis=0))
        shared = measured[:, used].astype(int)
        together = shared.T @ shared
        names = [str(self.machines[i]) for i in used.tolist()]
        together[np.equal.outer(np.array(names), np.array(names))] = 0
        return int(together.max()) if together.size else 0

    def slower(self, machine: int) -> list[int]:
        """The machines that are at least as slow as one of them for the median workload that ran on both."""
        ratio = self.known - self.known[:, [machine]]
        known = np.isfinite(ratio)
        shared = [j for j in np.flatnonzero(known.any(axis=0)) if j != machine]
        return [int(j) for j in shared if float(np.median(ratio[known[:, j], j])) >= 0.0]

    def common_counters(self, pair: tuple[int, int]) -> list[str]:
        """Names of the counters that are known of every workload of `together`, on both machines."""
        rows = self.together(pair)
        return [n for n, v in self.counters.items() if rows and np.isfinite(v[np.ix_(rows, pair)]).all()]


def is_usable_counter(counter: float) -> bool:
    """True when a forest can take a counter for a number: not where it is infinite, or none."""
    return abs(counter) <= _LARGEST  # NaN is not


def past_measurements(past: Sequence[PastStudy], machine_parameters: Sequence[str]) -> Iterator[WorkloadMeasurement]:
    """Read the successful runs of earlier studies on their whole input; each combination of settings is a workload.

    Args:
        past: Earlier studies.
        machine_parameters: Names of parameters that choose machines.
    """
    for study in past:
        about = ", ".join(f"{name}={value}" for name, value in sorted(study.values.items()))
        if study.parameters.fidelity != 1.0:
            about = ", ".join([*([about] if about else []), f"{study.parameters.fidelity:g} of the input"])
        for trial in study.trials:
            seen = trial.observation
            if trial.state != TrialState.SUCCEEDED or trial.proposal.fidelity != 1.0 or seen is None:
                continue
            own = [
                f"{name}={value}"
                for name, value in trial.configuration.items()
                if name not in machine_parameters and not _chooses(name, value, trial.offer)
            ]
            words = "; ".join([study.name, *([about] if about else []), *([", ".join(own)] if own else [])])
            counters = {name: float(value) for name, value in seen.profile.items()}
            yield WorkloadMeasurement(words, machine_of(trial.offer), seen.runtime, counters)


def count_aborted(past: Sequence[PastStudy], machines: Sequence[TableMachine]) -> int:
    """Count the runs of earlier studies on some machines that are no measurements, since they were cut short.

    Args:
        past: Earlier studies.
        machines: The machines that can be bought now.
    """
    sold = set(machines)
    return sum(
        trial.state == TrialState.ABORTED and trial.proposal.fidelity == 1.0 and machine_of(trial.offer) in sold
        for study in past
        for trial in study.trials
    )


def _chooses(name: str, value: Value, offer: Offer) -> bool:
    """True when another study's parameter seems to choose the machine: it is named like, or equals, a fact of it."""
    return str(value) == offer.instance_type or name == "instance" or offer.attribute(name) is not None


def csv_measurements(path: Path) -> Iterator[WorkloadMeasurement]:
    """Read the rows of a CSV file with the columns workload, instance, nodes and runtime (s).

    A column provider says who sells the instance type; all others are counters.

    Raises:
        RecordError: It cannot be read, a column is missing, a row is too short or too long, or a value is no number.
    """
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise RecordError(f"cannot read the table: {reason}", file=str(path)) from None
    reader = csv.DictReader(io.StringIO(text, newline=""))
    try:
        missing = [name for name in _COLUMNS if name not in (reader.fieldnames or ())]
        if missing:
            wanted = ", ".join(_COLUMNS)
            raise RecordError(
                f"the table has no column {missing[0]!r}", hint=f"wanted {wanted}", file=str(path), line=1
            )
        for line in reader:
            yield _row(line, path, reader.line_num)
    except csv.Error as error:
        raise RecordError(f"the table is no CSV: {error}", file=str(path), line=reader.line_num) from None


def _row(line: Mapping[str | None, str | None], path: Path, number: int) -> WorkloadMeasurement:
    """Read one row; cells beyond the header have the name None, missing cells are None."""
    if None in line or None in line.values():
        raise RecordError(
            f"the row has {'more' if None in line else 'fewer'} values than the table has columns",
            hint="every row has one value for each column, which may be empty where it is a counter",
            file=str(path),
            line=number,
        )
    values = {str(name): value or "" for name, value in line.items()}
    for name in ("workload", "instance"):
        if not values[name].strip():
            raise RecordError(f"the row has no {name}", file=str(path), line=number)
    extra = {name: value for name, value in values.items() if name not in (*_COLUMNS, _PROVIDER)}
    try:
        counters = {name: float(value) for name, value in extra.items() if value}
        nodes, seconds = int(values["nodes"]), float(values["runtime"])
    except ValueError as error:
        raise RecordError(f"not a number: {error}", file=str(path), line=number) from None
    machine = TableMachine(values["instance"], nodes, values.get(_PROVIDER, ""))
    return WorkloadMeasurement(values["workload"], machine, seconds, counters)


def machine_choices(candidates: Candidates) -> list[list[int]]:
    """The candidates of each machine choice, in order; the same machines at another price are another choice."""
    found: dict[str, list[int]] = {}
    for row in range(len(candidates)):
        found.setdefault(candidates.offer(row).key, []).append(row)
    return list(found.values())


def machine_of(offer: Offer) -> TableMachine:
    """The machine choice of an offer."""
    return TableMachine(offer.instance_type, offer.nodes, offer.provider)


def machine_facts(offers: Sequence[Offer]) -> Array:
    """The numbers that say what a machine choice is, shape (offers, facts); constants are left out.

    Logarithms of cores, memory and price of one node and of all together, of the nodes and of positive facts; other
    words as 0 and 1.

    Args:
        offers: One offer for each machine choice.
    """
    columns: list[Array] = []
    plain = np.array(
        [(o.vcpu, o.memory_gib, o.price_per_hour, o.nodes, o.vcpu * o.nodes, o.memory_gib * o.nodes, o.hourly, o.gpus)
         for o in offers],
        dtype=float,
    )  # fmt: skip
    columns += list(np.log(np.maximum(plain[:, :-1], 1e-9)).T)
    columns.append(plain[:, -1])
    for name in (*_FACTS, *sorted({fact for offer in offers for fact in offer.facts})):
        values = [offer.attribute(name) for offer in offers]
        if all(isinstance(value, int | float) for value in values):
            columns.append(np.array(values, dtype=float))
        else:
            words = [str(value) for value in values]
            columns += [np.array([float(word == other) for word in words]) for other in sorted(set(words))]
    varied = [column for column in columns if float(np.ptp(column)) > 1e-12]
    return np.column_stack(varied) if varied else np.zeros((len(offers), 1))


def machine_labels(machines: Sequence[TableMachine]) -> list[str]:
    """Label each machine as ``4xm5.large``, or ``4xaws/m5.large`` where several providers sell such a type."""
    sellers: dict[TableMachine, set[str]] = {}
    for machine in machines:
        sellers.setdefault(machine._replace(provider=""), set()).add(machine.provider)
    plain = [machine._replace(provider="") for machine in machines]
    return [str(one if len(sellers[one]) == 1 else machine) for one, machine in zip(plain, machines, strict=True)]


def machines_by_name(machines: Sequence[TableMachine]) -> dict[str, int]:
    """Places of machines by label, and by name with the provider; of one that has several prices the first."""
    places: dict[str, int] = {}
    for i, (label, machine) in enumerate(zip(machine_labels(machines), machines, strict=True)):
        places.setdefault(label, i)
        places.setdefault(str(machine), i)
    return places
