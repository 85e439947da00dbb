"""Builds the small guest of the libvirt tests: a kernel, an initramfs and a disk, from the machine's Debian packages.

The packages are unpacked, not installed: nothing of theirs is run, which takes seconds instead of minutes. The guest
has an SSH server, Python and OpenMPI. Instead of cloud-init it has a script of a page, which reads the plain files of
Tradewind's seed drive. It is built once for each recipe and kept in the user's cache folder.

Run as a program it prints the folder of the image.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from platformdirs import user_cache_path

PACKAGES = (
    "base-files base-passwd bash busybox-static coreutils findutils grep iproute2 libc-bin openmpi-bin openssh-client "
    "openssh-server procps python3 python3-mpi4py sed tar util-linux"
)
"""What the guest can do; what they depend on comes with them."""

LEFT_OUT = (
    "adduser debconf dpkg libfile-find-rule-perl libhwloc-plugins libicu72 libnumber-compare-perl libperl5.36 "
    "libtext-glob-perl libx11-6 libx11-data libxau6 libxcb1 libxdmcp6 libxext6 libxml2 libxnvctrl0 ocl-icd-libopencl1 "
    "perl perl-base perl-modules-5.36 sensible-utils ucf usrmerge"
)
"""Dependencies that only matter while packages are installed, or to graphics."""

MODULES = ("virtio_pci", "virtio_blk", "virtio_net", "virtio_rng", "isofs", "virtiofs")
"""Drivers that Debian's kernel for clouds has as modules."""

FOLDERS = (
    "boot",
    "dev",
    "proc",
    "sys",
    "run",
    "tmp",
    "root/.ssh",
    "root/.openmpi",
    "mnt",
    "var/log",
    "var/tmp",
    "etc/ssh",
    "run/sshd",
)

UNPACK = """#!/bin/sh
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
while read -r module; do insmod "/lib/$module"; done < /modules
while [ ! -b /dev/vda ]; do sleep 0.1; done
mount -t ext4 /dev/vda /root
mount --move /dev /root/dev
umount /sys /proc
exec switch_root /root /sbin/init
"""
"""The initramfs: drivers, then the disk."""

INITTAB = "::sysinit:/sbin/tradewind-seed\n::respawn:/usr/sbin/sshd -D -e\n::restart:/sbin/init\n"

SEED = """#!/usr/bin/busybox sh
# What cloud-init does elsewhere, from the plain files of the seed drive.
export PATH=/usr/lib/tradewind:/usr/sbin:/usr/bin
mount -t proc proc /proc
mount -t sysfs sys /sys
mkdir -p /dev/pts /dev/shm
mount -t devpts devpts /dev/pts
mount -t tmpfs shm /dev/shm
mount -t tmpfs run /run
mkdir -p /run/sshd /run/tradewind
if ! mount -t iso9660 -o ro /dev/vdb /mnt || ! cd /mnt/tradewind; then
  echo 'tradewind: there is no seed drive'
  sleep 1000000
fi
hostname "$(cat hostname)"
ip link set lo up
while read -r mac address; do
  for card in /sys/class/net/*; do
    [ "$(cat "$card/address")" = "$mac" ] || continue
    ip link set "${card##*/}" up
    if [ "$address" = dhcp ]; then
      until udhcpc -q -f -n -t 5 -T 3 -A 1 -i "${card##*/}" -s /usr/sbin/tradewind-dhcp; do sleep 1; done
    else
      ip addr add "$address" dev "${card##*/}"
    fi
  done
done < interfaces
cat hosts >> /etc/hosts
cp known_hosts /etc/ssh/ssh_known_hosts
umask 077
cp host_key /etc/ssh/ssh_host_ed25519_key
cp authorized_keys /root/.ssh/authorized_keys
cp cluster_key /root/.ssh/id_ed25519
umask 022
cp mpi /root/.openmpi/mca-params.conf
if read -r kind tag place < share; then
  mkdir -p "$place"
  mount -t "$kind" "$tag" "$place"
fi
read -r expires < expires
cd /
umount /mnt
( while [ "$(date +%s)" -lt "$expires" ]; do sleep 5; done; poweroff -f ) &
touch /run/tradewind/ready
echo "tradewind: ready after $(cut -d ' ' -f 1 /proc/uptime) s"
"""
"""What the first process starts; static busybox, because starting other programs is what takes time here."""

APPLETS = "cat cp cut date hostname ip mkdir mount poweroff sh sleep touch udhcpc umount"
"""Commands of busybox for that script; for everything else the guest has the usual ones."""

DHCP = """#!/usr/bin/busybox sh
[ "$1" = bound ] || exit 0
ip addr add "$ip/$mask" dev "$interface"
"""

ACCOUNTS = {
    "etc/passwd": "root:x:0:0:root:/root:/bin/bash\nsshd:x:100:65534::/run/sshd:/usr/sbin/nologin\n"
    "nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n",
    "etc/group": "root:x:0:\nnogroup:x:65534:\n",
    "etc/shadow": "root:*:19000:0:99999:7:::\nsshd:*:19000:0:99999:7:::\n",
    # What the guest has no hardware for is not even tried.
    "etc/openmpi/openmpi-mca-params.conf": "btl = self,tcp\npml = ob1\nosc = ^ucx\nplm_rsh_no_tree_spawn = 1\n"
    "mca_base_component_show_load_errors = 0\n",
    "etc/nsswitch.conf": "passwd: files\ngroup: files\nshadow: files\nhosts: files\n",
    "etc/hosts": "127.0.0.1 localhost\n",
    "etc/ssh/sshd_config": "HostKey /etc/ssh/ssh_host_ed25519_key\nPasswordAuthentication no\n"
    "PermitRootLogin prohibit-password\nUsePAM no\nUseDNS no\nMaxSessions 100\nMaxStartups 100\n"
    # The usual one takes an emulated processor seconds.
    "KexAlgorithms curve25519-sha256\n"
    "Subsystem sftp /usr/lib/openssh/sftp-server\n",
}
"""Files that the packages' scripts would have made."""

LINKS = {
    "bin": "usr/bin",
    "sbin": "usr/sbin",
    "lib": "usr/lib",
    "lib64": "usr/lib64",
}
"""As on Debian since the folders were merged; packages that still name the old ones are unpacked through them."""

COMMANDS = {
    "usr/bin/sh": "bash",
    "usr/sbin/init": "/usr/bin/busybox",
    "usr/sbin/poweroff": "/usr/bin/busybox",
    "usr/bin/awk": "busybox",
    "usr/bin/mpirun": "mpirun.openmpi",
    "usr/bin/mpiexec": "mpirun.openmpi",
    "usr/bin/hostname": "busybox",
    "usr/bin/mount": "busybox",
    "usr/bin/umount": "busybox",
}


def cache_folder() -> Path:
    """Where images are kept: ``TRADEWIND_TEST_IMAGES``, else the user's cache folder."""
    given = os.environ.get("TRADEWIND_TEST_IMAGES")
    return Path(given) if given else user_cache_path("tradewind-tests")


def guest_image() -> Path:
    """The folder with ``vmlinuz``, ``initrd`` and ``disk.qcow2``, built if this recipe has not been built yet."""
    recipe = hashlib.sha256(Path(__file__).read_bytes()).hexdigest()[:16]
    image = cache_folder() / f"guest-{recipe}"
    image.parent.mkdir(parents=True, exist_ok=True)
    with (image.parent / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not image.is_dir():
            for old in image.parent.glob("guest-*"):
                shutil.rmtree(old, ignore_errors=True)
            with tempfile.TemporaryDirectory(prefix="tradewind-guest-") as place:
                made = _build(Path(place))
                shutil.copytree(made, image.with_name("new"), dirs_exist_ok=True)
            image.with_name("new").rename(image)
    return image


def _run(*argv: str | Path, cwd: Path | None = None) -> str:
    done = subprocess.run([str(word) for word in argv], cwd=cwd, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{argv[0]} failed:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    return done.stdout


def _build(place: Path) -> Path:
    place.chmod(0o755)
    root, kernel, image = place / "root", place / "kernel", place / "image"
    for folder in (root, kernel, image):
        folder.mkdir()
    _run_as_root_folder(root)
    _unpack(place / "packages", _needed(place), root)
    _unpack(place / "kernel-package", [_kernel_package()], kernel)
    _finish(root)
    [vmlinuz] = (kernel / "boot").glob("vmlinuz-*")
    shutil.copy(vmlinuz, image / "vmlinuz")
    _initramfs(root, kernel, image / "initrd")
    raw = place / "disk.raw"
    _run("mke2fs", "-q", "-t", "ext4", "-O", "^has_journal", "-d", root, raw, "1G")
    _run("qemu-img", "convert", "-f", "raw", "-O", "qcow2", raw, image / "disk.qcow2")
    return image


def _run_as_root_folder(root: Path) -> None:
    for link, target in LINKS.items():
        (root / target).mkdir(parents=True)
        (root / link).symlink_to(target)
    for folder in FOLDERS:
        (root / folder).mkdir(parents=True, exist_ok=True)
    (root / "root/.ssh").chmod(0o700)
    (root / "root").chmod(0o700)
    (root / "tmp").chmod(0o1777)


def _needed(place: Path) -> list[str]:
    """The packages with all that they depend on, as if nothing were installed here."""
    status = place / "status"
    status.touch()
    plan = _run(
        "apt-get", "-s", "-o", f"Dir::State::status={status}", "-o", "Debug::NoLocking=1",
        "--no-install-recommends", "install", *PACKAGES.split(),
    )  # fmt: skip
    names = [line.split()[1] for line in plan.splitlines() if line.startswith("Inst ")]
    return [name for name in names if name not in LEFT_OUT.split()]


def _kernel_package() -> str:
    """The package with the kernel that Debian makes for virtual machines."""
    for line in _run("apt-cache", "depends", "linux-image-cloud-amd64").splitlines():
        kind, _, name = line.strip().partition(": ")
        if kind == "Depends" and name.startswith("linux-image-"):
            return name
    raise RuntimeError("apt knows no linux-image-cloud-amd64: run apt-get update")


def _unpack(place: Path, names: Sequence[str], root: Path) -> None:
    place.mkdir()
    _run("apt-get", "-qq", "-o", "APT::Sandbox::User=root", "download", *names, cwd=place)
    for package in sorted(place.glob("*.deb")):
        # tar keeps the links from the old folders to the merged ones.
        with subprocess.Popen(["dpkg-deb", "--fsys-tarfile", package], stdout=subprocess.PIPE) as reading:
            subprocess.run(
                ["tar", "-C", root, "-x", "--keep-directory-symlink", "--exclude=./usr/share/doc",
                 "--exclude=./usr/share/man", "--exclude=./usr/share/locale"],
                stdin=reading.stdout, check=True,
            )  # fmt: skip


def _finish(root: Path) -> None:
    """What the packages' scripts would have done."""
    for name, text in ACCOUNTS.items():
        (root / name).write_text(text)
    (root / "etc/shadow").chmod(0o600)
    (root / "etc/inittab").write_text(INITTAB)
    for name, text in {"tradewind-seed": SEED, "tradewind-dhcp": DHCP}.items():
        (root / "usr/sbin" / name).write_text(text)
        (root / "usr/sbin" / name).chmod(0o755)
    for link, target in COMMANDS.items():
        with contextlib.suppress(FileNotFoundError):
            (root / link).unlink()
        (root / link).symlink_to(target)
    (root / "usr/lib/tradewind").mkdir()
    for name in APPLETS.split():
        (root / "usr/lib/tradewind" / name).symlink_to("/usr/bin/busybox")
    # Compiled modules halve the time that Python takes to start.
    _run("chroot", root, "/sbin/ldconfig")
    _run(
        "chroot", root, "/usr/bin/python3", "-m", "compileall", "-q", "-x", "lib2to3|pydoc_data", "/usr/lib/python3.11"
    )


def _drivers(kernel: Path) -> Iterator[Path]:
    """The modules in an order in which they can be loaded."""
    [folder] = (kernel / "lib/modules").iterdir()
    _run("depmod", "-b", kernel, folder.name)
    needs = {}
    for line in (folder / "modules.dep").read_text().splitlines():
        path, _, others = line.partition(":")
        needs[path] = others.split()
    done = set()
    for name in MODULES:
        wanted = name.replace("_", "-")
        for path in (path for path in needs if Path(path).name.partition(".")[0].replace("_", "-") == wanted):
            for each in [*reversed(needs[path]), path]:
                if each not in done:
                    done.add(each)
                    yield folder / each


def _initramfs(root: Path, kernel: Path, file: Path) -> None:
    place = file.parent.parent / "initramfs"
    for folder in ("bin", "dev", "proc", "sys", "root", "lib"):
        (place / folder).mkdir(parents=True)
    shutil.copy(root / "bin/busybox", place / "bin/busybox")
    for name in ("sh", "mount", "umount", "insmod", "sleep", "switch_root"):
        (place / "bin" / name).symlink_to("busybox")
    loaded = []
    for driver in _drivers(kernel):
        shutil.copy(driver, place / "lib" / driver.name)
        loaded.append(driver.name)
    (place / "modules").write_text("".join(f"{name}\n" for name in loaded))
    (place / "init").write_text(UNPACK)
    (place / "init").chmod(0o755)
    names = subprocess.run(["find", ".", "-print0"], cwd=place, capture_output=True, check=True).stdout
    archive = subprocess.run(
        ["cpio", "--null", "--create", "--format=newc", "--quiet"],
        cwd=place,
        input=names,
        capture_output=True,
        check=True,
    )
    file.write_bytes(archive.stdout)


if __name__ == "__main__":
    began = time.monotonic()
    print(guest_image(), f"{time.monotonic() - began:.1f} s")
