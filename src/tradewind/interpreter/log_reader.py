"""Reads logs of any size in bounded memory, and numbers as programs print them."""

from __future__ import annotations

import json
import math
import re
import stat
from array import array
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import Any, Literal

from tradewind.errors import InputError, InterpretationError
from tradewind.problem import RunOutput
from tradewind.utils.log_copies import GAP_LINES
from tradewind.utils.units import parse_duration

BLOCK = 1 << 20
"""Bytes that are read at once."""

LINE_LIMIT = 1 << 20
"""Bytes of the longest line that is looked at, at least `BLOCK`; longer ones are passed over and counted."""

Aggregate = Literal["first", "last", "mean", "min", "max", "sum", "count"]
"""How several values of a metric become one."""

_NO_SUM = frozenset({"first", "last", "count"})

_decode = json.JSONDecoder().raw_decode

_GROUPED = re.compile(r"[+-]?\d{1,3}(?:[,_' \u00a0\u202f]\d{3})+(?:\.\d*)?(?:[eE][+-]?\d+)?", re.ASCII)
_PLAIN = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?", re.ASCII)
_CLOCK = re.compile(r"(?:(\d+):)?(\d{1,2}):(\d{1,2}(?:\.\d+)?)", re.ASCII)


def check_file_name(name: str) -> str:
    """A file's name as settings give it: ``stdout``, ``stderr``, ``metrics`` or a path below ``outputs/``.

    Raises:
        ValueError: The path is absolute or leads out of the folder.
    """
    path = PurePosixPath(name)
    if not name.strip() or path.is_absolute() or ".." in path.parts:
        raise ValueError(f"{name!r} is no file of a run; write stdout, stderr or a path below outputs/")
    return name


def locate_file(output: RunOutput, name: str) -> Path:
    """The file of a run that settings name; it is a regular file inside the run's folder and not empty.

    Args:
        output: The run.
        name: ``stdout``, ``stderr``, ``metrics``, or a path below ``outputs/`` (with or without that prefix).

    Raises:
        InterpretationError: ``missing-file`` or ``empty``; ``truncated`` for an empty log that was cut.
    """
    streams = {"stdout": output.stdout, "stderr": output.stderr, "metrics": output.metrics_file}
    path = streams.get(name)
    if path is None:
        parts = PurePosixPath(name).parts
        path = (output.folder / "outputs").joinpath(*(parts[1:] if parts[0] == "outputs" else parts))
        # The job may have left a link there: what it points to must be the run's own, too.
        if not path.resolve().is_relative_to(output.folder.resolve()):
            raise InterpretationError("missing-file", f"{name} leads out of the run's folder")
    try:
        status = path.stat()
    except OSError:
        raise InterpretationError("missing-file", f"the run left no {name}", hint=f"looked for {path}") from None
    if not stat.S_ISREG(status.st_mode):
        raise InterpretationError("missing-file", f"{name} of the run is not a plain file", hint=str(path))
    if status.st_size == 0:
        reason = "truncated" if output.truncated and name in ("stdout", "stderr") else "empty"
        raise InterpretationError(reason, f"{name} of the run is empty", hint=str(path))
    return path


class LogReader:
    r"""Reads a file as blocks of whole lines, forwards or from its end, in a few MiB of memory.

    ``\r`` ends a line as ``\n`` does, because progress bars are written so.

    Args:
        path: The file; what is appended to it after this moment is not read.
        name: What the user calls it, for errors.
        cut: True for a log that was cut: the line about what is missing is no line of it.

    Attributes:
        skipped: Lines longer than `LINE_LIMIT` that were passed over so far.
    """

    def __init__(self, path: Path, name: str, *, cut: bool = False) -> None:
        self.path = path
        self._cut = cut
        self.name = name
        self.skipped = 0
        self._size = path.stat().st_size

    def blocks(self, *, backwards: bool = False) -> Iterator[bytes]:
        """Blocks of whole lines; with ``backwards`` the last block first, the lines inside in their order.

        Raises:
            InterpretationError: The file cannot be read.
        """
        try:
            for block in self._backwards() if backwards else self._forwards():
                yield GAP_LINES.sub(b"", block) if self._cut else block
        except OSError as error:
            raise InterpretationError(
                "missing-file", f"{self.name} of the run cannot be read: {error.strerror or error}", hint=str(self.path)
            ) from None

    def text(self, *, backwards: bool = False, strict: bool = False) -> Iterator[str]:
        """As `blocks`, decoded as UTF-8.

        Args:
            backwards: The last block first.
            strict: Raise at a byte that is not UTF-8; otherwise it becomes the replacement character.

        Raises:
            InterpretationError: ``not-utf8``, or the file cannot be read.
        """
        for block in self.blocks(backwards=backwards):
            try:
                yield block.decode("utf-8", "strict" if strict else "replace")
            except UnicodeDecodeError as error:
                around = block[max(0, error.start - 20) : error.start + 20]
                raise InterpretationError(
                    "not-utf8", f"{self.name} is not UTF-8 near {around!r}", hint="set errors: replace"
                ) from None

    def _forwards(self) -> Iterator[bytes]:
        carry, skipping, left = b"", False, self._size
        with self.path.open("rb") as file:
            while left > 0 and (data := file.read(min(BLOCK, left))):
                left -= len(data)
                data = data.replace(b"\r", b"\n")
                end = data.rfind(b"\n") + 1
                if end == 0:
                    carry = b"" if skipping else carry + data
                else:
                    head = data[data.find(b"\n") + 1 : end] if skipping else self._cut_first(carry + data[:end])
                    carry, skipping = data[end:], False
                    if head:
                        yield head
                if len(carry) > LINE_LIMIT:
                    carry, skipping = b"", True
                    self.skipped += 1
        if carry:
            yield carry

    def _backwards(self) -> Iterator[bytes]:
        tail, skipping, left = b"", False, self._size
        with self.path.open("rb") as file:
            while left > 0:
                size = min(BLOCK, left)
                left -= size
                file.seek(left)
                data = file.read(size).replace(b"\r", b"\n")
                start = data.find(b"\n") + 1
                if start == 0:
                    tail = b"" if skipping else data + tail
                else:
                    end = data.rfind(b"\n") + 1
                    body = data[start:end] if skipping else self._cut_last(data[start:] + tail)
                    tail, skipping = data[:start], False
                    if body:
                        yield body
                if len(tail) > LINE_LIMIT + 1:  # its line end is counted here
                    tail, skipping = b"", True
                    self.skipped += 1
        if tail:
            yield tail

    def _cut_first(self, block: bytes) -> bytes:
        """Leave out the first line of a block if it is too long; only that one can be."""
        end = block.find(b"\n")
        if end > LINE_LIMIT:
            self.skipped += 1
            return block[end + 1 :]
        return block

    def _cut_last(self, block: bytes) -> bytes:
        """Leave out the last line of a block if it is too long; only that one can be."""
        start = block.rstrip(b"\n").rfind(b"\n") + 1
        if len(block) - start > LINE_LIMIT + 1:
            self.skipped += 1
            return block[:start]
        return block


def no_match_error(output: RunOutput, reader: LogReader, what: str, *, hint: str | None = None) -> InterpretationError:
    """The error for a metric that a file does not have, with the likeliest reason."""
    if output.truncated and reader.name in ("stdout", "stderr"):
        return InterpretationError(
            "truncated", f"{what}: nothing in {reader.name}, which was cut", hint="raise deploy.log_limit"
        )
    if reader.skipped:
        return InterpretationError(
            "too-large",
            f"{what}: nothing in {reader.name}; {reader.skipped} of its lines are longer than 1 MiB",
            hint="print the metric on a line of its own",
        )
    return InterpretationError("no-match", f"{what}: nothing in {reader.name}", hint=hint or str(reader.path))


def json_line(line: str) -> Any:
    """Parse a line of JSON without spaces around it: as `json.loads`, in a third less time.

    Raises:
        ValueError: It is no JSON.
    """
    found, end = _decode(line)
    if end != len(line):
        raise ValueError("more than one value")
    return found


def parse_number(text: str, *, thousands: bool = False, share: bool = False, durations: bool = False) -> float:
    """The number that a program printed.

    Args:
        text: ``12``, ``1e-3``, ``97.5%``; spaces around it do not matter.
        thousands: Take ``1,234.5`` (also with ``_``, ``'`` or a space) as 1234.5.
        share: Take ``97.5%`` as 0.975, not as 97.5.
        durations: Take ``2m30s`` and ``1:02:03`` as seconds.

    Raises:
        InterpretationError: ``not-a-number``; also for NaN, infinities and numbers beyond a double.
    """
    plain = text.strip()
    percent = plain.endswith("%")
    bare = plain.removesuffix("%").rstrip()
    value = math.nan
    if _PLAIN.fullmatch(bare):
        value = float(bare)
    elif thousands and _GROUPED.fullmatch(bare):
        value = float(re.sub(r"[,_' \u00a0\u202f]", "", bare))
    elif durations and (clock := _CLOCK.fullmatch(plain)):
        value = int(clock[1] or 0) * 3600.0 + int(clock[2]) * 60.0 + float(clock[3])
    elif durations:
        try:
            value = parse_duration(plain)
        except InputError:
            value = math.nan
    if not math.isfinite(value):
        hint = "set thousands: true" if _GROUPED.fullmatch(bare) else None
        raise InterpretationError("not-a-number", f"{shorten(text)!r} is not a finite number", hint=hint)
    return value / 100.0 if percent and share else value


def shorten(text: str, length: int = 60) -> str:
    """The text, or its beginning and ``…``."""
    return text if len(text) <= length else text[: length - 1] + "…"


class MetricAggregate:
    """Adds up the values of one metric without keeping them.

    Args:
        how: What becomes of several values.
    """

    def __init__(self, how: Aggregate) -> None:
        self.how = how
        self.count = 0
        self._first = self._last = self._sum = 0.0
        self._low, self._high = math.inf, -math.inf
        self._broken = False

    def add(self, value: float) -> None:
        """Take one more value."""
        if self.count == 0:
            self._first = value
        self.count += 1
        self._last = value
        if self.how in _NO_SUM:  # files of a million lines are read so
            return
        self._sum += value
        self._low, self._high = min(self._low, value), max(self._high, value)
        self._broken = self._broken or math.isnan(value)

    def result(self) -> float:
        """The one value; NaN if one of the values that it is made of was NaN."""
        if self.how == "count":
            return float(self.count)
        if self.how in ("first", "last"):
            return self._first if self.how == "first" else self._last
        if self._broken:
            return math.nan
        return {
            "mean": self._sum / self.count if self.count else math.nan,
            "sum": self._sum,
            "min": self._low,
            "max": self._high,
        }[self.how]


def lookup(record: Mapping[str, Any], name: str) -> Any:
    """The value of a dotted name in a record: the key itself, or the way through nested objects; None if absent."""
    if name in record:
        return record[name]
    here: Any = record
    for piece in name.split("."):
        if not isinstance(here, Mapping) or piece not in here:
            return None
        here = here[piece]
    return here


CurvePoint = tuple[float, float]
"""Step and value."""


class CurvePoints(Collection[CurvePoint]):
    """Points in their order, in 16 bytes each: a program may report a million.

    Args:
        points: The first of them.
    """

    def __init__(self, points: Iterable[CurvePoint] = ()) -> None:
        self._numbers = array("d")
        self.extend(points)

    def extend(self, points: Iterable[CurvePoint]) -> None:
        """Add points at the end."""
        for point in points:
            self._numbers.extend(point)

    def __len__(self) -> int:
        return len(self._numbers) // 2

    def __iter__(self) -> Iterator[CurvePoint]:
        numbers = iter(self._numbers)
        return zip(numbers, numbers, strict=True)

    def __contains__(self, point: object) -> bool:
        return any(one == point for one in self)


class CurvePointReader:
    r"""Finds the values of one metric, and their steps, in a stream of bytes.

    Lines that say nothing of the metric are passed over, and so are lines that cannot be read: the interpreters say
    what is wrong with a file when the run has ended. ``\r`` ends a line as ``\n`` does.

    Args:
        metric: The metric's name, dotted for nested keys of a JSON line.
        step: The key that counts the steps; a line without it counts on from the one before, beginning at 1.
        pattern: A regular expression with a group ``value`` and perhaps a group ``step``, instead of JSON lines.

    Attributes:
        offset: Bytes that were taken so far.
    """

    def __init__(self, metric: str, step: str = "step", pattern: str = "") -> None:
        self._metric = metric
        self._step = step
        self._pattern = re.compile(pattern) if pattern else None
        self._carry = b""
        self._place = 0.0
        self.offset = 0

    def feed(self, piece: bytes, *, last: bool = False) -> list[CurvePoint]:
        """The points of the lines that are whole now.

        Args:
            piece: What was written since.
            last: Nothing more will come: a line without its end is a line, too.
        """
        self.offset += len(piece)
        text = (self._carry + piece).replace(b"\r", b"\n")
        whole, _, rest = text.rpartition(b"\n")
        self._carry = b"" if last else rest[-LINE_LIMIT:]
        lines = (text if last else whole).split(b"\n")
        return [point for line in lines for point in self._points(line.decode("utf-8", "replace"))]

    def _points(self, line: str) -> Iterator[CurvePoint]:
        found = self._from_json(line) if self._pattern is None else self._from_text(line)
        if found is None:
            return
        value, step = found
        self._place = self._place + 1 if step is None else step
        yield self._place, value

    def _from_json(self, line: str) -> tuple[float, float | None] | None:
        line = line.strip(" \t")
        if not line.startswith("{"):
            return None
        try:
            record = json_line(line)
        except (ValueError, RecursionError):
            return None
        value, step = _curve_number(lookup(record, self._metric)), _curve_number(record.get(self._step))
        return None if value is None else (value, step)

    def _from_text(self, line: str) -> tuple[float, float | None] | None:
        assert self._pattern is not None
        match = self._pattern.search(line)
        if match is None or match["value"] is None:
            return None
        given = match["step"] if "step" in self._pattern.groupindex else None
        try:
            return parse_number(match["value"]), None if given is None else parse_number(given)
        except InterpretationError:
            return None


def _curve_number(raw: object) -> float | None:
    if not isinstance(raw, int | float):
        return None
    try:
        return float(raw)
    except OverflowError:
        return math.inf
