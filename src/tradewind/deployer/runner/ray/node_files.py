"""The files of runs on the nodes of a Ray cluster.

This module is sent there by value and uses the standard library only. The driver starts `gather`, `piece`, `remove`,
`look_at_checkpoint` and `gather_checkpoint` as tasks, by these names.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import os
import shutil
import tarfile
import time
import zlib
from pathlib import Path
from typing import Any

PACKED = "collect.tar"
"""The name of the tar that `gather` makes in the run's folder."""

STDOUT, STDERR, METRICS, OUTPUTS = "stdout", "stderr", "metrics.jsonl", "outputs"
CHECKPOINT, PACKED_CHECKPOINT = "checkpoint", "checkpoint.tar"
"""The job's folder for checkpoints in the run's folder, and the tar that `gather_checkpoint` makes beside it."""
RESULT = "result.json"
"""What the warden wrote about the end, also whether the logs were cut."""
PREFIX = "tradewind-ray-"
_PIECE = 4 << 20
_LITTLE = 1 << 18
_KEPT_SECONDS = 86400.0
_ATTEMPTS = 5
"""Copies of a checkpoint that are begun until one is of files that did not change meanwhile."""


def extract(stream: Any, folder: Path) -> None:
    """Unpack an archive that the runner made."""
    with tarfile.open(fileobj=stream, mode="r|") as tar:
        if hasattr(tarfile, "data_filter"):
            tar.extractall(folder, filter="data")
        else:
            tar.extractall(folder)  # noqa: S202  (an old Python; the runner made it)


def sweep(scratch: Path) -> None:
    """Remove the files of runs that nobody settled for a day after their lease ended, and what is unused for a day."""
    for note in scratch.glob(f"{PREFIX}*/expires"):
        try:
            expires = float(note.read_text(encoding="ascii"))
        except (OSError, ValueError):
            continue
        if time.time() > expires + _KEPT_SECONDS:
            shutil.rmtree(note.parent, ignore_errors=True)
    for kept in (*scratch.glob(f"{PREFIX}bundles/*"), *scratch.glob(f"{PREFIX}code-*")):
        with contextlib.suppress(OSError):
            if time.time() > kept.stat().st_mtime + _KEPT_SECONDS:
                shutil.rmtree(kept, ignore_errors=True) if kept.is_dir() else kept.unlink()


def gather(folder: str, patterns: list[str], limit: int) -> tuple[int, bytes]:
    """Pack the logs, the metrics, the end and the kept outputs of a run into one tar.

    Args:
        folder: The run's folder on this node.
        patterns: Glob patterns of the files below the working folder that are kept, beside all in the outputs folder.
        limit: Bytes that they may have together.

    Returns:
        The size of the tar in bytes, and its first piece. A size of -1: there is more than the limit.
    """
    inside = _chosen(folder, patterns)
    if _size(inside) > limit:
        return -1, b""
    target = Path(folder).resolve() / PACKED
    with target.open("wb") as file:
        _tar(inside, file)
    return target.stat().st_size, piece(str(target), 0)


def packed(folder: Path, patterns: list[str], limit: int) -> bytes:
    """Pack the same files as `gather`, compressed; empty if they are more than 256 KiB or than the limit."""
    inside = _chosen(str(folder), patterns)
    if _size(inside) > min(limit, _LITTLE):
        return b""
    buffer = io.BytesIO()
    _tar(inside, buffer)
    content = zlib.compress(buffer.getvalue(), 1)
    return content if len(content) <= _LITTLE else b""


def _chosen(folder: str, patterns: list[str]) -> dict[str, Path]:
    """The files of a run that are brought back, by their names in the tar."""
    root = Path(folder).resolve()
    work, outputs = root / "work", root / OUTPUTS
    wanted = {name: root / name for name in (STDOUT, STDERR, METRICS, RESULT)}
    for found in [each for pattern in patterns for each in work.glob(pattern)]:
        wanted |= {f"{OUTPUTS}/{os.path.relpath(path, work)}": path for path in _files(found)}
    wanted |= {f"{OUTPUTS}/{path.relative_to(outputs)}": path for path in _files(outputs)}
    # Nothing outside of the run's folder is sent, whatever the job linked to.
    return {name: path for name, path in wanted.items() if path.is_file() and root in path.resolve().parents}


def _size(files: dict[str, Path]) -> int:
    return sum(path.stat().st_size for path in files.values())


def _tar(files: dict[str, Path], target: Any) -> None:
    with tarfile.open(fileobj=target, mode="w", dereference=True) as tar:
        for name, path in files.items():
            tar.add(path, name, recursive=False)


def _files(place: Path) -> list[Path]:
    if not place.is_dir():
        return [place]
    return [Path(top) / name for top, _, names in os.walk(place) for name in names]


def piece(path: str, offset: int) -> bytes:
    """Read up to 4 MiB of a file from an offset on; empty when there is no such file."""
    try:
        with Path(path).open("rb") as file:
            file.seek(offset)
            return file.read(_PIECE)
    except OSError:
        return b""


def look_at_checkpoint(folder: str) -> tuple[str, float]:
    """Look at the checkpoint files of a run.

    Args:
        folder: The run's folder on this node.

    Returns:
        A text that changes whenever the files do, and the seconds since the newest was written; an empty text where
        there are none, or where they change at this moment.
    """
    lines, newest = [], 0
    try:
        for path in _files(Path(folder) / CHECKPOINT):
            facts = path.lstat()
            newest = max(newest, facts.st_mtime_ns)
            lines.append(f"{path} {facts.st_ino} {facts.st_size} {facts.st_mtime_ns}")
    except OSError:
        return "", 0.0
    if not lines:
        return "", 0.0
    digest = hashlib.sha256("\n".join(sorted(lines)).encode(errors="surrogateescape")).hexdigest()
    return digest, max(0.0, time.time() - newest / 1e9)


def gather_checkpoint(folder: str, limit: int) -> tuple[int, bytes, str, float]:
    """Pack the checkpoint files of a run into one tar, all as they were at one moment.

    Args:
        folder: The run's folder on this node.
        limit: Bytes that they may have together.

    Returns:
        The size of the tar in bytes, its first piece, and what `look_at_checkpoint` says of the files. A size of -1:
        there is more than the limit; of 0: they change all the time, or are not there.
    """
    source, target = Path(folder) / CHECKPOINT, Path(folder) / PACKED_CHECKPOINT
    for _ in range(_ATTEMPTS):
        with contextlib.suppress(FileNotFoundError):  # files went away while they were packed
            fingerprint, _ = look_at_checkpoint(folder)
            if sum(path.lstat().st_size for path in _files(source)) > limit:
                return -1, b"", "", 0.0
            with tarfile.open(target, mode="w") as tar:
                for found in sorted(source.iterdir()):
                    tar.add(found, found.name)
            after, age = look_at_checkpoint(folder)
            if fingerprint and after == fingerprint:
                return target.stat().st_size, piece(str(target), 0), after, age
    return 0, b"", "", 0.0


def remove(folder: str) -> None:
    """Remove the folder of a run, if it is one of ours by its name."""
    if Path(folder).name.startswith(PREFIX):
        shutil.rmtree(folder, ignore_errors=True)
