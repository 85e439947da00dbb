"""Checkpoints in containers whose engine does not see this machine's folders: looked at there, and copied here."""

from __future__ import annotations

import tarfile
import time
from collections.abc import Callable, Iterable
from contextlib import closing
from pathlib import Path
from typing import IO, Any, cast

from tradewind.deployer.bundle import unpack
from tradewind.deployer.checkpoints import ATTEMPTS, CHANGES, FOLDER, CheckpointLook
from tradewind.deployer.runner.docker import names
from tradewind.deployer.runner.docker.engine import CALL_SECONDS, ContainerEngine
from tradewind.deployer.runner.docker.errors import engine_message
from tradewind.deployer.runner.docker.file_transfer import ArchiveStream, containers_of
from tradewind.errors import DeployError

PLACE = f"{names.RUN_PLACE}/{FOLDER}"
"""The job's folder for checkpoints in its container."""

_LIST = 'cd "$1" && find . -type f -exec stat -c "%s %Y %n" {} +'
_PIECE = 1 << 20
_NOT_FOUND = 404


def look_at_checkpoint(engine: ContainerEngine, run_id: str) -> CheckpointLook:
    """Look at the checkpoint files of a run.

    A command in the container lists them, where the image has ``sh``, ``find`` and ``stat``; else they are read.

    Args:
        engine: The engine that has its container.
        run_id: The run.

    Raises:
        DeployError: The engine does not answer.
    """
    container = _container(engine, run_id)
    if container is None:
        return CheckpointLook()
    return _ask(engine, lambda client: _look(engine, _files(client, container)))


def copy_checkpoint(engine: ContainerEngine, run_id: str, folder: Path, limit: int) -> CheckpointLook:
    """Bring the checkpoint files of a run to this machine, all as they were at one moment.

    Args:
        engine: The engine that has its container.
        run_id: The run.
        folder: The folder that is made for them.
        limit: The most bytes that they may have.

    Returns:
        What was copied.

    Raises:
        DeployError: The engine does not answer, or the files change all the time, are too large or cannot be written.
    """
    if (container := _container(engine, run_id)) is None:
        return CheckpointLook()
    place = container

    def bring(client: Any) -> CheckpointLook:
        for _ in range(ATTEMPTS):
            before = sorted(_files(client, place))
            with closing(ArchiveStream(client.get_archive(place, PLACE, chunk_size=_PIECE)[0])) as stream:
                unpack(cast("IO[bytes]", stream), folder, limit_bytes=limit, lenient=True)
            if before and sorted(_files(client, place)) == before:
                # The archive has the folder itself; what is in it is wanted.
                inner = (folder / FOLDER).rename(folder.with_name(f"{folder.name}.inner"))
                folder.rmdir()
                inner.rename(folder)
                return _look(engine, before)
        raise DeployError(CHANGES)

    return _ask(engine, bring)


def _ask(engine: ContainerEngine, question: Callable[[Any], CheckpointLook]) -> CheckpointLook:
    from docker.errors import APIError

    try:
        return engine.call(question, CALL_SECONDS)
    except APIError as error:
        raise DeployError(f"the checkpoint cannot be read: {engine_message(error)}") from error


def _container(engine: ContainerEngine, run_id: str) -> str | None:
    return next((row.id for row in containers_of(engine, run_id) if row.role == names.JOB), None)


def _files(client: Any, container: str) -> list[tuple[str, int, int]]:
    """Name, size and time of each checkpoint file; engines and images agree on whole seconds only."""
    from docker.errors import APIError

    try:
        made = client.exec_create(container, ["sh", "-c", _LIST, "list", PLACE], stderr=False)
        text = client.exec_start(made["Id"]).decode("utf-8", "surrogateescape")
        if client.exec_inspect(made["Id"])["ExitCode"] == 0:
            found = [line.split(" ", 2) for line in text.splitlines() if line.count(" ") >= 2]
            return [(name.removeprefix("./"), int(size), int(moment)) for size, moment, name in found]
    except (APIError, ValueError):  # it has ended, or there is no shell
        pass
    try:
        pieces, _ = client.get_archive(container, PLACE, chunk_size=_PIECE)
    except APIError as error:
        if error.status_code == _NOT_FOUND:
            return []
        raise
    with closing(ArchiveStream(pieces)) as stream, tarfile.open(fileobj=cast("IO[bytes]", stream), mode="r|") as tar:
        return [(each.name.partition("/")[2], each.size, int(each.mtime)) for each in tar if each.isreg()]


def _look(engine: ContainerEngine, files: Iterable[tuple[str, int, int]]) -> CheckpointLook:
    listed = sorted(files)
    if not listed:
        return CheckpointLook()
    age = engine.clock() - max(moment for _, _, moment in listed)
    return CheckpointLook.by_seconds(repr(listed).encode(), age, time.time())
