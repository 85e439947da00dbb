"""The drive that tells a machine who it is: for cloud-init (NoCloud), and as plain files for images without it."""

from __future__ import annotations

import contextlib
import shutil
import socket
import subprocess
import tempfile
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tradewind.deployer.provisioner.libvirt.cluster_folders import ClusterPlan, MachinePlan, run_tool, typed_file_errors
from tradewind.deployer.provisioner.libvirt.settings import LibvirtSettings
from tradewind.deployer.ssh_connection import SshConnection, SshTarget
from tradewind.errors import MissingProgramError, TradewindError

READY_FILE = "/run/tradewind/ready"
"""A machine makes it when it has done all that its seed says."""

_MAKERS = ("genisoimage", "xorrisofs", "mkisofs")
_TAG = "tradewind"
_FIRST_CARD_ADDRESS = "10.0.2.15/24"
_OPTIONS = {"virtiofs": "nofail", "9p": "trans=virtio,version=9p2000.L,msize=262144,nofail"}
_TIMER = """[Unit]
Description=Turn this machine off when its lease ends
[Timer]
OnCalendar={moment} UTC
OnBootSec={seconds}
AccuracySec=1s
Persistent=true
"""
_SERVICE = """[Unit]
Description=Turn this machine off: its lease has ended
[Service]
Type=oneshot
ExecStart=/usr/bin/systemctl poweroff
"""
_START_CLOCK = """cd /etc/systemd/system
printf %s "$1" > tradewind-expiry.timer
printf %s "$2" > tradewind-expiry.service
systemctl daemon-reload
systemctl --no-block start tradewind-expiry.timer
"""


def find_iso_tool() -> str:
    """The name of a program that makes ISO images.

    Raises:
        MissingProgramError: There is none.
    """
    maker = next((name for name in _MAKERS if shutil.which(name)), None)
    if maker is None:
        raise MissingProgramError(f"there is none of {', '.join(_MAKERS)}", hint="apt-get install genisoimage")
    return maker


def make_seed(
    settings: LibvirtSettings, plan: ClusterPlan, machine: MachinePlan, folder: Path, uid: int, lock: int
) -> None:
    """Make the seed drive of a machine, in one step.

    Args:
        settings: The user's.
        plan: What is common to the machines of the run.
        machine: The machine.
        folder: The folder of the run, with its keys.
        uid: Number of the user who owns the shared folder on the host; the login gets the same.
        lock: What the program keeps until it ends.

    Raises:
        MissingProgramError: There is no program that makes ISO images.
    """
    maker = find_iso_tool()
    with typed_file_errors(folder), tempfile.TemporaryDirectory(prefix=".seed-", dir=folder) as place:
        files = _for_cloud_init(settings, plan, machine, folder, uid)
        files |= {f"tradewind/{name}": text for name, text in _plain(settings, plan, machine, folder).items()}
        for name, text in files.items():
            file = Path(place) / "files" / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text, encoding="utf-8")
        image = Path(place) / "seed.iso"
        argv = [maker, "-quiet", "-output", str(image), "-volid", "cidata", "-joliet", "-rock", f"{place}/files"]
        run_tool(argv, "genisoimage", lock=lock)
        image.chmod(0o600)
        image.replace(machine.seed(folder))


def _plain(settings: LibvirtSettings, plan: ClusterPlan, machine: MachinePlan, folder: Path) -> dict[str, str]:
    inside, outside = f"{machine.inside} {machine.internal}\n", f"{machine.outside} {_FIRST_CARD_ADDRESS}\n"
    return {
        "hostname": f"{machine.host}\n",
        "user": f"{settings.user}\n",
        "interfaces": inside + outside if machine.internal else f"{machine.outside} dhcp\n",
        "hosts": _hosts(plan),
        "known_hosts": _read(folder, "known_hosts"),
        "host_key": _read(folder, "host_key"),
        "authorized_keys": _read(folder, "login_key.pub"),
        "cluster_key": _read(folder, "login_key"),
        "share": f"{settings.share} {_TAG} {settings.shared}\n" if settings.share != "none" else "",
        "mpi": _mpi(settings, machine),
        "expires": f"{int(plan.expires)}\n",
    }


def _read(folder: Path, name: str) -> str:
    return (folder / name).read_text(encoding="utf-8")


def _hosts(plan: ClusterPlan) -> str:
    rows = ((machine.internal.partition("/")[0], machine.host) for machine in plan.machines if machine.internal)
    return "".join(f"{address} {host}\n" for address, host in rows)


def _mpi(settings: LibvirtSettings, machine: MachinePlan) -> str:
    """OpenMPI would also try the card to the outside, where all machines have the same address."""
    if not machine.internal:
        return ""
    return f"btl_tcp_if_include = {settings.internal}\noob_tcp_if_include = {settings.internal}\n"


def _for_cloud_init(
    settings: LibvirtSettings, plan: ClusterPlan, machine: MachinePlan, folder: Path, uid: int
) -> dict[str, str]:
    import yaml

    user_data = yaml.safe_dump(_user_data(settings, plan, machine, folder, uid), sort_keys=False, width=1000)
    cards: dict[str, Any] = {"outside": {"match": {"macaddress": machine.outside}, "dhcp4": True}}
    if machine.internal:
        cards["inside"] = {"match": {"macaddress": machine.inside}, "addresses": [machine.internal]}
    return {
        "meta-data": yaml.safe_dump({"instance-id": machine.uuid, "local-hostname": machine.host}),
        "user-data": f"#cloud-config\n{user_data}",
        "network-config": yaml.safe_dump({"version": 2, "ethernets": cards}),
    }


def _user_data(
    settings: LibvirtSettings, plan: ClusterPlan, machine: MachinePlan, folder: Path, uid: int
) -> dict[str, Any]:
    user = settings.user
    home = "/root" if user == "root" else f"/home/{user}"
    login: dict[str, Any] = {"name": user, "ssh_authorized_keys": [_read(folder, "login_key.pub").strip()]}
    if user != "root":
        login |= {"shell": "/bin/bash", "sudo": "ALL=(ALL) NOPASSWD:ALL", "lock_passwd": True}
        login |= {"uid": str(uid)} if uid else {}
        login |= {"groups": ["docker"]} if settings.docker else {}
    moment = datetime.fromtimestamp(plan.expires, UTC).strftime("%Y-%m-%d %H:%M:%S")
    # The time since the boot is right also where the time of day is not.
    timer = _TIMER.format(moment=moment, seconds=max(60, int(plan.expires - plan.created)))
    files = [
        _file("/etc/ssh/ssh_known_hosts", _read(folder, "known_hosts")),
        _file("/etc/hosts", f"\n{_hosts(plan)}", append=True),
        # The login exists only after the first files were written.
        _file(f"{home}/.ssh/id_ed25519", _read(folder, "login_key"), permissions="0600", owner=f"{user}:", defer=True),
    ]
    if mpi := _mpi(settings, machine):
        files.append(_file(f"{home}/.openmpi/mca-params.conf", mpi, owner=f"{user}:", defer=True))
    commands = [
        # Folders that were made for deferred files belong to root.
        ["chown", "-R", f"{user}:", f"{home}/.ssh", *([f"{home}/.openmpi"] if mpi else [])],
        ["mkdir", "-p", str(Path(READY_FILE).parent)],
        ["touch", READY_FILE],
    ]
    document: dict[str, Any] = {
        "hostname": machine.host,
        "disable_root": user != "root",
        "ssh_deletekeys": True,
        "ssh_keys": {"ed25519_private": _read(folder, "host_key"), "ed25519_public": _read(folder, "host_key.pub")},
        "users": [login],
        # Before the network and the packages: a machine whose installation hangs turns itself off as well.
        "bootcmd": [["sh", "-c", _START_CLOCK, "sh", timer, _SERVICE]],
        "write_files": files,
        "runcmd": commands,
    }
    if settings.share != "none":
        mount = [_TAG, settings.shared, settings.share, _OPTIONS[settings.share], "0", "0"]
        document["mounts"] = [mount]
    if settings.packages:
        document |= {"package_update": True, "packages": list(settings.packages)}
    return document


def _file(path: str, content: str, **more: Any) -> Mapping[str, Any]:
    return {"path": path, "content": content, **more}


_BANNER_SECONDS = 8.0
_LOGIN_SECONDS = 30.0
_CONSOLE_BYTES = 4096
_CONSOLE_LINES = 6


@dataclass(frozen=True, slots=True)
class BootProbe:
    """Findings of one look at a booting machine.

    Attributes:
        address: The address that it answers at; empty until it does.
        missing: The step that is still missing, in words.
        speaks: True once its SSH server has said what it is.
    """

    address: str = ""
    missing: str = "it was just started"
    speaks: bool = False


class BootProber:
    """Looks at machines, each in a thread of its own, until they answer; callers never wait for a machine."""

    def __init__(self) -> None:
        self._seen: dict[str, BootProbe] = {}
        self._busy: set[str] = set()
        self._guard = threading.Lock()

    def look(self, name: str, work: Callable[[BootProbe], BootProbe]) -> BootProbe:
        """Give the findings of the last look at a machine; the next one is begun unless the machine answered.

        Args:
            name: The machine.
            work: Looks at it, given the findings of the last look.
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
        """Forget a machine that is gone: another one may get its name."""
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
    """Look at a machine once: its SSH server speaks, lets us in, and the machine has done what its seed says.

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
    """Make the facts by which a machine is reached, in the keys of `SshTarget`."""
    facts: dict[str, Any] = {
        "host": host,
        "user": user,
        "identity": str(folder / "login_key"),
        "known_hosts": str(folder / "known_hosts"),
    }
    return {**facts, "port": port} if port is not None else facts
