"""The contract of an interpreter."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path

from tradewind.plugins import Capability, Plugin, Settings
from tradewind.problem import RunOutput


class Interpreter(Plugin, ABC):
    """Reads metrics from a finished run. Several may be chained; each sees what the ones before it read.

    Args:
        settings: Its settings.
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
