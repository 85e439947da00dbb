"""Copies a job's files into a container whose engine does not see this machine, and back."""

from __future__ import annotations

import glob
import io
import os
import posixpath
import tarfile
import tempfile
from collections.abc import Collection, Iterator
from contextlib import closing
from dataclasses import replace
from fnmatch import fnmatchcase
from pathlib import Path, PurePosixPath
from typing import IO, Any, cast

from tradewind.deployer.bundle import pack, unpack
from tradewind.deployer.environment import METRICS, OUTPUTS
from tradewind.deployer.runner.docker import names
from tradewind.deployer.runner.run_files import merge_folder
from tradewind.deployer.staging import INPUTS, stage_out
from tradewind.problem import RunRequest

_PIECE = 1 << 20
_NOT_FOUND = 404
_LINKS = 5
"""An archive is read so often at most, for links that lead to links."""


def send(client: Any, container: str, request: RunRequest, cache: Path, limit: int) -> None:
    """Copy the working folder and the inputs into a container that has not been started.

    Whatever user the image has may read and write them.

    Args:
        client: A ``docker.APIClient``.
        container: Its id.
        request: The run.
        cache: Where archives of working folders are kept.
        limit: The most bytes that are copied.

    Raises:
        DeployError: The folder is not there or too large.
    """
    bundles = [(names.WORK_PLACE, pack(request.workdir, cache, limit_bytes=limit))]
    staged = request.folder / INPUTS
    if staged.is_dir() and any(staged.iterdir()):
        bundles.append((names.INPUTS_PLACE, pack(staged, cache, limit_bytes=limit)))
    client.put_archive(container, "/", _folders())
    for place, bundle in bundles:
        client.put_archive(container, place, _opened(bundle.path))


def _folders() -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for place in (
            "tradewind",
            names.WORK_PLACE,
            names.RUN_PLACE,
            f"{names.RUN_PLACE}/{OUTPUTS}",
            names.INPUTS_PLACE,
        ):
            entry = tarfile.TarInfo(place.lstrip("/"))
            entry.type, entry.mode = tarfile.DIRTYPE, 0o777
            tar.addfile(entry)
    return buffer.getvalue()


def _opened(path: Path) -> Iterator[bytes]:
    """An archive, piece by piece, with everybody allowed to write its files."""
    with tarfile.open(path, "r:") as tar:
        for member in tar:
            member.mode |= 0o666 | (0o111 if member.isdir() else 0)
            yield member.tobuf(tarfile.GNU_FORMAT, "utf-8")
            if member.isreg():
                file = tar.extractfile(member)
                assert file is not None
                with file:
                    while piece := file.read(_PIECE):
                        yield piece
                yield b"\0" * (-member.size % tarfile.BLOCKSIZE)
    yield b"\0" * (2 * tarfile.BLOCKSIZE)


def fetch(client: Any, container: str, request: RunRequest, limit: int) -> None:
    """Bring the metrics, ``outputs/`` and what the output patterns match out of a container that has ended.

    Args:
        client: A ``docker.APIClient``.
        container: Its id.
        request: The run.
        limit: The most bytes of each.

    Raises:
        DeployError: It is too large, or damaged, or this machine's disk is full.
    """
    with tempfile.TemporaryDirectory(prefix=".fetched-", dir=request.folder.parent, ignore_cleanup_errors=True) as made:
        place = Path(made)
        metrics = place / "metrics" / METRICS
        there = _get(client, container, f"{names.RUN_PLACE}/{METRICS}", metrics.parent, limit)
        if there and metrics.is_file() and not metrics.is_symlink():
            metrics.replace(request.folder / METRICS)
        left = place / OUTPUTS / OUTPUTS
        if _get(client, container, f"{names.RUN_PLACE}/{OUTPUTS}", left.parent, limit) and left.is_dir():
            merge_folder(left, request.folder / OUTPUTS, move=True)
        work = place / "work"
        for base in _bases(request.outputs):
            target = work / base
            target.parent.mkdir(parents=True, exist_ok=True)
            source, wanted = str(PurePosixPath(names.WORK_PLACE) / base), ArchiveSelection.below(base, request.outputs)
            piece = place / "piece" / (base.name or PurePosixPath(names.WORK_PLACE).name)
            there = _get(client, container, source, piece.parent, limit, wanted)
            if there and os.path.lexists(piece) and not target.exists():
                piece.replace(target)
        if work.exists():
            stage_out(replace(request, workdir=work))


def _bases(patterns: tuple[str, ...]) -> list[PurePosixPath]:
    """The folders or files below which some patterns match, none below another."""
    found: set[PurePosixPath] = set()
    for pattern in patterns:
        parts = PurePosixPath(pattern).parts
        plain = next((i for i, part in enumerate(parts) if any(sign in part for sign in "*?[")), len(parts))
        if ".." not in parts and not pattern.startswith("/"):
            found.add(PurePosixPath(*parts[:plain]))
    return sorted(base for base in found if not any(other in base.parents for other in found))


class ArchiveSelection:
    """Which members of an archive some patterns of outputs need.

    An archive comes in one go: where a link leads to what was not taken, it is to be read again.

    Args:
        patterns: The parts of each pattern, below the folder that is archived; no parts are all of it.
    """

    def __init__(self, patterns: Collection[tuple[str, ...]]) -> None:
        self._patterns = set(patterns)
        self._linked: set[tuple[str, ...]] = set()
        self._taken: set[tuple[str, ...]] = set()

    @classmethod
    def below(cls, base: PurePosixPath, patterns: Collection[str]) -> ArchiveSelection:
        """What some patterns match in a folder of the working folder."""
        split = [PurePosixPath(pattern).parts for pattern in patterns if not pattern.startswith("/")]
        return cls([parts[len(base.parts) :] for parts in split if parts[: len(base.parts)] == base.parts])

    def __call__(self, member: tarfile.TarInfo) -> bool:
        """True when a member is to be unpacked."""
        place = PurePosixPath(member.name).parts[1:]  # the first is the name of what is archived
        if not place:
            return True
        rests = {rest for pattern in self._patterns for rest in _rests(place, pattern)}
        if member.issym():
            self._follow(posixpath.join(*place[:-1], member.linkname), rests)
            return bool(rests)
        if () not in rests:
            return False
        if member.islnk():
            origin = PurePosixPath(member.linkname).parts[1:]
            if origin not in self._taken:
                self._linked.add(tuple(map(glob.escape, origin)))
                return False
        self._taken.add(place)
        return True

    def _follow(self, target: str, rests: Collection[tuple[str, ...]]) -> None:
        parts = PurePosixPath(posixpath.normpath(target)).parts
        if parts[:1] not in (("..",), ("/",)):
            self._linked |= {(*map(glob.escape, parts), *rest) for rest in rests if rest or parts not in self._taken}

    def more(self) -> bool:
        """True when links lead to what was not unpacked, and will be if the archive is read again."""
        taken = {tuple(map(glob.escape, place)) for place in self._taken}
        found = self._linked - self._patterns - taken
        self._patterns |= found
        self._linked, self._taken = set(), set()
        return bool(found)


def _rests(parts: tuple[str, ...], pattern: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    """What is left of a pattern below a path: nothing where it matches the path, or a folder above it."""
    if not pattern:
        yield ()
    elif not parts:
        yield pattern
    elif pattern[0] == "**":  # which follows no links
        for i in range(len(parts)):
            yield from _rests(parts[i:], pattern[1:])
    elif fnmatchcase(parts[0], pattern[0]):
        yield from _rests(parts[1:], pattern[1:])


def _get(
    client: Any, container: str, source: str, target: Path, limit: int, wanted: ArchiveSelection | None = None
) -> bool:
    """Unpack one place of a container into a folder, or what is wanted of it; False when it is not there."""
    from docker.errors import APIError

    for _ in range(_LINKS):
        try:
            pieces, _ = client.get_archive(container, source, chunk_size=_PIECE)
        except APIError as error:
            if error.status_code == _NOT_FOUND:
                return False
            raise
        with closing(_Stream(pieces)) as stream:
            unpack(cast("IO[bytes]", stream), target, limit_bytes=limit, lenient=True, keep=wanted)
        if wanted is None or not wanted.more():
            break
    return True


class _Stream(io.RawIOBase):
    """Pieces of bytes as a file to read."""

    def __init__(self, pieces: Iterator[bytes]) -> None:
        self._pieces = pieces
        self._rest = b""

    def read(self, size: int = -1) -> bytes:
        """The next bytes, as many as are asked for while there are any."""
        found = bytearray(self._rest)
        while size < 0 or len(found) < size:
            piece = next(self._pieces, b"")
            if not piece:
                break
            found += piece
        cut = len(found) if size < 0 else size
        self._rest = bytes(found[cut:])
        return bytes(found[:cut])
