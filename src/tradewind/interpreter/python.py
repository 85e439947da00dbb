"""Metrics that a function of the user's computes."""

from __future__ import annotations

import math
from collections.abc import Mapping

from pydantic import Field

from tradewind.errors import InterpretationError
from tradewind.interpreter.base import Interpreter
from tradewind.plugins import Settings
from tradewind.problem import RunOutput
from tradewind.utils.user_functions import FunctionReference, UserFunction, UserFunctionError


class PythonInterpreterSettings(Settings):
    """Settings of `PythonInterpreter`."""

    function: FunctionReference = Field(
        description="path/to/file.py:function (from the folder of the job YAML) or module:function"
    )


class PythonInterpreter(Interpreter):
    """Calls your own function with what the run left behind; it returns a mapping of metric names to numbers.

    The function takes the `RunOutput` and, if it has a second parameter, the metrics read before. What it prints goes
    to the standard error.
    """

    Settings = PythonInterpreterSettings
    settings: PythonInterpreterSettings

    def interpret(self, output: RunOutput, metrics: Mapping[str, float]) -> Mapping[str, float]:
        """Call the function.

        Raises:
            InterpretationError: ``user-code`` if it does not load, raises, or returns something else;
                ``not-a-number`` if a value is not finite.
        """
        name = self.settings.function
        try:
            result = UserFunction(name, self.base, passed=InterpretationError)(output, dict(metrics))
        except UserFunctionError as error:
            raise InterpretationError("user-code", f"python {name}: {error}") from None
        return _numbers(name, result)


def _numbers(name: str, result: object) -> dict[str, float]:
    if not isinstance(result, Mapping):
        raise InterpretationError(
            "user-code",
            f"python {name} returned {type(result).__name__}, not a mapping",
            hint='return {"score": 1.5}',
        )
    numbers: dict[str, float] = {}
    for key, value in result.items():
        try:
            number = math.nan if isinstance(value, str | bytes) else float(value)
        except (TypeError, ValueError, OverflowError):
            number = math.nan
        if not isinstance(key, str) or not math.isfinite(number):
            raise InterpretationError(
                "not-a-number", f"python {name} returned {key!r}: {value!r}, which is not a finite number by name"
            )
        numbers[key] = number
    return numbers
