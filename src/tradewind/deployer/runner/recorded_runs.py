"""Recorded runs: read from a CSV or from exported records, and found by configuration."""

from __future__ import annotations

import csv
import gzip
import json
import math
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, cast

from tradewind.errors import RecordError
from tradewind.problem import OWN_METRICS, UNINTERRUPTED_RUNTIME, Fault, RunState, Usage, Value
from tradewind.utils.json_documents import read_json_documents
from tradewind.utils.log_copies import check_copies, is_cut

FRACTION = "fraction"
"""The column with the share of the input data that a run has used (the fidelity)."""

_FRACTION_DIGITS = 1e-6
"""Fractions that differ by less are one, since people write six decimals of them ..."""
_FRACTION_SHARE = 0.01
"""... unless they are so small that this is more than one part in a hundred."""

WORDS_OF_SUCCESS = ("ok", "done", "success", "succeeded", "completed", "true", "0")
"""The usual words of a status column for a run that went well."""

_TIME = "; the setting time names the one with the run time"
_EXACT = 2**53
"""Whole numbers up to here are exact as floats."""
_TRUE = frozenset({"true", "yes"})
_FALSE = frozenset({"false", "no"})


def canonical_text(value: Value | None) -> str:
    """Spell a value in one way: 1, 1.0, ``1`` and ``1e0`` give the same text, and so do ``True`` and ``yes``."""
    text = "" if value is None else str(value).strip()
    if text.lower() in _TRUE | _FALSE:
        return "true" if text.lower() in _TRUE else "false"
    try:
        number = float(text)
    except ValueError:
        return text
    # Whole numbers are told apart to their last digit, other numbers to the twelfth, as searchers write them.
    return str(int(number)) if number.is_integer() and abs(number) <= _EXACT else f"{number:.12g}"


@dataclass(frozen=True, slots=True)
class RecordedRun:
    """One recorded run.

    Attributes:
        values: The values of its parameters, by name, in the spelling of `canonical_text`.
        seconds: Its run time.
        failed: The reason for which it failed, or empty.
        metrics: Its other metrics, by name.
        place: The file and line that it was read from, for messages.
        profile: Its low-level metrics, by name.
        trial: Facts of the trial's run that a record has and a CSV has not, or None.
    """

    values: Mapping[str, str]
    seconds: float
    failed: str = ""
    metrics: Mapping[str, float] = field(default_factory=dict)
    place: str = ""
    profile: Mapping[str, float] = field(default_factory=dict)
    trial: RecordedTrialRun | None = None

    @property
    def measured(self) -> bool:
        """False for a run that was cut short, and for one that was lost: its time says nothing, or is a lower bound."""
        return self.trial is None or self.trial.measured


@dataclass(frozen=True, slots=True)
class RecordedTrialRun:
    """Facts of one run of an exported trial.

    Attributes:
        number: Of the trial.
        attempt: Of the run within the trial, from 1.
        state: The state in which it ended.
        fault: The cause of an end that was not done, or None.
        exit_code: Of the program, or None.
        usage: Resources that it used.
        measured: True where it ran to its end and its output was read, or its program failed.
        packed_logs: Its files as packed JSON; empty where they are not in the record.
        whole_logs: True where the record has them, and nothing of them is cut off.
    """

    number: int
    attempt: int
    state: RunState
    fault: Fault | None
    exit_code: int | None
    usage: Usage
    measured: bool
    packed_logs: bytes = b""
    whole_logs: bool = False

    @property
    def logs(self) -> Mapping[str, Any] | None:
        """The files of the run, as `copy_run_files` made them; None where the record has none."""
        return json.loads(zlib.decompress(self.packed_logs)) if self.packed_logs else None


@dataclass(frozen=True, slots=True)
class CsvLayout:
    """The meaning of the columns of a CSV.

    Attributes:
        time: Column of the run time.
        unit: Seconds in one unit of the time column.
        columns: Parameter -> column, where they differ in name.
        cost: Column of the recorded cost (USD), or empty.
        status: Column that says whether the run went well, or empty.
        ok: The values of the status column of runs that went well.
        metrics: Metric -> column.
        where: Column -> value: only rows with these values are read.
        delimiter: The character between columns.
    """

    time: str
    unit: float = 1.0
    columns: Mapping[str, str] = field(default_factory=dict)
    cost: str = ""
    status: str = ""
    ok: Sequence[str] = ()
    metrics: Mapping[str, str] = field(default_factory=dict)
    where: Mapping[str, str] = field(default_factory=dict)
    delimiter: str = ","


def _open(path: Path) -> IO[str]:
    try:
        if path.suffix == ".gz":
            return cast("IO[str]", gzip.open(path, "rt", encoding="utf-8-sig", newline=""))
        return path.open(encoding="utf-8-sig", newline="")
    except OSError as error:
        raise RecordError(
            f"the recorded runs cannot be read: {error.strerror}",
            file=str(path),
            hint="paths start at the YAML's folder",
        ) from None


def _amount(text: str | None, what: str, path: Path, line: int) -> float:
    try:
        number = float(text or "")
    except ValueError:
        number = math.nan
    if not math.isfinite(number) or number < 0:
        raise RecordError(f"{what} is {text!r}, which is not a number of zero or more", file=str(path), line=line)
    return number


def read_csv(path: Path, layout: CsvLayout) -> list[RecordedRun]:
    """Read the recorded runs of a CSV with a header line; ``.gz`` is unpacked.

    Args:
        path: The file.
        layout: The meaning of its columns.

    Raises:
        RecordError: With file and line.
    """
    with _open(path) as file:
        try:
            return list(_rows(path, file, layout))
        except (UnicodeDecodeError, csv.Error, EOFError, gzip.BadGzipFile) as error:
            raise RecordError(f"it is not a CSV file in UTF-8: {error}", file=str(path)) from None


def _rows(path: Path, file: IO[str], layout: CsvLayout) -> Iterator[RecordedRun]:
    reader = csv.reader(file, delimiter=layout.delimiter)
    header = [name.strip() for name in next(reader, [])]
    if len(header) == 1 and (other := next((mark for mark in "\t;|," if mark in header[0]), None)):
        shown = {"\t": "tabs", ",": "commas", ";": "semicolons"}.get(other, repr(other))
        hint = 'write delimiter: "\\t"' if other == "\t" else f'write delimiter: "{other}"'
        raise RecordError(f"its columns are separated by {shown}", file=str(path), line=1, hint=hint)
    wanted = [
        layout.time,
        layout.cost,
        layout.status,
        *layout.columns.values(),
        *layout.metrics.values(),
        *layout.where,
    ]
    for name in filter(None, wanted):
        if name not in header:
            raise RecordError(
                f"there is no column {name!r}",
                file=str(path),
                line=1,
                hint=f"columns: {', '.join(filter(None, header))}" + _TIME * (name == layout.time),
            )
    for cells in reader:
        if not cells:
            continue
        line = reader.line_num
        if len(cells) != len(header):
            raise RecordError(
                f"{len(cells)} columns stand here and {len(header)} in the header", file=str(path), line=line
            )
        row = dict(zip(header, cells, strict=True))
        if any(canonical_text(row[name]) != canonical_text(value) for name, value in layout.where.items()):
            continue
        yield _recorded(path, line, row, layout)


def _recorded(path: Path, line: int, row: Mapping[str, str], layout: CsvLayout) -> RecordedRun:
    status = row.get(layout.status, "").strip() if layout.status else ""
    failed = bool(layout.status) and status.lower() not in {word.lower() for word in layout.ok}
    empty = not row[layout.time].strip()
    # A run that failed may have no time at all; one that went well must.
    seconds = 0.0 if failed and empty else _amount(row[layout.time], layout.time, path, line) * layout.unit
    metrics: dict[str, float] = {}
    for name, column in layout.metrics.items():
        if row[column].strip():
            try:
                metrics[name] = float(row[column])
            except ValueError:
                raise RecordError(f"{column} is {row[column]!r}, not a number", file=str(path), line=line) from None
    if layout.cost and row[layout.cost].strip():
        metrics["recorded_cost"] = _amount(row[layout.cost], layout.cost, path, line)
    values = {name: canonical_text(cell) for name, cell in row.items()}
    values |= {name: canonical_text(row[column]) for name, column in layout.columns.items()}
    return RecordedRun(
        values, seconds, f"it failed when it was recorded ({status})" if failed else "", metrics, f"{path}:{line}"
    )


def read_records(path: Path) -> list[RecordedRun]:
    """Read the runs of the ended trials of a file that ``tradewind export --format records`` wrote.

    The run time of a trial that was cut short is a lower bound, and of a lost one nothing is known: their runs are not
    `RecordedRun.measured`.

    Raises:
        RecordError: With file and line.
    """
    found: list[RecordedRun] = []
    for line, document in read_json_documents(path):
        if "study" in document and "record" in document:
            continue
        try:
            found += _trial_runs(document, f"{path}:{line}" if line else str(path))
        except RecordError as error:
            raise RecordError(error.message, hint=error.hint, file=str(path), line=line) from None
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise RecordError(
                f"it is not a record of a trial: {type(error).__name__} {error}",
                file=str(path),
                line=line,
                hint="tradewind export --format records writes them",
            ) from None
    return found


_READ = frozenset({"succeeded", "failed"})
_ENDED = _READ | {"aborted", "lost"}


def _trial_runs(document: Mapping[str, Any], place: str) -> list[RecordedRun]:
    """The runs of a trial, each by itself; one that has no runs in its record stands for its only one."""
    state, observation = document["state"], document["observation"]
    if state not in _ENDED:
        return []
    values = {name: canonical_text(value) for name, value in document["configuration"].items()}
    values[FRACTION] = canonical_text(document.get("proposal", {}).get("fidelity", 1.0))
    runs = sorted(document.get("runs") or [{}], key=lambda run: int(run.get("attempt", 1)))
    # A run that the user has stopped is repeated: only what the infrastructure did is a part of the experiment.
    found = [_lost_run(run, document, values, place) for run in runs[: len(runs) if state == "lost" else -1]]
    lost = [run for run in found if run is not None]
    if observation is None:
        return lost
    return [*lost, _observed_run(runs[-1], document, values, place)]


def _lost_run(
    run: Mapping[str, Any], document: Mapping[str, Any], values: Mapping[str, str], place: str
) -> RecordedRun | None:
    state, fault = RunState(run.get("state", RunState.CANCELLED)), Fault(run["fault"]) if run.get("fault") else None
    if state is not RunState.PREEMPTED and fault not in (Fault.INFRASTRUCTURE, Fault.CAPACITY):
        return None
    facts = RecordedTrialRun(
        int(document.get("number", -1)), int(run.get("attempt", 1)), state, fault, None, _usage(run), measured=False
    )
    seconds = _seconds(run.get("runtime", 0.0), "runs.runtime")
    return RecordedRun(values, seconds, str(run.get("reason", "")), {}, place, {}, facts)


def _observed_run(
    run: Mapping[str, Any], document: Mapping[str, Any], values: Mapping[str, str], place: str
) -> RecordedRun:
    state, observation = document["state"], document["observation"]
    # On spot machines the observation has what is expected with interruptions, which a replay will add again.
    taken = observation.get("metrics", {}).get(UNINTERRUPTED_RUNTIME, observation["runtime"])
    seconds = _seconds(taken, "observation.runtime")
    reason = str(observation.get("reason", ""))
    logs = check_copies(run["logs"]) if run.get("logs") else None
    ended = RunState(run["state"]) if "state" in run else RunState.DONE if state == "succeeded" else RunState.FAILED
    whole = logs is not None and not is_cut(logs)
    if ended is RunState.DONE and state == "failed" and not whole:
        ended = RunState.FAILED  # its output could not be read: without its logs, that is all that is known
    code = run.get("exit_code")
    facts = RecordedTrialRun(
        number=int(document.get("number", -1)),
        attempt=int(run.get("attempt", 1)),
        state=RunState.TIMED_OUT if state == "aborted" else ended,
        fault=Fault(run["fault"]) if run.get("fault") else None,
        exit_code=code if isinstance(code, int) and not (ended is RunState.FAILED and code == 0) else None,
        usage=_usage(run) if run.get("usage") else Usage(profile=_finite(observation.get("profile", {}))),
        measured=state in _READ,
        packed_logs=zlib.compress(json.dumps(dict(logs)).encode(), 1) if logs else b"",
        whole_logs=whole,
    )
    failed = ""
    if state == "aborted":
        failed = str(run.get("reason") or reason)
    elif ended is not RunState.DONE:
        failed = (reason if state == "failed" else str(run.get("reason", ""))) or "it failed when it was recorded"
    metrics = {name: v for name, v in _finite(observation.get("metrics", {})).items() if name not in OWN_METRICS}
    return RecordedRun(values, seconds, failed, metrics, place, facts.usage.profile, facts)


def _seconds(value: Any, what: str) -> float:
    seconds = float(value) if isinstance(value, int | float) else math.nan
    if not math.isfinite(seconds) or seconds < 0:
        raise RecordError(f"{what} is not a number of zero or more")
    return seconds


def _usage(run: Mapping[str, Any]) -> Usage:
    used = run.get("usage") or {}
    memory, cpu = used.get("peak_memory_bytes"), used.get("cpu_seconds")
    return Usage(
        memory if isinstance(memory, int) else None,
        float(cpu) if isinstance(cpu, int | float) else None,
        _finite(used.get("profile", {})),
    )


def _finite(values: Mapping[str, Any]) -> dict[str, float]:
    """The numbers among some values: what has none is written otherwise."""
    return {
        name: float(value) for name, value in values.items() if isinstance(value, int | float) and math.isfinite(value)
    }


class RecordedRunTable:
    """Recorded runs, found by configuration.

    Args:
        runs: The runs; at least one.

    Attributes:
        columns: The names of all parameters that the runs have values of.
    """

    def __init__(self, runs: Sequence[RecordedRun]) -> None:
        self._runs = runs
        self._by_attempt = {(run.trial.number, run.trial.attempt): run for run in runs if run.trial is not None}
        # A trial's record lacks the parameters that were not active: those are empty in it.
        self.columns = tuple(dict.fromkeys(name for run in runs for name in run.values))
        self._index: dict[tuple[str, ...], dict[tuple[str, ...], list[RecordedRun]]] = {}
        self._fractions: list[tuple[float, str]] | None = None

    def __len__(self) -> int:
        return len(self._runs)

    def names(self, configuration: Sequence[str], mapped: Sequence[str]) -> tuple[str, ...]:
        """The columns by which a run is looked up: the configuration's, ``fraction``, and mapped ones.

        Args:
            configuration: The names of the configuration's parameters.
            mapped: The names that the settings map to columns.
        """
        return tuple(sorted({*(n for n in (*configuration, FRACTION) if n in self.columns), *mapped}))

    def exactly(self, names: tuple[str, ...], value: Callable[[str], Value | None]) -> list[RecordedRun]:
        """The recorded runs with the same values.

        A fraction is the same to six decimals: a third is found where 0.333333 was recorded.

        Args:
            names: The columns that are compared.
            value: Gives the value that is looked for, by column.
        """
        if names not in self._index:
            index: dict[tuple[str, ...], list[RecordedRun]] = {}
            for run in self._runs:
                index.setdefault(_cells(run, names), []).append(run)
            self._index[names] = index
        wanted = {name: canonical_text(value(name)) for name in names}
        found = self._index[names].get(tuple(wanted.values()), [])
        if not found and FRACTION in wanted:
            wanted[FRACTION] = self._recorded_fraction(wanted[FRACTION])
            found = self._index[names].get(tuple(wanted.values()), [])
        return found

    def _recorded_fraction(self, wanted: str) -> str:
        """The recorded fraction that is the wanted one as people write it; the wanted one where none is."""
        number = _number(wanted)
        if number is None:
            return wanted
        if self._fractions is None:
            recorded = ((_number(text), text) for text in self.values(FRACTION))
            self._fractions = [(share, text) for share, text in recorded if share is not None]
        away, text = min(((abs(share - number), text) for share, text in self._fractions), default=(math.inf, wanted))
        return text if away < min(_FRACTION_DIGITS, _FRACTION_SHARE * abs(number)) else wanted

    def of_attempt(
        self, number: int, attempt: int, names: tuple[str, ...], value: Callable[[str], Value | None]
    ) -> RecordedRun | None:
        """The run of the trial of a number, if that trial had the same values; only exported trials have numbers.

        Args:
            number: The trial's number.
            attempt: The run within the trial, from 1.
            names: The columns that are compared.
            value: Gives the value that is looked for, by column.
        """
        run = self._by_attempt.get((number, attempt))
        wanted = tuple(canonical_text(value(name)) for name in names)
        return run if run is not None and _cells(run, names) == wanted else None

    def values(self, name: str) -> list[str]:
        """The values of a column, each once, in the order of the file."""
        return list(dict.fromkeys(run.values.get(name, "") for run in self._runs))

    def nearest(self, names: tuple[str, ...], value: Callable[[str], Value | None]) -> list[RecordedRun]:
        """The recorded runs at the smallest distance.

        The distance is the sum over the columns: for numbers the squared difference as a share of the column's range,
        for words 0 or 1.

        Args:
            names: The columns that are compared.
            value: Gives the value that is looked for, by column.
        """
        wanted = [canonical_text(value(name)) for name in names]
        spans = [self._span(name) for name in names]

        def distance(run: RecordedRun) -> float:
            total = 0.0
            for name, mine, span in zip(names, wanted, spans, strict=True):
                theirs = run.values.get(name, "")
                numbers = _number(mine), _number(theirs)
                if numbers[0] is None or numbers[1] is None or not span:
                    total += mine != theirs
                else:
                    total += ((numbers[0] - numbers[1]) / span) ** 2
            return total

        measured = [run for run in self._runs if run.measured]
        if not measured:
            return []
        same = _cells(min(measured, key=distance), names)
        return [run for run in measured if _cells(run, names) == same]

    def _span(self, name: str) -> float:
        numbers = [number for run in self._runs if (number := _number(run.values.get(name, ""))) is not None]
        return max(numbers) - min(numbers) if numbers else 0.0


def _cells(run: RecordedRun, names: Sequence[str]) -> tuple[str, ...]:
    return tuple(run.values.get(name, "") for name in names)


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None
