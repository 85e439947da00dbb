"""Copies of a run's files as JSON, for records: cut in the middle where they are long, and without secrets."""

from __future__ import annotations

import base64
import binascii
import json
import re
import stat
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any

from tradewind.errors import RecordError
from tradewind.utils.units import format_memory

STREAMS = ("stdout", "stderr", "metrics.jsonl", "application.stdout", "application.stderr")
"""Files of a run's folder that are copied; files below ``outputs/`` are where interpreters read them."""

OUTPUTS = "outputs"
MOST_OUTPUTS = 100
"""Files of one run below ``outputs/`` that are copied."""

GAP_LINES = re.compile(rb"^\[\d[^\n]* (?:are not in the record|are left out here[^\n]*)\]\n", re.MULTILINE)
"""The lines that stand for the middle of a log that was cut, by a runner or in a record: no program printed them."""

_MASK = "***"
_SHORTEST_SECRET = 4


class SecretMask:
    """Replaces the values of secrets by ``***``.

    Args:
        values: The values. One of fewer than four characters would be found in every number, and is left alone.
    """

    def __init__(self, values: Collection[str] = ()) -> None:
        # The longest first: one may be a part of another.
        self._values = sorted({one for one in values if len(one) >= _SHORTEST_SECRET}, key=len, reverse=True)

    def text(self, text: str) -> str:
        """A text without the values."""
        for value in self._values:
            text = text.replace(value, _MASK)
        return text

    def data(self, data: bytes) -> bytes:
        """Bytes without the values."""
        for value in self._values:
            data = data.replace(value.encode(), _MASK.encode())
        return data

    def document(self, document: Any) -> Any:
        """A JSON document without the values, in texts that are no names of keys."""
        if not self._values:
            return document
        if isinstance(document, str):
            return self.text(document)
        if isinstance(document, Mapping):
            return {key: self.document(value) for key, value in document.items()}
        if isinstance(document, list | tuple):
            return [self.document(value) for value in document]
        return document


def copy_run_files(folder: Path, outputs: Collection[str] | None, most: int, mask: SecretMask) -> dict[str, Any]:
    """Copy what a run has printed, reported and kept.

    Args:
        folder: The run's folder.
        outputs: Paths below ``outputs/`` to copy; None for all that there are.
        most: Bytes that are kept of each file: a longer one is cut in its middle, at the ends of lines.
        mask: The secrets that may be in them.

    Returns:
        By path below the folder: ``text`` or ``base64``, ``bytes`` (its size) and ``cut`` (True where a part is
        missing); empty where nothing is left of the run.
    """
    found: dict[str, Any] = {}
    limited = _was_limited(folder)
    for name in (*STREAMS, *_output_names(folder, outputs)):
        path = folder / name
        try:
            status = path.stat()
            inside = path.resolve().is_relative_to(folder.resolve())
            if not stat.S_ISREG(status.st_mode) or not inside:
                continue
            data, cut = _read(path, status.st_size, most)
        except OSError:
            continue
        found[name] = _encoded(mask.data(data), status.st_size, cut or (limited and name in ("stdout", "stderr")))
    return found


def _was_limited(folder: Path) -> bool:
    """True where the runner kept only a part of what the program printed."""
    try:
        return bool(json.loads((folder / "result.json").read_bytes()).get("truncated", False))
    except (OSError, ValueError, AttributeError):
        return False


def _output_names(folder: Path, outputs: Collection[str] | None) -> list[str]:
    if outputs is not None:
        return sorted(f"{OUTPUTS}/{name.removeprefix(f'{OUTPUTS}/')}" for name in outputs)
    found = sorted(path for path in (folder / OUTPUTS).rglob("*") if path.is_file() and not path.is_symlink())
    return [path.relative_to(folder).as_posix() for path in found[:MOST_OUTPUTS]]


def _read(path: Path, size: int, most: int) -> tuple[bytes, bool]:
    with path.open("rb") as file:
        if size <= most:
            return file.read(most), False
        half = most // 2
        head = file.read(half)
        file.seek(size - half)
        tail = file.read(half)
    # Whole lines only: half of a number would be read as another number.
    head, tail = head[: head.rfind(b"\n") + 1], tail[tail.find(b"\n") + 1 :]
    gap = f"[{format_memory(size - len(head) - len(tail))} are not in the record]\n"
    return head + gap.encode() + tail, True


def _encoded(data: bytes, size: int, cut: bool) -> dict[str, Any]:
    try:
        content = {"text": data.decode("utf-8")}
    except UnicodeDecodeError:
        content = {"base64": base64.b64encode(data).decode()}
    return {**content, "bytes": size, "cut": cut}


def is_cut(files: Mapping[str, Any]) -> bool:
    """True where a part of one of a run's copied files is missing."""
    return any(bool(entry.get("cut")) for entry in files.values())


def check_copies(files: Any) -> Mapping[str, Any]:
    """The copies of a run's files, if they are some.

    Raises:
        RecordError: They are none, or one would be written outside of the run's folder.
    """
    if not isinstance(files, Mapping):
        raise RecordError("logs is no mapping of files")
    for name, entry in files.items():
        parts: Sequence[str] = PurePosixPath(name).parts
        below = len(parts) > 1 and parts[0] == OUTPUTS and ".." not in parts and "\0" not in name
        if name not in STREAMS and not below:
            raise RecordError(f"logs: {name!r} is no file of a run")
        if not isinstance(entry, Mapping):
            raise RecordError(f"logs.{name} is no copy of a file")
        _content(name, entry)
    return files


def _content(name: str, entry: Mapping[str, Any]) -> bytes:
    text, packed = entry.get("text"), entry.get("base64")
    try:
        if isinstance(text, str):
            return text.encode("utf-8")
        if isinstance(packed, str):
            return base64.b64decode(packed, validate=True)
    except (UnicodeEncodeError, binascii.Error, ValueError) as error:
        raise RecordError(f"logs.{name} cannot be read: {error}") from None
    raise RecordError(f"logs.{name} has neither text nor base64")


def write_copies(folder: Path, files: Mapping[str, Any]) -> None:
    """Write copied files into a run's folder, as its runner would have left them.

    Args:
        folder: The folder; it is made.
        files: What `check_copies` took.

    Raises:
        OSError: They cannot be written.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for name, entry in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(_content(name, entry))
    if is_cut(files):
        (folder / "result.json").write_text(json.dumps({"truncated": True}), encoding="utf-8")
