"""Reads the results of Ray Tune."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from tradewind.engine.records.foreign_trials import ForeignTrial
from tradewind.errors import RecordError

_LOGS = ("result.json", "progress.csv")
"""Files of which Ray Tune writes at least one for each trial."""

_REASON_LENGTH = 300


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


def read_ray_trials(path: Path) -> Iterator[ForeignTrial]:
    """Read the results of Ray Tune: of each trial the last line of its ``result.json``, or else ``progress.csv``.

    Nested parts of a configuration, ``optimizer: {lr}``, are called ``optimizer/lr``. A trial with an ``error.txt``
    has failed, unless the experiment's state says that it ended well at another attempt; one that the state does not
    call ended has not. Ray Tune does not say in these files which trials a scheduler has stopped early.

    Args:
        path: The folder of the experiment or of one trial, or one of a trial's two files.

    Raises:
        RecordError: A file is damaged; it is named.
    """
    folders = _trial_folders(path)
    states = _ray_states(folders[0].parent) if folders else {}
    for folder in folders:
        place = folder.name
        last = _last_result(folder, place)
        known = str(last.get("trial_id") or next((one for one in states if f"_{one}_" in f"_{place}_"), ""))
        broken = (folder / "error.txt").exists() if known not in states else states[known] == "ERROR"
        said = states.get(known, "TERMINATED" if last else "")
        ended, runtime = last.get("timestamp"), last.get("time_total_s")
        yield ForeignTrial(
            f"ray-{known or place}",
            place,
            _flat(_configuration(folder, last, place)),
            "failed" if broken else "succeeded" if said == "TERMINATED" else "unfinished",
            {name: float(value) for name, value in _flat(last).items() if _is_figure(name, value)},
            float(runtime) if isinstance(runtime, int | float) else None,
            None,
            _said(folder, said, broken=broken),
            None,
            float(ended) if isinstance(ended, int | float) else None,
        )


def _said(folder: Path, said: str, *, broken: bool) -> str:
    """The reason in words that a trial has no result."""
    if not broken:
        return f"Ray Tune says {said}" if said not in ("", "TERMINATED") else ""
    try:
        lines = (folder / "error.txt").read_text(encoding="utf-8", errors="replace").split("\n")
    except OSError:
        return "Ray Tune says ERROR"
    last = next((line.strip() for line in reversed(lines) if line.strip()), "")
    return last[:_REASON_LENGTH] or "it has an error.txt"


def _configuration(folder: Path, last: Mapping[str, Any], place: str) -> Mapping[str, Any]:
    """The configuration of a trial: in its last result, in a file of its own, or in columns of the table."""
    config = last.get("config")
    if isinstance(config, Mapping):
        return config
    columns = {name.removeprefix("config/"): value for name, value in last.items() if name.startswith("config/")}
    return columns if columns and not (folder / "params.json").is_file() else _json(folder / "params.json", place)


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
    """The last whole row of a table; cells that are numbers as such.

    A trial that went on elsewhere may have another line of names in between, and one that was killed half a row.
    """
    names: list[str] = []
    found: dict[str, Any] = {}
    text = path.read_text(encoding="utf-8", errors="replace")
    for row in csv.reader(text[: text.rfind("\n") + 1].splitlines(keepends=True)):
        if "trial_id" in row or not names:
            names = row
        elif len(row) >= len(names):
            found = dict(zip(names, row, strict=False))
    return {name: cell if name == "trial_id" else _number_or_text(cell) for name, cell in found.items() if cell}


def _number_or_text(cell: str) -> float | str:
    try:
        return float(cell) if "_" not in cell else cell
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
