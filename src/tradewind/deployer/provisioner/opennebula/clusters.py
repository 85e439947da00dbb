"""What a run's virtual machines amount to: a cluster that boots, is ready, or has failed."""

from __future__ import annotations

import contextlib
import selectors
import socket
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

from tradewind.deployer.provisioner.base import Cluster, ClusterState
from tradewind.deployer.provisioner.opennebula.machines import OpenNebulaVm
from tradewind.deployer.provisioner.opennebula.settings import OpenNebulaSettings
from tradewind.problem import Machine
from tradewind.utils.paths import expand

_KNOCK_SECONDS = 1.0


class ClusterObservation:
    """What this process has seen of a cluster, beyond what oned keeps.

    Attributes:
        ready: When it was ready, in seconds since the epoch, or None.
        told: oned has been told when that was, for other processes.
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
    """When they were asked for and what they cost, as far as oned knows."""
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
