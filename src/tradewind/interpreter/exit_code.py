"""The exit code of the program."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from pydantic import Field

from tradewind.errors import InterpretationError
from tradewind.interpreter.base import AcceptsExitCodes, Interpreter, ReadsNoFiles
from tradewind.plugins import Settings
from tradewind.problem import RunOutput
from tradewind.utils.units import shortened


class ExitCodeSettings(Settings):
    """Settings of `ExitCodeInterpreter`."""

    allowed: tuple[int, ...] = Field((0,), min_length=1, description="Exit codes that count as success")
    stderr: bool = Field(False, description="Name the last line of its standard error where the program fails")


class ExitCodeInterpreter(Interpreter, AcceptsExitCodes, ReadsNoFiles):
    """Reads the exit code as the metric ``exit_code``; one that is not allowed makes the trial fail."""

    Settings = ExitCodeSettings
    settings: ExitCodeSettings

    @property
    def accepted(self) -> frozenset[int]:
        """Exit codes of the setting ``allowed``; with ``stderr`` all of a program, for their reason is read here."""
        return frozenset({*self.settings.allowed, *(range(1, 256) if self.settings.stderr else ())})

    def interpret(self, output: RunOutput, metrics: Mapping[str, float]) -> Mapping[str, float]:
        """Read the exit code.

        Raises:
            InterpretationError: ``exit-code``.
        """
        code = output.exit_code
        if code is None:
            raise InterpretationError("exit-code", "the program was cut short and has no exit code")
        if code not in self.settings.allowed:
            if self.settings.stderr:
                line = _last_line(output.stderr)
                raise InterpretationError("exit-code", f"the program exited with code {code}" + (line and f": {line}"))
            wanted = ", ".join(map(str, self.settings.allowed))
            raise InterpretationError(
                "exit-code", f"the program ended with exit code {code}, allowed: {wanted}", hint=f"read {output.stderr}"
            )
        return {"exit_code": float(code)}


_TAIL = 65_536
"""Bytes at the end of a log in which its last line is looked for."""

_LONGEST = 200
"""Characters of a line that become part of a reason."""


def _last_line(log: Path) -> str:
    """The last line of a log that is not empty, without what would move a cursor; empty where there is none."""
    try:
        with log.open("rb") as stream:
            stream.seek(max(0, log.stat().st_size - _TAIL))
            lines = stream.read().decode(errors="replace").splitlines()
    except OSError:
        return ""
    found = next((line for line in reversed(lines) if line.strip()), "")
    return shortened("".join(c if c.isprintable() else " " for c in found).strip(), _LONGEST)
