"""The drive that tells a machine who it is: for cloud-init (NoCloud), and as plain files for images without it."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tradewind.deployer.provisioner.libvirt.cluster_folders import ClusterPlan, MachinePlan, run_tool, typed_file_errors
from tradewind.deployer.provisioner.libvirt.settings import LibvirtSettings
from tradewind.errors import MissingProgramError

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
