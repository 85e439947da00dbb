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

from tradewind.deployer.link import SshLink, SshTarget
from tradewind.deployer.provisioner.libvirt_seed import READY_FILE
from tradewind.errors import TradewindError

_BANNER_SECONDS = 2.0
_LOGIN_SECONDS = 10.0
_CONSOLE_BYTES = 4096
_CONSOLE_LINES = 6


@dataclass(frozen=True, slots=True)
class Look:
    """What one look at a machine has shown.

    Attributes:
        address: Where it answers; empty until it does.
        missing: What is still missing, in words.
    """

    address: str = ""
    missing: str = "it was just started"


class Prober:
    """Looks at machines, each in a thread of its own, until they answer."""

    def __init__(self) -> None:
        self._seen: dict[str, Look] = {}
        self._busy: set[str] = set()
        self._guard = threading.Lock()

    def look(self, name: str, work: Callable[[], Look]) -> Look:
        """What the last look at a machine has shown; the next one is begun unless the machine answered.

        Args:
            name: The machine.
            work: Looks at it.
        """
        with self._guard:
            seen = self._seen.get(name, Look())
            if not seen.address and name not in self._busy:
                self._busy.add(name)
                threading.Thread(
                    target=self._carry_out, args=(name, work), name="tradewind-libvirt", daemon=True
                ).start()
            return seen

    def forget(self, name: str) -> None:
        """A machine is gone: another one may get its name."""
        with self._guard:
            self._seen.pop(name, None)

    def _carry_out(self, name: str, work: Callable[[], Look]) -> None:
        try:
            seen = work()
        except TradewindError as error:
            seen = Look(missing=error.message)
        except (OSError, ValueError) as error:
            seen = Look(missing=str(error))
        with self._guard:
            self._seen[name] = seen
            self._busy.discard(name)


def answers(target: SshTarget, *, docker: bool) -> Look:
    """One look at a machine: its SSH server speaks, lets us in, and the machine has done what its seed says."""
    try:
        with socket.create_connection((target.host, target.port or 22), _BANNER_SECONDS) as connection:
            connection.settimeout(_BANNER_SECONDS)
            if connection.recv(4) != b"SSH-":
                return Look(missing="its SSH server does not answer")
    except OSError:
        return Look(missing="its SSH server does not answer")
    link = SshLink(target, connect_seconds=_LOGIN_SECONDS)
    try:
        if link.run(["test", "-e", READY_FILE], timeout=_LOGIN_SECONDS, check=False).code:
            return Look(missing="it is still setting itself up")
        if docker and link.run(["docker", "version"], timeout=_LOGIN_SECONDS, check=False).code:
            return Look(missing="its container engine does not answer")
    finally:
        with contextlib.suppress(OSError, subprocess.SubprocessError, TradewindError):
            link.close()
    return Look(target.host, "")


def last_words(console: Path) -> str:
    """The last lines that a machine wrote to its console, in one line."""
    try:
        with console.open("rb") as stream:
            stream.seek(max(0, console.stat().st_size - _CONSOLE_BYTES))
            text = stream.read().decode(errors="replace")
    except OSError:
        return ""
    lines = ["".join(c for c in line if c.isprintable()).strip() for line in text.splitlines()]
    return " | ".join([line for line in lines if line][-_CONSOLE_LINES:])


def ssh_facts(folder: Path, user: str, host: str, port: int | None) -> dict[str, Any]:
    """How a machine is reached, as `SshTarget` has it."""
    facts: dict[str, Any] = {
        "host": host,
        "user": user,
        "identity": str(folder / "login_key"),
        "known_hosts": str(folder / "known_hosts"),
    }
    return {**facts, "port": port} if port is not None else facts
