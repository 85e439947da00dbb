"""Finds out whether booting machines answer, in threads: a look at them never waits for a machine."""

from __future__ import annotations

import contextlib
import socket
import subprocess
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tradewind.deployer.provisioner.libvirt.boot import READY_FILE
from tradewind.deployer.ssh_connection import SshConnection, SshTarget
from tradewind.errors import TradewindError

_BANNER_SECONDS = 8.0
_LOGIN_SECONDS = 30.0
_CONSOLE_BYTES = 4096
_CONSOLE_LINES = 6


@dataclass(frozen=True, slots=True)
class BootProbe:
    """What one look at a machine has shown.

    Attributes:
        address: Where it answers; empty until it does.
        missing: What is still missing, in words.
        speaks: True once its SSH server has said what it is.
    """

    address: str = ""
    missing: str = "it was just started"
    speaks: bool = False


class BootProber:
    """Looks at machines, each in a thread of its own, until they answer."""

    def __init__(self) -> None:
        self._seen: dict[str, BootProbe] = {}
        self._busy: set[str] = set()
        self._guard = threading.Lock()

    def look(self, name: str, work: Callable[[BootProbe], BootProbe]) -> BootProbe:
        """What the last look at a machine has shown; the next one is begun unless the machine answered.

        Args:
            name: The machine.
            work: Looks at it, given what the last look has shown.
        """
        with self._guard:
            seen = self._seen.get(name, BootProbe())
            if not seen.address and name not in self._busy:
                self._busy.add(name)
                threading.Thread(
                    target=self._carry_out, args=(name, seen, work), name="tradewind-libvirt", daemon=True
                ).start()
            return seen

    def forget(self, name: str) -> None:
        """A machine is gone: another one may get its name."""
        with self._guard:
            self._seen.pop(name, None)

    def _carry_out(self, name: str, last: BootProbe, work: Callable[[BootProbe], BootProbe]) -> None:
        try:
            seen = work(last)
        except TradewindError as error:
            seen = BootProbe(missing=error.message, speaks=last.speaks)
        except Exception as error:
            # Whatever it is, the machine is looked at again, and has failed when its time is up.
            seen = BootProbe(missing=f"{type(error).__name__}: {error}", speaks=last.speaks)
        with self._guard:
            self._seen[name] = seen
            self._busy.discard(name)


def probe_machine(target: SshTarget, last: BootProbe, *, docker: bool) -> BootProbe:
    """One look at a machine: its SSH server speaks, lets us in, and the machine has done what its seed says.

    Each connection costs a booting machine time, and QEMU keeps those that came too early for later: there is one at a
    time, and a machine that has spoken is not asked again whether it does.
    """
    if not last.speaks:
        return BootProbe(missing="it lets nobody in yet", speaks=True) if _speaks(target) else _SILENT
    link = SshConnection(target, connect_seconds=_LOGIN_SECONDS)
    try:
        if link.run(["test", "-e", READY_FILE], timeout=_LOGIN_SECONDS, check=False).code:
            return BootProbe(missing="it is still setting itself up", speaks=True)
        if docker and link.run(["docker", "version"], timeout=_LOGIN_SECONDS, check=False).code:
            return BootProbe(missing="its container engine does not answer", speaks=True)
    finally:
        with contextlib.suppress(OSError, subprocess.SubprocessError, TradewindError):
            link.close()
    return BootProbe(target.host, "", speaks=True)


_SILENT = BootProbe(missing="its SSH server does not answer")


def _speaks(target: SshTarget) -> bool:
    try:
        with socket.create_connection((target.host, target.port or 22), _BANNER_SECONDS) as connection:
            connection.settimeout(_BANNER_SECONDS)
            return connection.recv(4) == b"SSH-"
    except OSError:
        return False


def console_tail(console: Path) -> str:
    """The last lines that a machine wrote to its console, in one line."""
    try:
        with console.open("rb") as stream:
            stream.seek(max(0, console.stat().st_size - _CONSOLE_BYTES))
            text = stream.read().decode(errors="replace")
    except OSError:
        return ""
    lines = ["".join(c for c in line if c.isprintable()).strip() for line in text.splitlines()]
    return " | ".join([line for line in lines if line][-_CONSOLE_LINES:])


def ssh_data(folder: Path, user: str, host: str, port: int | None) -> dict[str, Any]:
    """How a machine is reached, as `SshTarget` has it."""
    facts: dict[str, Any] = {
        "host": host,
        "user": user,
        "identity": str(folder / "login_key"),
        "known_hosts": str(folder / "known_hosts"),
    }
    return {**facts, "port": port} if port is not None else facts
