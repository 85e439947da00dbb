"""The small kit for programs that Tradewind runs: report metrics, read the parameters of the trial.

A program that uses it still runs by itself: without Tradewind around it, `report` does nothing and `parameters` is
empty. Only the standard library is needed, and next to none of it is imported before it is used.
"""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path
    from typing import SupportsFloat

METRICS = "TRADEWIND_METRICS"
OUTPUTS = "TRADEWIND_OUTPUTS"
FRACTION = "TRADEWIND_FRACTION"
PARAMETER = "TRADEWIND_PARAM_"

reports_file: Callable[[], str | None] | None = None
"""The file that `report` writes in this thread or task; set where Tradewind calls functions in its own process."""


def report(step: float | None = None, **metrics: SupportsFloat) -> None:
    """Tell Tradewind a metric, as often as you like; the last value of each counts unless the job says otherwise.

    Each call appends one line of JSON to the file that ``TRADEWIND_METRICS`` names, in a single write, so that
    several processes may report. Without that variable nothing happens.

    Args:
        step: Which step, epoch or round of the program the values belong to.
        metrics: Numbers by name; numpy scalars and one-element tensors will do.

    Raises:
        TypeError: A value is not a number.
        OSError: The file cannot be written.
    """
    given = metrics if step is None else {"step": step, **metrics}
    record = {name: _number(name, value) for name, value in given.items()}
    path = (reports_file and reports_file()) or os.environ.get(METRICS)
    if not path or not record:
        return
    import json

    line = (json.dumps(record) + "\n").encode()
    file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        while line:  # a short write happens on a disk that is all but full; the next one then says so
            line = line[os.write(file, line) :]
    finally:
        os.close(file)


def parameters() -> dict[str, str | int | float | bool]:
    """The values of this trial's parameters, by name in lower case; empty outside of Tradewind.

    Numbers come as numbers, ``True`` and ``False`` as truth values, all else as text.
    """
    return {
        name.removeprefix(PARAMETER).lower(): value_of(text)
        for name, text in sorted(os.environ.items())
        if name.startswith(PARAMETER) and name != PARAMETER
    }


def fraction() -> float:
    """The share of the input that this trial is to work on, above 0 and at most 1; 1 outside of Tradewind."""
    return float(os.environ.get(FRACTION) or 1.0)


def output_path(name: str) -> Path:
    """Path for a file that Tradewind shall keep; in the current folder outside of Tradewind.

    Args:
        name: A relative path; its folders are made.

    Raises:
        ValueError: It leads out of the folder of outputs.
    """
    from pathlib import Path

    if not name or Path(name).is_absolute() or ".." in Path(name).parts:
        raise ValueError(f"{name!r} is not a path below the folder of outputs")
    path = Path(os.environ.get(OUTPUTS) or ".") / name
    path.parent.mkdir(parents=True, exist_ok=True)
    return path


def _number(name: str, value: object) -> float:
    if isinstance(value, int | float):
        return value
    try:
        if isinstance(value, str | bytes):
            raise TypeError
        return float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        raise TypeError(f"report({name}={value!r}): {type(value).__name__} is not a number") from None


def value_of(text: str) -> str | int | float | bool:
    """The value that a variable of a run stands for: a number, a truth value or a text."""
    if text in ("True", "true", "False", "false"):
        return text in ("True", "true")
    # int() and float() also take 1_000, nan and inf, which are words here.
    if not text or not set(text) <= set("+-.0123456789eE") or not any(c.isdigit() for c in text):
        return text
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text
