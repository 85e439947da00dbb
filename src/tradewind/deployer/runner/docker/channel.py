"""A stream to a further command in the container of a run."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from tradewind.deployer.runner.docker import names
from tradewind.deployer.runner.docker.engine import CALL_SECONDS, ContainerEngine
from tradewind.deployer.runner.docker.file_transfer import containers_of
from tradewind.errors import DeployError, UnreachableError

_HEAD = struct.Struct(">BxxxL")
_STDOUT = 1
_PIECE = 1 << 16


def open_channel(engine: ContainerEngine, run_id: str, argv: Sequence[str]) -> socket.socket:
    """Run a command in the container of a run, with a stream to its standard input and from its standard output.

    Args:
        engine: The engine of the container.
        run_id: The run.
        argv: The command and its arguments.

    Raises:
        UnreachableError: The engine does not answer, or there is no such container.
        DeployError: The command cannot be started.
    """
    found = [row for row in containers_of(engine, run_id) if row.role == names.JOB]
    if not found:
        raise UnreachableError(f"run {run_id} has no container at {engine.address}")
    client = engine.client(CALL_SECONDS)
    try:
        made = client.exec_create(found[0].id, list(argv), stdin=True, stderr=False, workdir=names.WORK_PLACE)
        answer = client.exec_start(made["Id"], socket=True)
    except Exception as error:
        client.close()
        words = getattr(error, "explanation", None)
        raise (
            DeployError(f"{argv[0]} in the container of run {run_id}: {words}") if words else engine.trouble(error)
        ) from error
    theirs = getattr(answer, "_sock", answer)  # behind TLS it is the connection itself
    theirs.settimeout(None)
    ours, inner = socket.socketpair()

    def up() -> None:
        with suppress(OSError):
            while piece := inner.recv(_PIECE):
                theirs.sendall(piece)
        with suppress(OSError):  # the command's input ends, and so it does
            theirs.shutdown(socket.SHUT_WR)

    def down() -> None:
        with suppress(OSError):
            _take_apart(theirs, inner)
        for end in (inner, theirs):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
        uploading.join()
        for each in (inner, answer, theirs, client):
            with suppress(OSError):
                each.close()

    uploading = threading.Thread(target=up, name="tradewind-docker-up", daemon=True)
    uploading.start()
    threading.Thread(target=down, name="tradewind-docker-down", daemon=True).start()
    return ours


def _take_apart(theirs: Any, inner: socket.socket) -> None:
    """Hand on the standard output among the pieces that an engine sends, until the command ends."""
    while len(head := _exactly(theirs, _HEAD.size)) == _HEAD.size:
        stream, size = _HEAD.unpack(head)
        data = _exactly(theirs, size)
        if stream == _STDOUT:
            inner.sendall(data)


def _exactly(source: Any, size: int) -> bytes:
    """So many bytes; fewer at the end."""
    data = b""
    while len(data) < size and (piece := source.recv(size - len(data))):
        data += piece
    return data
