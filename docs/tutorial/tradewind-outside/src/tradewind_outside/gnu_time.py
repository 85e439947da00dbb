"""An interpreter of what ``/usr/bin/time -v`` prints."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated

from pydantic import AfterValidator, Field

from tradewind.interpreter.base import Interpreter
from tradewind.interpreter.log_reader import LogReader, check_file_name, locate_file, no_match_error, parse_number
from tradewind.plugins import Settings
from tradewind.problem import RunOutput

LABELS = {
    "User time (seconds)": ("user_seconds", 1.0),
    "System time (seconds)": ("system_seconds", 1.0),
    "Percent of CPU this job got": ("cpu_percent", 1.0),
    "Elapsed (wall clock) time (h:mm:ss or m:ss)": ("elapsed", 1.0),
    "Maximum resident set size (kbytes)": ("max_memory_bytes", 1024.0),
}
LINE = re.compile(rf"^\s*({'|'.join(map(re.escape, LABELS))}): (\S+)[ \r]*$", re.MULTILINE)


class GnuTimeSettings(Settings):
    """Settings of `GnuTimeInterpreter`."""

    file: Annotated[str, AfterValidator(check_file_name)] = Field(
        "stderr", description="stdout, stderr or a path below outputs/ (for time --output)"
    )


class GnuTimeInterpreter(Interpreter):
    """Reads CPU time, elapsed time and memory from the output of GNU time: ``/usr/bin/time -v program``."""

    Settings = GnuTimeSettings
    settings: GnuTimeSettings

    def interpret(self, output: RunOutput, metrics: Mapping[str, float]) -> Mapping[str, float]:
        """Read the last report in the file.

        Raises:
            InterpretationError: The file is missing, empty or truncated, or has no such report.
        """
        reader = LogReader(locate_file(output, self.settings.file), self.settings.file)
        found: dict[str, float] = {}
        for text in reader.text(backwards=True):
            for label, value in reversed(LINE.findall(text)):
                name, factor = LABELS[label]
                found.setdefault(name, parse_number(value, durations=True) * factor)
            if len(found) == len(LABELS):
                return found
        raise no_match_error(output, reader, "gnu_time", hint="start the program with /usr/bin/time -v")
