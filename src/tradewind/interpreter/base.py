"""The contract of an interpreter."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path

from tradewind.errors import InterpretationError, TradewindError
from tradewind.plugins import Capability, Plugin, Settings
from tradewind.problem import COST, RUNTIME, RunOutput


class Interpreter(Plugin, ABC):
    """Reads metrics from a finished run. Several may be chained; each sees what the ones before it read.

    Args:
        settings: Settings of the interpreter.
        base: The folder of the job YAML; relative paths in settings start there.
    """

    def __init__(self, *, settings: Settings, base: Path) -> None:
        self.settings = settings
        self.base = base

    @abstractmethod
    def interpret(self, output: RunOutput, metrics: Mapping[str, float]) -> Mapping[str, float]:
        """Read metrics.

        Args:
            output: What the run left behind.
            metrics: What earlier interpreters read; ``runtime`` (s) and ``cost`` (USD, this run) are always there.

        Returns:
            The new metrics; they replace earlier ones of the same name.

        Raises:
            InterpretationError: With a typed reason; the trial then counts as failed.
        """


class AcceptsExitCodes(Capability, ABC):
    """Says which exit codes other than 0 are no failure of the program; what such a run left behind is read as any."""

    @property
    @abstractmethod
    def accepted(self) -> frozenset[int]:
        """Exit codes that count as success."""


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
