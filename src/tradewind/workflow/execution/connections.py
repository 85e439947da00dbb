"""Connects to the agents of a run's machines, sends them orders, and receives their reports."""

from __future__ import annotations

import contextlib
import json
import selectors
import socket
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from tradewind.workflow.execution.agent import proof


class AgentConnection(NamedTuple):
    """A connection to an agent that has accepted our proof of the secret.

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
        secret: Secret of the run, which the agent wants proof of.
        seconds: Most seconds to wait for one address.
    """
    try:
        address = json.loads((folder / "address.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    here = address["host"] == socket.gethostname()
    for place in dict.fromkeys([*(["127.0.0.1"] if here else []), *address["places"]]):
        try:
            connection = socket.create_connection((str(place), int(address["port"])), timeout=seconds)
        except OSError:
            continue
        with contextlib.suppress(OSError):
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        found = prove(connection, secret)
        if found is not None:
            return found._replace(host=address["host"], offset=0.0 if here else found.offset)
    return None


def prove(connection: socket.socket, secret: str) -> AgentConnection | None:
    """Prove to an agent that we know the secret; the connection is closed where it does not accept that, or is gone.

    Args:
        connection: A connection to it, with a time limit.
        secret: Secret of the run.
    """
    try:
        challenge = json.loads(_line(connection))["challenge"]
        connection.sendall(proof(secret, challenge).encode() + b"\n")
        welcome = json.loads(_line(connection))
        return AgentConnection(connection, str(welcome.get("host", "")), time.time() - float(welcome["now"]))
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


_SEND_SECONDS = 5.0
STOP = {"op": "stop"}
"""Order to a machine to end its tasks and itself."""


@dataclass(frozen=True, slots=True)
class AttemptReport:
    """Report of a machine about the end of an attempt.

    Attributes:
        vm: The machine.
        key: ``TASK#ATTEMPT``.
        result: Result as `tradewind.workflow.execution.attempt.Attempt.result` makes it.
        offset: Seconds by which this machine's clock is ahead of that one's.
    """

    vm: int
    key: str
    result: dict[str, Any]
    offset: float


@dataclass(eq=False)
class _Link:
    vm: int
    connection: socket.socket
    offset: float
    heard: float = field(default_factory=time.monotonic)
    text: bytes = b""


class AgentConnectionPool:
    """The open connections to machines; `connect_agent` opens them.

    Args:
        lost: Called with a machine whose connection has ended, or that sends nothing any more.
        silence: Seconds without a message after which a machine counts as lost.
    """

    def __init__(self, lost: Callable[[int], None], silence: float) -> None:
        self.selector = selectors.DefaultSelector()
        self._lost, self._silence = lost, silence
        self._links: dict[int, _Link] = {}
        self._leaving: list[_Link] = []

    def add(self, vm: int, connection: socket.socket, offset: float) -> None:
        """Take a connection to a machine whose clock is so many seconds behind this one's."""
        self.drop(vm)
        connection.settimeout(_SEND_SECONDS)
        self._links[vm] = _Link(vm, connection, offset)
        self.selector.register(connection, selectors.EVENT_READ, self._links[vm])

    def drop(self, vm: int) -> None:
        """Close the connection to a machine, if there is one."""
        link = self._links.pop(vm, None)
        if link is not None:
            self.selector.unregister(link.connection)
            link.connection.close()

    def let_go(self, vm: int) -> None:
        """Tell a machine to end itself, and hear nothing more of it.

        The connection stays until the machine closes it: closed here, it might take the word along.
        """
        self.send(vm, STOP)
        link = self._links.pop(vm, None)
        if link is not None:
            self._leaving.append(link)

    def send(self, vm: int, order: dict[str, Any]) -> None:
        """Send a machine an order; if it cannot be sent now, the controller sends it again when the machine is back."""
        link = self._links.get(vm)
        if link is not None:
            try:
                link.connection.sendall(json.dumps(order).encode() + b"\n")
            except OSError:
                self._lose(link)

    def wait(self, seconds: float, wake: socket.socket) -> Iterator[AttemptReport]:
        """Yield the reports of the machines, after waiting for one or for `wake`.

        Args:
            seconds: Most seconds to wait.
            wake: A socket that ends the wait when it can be read; it is emptied.
        """
        for key, _ in self.selector.select(seconds):
            if key.fileobj is wake:
                with contextlib.suppress(OSError):
                    wake.recv(4096)
                continue
            link: _Link = key.data
            if link in self._leaving:
                self._see_off(link)
            elif self._links.get(link.vm) is link:
                yield from self._read(link)
        now = time.monotonic()
        for link in [each for each in self._links.values() if now - each.heard > self._silence]:
            self._lose(link)

    def _read(self, link: _Link) -> Iterator[AttemptReport]:
        try:
            piece = link.connection.recv(1 << 20)
        except OSError:
            piece = b""
        if not piece:
            self._lose(link)
            return
        link.heard = time.monotonic()
        *lines, link.text = (link.text + piece).split(b"\n")
        for line in lines:
            said = json.loads(line)
            if said["event"] == "ended":
                yield AttemptReport(link.vm, said["key"], said["result"], link.offset)

    def _see_off(self, link: _Link) -> None:
        with contextlib.suppress(OSError):
            if link.connection.recv(1 << 20):
                return
        self._leaving.remove(link)
        self.selector.unregister(link.connection)
        link.connection.close()

    def _lose(self, link: _Link) -> None:
        self.drop(link.vm)
        self._lost(link.vm)

    def stop(self) -> None:
        """Tell all machines to end their tasks and themselves."""
        for vm in list(self._links):
            self.send(vm, STOP)

    def close(self) -> None:
        """Close all connections."""
        for vm in list(self._links):
            self.drop(vm)
        for link in self._leaving:
            link.connection.close()
        self.selector.close()
