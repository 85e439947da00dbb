"""Keeps what belongs to the machines of a run in a folder of the host: plan, keys, disks, consoles, shared folder."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import re
import secrets
import shutil
import socket
import subprocess
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from ipaddress import IPv4Network
from pathlib import Path
from typing import Any

from tradewind.deployer.file_locks import wait_for_lock
from tradewind.errors import CapacityError, CredentialsError, DeployError, UnreachableError
from tradewind.utils.atomic_files import write_atomically
from tradewind.utils.dependencies import find_program

PREFIX = "tradewind-"
_PLAN, _READY, _NEW = "cluster.json", "ready.json", ".new-"
_LOCK_SECONDS, _TOOL_SECONDS = 120.0, 60.0
_UUIDS = uuid.UUID("0b6bd6f5-3c6c-4d0e-9d5c-6a1f6e0a6c51")


@dataclass(frozen=True, slots=True)
class MachinePlan:
    """One machine.

    Attributes:
        name: Its name in libvirt.
        uuid: Its number there.
        host: What it calls itself.
        outside: Address of its card to the outside.
        inside: Address of its card to the others, where that is another one.
        internal: Its IP address among the others with the network's size, or empty where the network gives it.
        port: The port of this machine that leads to its SSH server, or None where it has an address of its own.
    """

    name: str
    uuid: str
    host: str
    outside: str
    inside: str
    internal: str
    port: int | None

    def disk(self, folder: Path) -> Path:
        """The path of its disk."""
        return folder / f"{self.host}.qcow2"

    def seed(self, folder: Path) -> Path:
        """The path of its seed drive, with its name, keys and first commands."""
        return folder / f"{self.host}.iso"

    def console(self, folder: Path) -> Path:
        """The path of the file with the output of its console."""
        return folder / f"{self.host}.log"


@dataclass(frozen=True, slots=True)
class ClusterPlan:
    """The machines of a run, as they were first asked for.

    Attributes:
        run_id: The run.
        owner: Who pays.
        expires: Seconds since the epoch after which anyone may destroy them.
        created: Time of the first request for them, in seconds since the epoch.
        vcpu: Virtual CPUs of each.
        memory_mib: Memory of each.
        group: The multicast group that is their network among themselves.
        group_port: The UDP port of that group.
        machines: The machines.
        made: True once all were started.
        price_per_hour: What the machines cost together, in USD per hour, or None where that is not known.
    """

    run_id: str
    owner: str
    expires: float
    created: float
    vcpu: int
    memory_mib: int
    group: str
    group_port: int
    machines: tuple[MachinePlan, ...] = field(default=())
    made: bool = False
    price_per_hour: float | None = None

    @property
    def facts(self) -> dict[str, float]:
        """Time of the first request and price of the machines, as far as they are known."""
        price = {} if self.price_per_hour is None else {"price_per_hour": self.price_per_hour}
        return {"created": self.created, **price}


def safe_name(run_id: str) -> str:
    """A run's id as part of a file's and a machine's name; ids of others do not become the same."""
    if re.fullmatch(r"[A-Za-z0-9][\w.-]{0,99}", run_id):
        return run_id
    mark = hashlib.sha256(run_id.encode()).hexdigest()[:12]
    return f"{re.sub(r'[^A-Za-z0-9-]', '-', run_id)[:60]}-{mark}"


def machine_names(run_id: str, names: Mapping[str, Any]) -> list[str]:
    """The machines of a run among all of a host."""
    pattern = re.compile(re.escape(f"{PREFIX}{safe_name(run_id)}-") + r"\d+")
    return sorted(name for name in names if pattern.fullmatch(name))


def plan_machines(run_id: str, nodes: int, *, internal: str, forwarded: bool) -> tuple[MachinePlan, ...]:
    """The machines of a run; the same for the same arguments, but for their ports, which are still to be chosen."""
    machines = []
    network = IPv4Network(internal)
    for i in range(nodes):
        digest = hashlib.sha256(f"{run_id}/{i}".encode()).digest()
        outside, inside = (":".join(["52", "54", kind, *(f"{b:02x}" for b in digest[:3])]) for kind in ("00", "01"))
        address = f"{network[i + 1]}/{network.prefixlen}" if forwarded else ""
        name = f"{PREFIX}{safe_name(run_id)}-{i}"
        machines.append(MachinePlan(name, str(uuid.uuid5(_UUIDS, name)), f"node{i}", outside, inside, address, None))
    return tuple(machines)


class ClusterFolders:
    """The folders of all runs of a host.

    Args:
        folder: Where they are.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def of(self, run_id: str) -> Path:
        """The folder of a run."""
        return self.folder / safe_name(run_id)

    @contextlib.contextmanager
    def locked(self, name: str = "") -> Iterator[int]:
        """Hold the lock of a run's machines, or without a name that of the choice of ports and the room of the host.

        Yields:
            The lock. Programs that are given it keep it until they end, even when we are killed.

        Raises:
            UnreachableError: Somebody else keeps it for too long.
        """
        with typed_file_errors(self.folder):
            folder = self.folder / "locks"
            folder.mkdir(parents=True, exist_ok=True)
            # One of a few files, so that none need be removed: two runs may have to wait for each other, no more.
            number = int(hashlib.sha256(name.encode()).hexdigest()[:2], 16) % 32 if name else "all"
            file = (folder / str(number)).open("w")
        with file:
            if not wait_for_lock(file, _LOCK_SECONDS):
                raise UnreachableError(f"{file.name} is locked for too long", hint="does libvirt hang?")
            yield file.fileno()

    def plans(self) -> dict[Path, ClusterPlan]:
        """The plans of all runs, by folder."""
        found = {}
        for file in self.folder.glob(f"[!.]*/{_PLAN}"):
            plan = self.plan(file.parent)
            if plan is not None:
                found[file.parent] = plan
        return found

    def plan(self, folder: Path) -> ClusterPlan | None:
        """The plan in a folder, or None."""
        try:
            document = json.loads((folder / _PLAN).read_bytes())
            machines = tuple(MachinePlan(**each) for each in document.pop("machines"))
            return ClusterPlan(**document, machines=machines)
        except FileNotFoundError:
            return None
        except (OSError, ValueError, TypeError, KeyError) as error:
            raise DeployError(f"{folder / _PLAN} cannot be read: {error}", hint="remove the folder") from None

    def tidy(self) -> None:
        """Remove folders that a killed process did not finish; to be called with the lock of all."""
        with typed_file_errors(self.folder):
            for unfinished in self.folder.glob(f"{_NEW}*"):
                shutil.rmtree(unfinished)

    def begin(self, plan: ClusterPlan, lock: int) -> ClusterPlan:
        """Make the folder of a run, with its keys; to be called with the lock of all."""
        self.tidy()
        with typed_file_errors(self.folder):
            new = self.folder / f"{_NEW}{os.getpid()}"
            new.mkdir()
            new.chmod(0o711)
            (new / "shared").mkdir()
            (new / "shared").chmod(0o777)
            for name in ("login", "host"):
                _make_key(new / f"{name}_key", lock)
            kind, key = (new / "host_key.pub").read_text().split()[:2]
            # One key for all machines of the run: their names and ports do not matter.
            (new / "known_hosts").write_text(f"* {kind} {key}\n")
            plan = self._with_ports(plan)
            write_durable_json(new / _PLAN, asdict(plan))
            new.rename(self.of(plan.run_id))
        return plan

    def change(self, plan: ClusterPlan) -> ClusterPlan:
        """Write a plan that has changed."""
        with typed_file_errors(self.folder):
            write_durable_json(self.of(plan.run_id) / _PLAN, asdict(plan))
        return plan

    def other_port(self, folder: Path, name: str) -> None:
        """Choose another port for a machine, whose port was taken; to be called with the lock of all."""
        plan = self.plan(folder)
        if plan is not None:
            self.change(self._with_ports(plan, name))

    def _with_ports(self, plan: ClusterPlan, only: str | None = None) -> ClusterPlan:
        taken = {machine.port for each in self.plans().values() for machine in each.machines}
        machines = []
        for machine in plan.machines:
            chosen = machine
            if machine.internal and only in (None, machine.name):
                chosen = replace(machine, port=_free_port(taken))
                taken.add(chosen.port)
            machines.append(chosen)
        return replace(plan, machines=tuple(machines))

    def ready(self, folder: Path) -> tuple[float, list[str]] | None:
        """Read when the machines were ready, in seconds since the epoch, and their addresses; None until then."""
        try:
            document = json.loads((folder / _READY).read_bytes())
            return float(document["at"]), list(document["addresses"])
        except (OSError, ValueError, KeyError):
            return None

    def note_ready(self, folder: Path, at: float, addresses: list[str]) -> tuple[float, list[str]]:
        """Write down that they are ready; what another thread or process wrote first holds."""
        with typed_file_errors(folder), contextlib.suppress(FileExistsError):
            new = folder / f"{_READY}.{secrets.token_hex(6)}"  # threads note the same run
            write_durable_json(new, {"at": at, "addresses": addresses})
            try:
                os.link(new, folder / _READY)
            finally:
                new.unlink()
        return self.ready(folder) or (at, addresses)

    def remove(self, folder: Path) -> None:
        """Remove a run's folder, its plan last: what is left of it is found again."""
        with typed_file_errors(folder):
            for each in folder.iterdir() if folder.is_dir() else ():
                if each.name == _PLAN:
                    continue
                if each.is_dir() and not each.is_symlink():
                    shutil.rmtree(each)
                else:
                    each.unlink()
            (folder / _PLAN).unlink(missing_ok=True)
            with contextlib.suppress(FileNotFoundError):
                folder.rmdir()


def write_durable_json(file: Path, document: Mapping[str, Any]) -> None:
    """Write a JSON document in one step."""
    write_atomically(file, json.dumps(document), durable=True)


def _free_port(taken: set[int | None]) -> int:
    while True:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = int(probe.getsockname()[1])
        if port not in taken:
            return port


def _make_key(file: Path, lock: int) -> None:
    argv = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "tradewind", "-f", str(file)]
    run_tool(argv, "openssh-client", lock=lock)


def find_tools() -> None:
    """See that the programs are there by which disks and keys are made.

    Raises:
        MissingProgramError: One is not there.
    """
    find_program("qemu-img", "apt-get install qemu-utils")
    find_program("ssh-keygen", "apt-get install openssh-client")


def run_tool(argv: list[str], package: str, *, lock: int | None = None) -> str:
    """Run a program of the host, and give its output.

    Args:
        argv: The program and its arguments.
        package: The Debian package that has it.
        lock: A file descriptor of a lock that the program keeps until it ends, or None.

    Raises:
        MissingProgramError: It is not there.
        DeployError: It failed; `CapacityError` where the disk is full.
    """
    find_program(argv[0], f"apt-get install {package}")
    held = () if lock is None else (lock,)
    try:
        done = subprocess.run(
            argv, stdin=subprocess.DEVNULL, capture_output=True, timeout=_TOOL_SECONDS, check=False, pass_fds=held
        )
    except subprocess.TimeoutExpired:
        raise DeployError(f"{argv[0]} did not end within {_TOOL_SECONDS:g} s") from None
    if done.returncode:
        words = done.stderr.decode(errors="replace").strip()
        if "No space left" in words:
            raise CapacityError(f"{argv[0]}: {words}", hint="the host's disk is full")
        raise DeployError(f"{argv[0]}: {words or done.returncode}")
    return done.stdout.decode()


@contextlib.contextmanager
def typed_file_errors(place: Path) -> Iterator[None]:
    """Raise errors of the file system as those that the deployer knows.

    Raises:
        CapacityError: The disk is full.
        CredentialsError: The folder may not be changed.
        DeployError: Anything else.
    """
    try:
        yield
    except OSError as error:
        message = f"{place}: {error.strerror or error}"
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise CapacityError(message, hint="the host's disk is full; set storage to a larger one") from error
        if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
            raise CredentialsError(message, hint="set storage to a folder that you may write to") from error
        raise DeployError(message) from error
