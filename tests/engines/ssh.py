"""An SSH server on loopback, with keys and a port of its own."""

from __future__ import annotations

import os
import socket
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.engines import program, require
from tests.waiting import eventually


def free_port() -> int:
    """A port that nobody listens on."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


class Keys:
    """Key pairs of a server and of a client.

    Args:
        folder: Where they are made.
    """

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.host, self.client = folder / "host", folder / "client"
        for key in (self.host, self.client):
            words = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(key)]
            subprocess.run(words, check=True, timeout=30, stdin=subprocess.DEVNULL)

    @property
    def public(self) -> str:
        """What the server shows, as ``known_hosts`` has it."""
        return " ".join(self.host.with_suffix(".pub").read_text().split()[:2])


def config(keys: Keys, folder: Path, lines: Sequence[str] = ()) -> Path:
    """A configuration of the server; further lines win."""
    path = folder / "sshd_config"
    path.write_text(
        "\n".join(
            [
                *lines,
                f"HostKey {keys.host}",
                f"AuthorizedKeysFile {keys.client}.pub",
                "PasswordAuthentication no",
                "KbdInteractiveAuthentication no",
                "PermitRootLogin yes",
                "StrictModes no",
                "UsePAM no",
                "UseDNS no",
                "PrintMotd no",
                "MaxStartups 100",
                "SetEnv SHLVL=3",  # bash does not read the user's .bashrc, which may take longer than all the rest
                "Subsystem sftp internal-sftp",
                "",
            ]
        )
    )
    return path


class Sshd:
    """A server on 127.0.0.1.

    Args:
        folder: A folder of its own.
        lines: Further lines of its configuration.

    Attributes:
        port: Its port.
        facts: How to reach it, in the keys of `SshTarget`.
    """

    address = "127.0.0.1"

    def __init__(self, folder: Path, lines: Sequence[str] = ()) -> None:
        self.folder = folder
        self.keys = Keys(folder / "keys")
        self.port = free_port()
        self._config = config(self.keys, folder, lines)
        self._log = folder / "sshd.log"
        self._process: subprocess.Popen[bytes] | None = None
        known = folder / "known_hosts"
        known.write_text(f"[{self.address}]:{self.port} {self.keys.public}\n")
        self.facts: dict[str, Any] = {
            "port": self.port,
            "identity": str(self.keys.client),
            "known_hosts": str(known),
        }

    def start(self) -> None:
        """Start it, on the same port each time."""
        if os.geteuid() == 0:
            Path("/run/sshd").mkdir(exist_ok=True)
        words = [str(program("sshd")), "-D", "-e", "-f", str(self._config), "-p", str(self.port)]
        words += ["-o", f"ListenAddress={self.address}", "-o", "PidFile=none"]
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        eventually(self._answers, 20, "sshd", self._log)

    def _answers(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, self._log.read_text()
        with socket.socket() as sock:
            return sock.connect_ex((self.address, self.port)) == 0

    def stop(self) -> None:
        """Kill it with all its connections; the commands that they started live on."""
        if self._process is not None:
            kill_sessions(self._process.pid)
            self._process.kill()
            self._process.wait()
            self._process = None


def kill_sessions(pid: int) -> None:
    """Kill the processes of a server's connections; their commands live on."""
    import psutil

    for child in psutil.Process(pid).children(recursive=True):
        try:
            if child.name() == "sshd":
                child.kill()
        except psutil.Error:
            continue


@pytest.fixture(scope="session")
def sshd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sshd]:
    """The server; tests that stop it must start it again."""
    require("sshd", "ssh", "ssh-keygen", package="openssh-server openssh-client", root=False)
    server = Sshd(tmp_path_factory.mktemp("sshd"))
    server.start()
    try:
        yield server
    finally:
        server.stop()
