"""Calls a Python function for a trial: what it returns, raises and reports becomes the trial's result."""

from __future__ import annotations

import inspect
import os
import tempfile
import threading
import time
from collections.abc import Awaitable, Callable, Collection, Generator
from contextlib import contextmanager, nullcontext
from contextvars import ContextVar
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tradewind import plugins, runtime_api
from tradewind.errors import ConfigurationError
from tradewind.problem import COST, RUNTIME, RunOutput
from tradewind.utils.user_functions import UserFunctionError, exception_words, exit_words, returned_metrics

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


def check_plain_function(function: object) -> None:
    """Check that something is a function whose value can be used at once.

    Raises:
        ConfigurationError: It cannot be called, or a call of it gives a coroutine or a generator.
    """
    check_callable(function)
    if inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function):
        hint = "give a plain function, or run it with AsyncStudy.optimise"
        raise ConfigurationError(f"{_name(function)} is a coroutine function, which nobody would await", hint=hint)
    if inspect.isgeneratorfunction(function):
        hint = "return the value, and call tradewind.report for those on the way"
        raise ConfigurationError(f"{_name(function)} is a generator: its values would not be read", hint=hint)


def check_arguments(function: Callable[..., Any], names: Collection[str]) -> None:
    """Check that a function can be called with a space's parameters.

    Args:
        function: The function.
        names: Those that it gets by name; a parameter with a condition may be left out.

    Raises:
        ConfigurationError: It takes no argument of a name, or needs one that is not in the space.
    """
    try:  # a decorator's own arguments count, not those of what it wraps
        signature = inspect.signature(function, follow_wrapped=False)
    except (TypeError, ValueError):
        return
    by_name = {
        one.name: one
        for one in signature.parameters.values()
        if one.kind in (one.POSITIONAL_OR_KEYWORD, one.KEYWORD_ONLY)
    }
    anything = any(one.kind is one.VAR_KEYWORD for one in signature.parameters.values())
    if not anything and (unknown := [name for name in names if name not in by_name]):
        hint = f"it takes {', '.join(by_name) or 'none'}"
        raise ConfigurationError(
            f"{_name(function)} takes no argument {unknown[0]!r}, which is in its space", hint=hint
        )
    needed = [name for name, one in by_name.items() if one.default is one.empty and name not in names]
    if needed:
        hint = "add it to the space, or give it a default"
        raise ConfigurationError(
            f"{_name(function)} needs the argument {needed[0]!r}, which is not in its space", hint=hint
        )


def _name(function: object) -> str:
    return str(getattr(function, "__name__", function))[:80]


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
    if isinstance(error, SystemExit):  # the function's end, and not that of the search
        return {"runtime": runtime, "state": "failed", "reason": exit_words(error)}
    return {"runtime": runtime, "state": "failed", "reason": exception_words(error)}


def _result(value: Any, asked: Asked, metric: str, runtime: float, folder: Path) -> dict[str, Any]:
    try:
        returned = returned_metrics(value, "" if metric in (COST, RUNTIME) else metric)
    except UserFunctionError as error:
        return {"runtime": runtime, "state": "failed", "reason": str(error)}
    return {"runtime": runtime, "metrics": {**_reported(folder, asked, runtime), **returned}}


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
