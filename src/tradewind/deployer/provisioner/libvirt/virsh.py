"""Asks libvirt, by its own program: virsh is wherever libvirt is, and the Python binding must be compiled."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from xml.etree import ElementTree
from xml.etree.ElementTree import Element, SubElement

from tradewind.deployer.provisioner.libvirt.cluster_folders import ClusterPlan, MachinePlan
from tradewind.deployer.provisioner.libvirt.settings import USER_MODE, LibvirtSettings
from tradewind.errors import (
    CapacityError,
    CredentialsError,
    DeployError,
    ImageError,
    PrerequisiteError,
    UnreachableError,
)
from tradewind.utils.dependencies import find_program
from tradewind.utils.paths import expand

_OURS = "urn:tradewind:libvirt:1"
_QEMU = "http://libvirt.org/schemas/domain/qemu/1.0"
_FACTS = ("created", "price_per_hour")
_SHARE_TAG = "tradewind"
_OUTSIDE_SLOT = "0x1c"  # on the machine's first bus, where libvirt does not get to by itself


@dataclass(frozen=True, slots=True)
class DomainTags:
    """Owner, run and expiry that a machine's description in libvirt has.

    Attributes:
        run_id: The run that it was made for.
        owner: The owner who pays for it.
        expires: Seconds since the epoch after which anyone may destroy it.
        folder: The folder with what belongs to it.
        facts: ``created`` (seconds since the epoch) and ``price_per_hour`` (USD, the whole run), where they are known.
    """

    run_id: str
    owner: str
    expires: float
    folder: Path
    facts: Mapping[str, float] = field(default_factory=dict)


def domain_tags(document: str) -> DomainTags | None:
    """The tags in a machine's description; None when it is not one of ours."""
    try:
        run = ElementTree.fromstring(document).find(f"metadata/{{{_OURS}}}run")  # noqa: S314  (libvirt's own answer)
        if run is None:
            return None
        facts = {name: float(run.attrib[name]) for name in _FACTS if name in run.attrib}
        expires, folder = float(run.attrib["expires"]), Path(run.attrib["folder"])
        return DomainTags(run.attrib["id"], run.attrib["owner"], expires, folder, facts)
    except (ElementTree.ParseError, KeyError, ValueError):
        return None


def domain_xml(settings: LibvirtSettings, plan: ClusterPlan, machine: MachinePlan, folder: Path, *, kvm: bool) -> str:
    """The description of one machine.

    Args:
        settings: The user's.
        plan: What is common to the machines of the run.
        machine: The machine.
        folder: The folder of the run.
        kvm: True to have the processor's help.
    """
    ElementTree.register_namespace("tradewind", _OURS)
    ElementTree.register_namespace("qemu", _QEMU)
    domain = Element("domain", type="kvm" if kvm else "qemu")
    _text(domain, "name", machine.name)
    _text(domain, "uuid", machine.uuid)
    tags = {"id": plan.run_id, "owner": plan.owner, "expires": repr(plan.expires), "folder": str(folder)}
    tags |= {name: repr(value) for name, value in plan.facts.items()}
    SubElement(SubElement(domain, "metadata"), f"{{{_OURS}}}run", tags)
    _text(domain, "memory", str(plan.memory_mib), unit="MiB")
    _text(domain, "vcpu", str(plan.vcpu))
    if settings.share == "virtiofs":
        backing = SubElement(domain, "memoryBacking")
        SubElement(backing, "source", type="memfd")
        SubElement(backing, "access", mode="shared")
    _system(domain, settings)
    if kvm:
        SubElement(domain, "cpu", mode="host-passthrough")
    SubElement(domain, "clock", offset="utc")
    for event, action in {"poweroff": "destroy", "reboot": "restart", "crash": "destroy"}.items():
        _text(domain, f"on_{event}", action)
    devices = SubElement(domain, "devices")
    _disk(devices, "qcow2", machine.disk(folder), "vda")
    _disk(devices, "raw", machine.seed(folder), "vdb").append(Element("readonly"))
    _share(devices, settings, folder)
    _network(domain, devices, settings, plan, machine)
    SubElement(SubElement(devices, "serial", type="file"), "source", path=str(machine.console(folder)))
    _text(SubElement(devices, "rng", model="virtio"), "backend", "/dev/urandom", model="random")
    SubElement(devices, "memballoon", model="none")
    return ElementTree.tostring(domain, encoding="unicode")


def _text(parent: Element, name: str, text: str, **attributes: str) -> Element:
    made = SubElement(parent, name, attributes)
    made.text = text
    return made


def _system(domain: Element, settings: LibvirtSettings) -> None:
    system = SubElement(domain, "os")
    _text(system, "type", "hvm", arch="x86_64", machine=settings.machine)
    if settings.kernel is not None:
        _text(system, "kernel", str(expand(settings.kernel).absolute()))
        if settings.initrd is not None:
            _text(system, "initrd", str(expand(settings.initrd).absolute()))
        _text(system, "cmdline", settings.arguments)
    SubElement(SubElement(domain, "features"), "acpi")


def _disk(devices: Element, kind: str, file: Path, target: str) -> Element:
    disk = SubElement(devices, "disk", type="file", device="disk")
    SubElement(disk, "driver", name="qemu", type=kind)
    SubElement(disk, "source", file=str(file))
    SubElement(disk, "target", dev=target, bus="virtio")
    return disk


def _share(devices: Element, settings: LibvirtSettings, folder: Path) -> None:
    if settings.share == "none":
        return
    attributes: Mapping[str, str] = {"type": "mount"}
    if settings.share == "9p":
        # What the guest makes there must be removable by whoever made the folder.
        attributes = {"type": "mount", "accessmode": "mapped", "fmode": "0666", "dmode": "0777"}
    share = SubElement(devices, "filesystem", dict(attributes))
    if settings.share == "virtiofs":
        SubElement(share, "driver", type="virtiofs")
    SubElement(share, "source", dir=str(folder / "shared"))
    SubElement(share, "target", dir=_SHARE_TAG)


def _network(
    domain: Element, devices: Element, settings: LibvirtSettings, plan: ClusterPlan, machine: MachinePlan
) -> None:
    if settings.network != USER_MODE:
        card = SubElement(devices, "interface", type="network")
        SubElement(card, "mac", address=machine.outside)
        SubElement(card, "source", network=settings.network)
        SubElement(card, "model", type="virtio")
        return
    card = SubElement(devices, "interface", type="mcast")
    SubElement(card, "mac", address=machine.inside)
    SubElement(card, "source", address=plan.group, port=str(plan.group_port))
    SubElement(card, "model", type="virtio")
    line = SubElement(domain, f"{{{_QEMU}}}commandline")
    for word in (
        "-netdev",
        f"user,id=outside,hostfwd=tcp:127.0.0.1:{machine.port}-:22",
        "-device",
        f"virtio-net-pci,netdev=outside,mac={machine.outside},addr={_OUTSIDE_SLOT}",
    ):
        SubElement(line, f"{{{_QEMU}}}arg", value=word)


RUNNING, BLOCKED, PAUSED, SHUTDOWN, SHUTOFF, CRASHED, SUSPENDED = range(1, 8)
_WORDS = {
    PAUSED: "stopped, as QEMU does when the host's disk is full",
    SHUTDOWN: "shutting down",
    SHUTOFF: "off",
    CRASHED: "crashed",
    SUSPENDED: "suspended",
}
_LOOK_SECONDS = 5.0


class NotThereError(DeployError):
    """There is no such machine, or it is not running."""


class PortTakenError(DeployError):
    """Another program took the port of a machine."""


@dataclass(frozen=True, slots=True)
class Domain:
    """A machine as libvirt has it.

    Attributes:
        state: One of libvirt's numbers.
        memory_kib: What it may take.
        vcpu: Its virtual CPUs.
    """

    state: int
    memory_kib: int = 0
    vcpu: int = 0

    @property
    def runs(self) -> bool:
        """True while it takes memory and CPU of the host."""
        return self.state in (RUNNING, BLOCKED, PAUSED, SHUTDOWN)

    @property
    def trouble(self) -> str:
        """The reason why it cannot work, or an empty text."""
        return "" if self.state in (RUNNING, BLOCKED) else _WORDS.get(self.state, f"in state {self.state}")


@dataclass(frozen=True, slots=True)
class HostCapabilities:
    """CPUs, memory and virtualisation of a host.

    Attributes:
        kvm: True when it says that it has KVM.
        cpus: Number of its logical CPUs.
        memory_kib: Its memory, in KiB.
    """

    kvm: bool
    cpus: int
    memory_kib: int


def find_virsh() -> str:
    """The path of ``virsh``.

    Raises:
        MissingProgramError: There is none.
    """
    return find_program("virsh", "apt-get install libvirt-clients")


class LibvirtHost:
    """A libvirt, on this machine or another one.

    Args:
        uri: The connection URI, such as ``qemu:///system``.
        timeout: Seconds that a call which changes something may take.
    """

    def __init__(self, uri: str, timeout: float) -> None:
        self.uri = uri
        self._timeout = timeout
        self._capabilities: HostCapabilities | None = None

    def call(self, *words: str, timeout: float | None = None, lock: int | None = None) -> str:
        """Run a command of virsh.

        Args:
            *words: The command.
            timeout: Seconds that it may take.
            lock: What it keeps until it ends: an order that was on its way when we were killed is carried out.

        Raises:
            MissingProgramError: There is no virsh.
            DeployError: What libvirt says, as the error that fits.
        """
        program = find_virsh()
        try:
            done = subprocess.run(
                [program, "-q", "-c", self.uri, *words],
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=timeout or self._timeout,
                env={**os.environ, "LC_ALL": "C"},
                start_new_session=True,
                pass_fds=() if lock is None else (lock,),
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            raise UnreachableError(f"libvirt at {self.uri} did not answer within {error.timeout:g} s") from None
        if done.returncode:
            raise libvirt_error(done.stderr.decode(errors="replace"), self.uri)
        return done.stdout.decode(errors="replace")

    def domains(self) -> dict[str, Domain]:
        """All machines of the host, by name, in one call."""
        found = {}
        text = self.call("domstats", "--state", "--balloon", "--vcpu", "--nowait", timeout=_LOOK_SECONDS)
        for block in text.split("Domain: ")[1:]:
            name, *lines = block.splitlines()
            facts = dict(line.strip().partition("=")[::2] for line in lines)
            found[name.strip("'")] = Domain(
                int(facts.get("state.state", 0)),
                int(facts.get("balloon.maximum", facts.get("balloon.current", 0))),
                int(facts.get("vcpu.maximum", 0)),
            )
        return found

    def capabilities(self) -> HostCapabilities:
        """Ask for CPUs, memory and virtualisation of the host; it is asked once."""
        if self._capabilities is None:
            document = ElementTree.fromstring(self.call("capabilities"))  # noqa: S314  (libvirt's own answer)
            self._capabilities = HostCapabilities(
                any(each.get("type") == "kvm" for each in document.iter("domain")),
                len(document.findall("host/topology/cells/cell/cpus/cpu")) or os.cpu_count() or 1,
                sum(int(each.text or 0) for each in document.findall("host/topology/cells/cell/memory")),
            )
        return self._capabilities

    def remove(self, name: str, lock: int) -> None:
        """Switch a machine off and forget it; one that is not there is no error."""
        for command in ("destroy", "undefine"):
            try:
                self.call(command, name, lock=lock)
            except NotThereError:
                continue

    def address(self, name: str) -> str:
        """The address that a machine has got in its libvirt network, or an empty text."""
        for line in self.call("domifaddr", name, "--source", "lease", timeout=_LOOK_SECONDS).splitlines():
            words = line.split()
            if len(words) == 4 and words[2] == "ipv4":
                return words[3].partition("/")[0]
        return ""


_STORAGE_HINT = "the user that runs QEMU must be able to read the image and the folder of the setting storage"
_DAEMON_HINT = "is libvirtd running? systemctl start libvirtd, or set uri"
_GROUP_HINT = "add yourself to the group libvirt and log in again"
_IMAGE_HINT = "see the settings image, kernel and initrd"

_MEMORY_HINT = "the host has too little memory for it"

_MEANINGS: Sequence[tuple[str, type[DeployError], str]] = (
    # "failed to get domain" alone says that there is none; before another line that line says why it was not got.
    (r"^failed to get domain '[^']*'$|domain not found|domain is not running", NotThereError, ""),
    (r"authentication|access denied|failed to connect socket.*permission denied", CredentialsError, _GROUP_HINT),
    (r"cannot allocate memory|cannot set up guest memory", CapacityError, _MEMORY_HINT),
    (r"no space left on device", CapacityError, "the host's disk is full"),
    (r"could not set up host forwarding rule", PortTakenError, "another program took the port"),
    (r"permission denied", CredentialsError, _STORAGE_HINT),
    (r"could not (open|load) .*no such file|cannot access storage file|not in \w+ format", ImageError, _IMAGE_HINT),
    (r"failed to connect|cannot recv data|end of file while reading|socket is closed|cannot write", UnreachableError,
     _DAEMON_HINT),
)  # fmt: skip
"""What libvirt says, in small letters, what it is, and what to do about it."""

_MISSING: Mapping[str, str] = {
    r"network not found": "virsh net-list --all shows the networks; set network",
    r"network .* is not active": "virsh net-start starts it",
    r"kvm": "set emulator: qemu, or load the module kvm_intel or kvm_amd",
    r"virtiofsd": "apt-get install virtiofsd, or set share: 9p",
    r"machine type|no pci buses": "qemu-system-x86_64 -M help lists them; set machine",
}
"""What is missing on the host, for machines of any size, and what to do."""

_FINAL = r"unsupported configuration|xml error|invalid argument"
"""What trying again does not help against."""


def libvirt_error(stderr: str, uri: str) -> DeployError:
    """Make the error that fits what virsh said."""
    lines = [line.removeprefix("error:").strip() for line in stderr.splitlines() if line.strip()]
    words = "; ".join(line for line in lines if line) or "no reason given"
    message = f"libvirt at {uri}: {words[:600]}"
    for pattern, kind, hint in _MEANINGS:
        if re.search(pattern, words.lower()):
            return kind(message, hint=hint or None)
    for pattern, hint in _MISSING.items():
        if re.search(pattern, words.lower()):
            return PrerequisiteError(message, hint=hint)
    return DeployError(message, retryable=not re.search(_FINAL, words.lower()))
