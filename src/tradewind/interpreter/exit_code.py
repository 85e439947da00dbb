"""The exit code of the program."""

from __future__ import annotations

from collections.abc import Mapping

from pydantic import Field

from tradewind.errors import InterpretationError
from tradewind.interpreter.base import AcceptsExitCodes, Interpreter, ReadsNoFiles
from tradewind.plugins import Settings
from tradewind.problem import RunOutput


class ExitCodeSettings(Settings):
    """Settings of `ExitCodeInterpreter`."""

    allowed: tuple[int, ...] = Field((0,), min_length=1, description="Exit codes that count as success")


class ExitCodeInterpreter(Interpreter, AcceptsExitCodes, ReadsNoFiles):
    """Reads the exit code as the metric ``exit_code``; one that is not allowed makes the trial fail."""

    Settings = ExitCodeSettings
    settings: ExitCodeSettings

    @property
    def accepted(self) -> frozenset[int]:
        """Exit codes of the setting ``allowed``."""
        return frozenset(self.settings.allowed)

    def interpret(self, output: RunOutput, metrics: Mapping[str, float]) -> Mapping[str, float]:
        """Read the exit code.

        Raises:
            InterpretationError: ``exit-code``.
        """
        code = output.exit_code
        if code is None:
            raise InterpretationError("exit-code", "the program was cut short and has no exit code")
        if code not in self.accepted:
            wanted = ", ".join(map(str, self.settings.allowed))
            raise InterpretationError(
                "exit-code", f"the program ended with exit code {code}, allowed: {wanted}", hint=f"read {output.stderr}"
            )
        return {"exit_code": float(code)}
