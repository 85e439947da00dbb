"""The program of a run of a Python function: loads it, calls it with the trial's values, reports what it returns.

``python -m tradewind.tenancy.submission.function_program train.py:train METRIC``; the values come from the variables
that every run gets.
"""

from __future__ import annotations

import math
import os
import re
import sys
import threading
import traceback
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tradewind import runtime_api
from tradewind.utils.user_functions import (
    UserFunctionError,
    exception_words,
    exit_words,
    load_object,
    returned_metrics,
)

MODULE = "tradewind.tenancy.submission.function_program"

LOADING = "TRADEWIND_LOADING"
"""Set while a run loads the function's file: a file that submits itself when it is loaded would do so for ever."""


def arguments_from(environment: Mapping[str, str], space: Mapping[str, Any]) -> dict[str, Any]:
    """The function's arguments, of the variables of a run; a parameter without a value in this trial is left out.

    Args:
        environment: The variables.
        space: The function's space as it was declared: of listed values the very one is given.
    """
    found: dict[str, Any] = {}
    for name, declared in space.items():
        variable = runtime_api.PARAMETER + re.sub(r"[^0-9A-Za-z]", "_", name).upper()
        if variable in environment:
            found[name] = _value(environment[variable], declared)
    return found


def _value(text: str, declared: Any) -> Any:
    listed = declared.get("values") if isinstance(declared, Mapping) else declared
    number = runtime_api.value_of(text)
    if isinstance(listed, list | tuple):
        for value in listed:
            alike = isinstance(value, int | float) and not isinstance(value, bool) and value == number
            if alike or str(value) == text:
                return value
    kind = declared.get("type") if isinstance(declared, Mapping) else None
    return float(text) if kind == "float" else number


def call(function: Any, metric: str, environment: Mapping[str, str]) -> int:
    """Call a tunable function as a run, and report what it returns; the exit code of the run.

    Args:
        function: A `tradewind.engine.tunable.Tunable`.
        metric: What a bare number is a value of; empty where the run time or the cost counts.
        environment: The variables of the run.
    """
    arguments = arguments_from(environment, function.specification["space"])
    try:
        value = function(**arguments)
        metrics = returned_metrics(value, metric)
    # The reason of the trial is the last line.
    except SystemExit as error:
        sys.stderr.write(f"{exit_words(error)}\n")
        return error.code if isinstance(error.code, int) and 0 < error.code < 256 else 1
    except UserFunctionError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    except Exception as error:
        traceback.print_exc()
        sys.stderr.write(f"{exception_words(error)}\n")  # the last one of an exception of many lines says little
        return 1
    _tell_of_threads(function.__name__)
    runtime_api.report(**{name: value for name, value in metrics.items() if math.isfinite(value)})
    return 0


def _tell_of_threads(name: str) -> None:
    """Say which threads the function has left: Python waits for them, and so does the run."""
    others = [one.name for one in threading.enumerate() if one is not threading.main_thread() and not one.daemon]
    if others:
        sys.stderr.write(f"{name} has returned; its run ends with the threads that go on: {', '.join(others)}\n")
        sys.stderr.flush()


def main(arguments: list[str]) -> int:
    """Load and call the function that the arguments name; the exit code."""
    reference, metric = arguments
    os.environ[LOADING] = reference
    try:
        function = load_object(reference, Path.cwd())
    except UserFunctionError as error:
        sys.stderr.write(f"{reference}: {error}\n")
        return 1
    finally:
        del os.environ[LOADING]
    return call(function, metric, os.environ)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
