from __future__ import annotations

from pathlib import Path

import pytest

from tradewind import plugins
from tradewind.errors import InterpretationError
from tradewind.interpreter.base import Interpreter
from tradewind.testing.interpreters import InterpreterConformance, Sample, make_output
from tradewind_outside.gnu_time import GnuTimeInterpreter

REPORT = b"""\
some warning of the program
\tCommand being timed: "gzip -9 corpus"
\tUser time (seconds): 4.21
\tSystem time (seconds): 0.05
\tPercent of CPU this job got: 98%
\tElapsed (wall clock) time (h:mm:ss or m:ss): 1:02.50
\tMaximum resident set size (kbytes): 2048
\tExit status: 0
"""
EXPECTED = {
    "user_seconds": 4.21,
    "system_seconds": 0.05,
    "cpu_percent": 98.0,
    "elapsed": 62.5,
    "max_memory_bytes": 2097152.0,
}


class TestGnuTime(InterpreterConformance):
    @pytest.fixture
    def interpreter(self, tmp_path: Path) -> Interpreter:
        return GnuTimeInterpreter(settings=GnuTimeInterpreter.Settings(), base=tmp_path)

    @pytest.fixture
    def sample(self) -> Sample:
        return Sample({"stderr": REPORT}, EXPECTED)


def test_it_is_installed() -> None:
    assert plugins.load("interpreter", "gnu_time") is GnuTimeInterpreter


def test_the_last_report_counts(tmp_path: Path) -> None:
    interpreter = plugins.create("interpreter", "gnu_time", {"file": "outputs/time.txt"}, base=tmp_path)
    output = make_output(tmp_path, {"outputs/time.txt": REPORT.replace(b"4.21", b"9.99") + REPORT})
    assert interpreter.interpret(output, {}) == EXPECTED


def test_a_log_without_a_report_is_said_so(tmp_path: Path) -> None:
    interpreter = plugins.create("interpreter", "gnu_time", {}, base=tmp_path)
    with pytest.raises(InterpretationError, match="/usr/bin/time -v") as caught:
        interpreter.interpret(make_output(tmp_path, {"stderr": b"nothing of the kind\n"}), {})
    assert caught.value.reason == "no-match"
