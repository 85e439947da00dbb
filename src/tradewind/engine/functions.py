"""Tuning a Python function in this process."""

from __future__ import annotations

import functools
import os
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypeVar

from tradewind import plugins
from tradewind.problem import COST, RUNTIME, RunOutput

if TYPE_CHECKING:
    from tradewind.engine.study import Asked
    from tradewind.problem import Trial

P = ParamSpec("P")
R = TypeVar("R", bound="float | Mapping[str, float] | None")


def call_for_trial(function: Callable[..., Any], asked: Asked, metric: str) -> dict[str, Any]:
    """Call a function with a configuration.

    Args:
        function: What to call.
        asked: The trial.
        metric: The objective's metric, which a bare number is a value of.

    Returns:
        The arguments of `Study.tell`.
    """
    with tempfile.TemporaryDirectory(prefix="tradewind-") as name, _reporting_to(Path(name)):
        start = time.perf_counter()
        try:
            value = function(**asked.configuration)
        except Exception as error:  # the user's function may raise anything; the search goes on
            reason = f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"
            return {"runtime": time.perf_counter() - start, "state": "failed", "reason": reason}
        runtime = time.perf_counter() - start
        metrics = _reported(Path(name), asked, runtime)
    if isinstance(value, Mapping):
        metrics |= dict(value)
    elif value is not None and metric not in (COST, RUNTIME):
        metrics[metric] = value
    return {"runtime": runtime, "metrics": metrics}


class _reporting_to:  # noqa: N801  (reads as a phrase where it is used)
    """While it is entered, `tradewind.report` writes below a folder."""

    def __init__(self, folder: Path) -> None:
        self._path = str(folder / "metrics.jsonl")
        self._before: str | None = None

    def __enter__(self) -> None:
        self._before = os.environ.get("TRADEWIND_METRICS")
        os.environ["TRADEWIND_METRICS"] = self._path

    def __exit__(self, *error: object) -> None:
        if self._before is None:
            del os.environ["TRADEWIND_METRICS"]
        else:
            os.environ["TRADEWIND_METRICS"] = self._before


def _reported(folder: Path, asked: Asked, runtime: float) -> dict[str, float]:
    reader = plugins.create("interpreter", "json_lines", {"optional": True}, base=folder)
    output = RunOutput(
        stdout=folder / "stdout",
        stderr=folder / "stderr",
        metrics_file=folder / "metrics.jsonl",
        folder=folder,
        exit_code=0,
        runtime=runtime,
        cost=0.0,
        offer=asked.offer,
        configuration=asked.configuration,
    )
    return dict(reader.interpret(output, {}))


class Tunable(Generic[P, R]):
    """A function that can be called as before, and tuned.

    Args:
        function: The function.
        specification: The job YAML's keys.
    """

    def __init__(self, function: Callable[P, R], specification: Mapping[str, Any]) -> None:
        functools.update_wrapper(self, function)
        self._function = function
        self.specification = dict(specification)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call the function itself."""
        return self._function(*args, **kwargs)

    def tune(self, trials: int | None = None, *, store: str | None = None, fresh: bool = False) -> Trial | None:
        """Search for the best arguments.

        Args:
            trials: Calls at most, now.
            store: Address of the store; the user's own without it.
            fresh: Start anew even if there is a study to go on with.

        Returns:
            The best trial, or None.
        """
        from tradewind.engine.study import Study

        with Study(self.specification, store=store, fresh=fresh) as study:
            return study.optimise(self._function, trials)


def tunable(space: Mapping[str, Any], **specification: Any) -> Callable[[Callable[P, R]], Tunable[P, R]]:
    """Make a function tunable.

    Args:
        space: Its arguments, as under ``space`` in a job YAML.
        specification: Further keys of a job YAML: ``objective``, ``constraints``, ``budget``, ``searcher``, ...
            Without an ``objective`` the value that the function returns is made small.
    """

    def wrap(function: Callable[P, R]) -> Tunable[P, R]:
        given = {
            "name": getattr(function, "__name__", "function"),
            "space": dict(space),
            "objective": {"minimise": "value"},
            **specification,
        }
        return Tunable(function, given)

    return wrap
