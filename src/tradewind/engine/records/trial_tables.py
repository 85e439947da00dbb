"""Reads trials out of tables: a CSV file with named columns, and the results of Ray Tune."""

from __future__ import annotations

import csv
import hashlib
import io
import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence, Set
from pathlib import Path
from typing import Any

from tradewind.engine.records.foreign_trials import ForeignTrial
from tradewind.errors import RecordError
from tradewind.problem import COST, RUNTIME

_STATES = {
    "": "succeeded", "succeeded": "succeeded", "ok": "succeeded", "done": "succeeded", "complete": "succeeded",
    "completed": "succeeded", "infeasible": "succeeded", "terminated": "succeeded",
    "failed": "failed", "fail": "failed", "error": "failed",
    "aborted": "aborted", "pruned": "aborted", "cut short": "aborted", "stopped": "aborted",
    "running": "unfinished", "pending": "unfinished", "waiting": "unfinished", "lost": "unfinished",
}  # fmt: skip
"""What a state of a table, in small letters, is called here."""

_OURS = ("number", "trial", "id", "run_id", "reason", "state", "started", "ended", RUNTIME, COST)
"""Columns with a meaning of their own, which are no metrics; all but the parameters may be missing."""


def read_csv_trials(path: Path, parameters: Sequence[str], metric: str) -> Iterator[ForeignTrial]:
    """Read a CSV file with a column for each parameter.

    ``state``, ``runtime`` (seconds), ``cost`` (USD), ``started``, ``ended`` (seconds since the epoch) and ``reason``
    are what they say; every other column of numbers is a metric. Names in words, ``learning rate``, are taken for
    ``learning_rate``. An empty cell is nothing. Tables that ``tradewind
    export``, Ray Tune (``config/x``) and Optuna (``params_x``, ``value``) write are read as they are.

    Args:
        path: The file.
        parameters: Names of the parameters.
        metric: The objective's metric, of which Optuna writes the value only.

    Raises:
        RecordError: It cannot be read, or a value is none; with the line.
    """
    try:
        raw = path.read_bytes()
        text = raw.decode("utf-8-sig")
    except OSError as error:
        raise RecordError(f"it cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise RecordError("it is not UTF-8", hint="save it as UTF-8") from None
    digest = hashlib.sha256(raw).hexdigest()[:10]
    rows = csv.DictReader(io.StringIO(text, newline=""))
    try:
        names = _meanings([name for name in rows.fieldnames or () if name], metric)
        names = _identifiers(names, {*parameters, metric, *_OURS})
        if not set(names.values()) & set(parameters):
            hint = f"name a column after each parameter: {', '.join(parameters)}"
            raise RecordError("its first line names no parameter of the job", hint=hint)
        for row in rows:
            cells = {names[name]: text.strip() for name, text in row.items() if name in names and text is not None}
            yield _row(cells, f"line {rows.line_num}", f"csv-{digest}-{rows.line_num:05d}", parameters)
    except csv.Error as error:
        raise RecordError(f"line {rows.line_num}: it is no CSV: {error}") from None


def _meanings(columns: Sequence[str], metric: str) -> dict[str, str]:
    """Name each column as it is called here; of other tools' tables only those that say something."""
    before = next((word for word in _PREFIXES if any(name.startswith(word) for name in columns)), None)
    if before is None:
        return {name: name for name in columns}
    found = {name: name for name in columns if name in _OURS} | ({"value": metric} if before == "params_" else {})
    for name in columns:
        for word in (before, *_PREFIXES[before]):
            if word and name.startswith(word):
                found[name] = name.removeprefix(word)
        if "" in _PREFIXES[before]:
            found.setdefault(name, name)
    return found


def _identifiers(names: Mapping[str, str], wanted: Set[str]) -> dict[str, str]:
    """Take a column that is named in words, ``learning rate``, for the parameter or metric ``learning_rate``."""
    found = dict(names)
    for column, name in names.items():
        plain = re.sub(r"\W+", "_", name.strip())
        if name not in wanted and plain in wanted and plain not in found.values():
            found[column] = plain
    return found


_PREFIXES = {"config.": ("metric.",), "config/": ("",), "params_": ("user_attrs_",)}
"""How tools begin the names of columns of parameters, and those of metrics."""


def _row(cells: Mapping[str, str], place: str, run_id: str, parameters: Sequence[str]) -> ForeignTrial:
    said = cells.get("state", "").lower()
    if said not in _STATES:
        raise RecordError(f"{place}: there is no state {said!r}", hint="succeeded, failed or aborted")
    metrics = {}
    for name, text in cells.items():
        if text and name not in parameters and name not in _OURS:
            try:
                metrics[name] = _figure(text)
            except ValueError:
                continue  # a note, a date
    return ForeignTrial(
        run_id,
        place,
        {name: cells[name] for name in parameters if cells.get(name)},
        _STATES[said],  # type: ignore[arg-type]
        metrics,
        _number(cells, RUNTIME, place),
        _number(cells, COST, place),
        cells.get("reason", ""),
        _number(cells, "started", place),
        _number(cells, "ended", place),
    )


def _figure(text: str) -> float:
    """As ``float``, for which 54329_00001, a trial of Ray Tune, is a number, too."""
    if "_" in text:
        raise ValueError
    return float(text)


def _number(cells: Mapping[str, str], name: str, place: str) -> float | None:
    text = cells.get(name, "")
    if not text:
        return None
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value) or value < 0:
        raise RecordError(f"{place}: {name} is {text!r}, which is no number of 0 or more")
    return value


_LOGS = ("result.json", "progress.csv")
"""Files of which Ray Tune writes at least one for each trial."""


def is_ray_results(path: Path) -> bool:
    """Test that a folder has results of Ray Tune, or is such a file of one trial."""
    return bool(_trial_folders(path))


def _trial_folders(path: Path) -> list[Path]:
    """The folders of trials: those of an experiment, the one that was named, or the one of the file that was."""
    if path.is_file() and path.name in _LOGS and path.with_name("params.json").is_file():
        return [path.parent]
    if any((path / log).is_file() for log in _LOGS):
        return [path]
    return sorted({found.parent for log in _LOGS for found in path.glob(f"*/{log}")}) if path.is_dir() else []


def read_ray_trials(path: Path, parameters: Sequence[str]) -> Iterator[ForeignTrial]:
    """Read the results of Ray Tune: of each trial the last line of its ``result.json``, or else ``progress.csv``.

    Nested parts of a configuration, ``optimizer: {lr}``, are the parameter ``optimizer_lr``. A trial with an
    ``error.txt`` has failed; one that the experiment's state does not call ended has not. Ray Tune does not say in
    these files which trials a scheduler has stopped early.

    Args:
        path: The folder of the experiment or of one trial, or one of a trial's two files.
        parameters: Names of the parameters.

    Raises:
        RecordError: A file is damaged; it is named.
    """
    folders = _trial_folders(path)
    states = _ray_states(folders[0].parent) if folders else {}
    for folder in folders:
        place = folder.name
        last = _last_result(folder, place)
        broken = (folder / "error.txt").exists()
        config = last.get("config")
        if not isinstance(config, Mapping):
            config = _json(folder / "params.json", place)
        said = states.get(str(last.get("trial_id")), "TERMINATED" if last else "")
        ended = last.get("timestamp")
        runtime = last.get("time_total_s")
        metrics = {name: float(value) for name, value in _flat(last).items() if _is_figure(name, value)}
        flat = _flat(config)
        names = _identifiers({name: name for name in flat}, set(parameters))
        yield ForeignTrial(
            f"ray-{last.get('trial_id') or place}",
            place,
            {names[name]: value for name, value in flat.items()},
            "failed" if broken else "succeeded" if said in ("TERMINATED", "ERROR") else "unfinished",
            metrics,
            float(runtime) if isinstance(runtime, int | float) else None,
            None,
            "it has an error.txt" if broken else f"Ray Tune says {said}" if said not in ("", "TERMINATED") else "",
            None,
            float(ended) if isinstance(ended, int | float) else None,
        )


def _ray_states(experiment: Path) -> dict[str, str]:
    """The last state of each trial that Ray Tune has noted: of functions no result says that it was the last one."""
    found: dict[str, str] = {}
    for path in sorted(experiment.glob("experiment_state-*.json")):
        try:
            trials = [json.loads(entry[0]) for entry in _json(path, experiment.name).get("trial_data", ())]
            found |= {str(trial["trial_id"]): str(trial["status"]) for trial in trials}
        except (LookupError, TypeError, ValueError):
            raise RecordError(f"{experiment.name}: {path.name} is of a version that is not known") from None
    return found


_RAYS_OWN = frozenset({
    "timestamp", "time_total_s", "time_this_iter_s", "time_since_restore", "iterations_since_restore", "pid", "done",
    "timesteps_total", "episodes_total", "warmup_time", "should_checkpoint",
})  # fmt: skip


def _is_figure(name: str, value: Any) -> bool:
    return isinstance(value, int | float) and name not in _RAYS_OWN and not name.startswith("config/")


def _flat(given: Mapping[str, Any], before: str = "") -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in given.items():
        found |= _flat(value, f"{before}{name}/") if isinstance(value, Mapping) else {f"{before}{name}": value}
    return found


def _last_result(folder: Path, place: str) -> Mapping[str, Any]:
    """The last whole line: a trial that was killed may have left half of one."""
    path = folder / "result.json"
    if not path.is_file():
        return _last_row(folder / "progress.csv")
    lines = [line for line in path.read_text(encoding="utf-8", errors="replace").splitlines() if line.strip()]
    for line in reversed(lines):
        try:
            found = json.loads(line)
        except ValueError:
            continue
        if isinstance(found, Mapping):
            return found
    if lines:
        raise RecordError(f"{place}/result.json has no result")
    return {}


def _last_row(path: Path) -> Mapping[str, Any]:
    """The last whole row of a table; cells that are numbers as such."""
    found: dict[str, Any] = {}
    with path.open(encoding="utf-8", errors="replace", newline="") as stream:
        for row in csv.DictReader(stream):
            if None not in row.values():
                found = row
    return {name: _number_or_text(cell) for name, cell in found.items() if cell}


def _number_or_text(cell: str) -> float | str:
    try:
        return _figure(cell)
    except ValueError:
        return cell


def _json(path: Path, place: str) -> Mapping[str, Any]:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise RecordError(f"{place}: {path.name} cannot be read: {error}") from None
    if not isinstance(found, Mapping):
        raise RecordError(f"{place}/{path.name} is no mapping")
    return found
