"""Describes machines in libvirt's XML, and reads back whose they are."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from xml.etree import ElementTree
from xml.etree.ElementTree import Element, SubElement

from tradewind.deployer.provisioner.libvirt.cluster_folders import ClusterPlan, MachinePlan
from tradewind.deployer.provisioner.libvirt.settings import USER_MODE, LibvirtSettings
from tradewind.utils.paths import expand

_OURS = "urn:tradewind:libvirt:1"
_QEMU = "http://libvirt.org/schemas/domain/qemu/1.0"
_FACTS = ("created", "price_per_hour")
_SHARE_TAG = "tradewind"
_OUTSIDE_SLOT = "0x1c"  # on the machine's first bus, where libvirt does not get to by itself


@dataclass(frozen=True, slots=True)
class DomainTags:
    """What a machine's description says about whose it is.

    Attributes:
        run_id: Its run.
        owner: Who pays.
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
