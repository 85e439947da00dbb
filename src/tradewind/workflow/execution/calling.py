"""Calls a machine: opens a connection to its agent and proves that we may."""

from __future__ import annotations

import json
import socket
import time
from pathlib import Path
from typing import NamedTuple

from tradewind.workflow.execution.agent import proof


class AgentConnection(NamedTuple):
    """There is a connection to an agent that has let us in.

    Attributes:
        connection: The connection.
        host: The name of the machine.
        offset: Seconds by which this machine's clock is ahead of that one's.
    """

    connection: socket.socket
    host: str
    offset: float


def connect_agent(folder: Path, secret: str, seconds: float) -> AgentConnection | None:
    """Call the agent of a machine at the addresses that it has left; None where it does not answer (yet).

    Args:
        folder: The folder of the machine's pilot.
        secret: What it asks us for.
        seconds: How long one address is waited for.
    """
    try:
        address = json.loads((folder / "address.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    here = address["host"] == socket.gethostname()
    for place in dict.fromkeys([*(["127.0.0.1"] if here else []), *address["places"]]):
        found = _knock(str(place), int(address["port"]), secret, seconds)
        if found is not None:
            connection, theirs = found
            return AgentConnection(connection, address["host"], 0.0 if here else time.time() - theirs)
    return None


def _knock(place: str, port: int, secret: str, seconds: float) -> tuple[socket.socket, float] | None:
    """A connection to an agent that has let us in, and the time there."""
    try:
        connection = socket.create_connection((place, port), timeout=seconds)
    except OSError:
        return None
    try:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        challenge = json.loads(_line(connection))["challenge"]
        connection.sendall(proof(secret, challenge).encode() + b"\n")
        welcome = json.loads(_line(connection))
        return connection, float(welcome["now"])
    except (OSError, ValueError, KeyError):
        pass
    connection.close()
    return None


def _line(connection: socket.socket) -> bytes:
    """One line and nothing beyond it: the rest is read by somebody else."""
    text = b""
    while not text.endswith(b"\n"):
        piece = connection.recv(1)
        if not piece:
            raise OSError("the connection was closed")
        text += piece
    return text
