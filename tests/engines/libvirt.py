"""A libvirt of the tests' own, and a small guest for it.

libvirtd finds its folders at fixed places: it gets a view of the file system in which they are folders of the test.
Whatever libvirt the machine has is not touched. The machines are emulated (no KVM), which is slow and works anywhere.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from tests.engines import program, require
from tests.engines.guest_image import cache_folder, guest_image
from tests.waiting import eventually

PROGRAMS = (
    "libvirtd",
    "virsh",
    "qemu-system-x86_64",
    "qemu-img",
    "genisoimage",
    "ssh-keygen",
    "mke2fs",
    "depmod",
    "cpio",
    "setpriv",
    "unshare",
)

ARGUMENTS = (
    "console=ttyS0 panic=-1 quiet net.ifnames=0 mitigations=off tsc=reliable no_timer_check nokaslr init_on_alloc=0 "
    "audit=0 apparmor=0 ipv6.disable=1 cryptomgr.notests lpj=10000000"
)
"""What an emulated machine need not spend its time on is left out."""

_PLACES = {
    "/etc/libvirt": "etc",
    "/var/lib/libvirt": "lib",
    "/var/log/libvirt": "log",
    "/run/libvirt": "run",
}

_VIEW = """set -e
cache=$1 folder=$2
shift 2
for pair in "$@"; do
  mkdir -p "${pair%%=*}"
  mount --bind "$folder/${pair#*=}" "${pair%%=*}"
done
mkdir -p /var/cache/libvirt
mount --bind "$cache" /var/cache/libvirt
exec "$LIBVIRTD" -f "$folder/libvirtd.conf" -p "$folder/libvirtd.pid"
"""

_QEMU = """user = "root"
group = "root"
security_driver = "none"
remember_owner = 0
dynamic_ownership = 0
stdio_handler = "file"
cgroup_controllers = []
namespaces = []
"""


_NETWORK = """<network>
  <name>{name}</name>
  <bridge name='{name}0'/>
  <ip address='10.79.0.1' netmask='255.255.255.0'><dhcp><range start='10.79.0.10' end='10.79.0.99'/></dhcp></ip>
</network>
"""


class Libvirt:
    """A libvirt daemon in a folder.

    Args:
        folder: An empty folder.
        image: The folder with the guest's image.
    """

    def __init__(self, folder: Path, image: Path) -> None:
        self.folder = folder
        self.image = image
        self.uri = f"qemu:///system?socket={folder}/socket/libvirt-sock"
        for place in ("socket", "etc/qemu", "lib/qemu", "log/qemu", "run"):
            (folder / place).mkdir(parents=True)
        (folder / "libvirtd.conf").write_text(
            f'unix_sock_dir = "{folder}/socket"\nauth_unix_ro = "none"\nauth_unix_rw = "none"\n'
        )
        (folder / "etc/qemu.conf").write_text(_QEMU)
        self._daemon: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start the daemon, or start it again."""
        # What QEMU can do takes libvirtd ten seconds to find out; it keeps that between test sessions.
        cache = cache_folder() / "libvirt"
        cache.mkdir(parents=True, exist_ok=True)
        log = self.folder / "libvirtd.log"
        daemon = program("libvirtd")
        assert daemon is not None
        with log.open("ab") as stream:
            self._daemon = subprocess.Popen(
                [
                    "unshare",
                    "--mount",
                    "--propagation",
                    "private",
                    "sh",
                    "-c",
                    _VIEW,
                    "view",
                    str(cache),
                    str(self.folder),
                ]
                + [f"{place}={name}" for place, name in _PLACES.items()],
                env={**os.environ, "LIBVIRTD": daemon, "PATH": f"{os.environ['PATH']}:/usr/sbin:/sbin"},
                stdin=subprocess.DEVNULL,
                stdout=stream,
                stderr=stream,
                start_new_session=True,
            )
        eventually(self._answers, 60, "libvirtd", log)

    def kill(self) -> None:
        """Kill the daemon; the machines go on."""
        if self._daemon is not None:
            self._daemon.kill()
            self._daemon.wait()
            self._daemon = None

    def _answers(self) -> bool:
        return self.virsh("version").returncode == 0

    def virsh(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Run a command of virsh, to look behind the provisioner's back."""
        return subprocess.run(
            ["virsh", "-q", "-c", self.uri, *words], capture_output=True, text=True, timeout=60, check=False
        )

    def names(self) -> list[str]:
        """The machines that libvirt knows."""
        return sorted(self.virsh("list", "--all", "--name").stdout.split())

    def pids(self, part: str = "") -> dict[str, int]:
        """The processes of the machines that run and have some text in their names."""
        found = {}
        for file in (self.folder / "run/qemu").glob("*.pid"):
            with suppress(OSError, ValueError):
                pid = int(file.read_text())
                line = Path(f"/proc/{pid}/cmdline").read_bytes()
                if b"qemu-system" in line and part in file.stem:
                    found[file.stem] = pid
        return found

    @contextmanager
    def network(self, name: str = "twtest") -> Iterator[str]:
        """A network of this libvirt, with addresses of its own, as libvirt's ``default`` has them."""
        require("dnsmasq", "iptables", package="dnsmasq-base iptables")
        (self.folder / "network.xml").write_text(_NETWORK.format(name=name))
        for words in (("net-define", str(self.folder / "network.xml")), ("net-start", name)):
            done = self.virsh(*words)
            if done.returncode:
                raise RuntimeError(done.stderr)
        try:
            yield name
        finally:
            self.virsh("net-destroy", name)
            self.virsh("net-undefine", name)

    def settings(self, **more: Any) -> dict[str, Any]:
        """Settings of the provisioner for this libvirt and guest."""
        return {
            "uri": self.uri,
            "image": str(self.image / "disk.qcow2"),
            "kernel": str(self.image / "vmlinuz"),
            "initrd": str(self.image / "initrd"),
            "arguments": ARGUMENTS,
            "user": "root",
            "network": "user",
            "emulator": "qemu",
            "machine": "pc",
            "overcommit": 16,
            **more,
        }

    def stop(self) -> None:
        """End everything."""
        for pid in self.pids().values():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        end = time.monotonic() + 5
        while self.pids() and time.monotonic() < end:
            time.sleep(0.05)
        self.kill()


@pytest.fixture(scope="session")
def libvirt(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Libvirt]:
    """A libvirt with a guest."""
    require(
        *PROGRAMS,
        package="libvirt-daemon-system libvirt-clients qemu-system-x86 qemu-utils genisoimage cpio kmod e2fsprogs",
    )
    engine = Libvirt(tmp_path_factory.mktemp("libvirt"), guest_image())
    try:
        engine.start()
        yield engine
    finally:
        engine.stop()
