"""Calls a Python function for a trial: what it returns, raises and reports becomes the trial's result."""

from __future__ import annotations

import os
import tempfile
import threading
import time
from collections.abc import Awaitable, Callable, Generator, Mapping
from contextlib import contextmanager, nullcontext
from contextvars import ContextVar
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tradewind import plugins, runtime_api
from tradewind.errors import ConfigurationError
from tradewind.problem import COST, RUNTIME, RunOutput

if TYPE_CHECKING:
    from tradewind.engine.ask_tell.asked_trial import Asked
    from tradewind.engine.records.trial_callbacks import ReportsReader


def check_callable(function: object) -> None:
    """Check that something is a function.

    Raises:
        ConfigurationError: It cannot be called.
    """
    if not callable(function):
        raise ConfigurationError(f"{function!r:.80} is no function", hint="give one that takes the parameters by name")


def call_for_trial(
    function: Callable[..., Any], asked: Asked, metric: str, reports: ReportsReader | None = None
) -> dict[str, Any]:
    """Call a function with a configuration.

    Args:
        function: What to call.
        asked: The trial.
        metric: The objective's metric, which a bare number is a value of.
        reports: A context for the time of the call, entered with the file that it reports to, which is gone later.

    Returns:
        The arguments of `Study.tell`.
    """
    with _report_folder(reports) as folder:
        start = time.perf_counter()
        try:
            value = function(**asked.configuration)
        except (Exception, SystemExit) as error:  # the user's function may raise anything; the search goes on
            return _failure(error, time.perf_counter() - start)
        return _result(value, asked, metric, time.perf_counter() - start, folder)


async def await_for_trial(
    function: Callable[..., Awaitable[Any]],
    asked: Asked,
    metric: str,
    reports: ReportsReader | None = None,
) -> dict[str, Any]:
    """`call_for_trial` for a coroutine function."""
    with _report_folder(reports) as folder:
        start = time.perf_counter()
        try:
            value = await function(**asked.configuration)
        except (Exception, SystemExit) as error:
            return _failure(error, time.perf_counter() - start)
        return _result(value, asked, metric, time.perf_counter() - start, folder)


def _failure(error: Exception | SystemExit, runtime: float) -> dict[str, Any]:
    if isinstance(error, SystemExit):  # the function's end, whatever the code, and not that of the search
        code = "" if error.code is None else repr(error.code)
        return {"runtime": runtime, "state": "failed", "reason": f"it called sys.exit({code})"}
    reason = f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"
    return {"runtime": runtime, "state": "failed", "reason": reason}


def _result(value: Any, asked: Asked, metric: str, runtime: float, folder: Path) -> dict[str, Any]:
    metrics = _reported(folder, asked, runtime)
    if isinstance(value, Mapping):
        metrics |= dict(value)
    elif value is not None and metric not in (COST, RUNTIME):
        metrics[metric] = value
    return {"runtime": runtime, "metrics": metrics}


_reports: ContextVar[str | None] = ContextVar("tradewind_reports", default=None)
runtime_api.reports_file = _reports.get

_lock = threading.Lock()
_calls = 0
_variable_before: str | None = None


@contextmanager
def _report_folder(reports: ReportsReader | None = None) -> Generator[Path]:
    """A folder that `tradewind.report` writes below, in this thread or task and in the programs that it starts.

    Programs get the path by a variable of the process. While several calls are under way it names none of them, so
    that no program reports for another trial.
    """
    global _calls, _variable_before
    with tempfile.TemporaryDirectory(prefix="tradewind-") as name:
        path = str(Path(name) / "metrics.jsonl")
        token = _reports.set(path)
        with _lock:
            _calls += 1
            if _calls == 1:
                _variable_before = os.environ.get(runtime_api.METRICS)
                os.environ[runtime_api.METRICS] = path
            else:
                os.environ.pop(runtime_api.METRICS, None)
        try:
            with reports(Path(path)) if reports is not None else nullcontext():
                yield Path(name)
        finally:
            with _lock:
                _calls -= 1
                if _calls == 0 and _variable_before is not None:
                    os.environ[runtime_api.METRICS] = _variable_before
                elif _calls == 0:
                    os.environ.pop(runtime_api.METRICS, None)
            _reports.reset(token)


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
