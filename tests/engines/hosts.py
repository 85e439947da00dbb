"""Hosts on this machine: network namespaces with addresses, names and SSH servers of their own.

They share the process table with this machine, and all files but those below /mnt, where each has a disk of its own.
A host is a process that holds its namespaces and ends when its standard input does, so that nothing is left of it when
the tests are killed.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import psutil
import pytest
from tests.engines import program, require
from tests.engines.ssh import Keys, config, kill_sessions
from tests.waiting import eventually

_PORT = 22


def _ip(*words: str, check: bool = True) -> None:
    command = [str(program("ip")), *words]
    subprocess.run(command, check=check, timeout=30, capture_output=not check, stdin=subprocess.DEVNULL)


class Hosts:
    """Some hosts on a bridge with this machine.

    Args:
        folder: A folder of their own.
        names: What they are called.

    Attributes:
        gateway: The address that this machine has for them.
        addresses: Theirs, by name.
        facts: How to reach them by SSH, in the keys of `SshTarget`.
    """

    def __init__(self, folder: Path, names: Sequence[str] = ("h1", "h2", "h3")) -> None:
        self.folder = folder
        self.names = tuple(names)
        pid = os.getpid()
        net = _free_net(pid)
        self.gateway = f"{net}.1"
        self.addresses = {name: f"{net}.{11 + i}" for i, name in enumerate(names)}
        self._bridge = f"twb{pid}"
        self._cables = {name: f"tw{pid}h{i}" for i, name in enumerate(names)}
        self._holders: dict[str, subprocess.Popen[bytes]] = {}
        self._servers: dict[str, subprocess.Popen[bytes]] = {}
        folder.mkdir(parents=True, exist_ok=True)
        self._keys = Keys(folder / "keys")
        self._config = config(self._keys, folder)
        known = folder / "known_hosts"
        known.write_text("".join(f"{address} {self._keys.public}\n" for address in self.addresses.values()))
        self.facts: dict[str, Any] = {
            "user": "root",
            "port": _PORT,
            "identity": str(self._keys.client),
            "known_hosts": str(known),
        }

    def start(self) -> None:
        """Make them, with a running SSH server each."""
        _remove_stale()
        Path("/run/sshd").mkdir(exist_ok=True)
        _ip("link", "add", self._bridge, "type", "bridge")
        _ip("addr", "add", f"{self.gateway}/24", "dev", self._bridge)
        _ip("link", "set", self._bridge, "up")
        for name in self.names:
            self._make(name)
        for name in self.names:
            self.start_sshd(name)

    def _make(self, name: str) -> None:
        script = 'hostname "$1" && mount -t tmpfs none /mnt && echo ready && read -r _'
        words = ["unshare", "--net", "--uts", "--mount", "sh", "-c", script, "sh", name]
        holder = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self._holders[name] = holder
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"ready\n", f"there is no host {name}"
        cable = self._cables[name]
        _ip("link", "add", cable, "type", "veth", "peer", "name", "eth0", "netns", str(holder.pid))
        _ip("link", "set", cable, "master", self._bridge, "up")
        inside = ["ip", "addr", "add", f"{self.addresses[name]}/24", "dev", "eth0"]
        for command in (inside, ["ip", "link", "set", "eth0", "up"], ["ip", "link", "set", "lo", "up"]):
            self.run(name, [str(program("ip")), *command[1:]]).check_returncode()
        self.run(name, [str(program("ip")), "route", "add", "default", "via", self.gateway])

    def command(self, name: str, argv: Sequence[str]) -> list[str]:
        """The words that run a command on a host."""
        return ["nsenter", "--target", str(self._holders[name].pid), "--net", "--uts", "--mount", "--", *argv]

    def run(self, name: str, argv: Sequence[str], *, timeout: float = 30.0) -> subprocess.CompletedProcess[bytes]:
        """Run a command on a host, and wait for its end."""
        return subprocess.run(
            self.command(name, argv), capture_output=True, timeout=timeout, stdin=subprocess.DEVNULL, check=False
        )

    def is_empty(self, name: str, folder: str) -> bool:
        """True when there is nothing in a folder of a host."""
        return self.run(name, ["ls", "-A", folder]).stdout == b""

    def start_sshd(self, name: str) -> None:
        """Start the SSH server of a host."""
        log = self.folder / f"{name}.log"
        words = [str(program("sshd")), "-D", "-e", "-f", str(self._config), "-p", str(_PORT), "-o", "PidFile=none"]
        with log.open("ab") as file:
            self._servers[name] = subprocess.Popen(
                self.command(name, words), stdin=subprocess.DEVNULL, stdout=file, stderr=file
            )
        eventually(lambda: b"listening" in log.read_bytes(), 20, f"sshd of {name}", log)

    def stop_sshd(self, name: str) -> None:
        """Kill the SSH server of a host with its connections; the commands that they started live on."""
        server = self._servers.pop(name)
        kill_sessions(server.pid)
        server.kill()
        server.wait()
        (self.folder / f"{name}.log").write_bytes(b"")

    def cut(self, name: str) -> None:
        """Pull the cable of a host."""
        _ip("link", "set", self._cables[name], "down")

    def mend(self, name: str) -> None:
        """Put the cable back."""
        _ip("link", "set", self._cables[name], "up")

    def stop(self) -> None:
        """Remove them, with all processes that still run there."""
        for name in list(self._servers):
            self.stop_sshd(name)
        alive = [holder.pid for holder in self._holders.values() if holder.poll() is None]
        inodes = {_network(pid) for pid in alive} - {None, _network(os.getpid())}
        for process in psutil.process_iter():
            if process.pid != os.getpid() and _network(process.pid) in inodes:
                try:
                    process.kill()
                except psutil.Error:
                    continue
        for holder in self._holders.values():
            holder.kill()
            holder.communicate()
        for link in (*self._cables.values(), self._bridge):
            _ip("link", "del", link, check=False)


def _network(pid: int) -> str | None:
    try:
        return str(Path(f"/proc/{pid}/ns/net").readlink())
    except OSError:
        return None


def _remove_stale() -> None:
    """Remove the bridges and cables of test sessions that were killed."""
    for link in [path.name for path in Path("/sys/class/net").iterdir()]:
        found = re.fullmatch(r"twb(\d+)|tw(\d+)h\d+", link)
        if found and not psutil.pid_exists(int(found[1] or found[2])):
            _ip("link", "del", link, check=False)


def _free_net(seed: int) -> str:
    """The first three numbers of a network that nobody on this machine uses."""
    used = {address.address for each in psutil.net_if_addrs().values() for address in each}
    for i in range(seed, seed + 56 * 254):
        net = f"10.{200 + i % 56}.{1 + i // 56 % 254}"
        if f"{net}.1" not in used:
            return net
    raise RuntimeError("all networks are taken")


_users: list[Hosts] = []


@pytest.fixture(scope="session")
def hosts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hosts]:
    """Three hosts; tests that cut or stop one must mend it. Modules of one session share them."""
    require("sshd", "ssh", "ip", "unshare", "nsenter", package="openssh-server openssh-client iproute2 util-linux")
    made = _users[0] if _users else Hosts(tmp_path_factory.mktemp("hosts"))
    _users.append(made)
    try:
        if len(_users) == 1:
            made.start()
        yield made
    finally:
        _users.pop()
        if not _users:
            made.stop()
