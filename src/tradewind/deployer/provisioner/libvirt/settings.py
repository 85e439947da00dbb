"""Settings of the libvirt provisioner."""

from __future__ import annotations

from ipaddress import IPv4Network
from pathlib import Path
from typing import Literal

from pydantic import Field, field_validator

from tradewind import plugins
from tradewind.errors import InputError
from tradewind.utils.units import parse_memory

USER_MODE = "user"
"""The network that needs no rights on the host: each machine behind a port of its own."""


class LibvirtSettings(plugins.Settings):
    """Settings of the libvirt provisioner."""

    image: Path = Field(description="Disk image that the machines start from (qcow2 or raw); it is never written to")
    uri: str = Field(
        "qemu:///system",
        pattern=r"^qemu:///",
        description="The libvirt of this machine, as virsh -c takes it; the disks are made here, too",
    )
    providers: tuple[str, ...] = Field(
        ("libvirt", "local"), min_length=1, description="Providers whose offers it makes"
    )
    emulator: Literal["auto", "kvm", "qemu"] = Field(
        "auto", description="kvm, or qemu without the processor's help (10 to 50 times slower); auto: kvm where it is"
    )
    machine: str = Field("q35", pattern=r"^[\w.-]+$", description="Machine type of QEMU (qemu-system-x86_64 -M help)")
    disk: str = Field("", description="Size of the disk, such as 20GiB, instead of the image's")
    kernel: Path | None = Field(None, description="Kernel that is started directly, for images without a boot loader")
    initrd: Path | None = Field(None, description="Initramfs for that kernel")
    arguments: str = Field("", description="Arguments for that kernel")
    user: str = Field("tradewind", pattern=r"^[a-z_][a-z0-9_-]*$", description="Login for SSH; cloud-init makes it")
    packages: tuple[str, ...] = Field((), description="Packages that cloud-init installs (openmpi-bin)")
    docker: bool = Field(
        False, description="The image has a container engine that the login may use: machines are ready when it answers"
    )
    network: str = Field(
        "default",
        pattern=r"^[\w.-]+$",
        description="Network of libvirt (virsh net-list), or user: a network without rights on the host, where each "
        "machine is reached by a port of this one, and they reach each other over a network of their own",
    )
    internal: str = Field(
        "10.77.0.0/16", description="Addresses of the machines among themselves, where the network is user"
    )
    share: Literal["virtiofs", "9p", "none"] = Field(
        "virtiofs", description="How the machines of a run see a common folder of the host"
    )
    shared: str = Field("/shared", pattern=r"^/[\w./-]+$", description="Where the machines see that folder")
    storage: Path | None = Field(
        None, description="Folder for disks, keys and the shared folders; libvirt below the data folder without it"
    )
    boot: float = Field(300.0, gt=0, description="Seconds after which machines that are not up have failed")
    overcommit: float = Field(
        1.0, gt=0, description="Virtual CPUs of all machines for each CPU of the host; beyond that it has no capacity"
    )
    timeout: float = Field(30.0, gt=0, le=600, description="Seconds that libvirt may take to start or end a machine")

    @field_validator("disk")
    @classmethod
    def _a_size(cls, given: str) -> str:
        if given:
            try:
                parse_memory(given)
            except InputError as error:
                raise ValueError(str(error)) from None
        return given

    @field_validator("internal")
    @classmethod
    def _a_network(cls, given: str) -> str:
        IPv4Network(given)
        return given

    @property
    def disk_bytes(self) -> int | None:
        """The size of the disk, or None for the image's."""
        return parse_memory(self.disk) if self.disk else None
