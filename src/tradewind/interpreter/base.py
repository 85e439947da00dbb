"""The contract of an interpreter."""

from __future__ import annotations

import contextlib
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


class ReadsNoFiles(Capability):
    """Reads no file of the run: it goes by the exit code, the price, and what was read before it."""


def run_interpreters(interpreters: Sequence[Interpreter], output: RunOutput) -> dict[str, float]:
    """All metrics of a finished run: runtime (s) and cost (USD, this run), then what each interpreter reads.

    Where the logs were not kept (`RunOutput.recorded`), the recorded metrics stand for what would be read from them.
    An interpreter that finds nothing is passed over then, and one that finds something adds only metrics that were not
    recorded; those that read no files are worked out as ever.

    Args:
        interpreters: In the user's order; a later one replaces metrics of the same name.
        output: What the run left behind.

    Raises:
        InterpretationError: One of them could not read its metrics, broke, or gave a value that is not finite.
    """
    recorded = output.recorded
    metrics = {RUNTIME: output.runtime, COST: output.cost}
    if recorded is not None:
        metrics = {**metrics, **{name: value for name, value in recorded.items() if name not in metrics}}
    for interpreter in interpreters:
        if recorded is None or isinstance(interpreter, ReadsNoFiles):
            metrics |= _read_metrics(interpreter, output, metrics)
            continue
        with contextlib.suppress(InterpretationError):
            found = _read_metrics(interpreter, output, metrics)
            metrics |= {name: value for name, value in found.items() if name not in recorded}
    return metrics


def _read_metrics(interpreter: Interpreter, output: RunOutput, metrics: Mapping[str, float]) -> dict[str, float]:
    """The metrics that one interpreter reads, all of them finite numbers."""
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
    return checked
