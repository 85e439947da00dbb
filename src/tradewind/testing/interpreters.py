r"""The conformance suite of interpreters.

An implementer inherits it and gives two fixtures::

    class TestMyInterpreter(InterpreterConformance):
        @pytest.fixture
        def interpreter(self, tmp_path: Path) -> Interpreter:
            return MyInterpreter(settings=MyInterpreter.Settings(), base=tmp_path)

        @pytest.fixture
        def sample(self) -> Sample:
            return Sample({"stdout": b"elapsed 12 s\n"}, {"elapsed": 12.0})
"""

from __future__ import annotations

import math
import tracemalloc
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tradewind.errors import InterpretationError
from tradewind.interpreter.base import Interpreter
from tradewind.problem import Configuration, Offer, RunOutput

REASONS = frozenset(
    {
        "empty",
        "truncated",
        "no-match",
        "not-utf8",
        "not-a-number",
        "too-large",
        "missing-file",
        "not-json",
        "exit-code",
        "user-code",
    }
)
"""The reasons that an `InterpretationError` may give."""

FILES = ("stdout", "stderr", "metrics.jsonl")

_HUGE = 12 << 20
_MEMORY = 10 << 20


@dataclass(frozen=True, slots=True)
class Sample:
    """A run whose metrics are known.

    Attributes:
        files: Content by path below the run's folder (``stdout``, ``metrics.jsonl``, ``outputs/score.txt``).
        expected: The metrics that the interpreter reads from it.
        given: Metrics that earlier interpreters read, besides runtime (12 s) and cost (0.01 USD).
        exit_code: Of the program.
    """

    files: Mapping[str, bytes]
    expected: Mapping[str, float]
    given: Mapping[str, float] = field(default_factory=dict)
    exit_code: int = 0


def make_output(
    folder: Path,
    files: Mapping[str, bytes],
    *,
    exit_code: int | None = 0,
    runtime: float = 12.0,
    cost: float = 0.01,
    offer: Offer | None = None,
    configuration: Configuration | None = None,
    truncated: bool = False,
) -> RunOutput:
    """A finished run's folder with some files in it.

    Args:
        folder: Where; it is made.
        files: Content by path below the folder.
        exit_code: Of the program, or None if it was cut short.
        runtime: Seconds.
        cost: USD, this run.
        offer: The machines; two nodes of a made-up type if None.
        configuration: The configuration; one worker if None.
        truncated: True when the logs were cut.
    """
    (folder / "outputs").mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    return RunOutput(
        stdout=folder / "stdout",
        stderr=folder / "stderr",
        metrics_file=folder / "metrics.jsonl",
        folder=folder,
        exit_code=exit_code,
        runtime=runtime,
        cost=cost,
        offer=offer or Offer("local", "test", 2, 4.0, 0.1, nodes=2),
        configuration=configuration or Configuration({"workers": 1}),
        truncated=truncated,
    )


class InterpreterConformance:
    """Checks of every interpreter: metrics or a typed reason, whatever a run left behind."""

    @pytest.fixture
    def interpreter(self, tmp_path: Path) -> Interpreter:
        """The interpreter under test."""
        raise NotImplementedError("give the fixture 'interpreter'")

    @pytest.fixture
    def sample(self) -> Sample:
        """A run that it can read."""
        raise NotImplementedError("give the fixture 'sample'")

    def test_reads_the_sample(self, interpreter: Interpreter, sample: Sample, tmp_path: Path) -> None:
        """Metrics are read exactly as they are there."""
        output = make_output(tmp_path / "run", sample.files, exit_code=sample.exit_code)
        found = dict(interpreter.interpret(output, _metrics(sample)))
        assert found == pytest.approx(dict(sample.expected))
        for name, value in found.items():
            assert isinstance(name, str) and name
            assert isinstance(value, float)

    def test_gives_the_same_answer_twice(self, interpreter: Interpreter, sample: Sample, tmp_path: Path) -> None:
        """Nothing is kept between runs; the run's folder and the given metrics stay as they are."""
        output = make_output(tmp_path / "run", sample.files, exit_code=sample.exit_code)
        other = make_output(tmp_path / "other", {}, exit_code=sample.exit_code)
        metrics = _metrics(sample)
        before = _content(output.folder)
        first = dict(interpreter.interpret(output, metrics))
        _read(interpreter, other, _metrics(sample))
        assert dict(interpreter.interpret(output, metrics)) == first
        assert metrics == _metrics(sample)
        assert _content(output.folder) == before

    def test_survives_missing_files(self, interpreter: Interpreter, sample: Sample, tmp_path: Path) -> None:
        """A run that left nothing gives metrics or a typed reason."""
        _read(interpreter, make_output(tmp_path / "run", {}), _metrics(sample))

    def test_survives_a_folder_in_place_of_a_file(
        self, interpreter: Interpreter, sample: Sample, tmp_path: Path
    ) -> None:
        """A folder of a file's name gives metrics or a typed reason."""
        output = make_output(tmp_path / "run", {})
        for name in _names(sample):
            (output.folder / name).mkdir(parents=True)
        _read(interpreter, output, _metrics(sample))

    @pytest.mark.parametrize("truncated", [False, True])
    @pytest.mark.parametrize(
        "content",
        [
            b"",
            b"\n\n\n",
            b"\x00" * 4096,
            b"\xff\xfe\xfa\x80 latin-1: caf\xe9\n" * 50,
            "\ufeffzwölf Boxkämpfer\r\njagen Viktor\r".encode(),
            b'{"score": NaN}\n{"score": 1e999}\n{"score": [',
            b"{" * 5000 + b"\n" + b'{"a":' * 3000 + b"1" + b"}" * 3000 + b"\n",
            b'{"score\\ud800": 1, "\\u0000": 2}\n',
            b'{"score": ' + b"9" * 6000 + b"}\nscore: " + b"9" * 6000 + b"\n",
        ],
        ids=["empty", "blank", "zeros", "not-utf8", "crlf", "nan", "deep", "names", "digits"],
    )
    def test_survives_strange_content(
        self, interpreter: Interpreter, sample: Sample, tmp_path: Path, content: bytes, truncated: bool
    ) -> None:
        """Whatever stands in the files, the answer is finite numbers or a typed reason."""
        output = make_output(tmp_path / "run", dict.fromkeys(_names(sample), content), truncated=truncated)
        _read(interpreter, output, _metrics(sample))

    @pytest.mark.parametrize("exit_code", [None, 1, 137, -9])
    def test_survives_a_failed_program(
        self, interpreter: Interpreter, sample: Sample, tmp_path: Path, exit_code: int | None
    ) -> None:
        """A program that failed, or was cut short in the middle of a line, gives metrics or a typed reason."""
        cut = {name: content[: len(content) // 2] for name, content in sample.files.items()}
        _read(interpreter, make_output(tmp_path / "run", cut, exit_code=exit_code), _metrics(sample))

    @pytest.mark.parametrize("line", [b"2026-11-21 INFO progress 17/20000 of shard 3, nothing to see\n", b"x"])
    def test_takes_little_memory(self, interpreter: Interpreter, sample: Sample, tmp_path: Path, line: bytes) -> None:
        """A huge log, of many lines or of one line without an end, is read in bounded memory."""
        output = make_output(tmp_path / "run", sample.files, exit_code=sample.exit_code)
        for name in ("stdout", "stderr"):
            (output.folder / name).write_bytes(line * (_HUGE // len(line)) + b"\n" + sample.files.get(name, b""))
        tracemalloc.start()
        try:
            found = _read(interpreter, output, _metrics(sample))
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        assert peak < _MEMORY, f"{peak >> 20} MiB of memory for a log of {_HUGE >> 20} MiB"
        assert found is None or found.keys() <= sample.expected.keys()


def _names(sample: Sample) -> list[str]:
    return sorted({*FILES, *sample.files})


def _metrics(sample: Sample) -> dict[str, float]:
    return {"runtime": 12.0, "cost": 0.01, **sample.given}


def _read(interpreter: Interpreter, output: RunOutput, metrics: Mapping[str, float]) -> Mapping[str, float] | None:
    """The metrics, checked, or None for a typed reason; any other exception fails the test."""
    try:
        found = interpreter.interpret(output, metrics)
    except InterpretationError as error:
        assert error.reason in REASONS, error.reason
        assert "\n" not in str(error)
        return None
    for name, value in found.items():
        assert isinstance(name, str) and name
        assert isinstance(value, int | float) and math.isfinite(value), f"{name} is {value}"
    return found


def _content(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}
