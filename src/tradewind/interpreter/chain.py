"""Calls several interpreters, one after the other."""

from __future__ import annotations

import math
from collections.abc import Sequence

from tradewind.errors import InterpretationError, TradewindError
from tradewind.interpreter.base import Interpreter
from tradewind.problem import COST, RUNTIME, RunOutput


def run_interpreters(interpreters: Sequence[Interpreter], output: RunOutput) -> dict[str, float]:
    """All metrics of a finished run: runtime (s) and cost (USD, this run), then what each interpreter reads.

    Args:
        interpreters: In the user's order; a later one replaces metrics of the same name.
        output: What the run left behind.

    Raises:
        InterpretationError: One of them could not read its metrics, broke, or gave a value that is not finite.
    """
    metrics = {RUNTIME: output.runtime, COST: output.cost}
    for interpreter in interpreters:
        label = interpreter.name or type(interpreter).__name__
        try:
            found = interpreter.interpret(output, dict(metrics))
            checked = {str(name): float(value) for name, value in found.items()}
        except TradewindError:
            raise
        except Exception as error:  # an outside part may raise anything; the search goes on
            first = str(error).partition("\n")[0]
            raise InterpretationError(
                "user-code", f"the interpreter {label} broke: {type(error).__name__}: {first}"
            ) from error
        for name, value in checked.items():
            if not math.isfinite(value):
                raise InterpretationError("not-a-number", f"the interpreter {label} read {name} as {value}")
        metrics |= checked
    return metrics
