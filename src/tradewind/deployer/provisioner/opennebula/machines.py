"""Virtual machines of OpenNebula: reads their XML, writes requests for new ones, and judges the clusters they make."""

from __future__ import annotations

import base64
import contextlib
import copy
import math
import selectors
import socket
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote
from xml.etree import ElementTree

from tradewind.deployer.provisioner.base import Cluster, ClusterState
from tradewind.deployer.provisioner.opennebula.settings import OpenNebulaSettings
from tradewind.problem import Machine, Offer
from tradewind.utils.paths import expand

RUN, OWNER, EXPIRES = "TRADEWIND_RUN", "TRADEWIND_OWNER", "TRADEWIND_EXPIRES"
"""The tags: attributes of a machine's user template, set in the call that creates it."""

NODE, NODES = "TRADEWIND_NODE", "TRADEWIND_NODES"
"""Which machine of its cluster it is, from 0, and how many there are to be."""

PRICE = "TRADEWIND_PRICE"
"""What the machines of its cluster cost together, in USD per hour."""

READY = "TRADEWIND_READY"
"""When its cluster was ready, in seconds since the epoch."""

_PENDING, _HOLD, _ACTIVE, _DONE = 1, 2, 3, 6
_WAITING = {0: "INIT", _PENDING: "PENDING", _HOLD: "HOLD", 10: "CLONING"}
_STOPPED = {4: "stopped", 5: "suspended", 8: "powered off", 9: "undeployed"}
_FAILED = {7: "failed", 11: "failed to be cloned"}
_RUNNING = {3: "RUNNING"}
_LEAVING = {11: "EPILOG", 12: "SHUTDOWN", 13: "CANCEL", 23: "CLEANUP_DELETE"}
_UNKNOWN = 16
_FAILURES = {
    14: "FAILURE",
    36: "BOOT_FAILURE",
    37: "BOOT_MIGRATE_FAILURE",
    38: "PROLOG_MIGRATE_FAILURE",
    39: "PROLOG_FAILURE",
    40: "EPILOG_FAILURE",
    41: "EPILOG_STOP_FAILURE",
    42: "EPILOG_UNDEPLOY_FAILURE",
    44: "PROLOG_MIGRATE_POWEROFF_FAILURE",
    46: "PROLOG_MIGRATE_SUSPEND_FAILURE",
    47: "BOOT_UNDEPLOY_FAILURE",
    48: "BOOT_STOPPED_FAILURE",
    49: "PROLOG_RESUME_FAILURE",
    50: "PROLOG_UNDEPLOY_FAILURE",
    61: "PROLOG_MIGRATE_UNKNOWN_FAILURE",
}
# Attached, resized, copied or snapshot while it runs: to its user it goes on running. Numbers are those of LcmState in
# OpenNebula's include/VirtualMachine.h of 2024. Several have others beside them, in which the machine does not run.
_BUSY = {
    4: "MIGRATE",
    7: "SAVE_MIGRATE",
    17: "HOTPLUG",
    24: "HOTPLUG_SNAPSHOT",
    25: "HOTPLUG_NIC",
    26: "HOTPLUG_SAVEAS",
    57: "DISK_SNAPSHOT",
    58: "DISK_SNAPSHOT_REVERT",
    59: "DISK_SNAPSHOT_DELETE",
    62: "DISK_RESIZE",
    66: "HOTPLUG_RESIZE",
    69: "BACKUP",
}
_OFF = {
    5: "SAVE_STOP",
    6: "SAVE_SUSPEND",
    10: "EPILOG_STOP",
    18: "SHUTDOWN_POWEROFF",
    27: "HOTPLUG_SAVEAS_POWEROFF",
    28: "HOTPLUG_SAVEAS_SUSPENDED",
    29: "SHUTDOWN_UNDEPLOY",
    30: "EPILOG_UNDEPLOY",
    33: "HOTPLUG_PROLOG_POWEROFF",
    34: "HOTPLUG_EPILOG_POWEROFF",
    51: "DISK_SNAPSHOT_POWEROFF",
    52: "DISK_SNAPSHOT_REVERT_POWEROFF",
    53: "DISK_SNAPSHOT_DELETE_POWEROFF",
    54: "DISK_SNAPSHOT_SUSPENDED",
    55: "DISK_SNAPSHOT_REVERT_SUSPENDED",
    56: "DISK_SNAPSHOT_DELETE_SUSPENDED",
    63: "DISK_RESIZE_POWEROFF",
    64: "DISK_RESIZE_UNDEPLOYED",
    65: "HOTPLUG_NIC_POWEROFF",
    67: "HOTPLUG_SAVEAS_UNDEPLOYED",
    68: "HOTPLUG_SAVEAS_STOPPED",
    70: "BACKUP_POWEROFF",
}
"""Its machine is off, or about to be: somebody else than us has turned it off, and its jobs are gone."""


@dataclass(frozen=True, slots=True)
class OpenNebulaVm:
    """A virtual machine as oned lists it.

    Attributes:
        id: The number that oned has given it.
        name: The name, ``tradewind-RUN-NODE``.
        phase: ``waiting``, ``booting``, ``running``, ``leaving``, ``stopped``, ``failed``, ``unknown`` or ``gone``.
        held: True while the scheduler is to wait.
        words: Its state, in words for people.
        run: The run that it is tagged with, or empty.
        owner: The owner that it is tagged with.
        expires: Seconds since the epoch, or None.
        node: Which of its cluster's machines it is.
        nodes: How many its cluster has.
        addresses: IP address by name of its network, in their order.
        created: When it was asked for, in seconds since the epoch.
        begun: When a host began to prepare it, or 0.
        ready: Time at which its cluster was ready, in seconds since the epoch, as oned has it noted, or 0.
        message: What oned or its scheduler say about it.
        price_per_hour: What the machines of its cluster cost together, in USD per hour, or None.
    """

    id: int
    name: str
    phase: str
    held: bool
    words: str
    run: str
    owner: str
    expires: float | None
    node: int
    nodes: int
    addresses: Mapping[str, str]
    created: float
    begun: float
    ready: float
    message: str
    price_per_hour: float | None = None


def parse_vm(document: ElementTree.Element) -> OpenNebulaVm:
    """The machine of a ``VM`` element."""
    state, lcm = _number(document, "STATE"), _number(document, "LCM_STATE")
    phase, words = _phase(state, lcm)
    tags = document.find("USER_TEMPLATE")
    tags = ElementTree.Element("USER_TEMPLATE") if tags is None else tags
    addresses: dict[str, str] = {}
    for nic in document.iterfind("TEMPLATE/NIC"):
        address = nic.findtext("IP") or nic.findtext("IP6_GLOBAL") or nic.findtext("EXTERNAL_IP") or ""
        if address:
            addresses.setdefault(nic.findtext("NETWORK") or "", address)
    records = document.findall("HISTORY_RECORDS/HISTORY")
    return OpenNebulaVm(
        id=_number(document, "ID"),
        name=document.findtext("NAME") or "",
        phase=phase,
        held=state == _HOLD,
        words=words,
        run=tags.findtext(RUN) or "",
        owner=tags.findtext(OWNER) or "",
        expires=float(tags.findtext(EXPIRES) or 0) or None,
        node=_number(tags, NODE),
        nodes=_number(tags, NODES) or 1,
        addresses=addresses,
        created=_number(document, "STIME"),
        begun=min((_number(each, "PSTIME") for each in records if _number(each, "PSTIME")), default=0),
        ready=float(tags.findtext(READY) or 0),
        message=tags.findtext("ERROR") or tags.findtext("SCHED_MESSAGE") or "",
        price_per_hour=float(price) if (price := tags.findtext(PRICE)) else None,
    )


def _phase(state: int, lcm: int) -> tuple[str, str]:
    for states, phase in ((_WAITING, "waiting"), (_STOPPED, "stopped"), (_FAILED, "failed")):
        if state in states:
            return phase, states[state]
    if state == _DONE:
        return "gone", "DONE"
    if state != _ACTIVE or lcm == _UNKNOWN:
        return "unknown", f"in an unknown state ({state}/{lcm})"
    for states, phase in (
        (_RUNNING | _BUSY, "running"),
        (_LEAVING, "leaving"),
        (_FAILURES, "failed"),
        (_OFF, "stopped"),
    ):
        if lcm in states:
            return phase, states[lcm]
    return "booting", f"starting (state {lcm})"


def _number(document: ElementTree.Element, name: str) -> int:
    try:
        return int(float(document.findtext(name) or 0))
    except ValueError:
        return 0


@dataclass(frozen=True, slots=True)
class VmOptions:
    """Wishes of the settings for every machine.

    Attributes:
        cluster: Name or number of the cluster of hosts, or empty.
        network: Name or number of the network instead of the template's, or empty.
        disk_bytes: Size of the first disk instead of the template's, or None.
        public_key: A public key that may log in, or empty.
        context: Further context variables.
        script: A script that runs at every boot, or empty.
        terminate: Let oned's scheduler terminate the machine when its lease ends.
        gpu: The PCI device of one GPU, as VENDOR:DEVICE or VENDOR:DEVICE:CLASS, or empty.
    """

    cluster: str = ""
    network: str = ""
    disk_bytes: int | None = None
    public_key: str = ""
    context: Mapping[str, str] | None = None
    script: str = ""
    terminate: bool = True
    gpu: str = ""


def extra_template(base: ElementTree.Element, vm_options: VmOptions, offer: Offer, tags: Mapping[str, str]) -> str:
    """Write the template of a new machine beyond the one it is made from: size, place, context and tags.

    Args:
        base: The ``TEMPLATE`` element of the template; what is replaced of it is replaced as a whole.
        vm_options: The wishes of the settings.
        offer: The machine.
        tags: Its tags, with `EXPIRES`.
    """
    root = ElementTree.Element("TEMPLATE")

    def add(parent: ElementTree.Element, name: str, text: str) -> None:
        # XML instead of oned's own notation: nothing in a value can end it.
        ElementTree.SubElement(parent, name).text = text

    expires = int(float(tags[EXPIRES]))
    add(root, "CPU", f"{offer.vcpu:g}")
    add(root, "VCPU", str(max(1, math.ceil(offer.vcpu))))
    add(root, "MEMORY", str(max(1, round(offer.memory_gib * 1024))))
    for name, value in tags.items():
        add(root, name, value)
    if vm_options.cluster:
        theirs = base.findtext("SCHED_REQUIREMENTS") or ""
        ours = f'{_key("CLUSTER", vm_options.cluster)} = "{vm_options.cluster}"'
        add(root, "SCHED_REQUIREMENTS", f"({theirs}) & ({ours})" if theirs else ours)
    if vm_options.network:
        add(ElementTree.SubElement(root, "NIC"), _key("NETWORK", vm_options.network), vm_options.network)
    if vm_options.disk_bytes is not None:
        disks = [copy.deepcopy(disk) for disk in base.iterfind("DISK")] or [ElementTree.Element("DISK")]
        for size in disks[0].findall("SIZE"):
            disks[0].remove(size)
        add(disks[0], "SIZE", str(math.ceil(vm_options.disk_bytes / 2**20)))
        root.extend(disks)
    if vm_options.gpu and offer.gpus:
        # What else the template passes through is a network card, or another device: it stays.
        device = dict(zip(("VENDOR", "DEVICE", "CLASS"), vm_options.gpu.lower().split(":"), strict=False))
        root.extend(copy.deepcopy(each) for each in base.iterfind("PCI") if not _is_device(each, device))
        for _ in range(offer.gpus):
            card = ElementTree.SubElement(root, "PCI")
            for name, value in device.items():
                add(card, name, value)
    if vm_options.terminate:
        action = ElementTree.SubElement(root, "SCHED_ACTION")
        add(action, "ACTION", "terminate-hard")
        add(action, "TIME", str(expires))
    context = ElementTree.SubElement(root, "CONTEXT")
    for name, value in _context(base.find("CONTEXT"), vm_options, expires).items():
        add(context, name, value)
    return ElementTree.tostring(root, encoding="unicode")


def _is_device(card: ElementTree.Element, device: Mapping[str, str]) -> bool:
    """True when a device that the template passes through is of a kind."""
    return all((card.findtext(name) or "").lower() == value for name, value in device.items())


def template_gpus(base: ElementTree.Element) -> int:
    """Count the devices that a template passes through and that are no network cards."""
    return sum(each.findtext("TYPE") != "NIC" for each in base.iterfind("PCI"))


def _key(name: str, value: str) -> str:
    return f"{name}_ID" if value.isdigit() else name


def _context(base: ElementTree.Element | None, vm_options: VmOptions, expires: int) -> dict[str, str]:
    """The template's context, with ours: a context that is given replaces the template's as a whole."""
    context = {each.tag: each.text or "" for each in base} if base is not None else {}
    theirs = context.pop("START_SCRIPT", "")
    encoded = context.pop("START_SCRIPT_BASE64", "")
    if encoded:
        theirs = base64.b64decode(encoded).decode(errors="replace")
    context.setdefault("NETWORK", "YES")
    keys = [key for key in (context.get("SSH_PUBLIC_KEY", ""), vm_options.public_key) if key]
    if keys:
        context["SSH_PUBLIC_KEY"] = "\n".join(keys)
    context.update(vm_options.context or {})
    script = start_script(expires, [each for each in (theirs, vm_options.script) if each])
    return {**context, "START_SCRIPT_BASE64": base64.b64encode(script.encode()).decode()}


def start_script(expires: int, scripts: Sequence[str]) -> str:
    """Write the script that a machine runs as root at every boot: the timer that turns it off, then others' scripts.

    Args:
        expires: Time at which it turns itself off, in seconds since the epoch.
        scripts: Each is run by the interpreter that its first line names.
    """
    lines = [
        "#!/bin/sh",
        f"left=$(( ({expires} - $(date +%s) + 59) / 60 ))",
        '[ "$left" -gt 0 ] || left=1',
        'shutdown -P "+$left" || { (sleep $((left * 60)); poweroff -f) >/dev/null 2>&1 & }',
    ]
    for number, script in enumerate(scripts):
        text = script if script.startswith("#!") else f"#!/bin/sh\n{script}"
        encoded = base64.b64encode(text.encode()).decode()
        place = f"/var/lib/tradewind-start-{number}"
        lines += [f"echo {encoded} | base64 -d > {place}", f"chmod 700 {place}", place]
    return "\n".join(lines) + "\n"


_KNOCK_SECONDS = 1.0


class ClusterObservation:
    """Facts that this process has seen of a cluster, beyond those that oned keeps.

    Attributes:
        ready: When it was ready, in seconds since the epoch, or None.
        reported: True once oned has that time noted, for other processes.
    """

    def __init__(self) -> None:
        self.ready: float | None = None
        self.reported = False


def vms_by_node(vms: Sequence[OpenNebulaVm]) -> dict[int, OpenNebulaVm]:
    """The machines that count, by node: one each, not one on its way down, nor one on hold where another runs."""
    found: dict[int, OpenNebulaVm] = {}
    for vm in sorted(vms, key=lambda vm: (vm.phase == "leaving", vm.held, vm.id)):
        found.setdefault(vm.node, vm)
    return found


def duplicate_vms(vms: Sequence[OpenNebulaVm]) -> list[OpenNebulaVm]:
    """The machines that were created twice, because the answer to the first call came too late."""
    counted = {vm.id for vm in vms_by_node(vms).values()}
    return [vm for vm in vms if vm.id not in counted and vm.phase != "leaving"]


def cluster_from_vms(
    run_id: str,
    vms: Sequence[OpenNebulaVm],
    observation: ClusterObservation,
    settings: OpenNebulaSettings,
    data_folder: Path,
    before: Cluster | None,
) -> Cluster:
    """The cluster that a run's machines are."""
    if not vms:
        setup = before.setup_seconds if before else 0.0
        return Cluster(run_id, ClusterState.GONE, setup_seconds=setup, owner=before.owner if before else "")
    vms = sorted(vms_by_node(vms).values(), key=lambda vm: vm.node)
    machines = tuple(_machine(vm, settings, data_folder) for vm in vms)
    state, reason = _state(vms, settings)
    leaving = any(vm.phase == "leaving" for vm in vms)
    observation.ready = observation.ready or max(vm.ready for vm in vms) or None
    if state is ClusterState.READY and observation.ready is None:
        if settings.ready == "ssh" and not settings.jump and not _answer(machines, settings.port):
            state = ClusterState.BOOTING
        else:
            observation.ready = time.time()
    # The list has these times in some versions of OpenNebula only; without them, waiting for a host counts too.
    begun = min((vm.begun or vm.created for vm in vms if vm.begun or vm.phase != "waiting"), default=0.0)
    setup = max(0.0, (observation.ready or time.time()) - begun) if begun else 0.0
    if leaving and observation.ready is None and before is not None:
        setup = before.setup_seconds
    return Cluster(
        run_id,
        state,
        machines,
        setup,
        reason,
        {"vms": [vm.id for vm in vms], **_facts(vms)},
        owner=vms[0].owner,
        expires=vms[0].expires,
        crowded=state is ClusterState.FAILED and bool(_late(vms, settings)),
    )


def _facts(vms: Sequence[OpenNebulaVm]) -> dict[str, float]:
    """Time of the first request and price of the machines, as far as oned knows."""
    created = min((vm.created for vm in vms if vm.created), default=None)
    price = next((vm.price_per_hour for vm in vms if vm.price_per_hour is not None), None)
    known = {"created": created, "price_per_hour": price}
    return {name: float(value) for name, value in known.items() if value is not None}


def known_hosts_file(data_folder: Path, run_id: str, number: int | str) -> Path:
    """The file with the host key of a machine; ``*`` stands for all machines of a run."""
    return data_folder.absolute() / "opennebula" / f"known-hosts-{quote(run_id, safe='')}-{number}"


def _machine(vm: OpenNebulaVm, settings: OpenNebulaSettings, data_folder: Path) -> Machine:
    known = known_hosts_file(data_folder, vm.run, vm.id)
    ssh: dict[str, Any] = {"user": settings.user, "port": settings.port, "accept_new": True, "known_hosts": str(known)}
    if settings.identity:
        ssh["identity"] = str(expand(settings.identity).absolute())
    if settings.jump:
        ssh["jump"] = settings.jump
    data: dict[str, Any] = {"ssh": ssh, "name": vm.name}
    if settings.shared:
        data["shared"] = settings.shared
    address = vm.addresses.get(settings.network) or next(iter(vm.addresses.values()), "")
    return Machine(str(vm.id), address, data)


def _late(vms: Sequence[OpenNebulaVm], settings: OpenNebulaSettings) -> list[OpenNebulaVm]:
    """The machines that have waited for a host for too long."""
    return [vm for vm in vms if vm.phase == "waiting" and time.time() > vm.created + settings.queue_seconds]


def _state(vms: Sequence[OpenNebulaVm], settings: OpenNebulaSettings) -> tuple[ClusterState, str]:
    phases = Counter(vm.phase for vm in vms)
    if phases["leaving"]:
        # Also on their way down: they are there and cost money.
        return ClusterState.BOOTING, ""
    for vm in vms:
        if vm.phase in ("failed", "stopped"):
            words = f"virtual machine {vm.id} ({vm.name}) is {vm.words}"
            return ClusterState.FAILED, f"{words}: {vm.message}" if vm.message else words
    if len(vms) < vms[0].nodes and not any(vm.held for vm in vms):
        return ClusterState.FAILED, f"{vms[0].nodes - len(vms)} of {vms[0].nodes} virtual machines are gone"
    late = _late(vms, settings)
    if late:
        why = f": {late[0].message}" if late[0].message else ""
        return ClusterState.FAILED, f"OpenNebula has had no host for virtual machine {late[0].id}{why}"
    if phases["unknown"]:
        return ClusterState.UNKNOWN, ""
    return (ClusterState.READY if phases["running"] == len(vms) else ClusterState.BOOTING), ""


def _answer(machines: Sequence[Machine], port: int) -> bool:
    """True when the SSH servers of all machines say who they are, asked at the same time."""
    waiting = set()
    with contextlib.ExitStack() as stack, selectors.DefaultSelector() as selector:
        for machine in machines:
            if not machine.address:
                return False
            family = socket.AF_INET6 if ":" in machine.address else socket.AF_INET
            knock = stack.enter_context(socket.socket(family, socket.SOCK_STREAM))
            knock.setblocking(False)
            try:
                knock.connect((machine.address, port))
            except BlockingIOError:
                pass
            except OSError:
                return False
            selector.register(knock, selectors.EVENT_READ)
            waiting.add(knock)
        until = time.monotonic() + _KNOCK_SECONDS
        while waiting:
            ready = selector.select(max(0.0, until - time.monotonic()))
            if not ready:
                return False
            for key, _ in ready:
                answered = key.fileobj
                assert isinstance(answered, socket.socket)
                try:
                    if not answered.recv(4).startswith(b"SSH-"):
                        return False
                except OSError:
                    return False
                selector.unregister(answered)
                waiting.discard(answered)
    return True
