"""Moves files between this machine and containers: a job's files there and back, and the logs.

Files are copied where the engine does not see this machine's folders; elsewhere only the logs are fetched.
"""

from __future__ import annotations

import glob
import io
import os
import posixpath
import struct
import tarfile
import tempfile
from collections.abc import Collection, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path, PurePosixPath
from typing import IO, Any, cast

from tradewind.deployer.bundle import pack, unpack
from tradewind.deployer.checkpoints import FOLDER as CHECKPOINT
from tradewind.deployer.checkpoints import CheckpointStore
from tradewind.deployer.environment import METRICS, OUTPUTS
from tradewind.deployer.runner.docker import names
from tradewind.deployer.runner.docker.engine import CALL_SECONDS, ContainerEngine
from tradewind.deployer.runner.docker.errors import engine_message
from tradewind.deployer.runner.docker.names import ListedContainer, engine_time
from tradewind.deployer.runner.log_limit import CappedLogFile
from tradewind.deployer.runner.run_files import folder_error, merge_folder, replace_document
from tradewind.deployer.staging import INPUTS, stage_out
from tradewind.errors import DeployError
from tradewind.problem import RunRequest

_PIECE_LIMIT = 4 << 20
_PIECE = 1 << 20
_NOT_FOUND = 404
_GONE = (404, 409)
_LINKS = 5
"""An archive is read so often at most, for links that lead to links."""
RESULT = "result.json"
"""The file in a run's folder that says whether its logs were cut."""
_HEADER = struct.Struct(">BxxxL")


def _frames(client: Any, container: str, **given: Any) -> Iterator[tuple[int, bytes]]:
    """The output of a container, piece by piece: 0 and a piece of standard output, or 1 and one of standard error.

    The package reads one of the two at a time, and asks about the container before each.
    """
    import requests
    from docker.errors import create_api_error_from_http_exception

    address = f"{client.base_url}/v{client.api_version}/containers/{container}/logs"
    with closing(client.get(address, params=given, stream=True, timeout=client.timeout)) as answer:
        try:
            answer.raise_for_status()
        except requests.HTTPError as error:
            create_api_error_from_http_exception(error)
        while header := _exactly(answer.raw, _HEADER.size):
            kind, length = _HEADER.unpack(header)
            piece = _exactly(answer.raw, length)
            yield int(kind == 2), piece


def _exactly(raw: Any, size: int) -> bytes:
    found = bytearray()
    while len(found) < size:
        piece = raw.read(size - len(found))
        if not piece:
            return b""
        found += piece
    return bytes(found)


def save_logs(client: Any, container: str, paths: tuple[Path, Path], limit: int | None) -> bool:
    """Write the output of a container into two files; a reader sees the old files or the whole new ones.

    Args:
        client: A ``docker.APIClient``.
        container: The id of the container.
        paths: The files for the standard output and for the standard error.
        limit: The most bytes that are kept of each, of its beginning and of its end, or None.

    Returns:
        True when there was more than the limit.
    """
    parts = [path.with_name(path.name + ".part") for path in paths]
    with parts[0].open("wb") as out, parts[1].open("wb") as err:
        logs = CappedLogFile(out, limit), CappedLogFile(err, limit)
        for kind, piece in _frames(client, container, stdout=1, stderr=1):
            logs[kind].write(piece)
        cut = [log.close() for log in logs]
    for part, path in zip(parts, paths, strict=True):
        part.replace(path)
    return any(cut)


@dataclass(frozen=True, slots=True)
class LogPosition:
    """The position at which reading a log stopped: engines count in time, readers in bytes.

    Attributes:
        offset: The number of bytes before it.
        time: The time of the last entry, as the engine writes it.
        seen: The number of entries of that time that were read.
    """

    offset: int = 0
    time: str = ""
    seen: int = 0


def read_container_log(
    client: Any, container: str, stream: str, offset: int, start: LogPosition
) -> tuple[bytes, LogPosition]:
    """Read the output of a container from a byte on, a few megabytes at most.

    Args:
        client: A ``docker.APIClient``.
        container: The id of the container.
        stream: ``stdout`` or ``stderr``.
        offset: The first byte that is wanted.
        start: The position at which an earlier call stopped, if that was at this byte; otherwise the log is read from
            its beginning.

    Returns:
        The bytes, and the position after them.
    """
    if start.offset != offset:
        start = LogPosition()
    position, last, seen, skip = start.offset, start.time, start.seen, start.seen
    since = {"since": f"{engine_time(last) - 1e-5:.6f}"} if last else {}
    found = bytearray()
    with closing(_frames(client, container, **{stream: 1}, timestamps=1, **since)) as frames:  # type: ignore[type-var]
        for _, piece in frames:
            stamp, _, text = piece.partition(b" ")
            time = stamp.decode(errors="replace")
            if time < start.time or (time == start.time and skip > 0):
                skip -= time == start.time
                continue
            seen = seen + 1 if time == last else 1
            last = time
            found += text[max(0, offset - position) :]
            position += len(text)
            if len(found) >= _PIECE_LIMIT:
                break
    return bytes(found), LogPosition(position, last, seen)


def send(client: Any, container: str, request: RunRequest, cache: Path, limit: int) -> None:
    """Copy the working folder, the inputs and the latest checkpoint into a container that has not been started.

    Any user that the image has may read and write them.

    Args:
        client: A ``docker.APIClient``.
        container: The id of the container.
        request: The run.
        cache: The folder in which archives of working folders are kept.
        limit: The most bytes that are copied.

    Raises:
        DeployError: The folder is not there or too large.
    """
    bundles = [(names.WORK_PLACE, pack(request.workdir, cache, limit_bytes=limit))]
    staged = request.folder / INPUTS
    if staged.is_dir() and any(staged.iterdir()):
        bundles.append((names.INPUTS_PLACE, pack(staged, cache, limit_bytes=limit)))
    plan, more = request.checkpoint, list[str]()
    if plan is not None:
        more.append(f"{names.RUN_PLACE}/{CHECKPOINT}")
        if (latest := CheckpointStore(plan.folder).latest()) is not None:
            bundles.append((more[0], pack(latest.files, cache, limit_bytes=limit)))
    client.put_archive(container, "/", _folders(more))
    for place, bundle in bundles:
        client.put_archive(container, place, _opened(bundle.path))


def _folders(more: Sequence[str]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for place in (
            "tradewind",
            names.WORK_PLACE,
            names.RUN_PLACE,
            f"{names.RUN_PLACE}/{OUTPUTS}",
            names.INPUTS_PLACE,
            *more,
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
    """Copy the metrics, ``outputs/`` and what the output patterns match out of a container that has ended.

    Args:
        client: A ``docker.APIClient``.
        container: The id of the container.
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
    """Selects the members of an archive that some patterns of outputs need.

    An archive comes in one go: where a link leads to what was not taken, it is to be read again.

    Args:
        patterns: The path parts of each pattern, below the folder that is archived; no parts select all of it.
    """

    def __init__(self, patterns: Collection[tuple[str, ...]]) -> None:
        self._patterns = set(patterns)
        self._linked: set[tuple[str, ...]] = set()
        self._taken: set[tuple[str, ...]] = set()

    @classmethod
    def below(cls, base: PurePosixPath, patterns: Collection[str]) -> ArchiveSelection:
        """The selection that some patterns make in a folder of the working folder.

        Args:
            base: The folder, relative to the working folder.
            patterns: Glob patterns, relative to the working folder.
        """
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
    """The rests of a pattern below a path; an empty one where it matches the path or a folder above it."""
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
    """Unpack a path of a container into a folder, or the selection of it; False when it is not there."""
    from docker.errors import APIError

    for _ in range(_LINKS):
        try:
            pieces, _ = client.get_archive(container, source, chunk_size=_PIECE)
        except APIError as error:
            if error.status_code == _NOT_FOUND:
                return False
            raise
        with closing(ArchiveStream(pieces)) as stream:
            unpack(cast("IO[bytes]", stream), target, limit_bytes=limit, lenient=True, keep=wanted)
        if wanted is None or not wanted.more():
            break
    return True


class ArchiveStream(io.RawIOBase):
    """A readable file of pieces of bytes."""

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


def collect(engine: ContainerEngine, request: RunRequest, limit: int) -> None:
    """Write the logs of a run into its folder; with an engine that does not see the folder, the files too.

    Args:
        engine: The engine that has the containers.
        request: The run.
        limit: The most bytes of files.

    Raises:
        DeployError: The container is gone, the engine does not answer, or the disk is full.
    """
    from docker.errors import APIError

    rows = containers_of(engine, request.run_id)
    if not any(row.role == names.JOB for row in rows):
        raise DeployError(f"the container of run {request.run_id} is gone, and what it printed with it")
    try:
        request.folder.mkdir(parents=True, exist_ok=True)
        cut = False
        for row in rows:
            prefix = "" if row.role == names.JOB else f"{row.role}."
            cut |= engine.call(partial(_logs, row=row, request=request, prefix=prefix), CALL_SECONDS)
            if row.role != names.JOB:
                continue
            if not row.labels.get(names.COPIED):
                stage_out(request)
            else:
                engine.call(partial(fetch, container=row.id, request=request, limit=limit), CALL_SECONDS)
        replace_document(request.folder / RESULT, {"truncated": cut})
    except OSError as error:
        raise folder_error(error, request.folder) from error
    except APIError as error:
        raise DeployError(f"what run {request.run_id} left cannot be fetched: {engine_message(error)}") from error


def _logs(client: Any, row: ListedContainer, request: RunRequest, prefix: str) -> bool:
    paths = request.folder / f"{prefix}stdout", request.folder / f"{prefix}stderr"
    return save_logs(client, row.id, paths, request.limits.log_bytes)


def containers_of(engine: ContainerEngine, run_id: str, seconds: float = CALL_SECONDS) -> list[ListedContainer]:
    """All containers of a run; the engine may take ``seconds`` to answer."""
    filters = {"label": [f"{names.RUN}={run_id}"]}
    rows = engine.call(lambda client: client.containers(all=True, filters=filters), seconds)
    return [ListedContainer.of(row) for row in rows]


def remove_containers(engine: ContainerEngine, run_id: str) -> None:
    """Remove all containers and networks of a run; not finding them is success.

    Raises:
        DeployError: The engine does not answer, or refuses.
    """
    from docker.errors import APIError

    filters = {"label": [f"{names.RUN}={run_id}"]}

    def clear(client: Any) -> None:
        rows = client.containers(all=True, filters=filters)
        for row in rows:
            _unless_gone(lambda row=row: client.remove_container(row["Id"], v=True, force=True))
        if rows and not any(names.LOAD in row["Labels"] for row in rows):
            return
        for network in client.networks(filters=filters):
            _unless_gone(lambda network=network: client.remove_network(network["Id"]))

    try:
        engine.call(clear, CALL_SECONDS)
    except APIError as error:
        raise DeployError(f"the containers of run {run_id} cannot be removed: {engine_message(error)}") from error


def _unless_gone(act: Any) -> None:
    from docker.errors import APIError

    try:
        act()
    except APIError as error:
        if error.status_code not in _GONE:
            raise
