"""Makes virtual machines with libvirt, a cluster of them for each run."""

from __future__ import annotations

import hashlib
import json
import math
import os
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path

from tradewind import plugins
from tradewind.deployer.provisioner.base import (
    Cluster,
    ClusterState,
    MakesMachines,
    Provisioner,
    ReachableBySsh,
    RunsDocker,
    SharesFolder,
    TagsMachines,
    TurnsOffMachines,
)
from tradewind.deployer.provisioner.libvirt.boot import (
    BootProbe,
    BootProber,
    console_tail,
    find_iso_tool,
    make_seed,
    probe_machine,
    ssh_data,
)
from tradewind.deployer.provisioner.libvirt.cluster_folders import (
    PREFIX,
    ClusterFolders,
    ClusterPlan,
    MachinePlan,
    find_tools,
    machine_names,
    plan_machines,
    run_tool,
    safe_name,
)
from tradewind.deployer.provisioner.libvirt.settings import USER_MODE, LibvirtSettings
from tradewind.deployer.provisioner.libvirt.virsh import (
    Domain,
    DomainTags,
    LibvirtHost,
    NotThereError,
    PortTakenError,
    domain_tags,
    domain_xml,
    find_virsh,
)
from tradewind.deployer.ssh_connection import SshTarget
from tradewind.errors import CapacityError, DeployError, ImageError, TeardownError, UnreachableError
from tradewind.plugins import CallsNetwork
from tradewind.problem import Machine, Offer
from tradewind.utils.paths import expand

_PORT_ATTEMPTS = 5
_TOGETHER = 4  # machines of a run that are started, or ended, at the same time
_MIB = 1024


class LibvirtProvisioner(
    Provisioner,
    MakesMachines,
    TagsMachines,
    ReachableBySsh,
    SharesFolder,
    RunsDocker,
    TurnsOffMachines,
    CallsNetwork,
):
    """Makes virtual machines with libvirt: a cluster of them for each run, from one disk image.

    Each run has a folder with the disks of its machines (which hold only what differs from the image), their seed
    drives and consoles, the keys, and a folder that all its machines see. The machines of a run have the run's id in
    their names and, with owner and expiry, in their descriptions; a machine is described before it is started, so that
    a second call finds it whatever became of the first. Virtual clusters for tuning jobs are after Kuchumov's "Virtual
    cluster dynamic reconfiguration".
    """

    name = "libvirt"
    Settings = LibvirtSettings
    needs = (find_virsh, find_tools, find_iso_tool)
    settings: LibvirtSettings

    def __init__(self, *, settings: plugins.Settings, data_folder: Path) -> None:
        super().__init__(settings=settings, data_folder=data_folder)
        storage = self.settings.storage or data_folder / "libvirt"
        self._folders = ClusterFolders(expand(storage).absolute())
        self._host = LibvirtHost(self.settings.uri, self.settings.timeout)
        self._prober = BootProber()
        self._tags: dict[str, DomainTags] = {}

    def refuses(self, offer: Offer) -> str:
        """Refuse offers of other providers and of other processors, and machines without memory."""
        if offer.provider not in self.settings.providers:
            return f"libvirt makes the machines of {' and '.join(self.settings.providers)}, not of {offer.provider}"
        if offer.arch not in ("", "x86_64"):
            return f"libvirt makes x86_64 machines here, not {offer.arch}"
        if offer.gpus:
            return "libvirt makes machines without accelerators"
        return ""

    def make(self, run_id: str, owner: str, expires: float, offer: Offer) -> Cluster:
        """Start the machines of an offer; see `Provisioner.make`.

        Raises:
            ImageError: The image is not there, or is none.
            CapacityError: The host has too little memory, disk or too few CPUs.
        """
        image = self._image()
        with self._folders.locked(run_id) as lock:
            folder = self._folders.of(run_id)
            plan = self._folders.plan(folder)
            if plan is None:
                plan = self._begin(run_id, owner, expires, offer)
            if not plan.made:
                there = self._host.domains()
                missing = [m.name for m in plan.machines if m.name not in there or not there[m.name].runs]
                with ThreadPoolExecutor(_TOGETHER) as pool:
                    started = [pool.submit(self._start, run_id, name, folder, image, lock) for name in missing]
                for each in started:
                    each.result()
                plan = self._folders.plan(folder) or plan
                self._folders.change(replace(plan, made=True))
        return self.poll([Cluster(run_id, ClusterState.BOOTING)])[run_id]

    def _image(self) -> Mapping[str, object]:
        """Facts about the image.

        Raises:
            ImageError: It is not there, or cannot be read.
        """
        files = (self.settings.image, self.settings.kernel, self.settings.initrd)
        for file in (expand(each) for each in files if each is not None):
            if not file.is_file():
                raise ImageError(f"there is no image {file}", hint="see the settings image, kernel and initrd")
            if not os.access(file, os.R_OK):
                raise ImageError(f"{file} may not be read", hint="libvirt must be able to read it, too")
        image = expand(self.settings.image).absolute()
        try:
            facts = json.loads(run_tool(["qemu-img", "info", "--output=json", str(image)], "qemu-utils"))
        except DeployError as error:
            raise ImageError(f"{image} is not a disk image: {error.message}") from None
        return {"path": str(image), **facts}

    def _begin(self, run_id: str, owner: str, expires: float, offer: Offer) -> ClusterPlan:
        """Write down what is to be made, if the host has room for it."""
        vcpu, memory = max(1, math.ceil(offer.vcpu)), max(64, round(offer.memory_gib * _MIB))
        digest = hashlib.sha256(run_id.encode()).digest()
        plan = ClusterPlan(
            run_id=run_id,
            owner=owner,
            expires=expires,
            created=self.clock.now(),
            vcpu=vcpu,
            memory_mib=memory,
            group=f"239.{digest[0]}.{digest[1]}.{digest[2]}",
            group_port=10000 + int.from_bytes(digest[3:5], "big") % 50000,
            machines=plan_machines(
                run_id,
                offer.nodes,
                internal=self.settings.internal,
                forwarded=self.settings.network == USER_MODE,
            ),
            price_per_hour=offer.hourly,
        )
        with self._folders.locked() as lock:
            self._check_room(plan)
            return self._folders.begin(plan, lock)

    def _check_room(self, plan: ClusterPlan) -> None:
        """Hold the machines of everybody to what the host has.

        Raises:
            CapacityError: It has not that much.
        """
        domains, planned = self._host.domains(), self._folders.plans()
        coming = {m.name: each for each in planned.values() if not each.made for m in each.machines}
        running = {name: each for name, each in domains.items() if each.runs}
        vcpu = sum(each.vcpu for name, each in running.items() if name.startswith(PREFIX) and name not in coming)
        memory = sum(each.memory_kib for name, each in running.items() if name not in coming)
        vcpu += sum(each.vcpu for each in coming.values())
        memory += sum(each.memory_mib * _MIB for each in coming.values())
        host, nodes = self._host.capabilities(), len(plan.machines)
        room = host.cpus * self.settings.overcommit
        if vcpu + plan.vcpu * nodes > room + 1e-9:
            raise CapacityError(
                f"the host has {host.cpus} CPUs for {room:g} virtual ones: {vcpu} are in use, "
                f"{plan.vcpu * nodes} wanted",
                hint="fewer runs at a time, smaller offers, or set overcommit",
            )
        if memory + plan.memory_mib * nodes * _MIB > host.memory_kib:
            raise CapacityError(
                f"the host has {host.memory_kib / _MIB:.0f} MiB of memory: {memory / _MIB:.0f} are in use, "
                f"{plan.memory_mib * nodes} wanted",
                hint="fewer runs at a time, or smaller offers",
            )

    def _prepare(
        self, plan: ClusterPlan, machine: MachinePlan, folder: Path, image: Mapping[str, object], lock: int
    ) -> None:
        """Make the drives of a machine; of one that was not started they are made anew."""
        disk = machine.disk(folder)
        new = disk.with_suffix(".part")
        argv = [
            "qemu-img",
            "create",
            "-q",
            "-f",
            "qcow2",
            "-F",
            str(image["format"]),
            "-b",
            str(image["path"]),
            str(new),
        ]
        wanted = self.settings.disk_bytes
        if wanted is not None:
            argv.append(str(max(wanted, int(str(image["virtual-size"])))))
        run_tool(argv, "qemu-utils", lock=lock)
        new.replace(disk)
        make_seed(self.settings, plan, machine, folder, os.getuid(), lock)

    def _start(self, run_id: str, name: str, folder: Path, image: Mapping[str, object], lock: int) -> None:
        """Make the drives of a machine, describe it to libvirt with the tags in it, and start it."""
        for attempt in range(_PORT_ATTEMPTS):
            plan = self._folders.plan(folder)
            assert plan is not None, "the folder is ours as long as we have the lock"
            machine = next(each for each in plan.machines if each.name == name)
            if attempt == 0:
                self._prepare(plan, machine, folder, image, lock)
            description = folder / f"{machine.host}.xml"
            description.write_text(domain_xml(self.settings, plan, machine, folder, kvm=self._kvm()), encoding="utf-8")
            self._host.call("define", str(description), lock=lock)
            try:
                self._host.call("start", name, lock=lock)
            except PortTakenError:
                if attempt + 1 == _PORT_ATTEMPTS:
                    raise
                with self._folders.locked():
                    self._folders.other_port(folder, name)
                continue
            return

    def _kvm(self) -> bool:
        return self.settings.emulator == "kvm" or (self.settings.emulator == "auto" and self._host.capabilities().kvm)

    def poll(self, clusters: Sequence[Cluster]) -> Mapping[str, Cluster]:
        """Give the state of some clusters, by one question to libvirt; see `Provisioner.poll`."""
        try:
            domains = self._host.domains()
        except DeployError as error:
            return {c.run_id: replace(c, state=ClusterState.UNKNOWN, reason=error.message) for c in clusters}
        return {cluster.run_id: self._seen(cluster, domains) for cluster in clusters}

    def _seen(self, cluster: Cluster, domains: Mapping[str, Domain]) -> Cluster:
        try:
            return self._state(cluster, domains)
        except DeployError as error:
            return replace(cluster, state=ClusterState.UNKNOWN, reason=error.message)

    def _state(self, cluster: Cluster, domains: Mapping[str, Domain]) -> Cluster:
        folder = Path(str(cluster.data.get("folder") or self._folders.of(cluster.run_id)))
        plan, names = self._folders.plan(folder), machine_names(cluster.run_id, domains)
        if plan is None:
            # Machines whose folder somebody removed are still there, and can only be destroyed.
            state = ClusterState.FAILED if names else ClusterState.GONE
            return replace(cluster, state=state, machines=(), reason="their folder is gone" if names else "")
        ready = self._folders.ready(folder)
        now = self.clock.now()
        seen = Cluster(
            cluster.run_id,
            ClusterState.BOOTING,
            setup_seconds=max(0.0, (ready[0] if ready else now) - plan.created),
            data={"folder": str(folder), **plan.facts},
            owner=plan.owner,
            expires=plan.expires,
        )
        trouble = self._trouble(plan, folder, domains)
        if plan.made and trouble:
            return replace(seen, state=ClusterState.FAILED, reason=trouble)
        if ready is None and not trouble:
            looks = [self._look(plan, machine, folder) for machine in plan.machines]
            if all(look.address for look in looks):
                ready = self._folders.note_ready(folder, now, [look.address for look in looks])
            elif now > plan.created + self.settings.boot:
                return replace(seen, state=ClusterState.FAILED, reason=self._stuck(plan, folder, looks))
        if ready is None:
            return seen
        machines = tuple(
            self._machine(plan, machine, folder, address)
            for machine, address in zip(plan.machines, ready[1], strict=True)
        )
        return replace(
            seen, state=ClusterState.READY, machines=machines, setup_seconds=max(0.0, ready[0] - plan.created)
        )

    def _trouble(self, plan: ClusterPlan, folder: Path, domains: Mapping[str, Domain]) -> str:
        """Say what is wrong with one of the machines; an empty text if nothing."""
        for machine in plan.machines:
            domain = domains.get(machine.name)
            what = "not there any more" if domain is None else domain.trouble
            if what:
                words = console_tail(machine.console(folder))
                return f"machine {machine.name} is {what}" + (f"; its console: {words}" if words else "")
        return ""

    def _stuck(self, plan: ClusterPlan, folder: Path, looks: Sequence[BootProbe]) -> str:
        machine, look = next(pair for pair in zip(plan.machines, looks, strict=True) if not pair[1].address)
        words = console_tail(machine.console(folder)) or "nothing"
        return f"{machine.name} is not up after {self.settings.boot:g} s: {look.missing}; its console: {words}"

    def _look(self, plan: ClusterPlan, machine: MachinePlan, folder: Path) -> BootProbe:
        return self._prober.look(machine.name, partial(self._look_now, machine, folder))

    def _look_now(self, machine: MachinePlan, folder: Path, last: BootProbe) -> BootProbe:
        host = "127.0.0.1" if machine.port is not None else self._host.address(machine.name)
        if not host:
            return BootProbe(missing=f"it has got no address in the network {self.settings.network}")
        target = SshTarget(**ssh_data(folder, self.settings.user, host, machine.port))
        return probe_machine(target, last, docker=self.settings.docker)

    def _machine(self, plan: ClusterPlan, machine: MachinePlan, folder: Path, address: str) -> Machine:
        data = {
            "ssh": ssh_data(folder, self.settings.user, address, machine.port),
            "private_address": machine.internal.partition("/")[0] or address,
        }
        if self.settings.share != "none":
            data["shared"] = self.settings.shared
        return Machine(machine.name, address, data)

    def find(self, owner: str | None) -> list[Cluster]:
        """All clusters of an owner, or of all, by the tags of the machines and of the folders."""
        domains = self._host.domains()
        found: dict[str, DomainTags] = {}
        for folder, plan in self._folders.plans().items():
            found[plan.run_id] = DomainTags(plan.run_id, plan.owner, plan.expires, folder, plan.facts)
        for name in (name for name in domains if name.startswith(PREFIX)):
            tags = self._tags_of(name)
            if tags is not None:
                found.setdefault(tags.run_id, tags)
        clusters = []
        for tags in found.values():
            if owner in (None, tags.owner):
                bare = Cluster(
                    tags.run_id,
                    ClusterState.UNKNOWN,
                    data={"folder": str(tags.folder), **tags.facts},
                    owner=tags.owner,
                    expires=tags.expires,
                )
                seen = self._seen(bare, domains)
                if seen.state is not ClusterState.GONE:
                    clusters.append(seen)
        return clusters

    def _tags_of(self, name: str) -> DomainTags | None:
        """The tags of a machine; they never change, so that each machine is asked about once."""
        if name not in self._tags:
            try:
                tags = domain_tags(self._host.call("dumpxml", "--inactive", name))
            except NotThereError:
                return None
            if tags is None:
                return None
            self._tags[name] = tags
        return self._tags[name]

    def destroy(self, cluster: Cluster) -> Cluster:
        """Switch the machines off and remove all that belongs to them; see `Provisioner.destroy`.

        Raises:
            TeardownError: libvirt or the file system refused.
        """
        run_id = cluster.run_id
        with self._folders.locked(run_id) as lock:
            try:
                names = machine_names(run_id, self._host.domains())
                folders = {self._folders.of(run_id)}
                for name in names:
                    tags = self._tags_of(name)
                    if tags is not None and tags.folder.name == safe_name(run_id):
                        folders.add(tags.folder)
                with ThreadPoolExecutor(_TOGETHER) as pool:
                    ended = [pool.submit(self._host.remove, name, lock) for name in names]
                for each in ended:
                    each.result()
                for name in names:
                    self._tags.pop(name, None)
                    self._prober.forget(name)
                for folder in folders:
                    self._folders.remove(folder)
                with self._folders.locked():
                    self._folders.tidy()
            except UnreachableError:
                raise
            except DeployError as error:
                raise TeardownError(f"the machines of run {run_id}: {error.message}", hint=error.hint) from error
        return replace(cluster, state=ClusterState.GONE, machines=(), reason="")
