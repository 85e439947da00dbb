"""Makes virtual machines in an OpenNebula cloud."""

from __future__ import annotations

import contextlib
import copy
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

from tradewind import plugins
from tradewind.deployer.provisioner.base import (
    Cluster,
    ClusterState,
    MakesMachines,
    Provisioner,
    ReachableBySsh,
    RunsDocker,
    TagsMachines,
    TurnsOffMachines,
)
from tradewind.deployer.provisioner.opennebula.machines import (
    EXPIRES,
    NODE,
    NODES,
    OWNER,
    PRICE,
    READY,
    RUN,
    ClusterObservation,
    OpenNebulaVm,
    VmOptions,
    cluster_from_vms,
    duplicate_vms,
    extra_template,
    known_hosts_file,
    parse_vm,
    template_gpus,
    vms_by_node,
)
from tradewind.deployer.provisioner.opennebula.rpc import (
    LostAnswerError,
    NoSuchObjectError,
    OneClient,
    WrongStateError,
    parse_xml,
)
from tradewind.deployer.provisioner.opennebula.settings import OpenNebulaSettings, find_credentials, read_text_setting
from tradewind.errors import (
    DeployError,
    OfferRefusedError,
    PrerequisiteError,
    TeardownError,
    TradewindError,
    UnreachableError,
)
from tradewind.plugins import CallsNetwork
from tradewind.problem import Offer
from tradewind.utils.retries import Backoff

_MINE, _ALL = -3, -2
_NOT_DONE = -1
_PAGE = 200
_LISTINGS = 3
_POLL_SECONDS = 4.0
_DELETE = 3
_APPEND = 1
_PATIENCE_SECONDS = 20.0
_BACKOFF = Backoff.doubling(0.1, 2.0)
_RECOVER_SECONDS = 3.0
# An answer that was lost is looked for this long: oned may still be at it.
_LOST_SECONDS = (0.1, 0.2, 0.5, 1.0, 2.0, 4.0)


class OpenNebulaProvisioner(
    Provisioner, CallsNetwork, MakesMachines, ReachableBySsh, RunsDocker, TagsMachines, TurnsOffMachines
):
    """Makes virtual machines in an OpenNebula cloud, from a template, with the CPUs and the memory of the offer.

    Machines are created on hold, tagged with owner, run and expiry, and released when all of a run are there: a machine
    whose creation was forgotten in a crash never starts. When their lease ends they turn themselves off, and OpenNebula
    terminates them.
    """

    name = "opennebula"
    Settings = OpenNebulaSettings
    needs = (find_credentials,)
    settings: OpenNebulaSettings

    def __init__(self, *, settings: plugins.Settings, data_folder: Path) -> None:
        super().__init__(settings=settings, data_folder=data_folder)
        self._lock = threading.Lock()
        self._client: OneClient | None = None
        self._base: tuple[int, ElementTree.Element] | None = None
        self._changes = 0
        self._listing: tuple[int, float, list[OpenNebulaVm]] | None = None
        self._observations: dict[str, ClusterObservation] = {}

    def refuses(self, offer: Offer) -> str:
        """Refuse another provider's offers, and GPUs that the settings do not name; see `Provisioner.refuses`."""
        if offer.provider not in self.settings.providers:
            return f"the opennebula provisioner makes offers of {', '.join(self.settings.providers)} only"
        if offer.gpus and not self.settings.gpu:
            return "the setting gpu does not say which PCI device is its GPU"
        return "the opennebula provisioner cannot sell spot machines" if offer.spot else ""

    def make(self, run_id: str, owner: str, expires: float, offer: Offer) -> Cluster:
        """Create the machines of an offer; see `Provisioner.make`.

        Raises:
            OfferRefusedError: It is not ours to make, or the template does not have its GPUs.
        """
        if why := self.refuses(offer):
            raise OfferRefusedError(f"provisioner opennebula cannot make {offer.key}: {why}")
        template, base = self._template()
        if self.settings.gpu == "template" and (gpus := template_gpus(base)) != offer.gpus:
            raise OfferRefusedError(
                f"OpenNebula: the template {self.settings.template} has {gpus} GPUs, and the offer {offer.gpus}",
                hint="name another template, or the PCI device in the setting gpu",
            )
        vm_options = self._vm_options()
        known_hosts_file(self.data_folder, run_id, 0).parent.mkdir(parents=True, exist_ok=True)
        try:
            # Machines on their way down, of a call that failed, are not counted: they will not come back.
            there = self._kept([vm for vm in self._tagged(run_id) if vm.phase != "leaving"])
            for node in range(offer.nodes):
                if node not in there:
                    tags = {RUN: run_id, OWNER: owner, EXPIRES: repr(expires), NODE: str(node)}
                    tags |= {NODES: str(offer.nodes), PRICE: repr(offer.hourly)}
                    there[node] = self._create(template, extra_template(base, vm_options, offer, tags), run_id, node)
            self._release(there.values())
        except TradewindError:
            with contextlib.suppress(TradewindError):
                self._terminate(run_id)
            raise
        finally:
            self._changed()
        return self._seen(run_id, self._tagged(run_id))

    def _create(self, template: int, extra: str, run_id: str, node: int) -> OpenNebulaVm:
        client, name = self._oned(), f"tradewind-{run_id}-{node}"
        try:
            number = client.call("template.instantiate", template, name, True, extra, False)
            return parse_vm(parse_xml(client.ask("vm.info", number)))
        except NoSuchObjectError as error:
            self._base = None
            raise OfferRefusedError(str(error.message), hint="it was removed after the search began") from None
        except LostAnswerError:
            # oned may have created it all the same, or be about to: a second one would be one too many.
            for pause in _LOST_SECONDS:
                time.sleep(pause)
                with contextlib.suppress(UnreachableError):
                    found = [vm for vm in self._tagged(run_id) if vm.node == node]
                    if found:
                        return min(found, key=lambda vm: vm.id)
            raise

    def _release(self, vms: Iterable[OpenNebulaVm]) -> None:
        for vm in vms:
            # In a wrong state it has been released already, by a call whose answer was lost.
            with contextlib.suppress(WrongStateError):
                if vm.held:
                    self._oned().ask("vm.action", "release", vm.id)

    def poll(self, clusters: Sequence[Cluster]) -> Mapping[str, Cluster]:
        """Give the state of some clusters, by one listing for all; see `Provisioner.poll`."""
        try:
            listed = self._recent()
        except UnreachableError:
            return {cluster.run_id: replace(cluster, state=ClusterState.UNKNOWN) for cluster in clusters}
        found = {}
        for cluster in clusters:
            mine = [vm for vm in listed if vm.run == cluster.run_id]
            if duplicate_vms(mine) or any(vm.held for vm in mine):
                # One that came too late, or whose release was lost.
                with contextlib.suppress(TradewindError):
                    self._release(self._kept(mine).values())
            found[cluster.run_id] = self._seen(cluster.run_id, mine, cluster)
        return found

    def _seen(self, run_id: str, mine: Sequence[OpenNebulaVm], before: Cluster | None = None) -> Cluster:
        with self._lock:
            observation = self._observations.setdefault(run_id, ClusterObservation())
        cluster = cluster_from_vms(run_id, mine, observation, self.settings, self.data_folder, before)
        if cluster.state is ClusterState.GONE:
            self._forget(run_id)
        elif observation.ready is not None and not observation.reported:
            # Another process would otherwise take all the time until it looks for time to boot.
            observation.reported = True
            note = f"<TEMPLATE><{READY}>{observation.ready!r}</{READY}></TEMPLATE>"
            with contextlib.suppress(TradewindError):
                self._oned().ask("vm.update", min(vm.id for vm in mine), note, _APPEND, seconds=_POLL_SECONDS)
        return cluster

    def _forget(self, run_id: str) -> None:
        with self._lock:
            self._observations.pop(run_id, None)
        pattern = known_hosts_file(self.data_folder, run_id, "*")
        for file in pattern.parent.glob(pattern.name):
            file.unlink(missing_ok=True)

    def find(self, owner: str | None) -> list[Cluster]:
        """All clusters of an owner, or of all, by tag; see `Provisioner.find`.

        Nothing is noted of them: when others' machines are ready is for others' settings to say.
        """
        runs: dict[str, list[OpenNebulaVm]] = {}
        for vm in self._list(_ALL if owner is None else _MINE):
            if vm.run and owner in (None, vm.owner):
                runs.setdefault(vm.run, []).append(vm)
        with self._lock:
            observations = {run_id: copy.copy(self._observations.get(run_id, ClusterObservation())) for run_id in runs}
        return [
            cluster_from_vms(run_id, mine, observations[run_id], self.settings, self.data_folder, None)
            for run_id, mine in sorted(runs.items())
        ]

    def destroy(self, cluster: Cluster) -> Cluster:
        """Terminate the machines of a run; see `Provisioner.destroy`.

        Raises:
            TeardownError: OpenNebula does not answer, does not let us, or they are in a state that forbids it.
        """
        try:
            left = self._terminate(cluster.run_id)
            if not left:
                self._check_gone(cluster)
        except TradewindError as error:
            raise TeardownError(
                f"the machines of run {cluster.run_id} are not given back: {error.message}", hint=error.hint
            ) from error
        finally:
            self._changed()
        return self._seen(cluster.run_id, left, cluster)

    def _terminate(self, run_id: str) -> list[OpenNebulaVm]:
        """Have oned terminate all machines of a run; what is left of them then."""
        until = time.monotonic() + _PATIENCE_SECONDS
        began, refusals = time.monotonic(), 0
        while True:
            left = self._tagged(run_id)
            refused = [words for vm in left if vm.phase != "leaving" and (words := self._end(vm, began))]
            if not refused:
                return self._tagged(run_id) if left else []
            if time.monotonic() > until:
                raise DeployError(f"{refused[0]}; it is tried again")
            time.sleep(_BACKOFF.pause(refusals))
            refusals += 1

    def _check_gone(self, cluster: Cluster) -> None:
        """Make sure of machines that are known by number: those of another account are not in our list."""
        for number in cluster.data.get("vms", ()):
            try:
                document = parse_xml(self._oned().ask("vm.info", int(number)))
            except NoSuchObjectError:
                continue
            if parse_vm(document).phase != "gone":
                raise DeployError(f"OpenNebula: virtual machine {number} is not in the list, and is there")

    def _end(self, vm: OpenNebulaVm, began: float) -> str:
        """Terminate a machine; why it cannot be done now, or an empty text."""
        client = self._oned()
        try:
            client.ask("vm.action", "terminate-hard", vm.id)
        except NoSuchObjectError:
            return ""
        except WrongStateError as error:
            # Between two states oned refuses. Administrators may delete it from any state.
            if time.monotonic() > began + _RECOVER_SECONDS:
                with contextlib.suppress(DeployError):
                    client.ask("vm.recover", vm.id, _DELETE)
                    return ""
            return error.message
        return ""

    def next_change(self, clusters: Sequence[Cluster]) -> float:
        """Seconds until oned is asked again."""
        return self.settings.interval

    def _oned(self) -> OneClient:
        with self._lock:
            if self._client is None:
                settings = self.settings
                self._client = OneClient(settings.address(), settings.session(), settings.timeout)
            return self._client

    def _template(self) -> tuple[int, ElementTree.Element]:
        """The number and the content of the template."""
        found = self._base
        if found is None:
            wanted, client = self.settings.template, self._oned()
            if wanted.isdigit():
                number = int(wanted)
            else:
                pool = parse_xml(client.ask("templatepool.info", _ALL, -1, -1))
                named = [each for each in pool.iterfind("VMTEMPLATE") if each.findtext("NAME") == wanted]
                named = [each for each in named if each.findtext("UNAME") == client.user] or named
                if len(named) != 1:
                    what = "is no template" if not named else f"are {len(named)} templates"
                    raise PrerequisiteError(
                        f"OpenNebula: there {what} named {wanted!r}", hint="onetemplate list shows them; give the ID"
                    )
                number = int(named[0].findtext("ID") or 0)
            try:
                document = parse_xml(client.ask("template.info", number))
            except NoSuchObjectError as error:
                raise PrerequisiteError(error.message, hint="onetemplate list shows those that there are") from None
            content = document.find("TEMPLATE")
            found = self._base = (number, ElementTree.Element("TEMPLATE") if content is None else content)
        return found

    def _vm_options(self) -> VmOptions:
        settings = self.settings
        return VmOptions(
            cluster=settings.cluster,
            network=settings.network,
            disk_bytes=settings.disk_bytes,
            public_key=settings.key(),
            context=settings.context,
            script=read_text_setting(settings.start_script, "start_script"),
            terminate=settings.terminate,
            gpu="" if settings.gpu == "template" else settings.gpu,
        )

    def _kept(self, vms: Sequence[OpenNebulaVm]) -> dict[int, OpenNebulaVm]:
        """The machines by node; of those that were created twice, the first: the others are terminated."""
        for vm in duplicate_vms(vms):
            self._end(vm, time.monotonic())
        return vms_by_node(vms)

    def _tagged(self, run_id: str) -> list[OpenNebulaVm]:
        return [vm for vm in self._list(_MINE) if vm.run == run_id]

    def _changed(self) -> None:
        with self._lock:
            self._changes += 1

    def _recent(self) -> list[OpenNebulaVm]:
        """A listing of our machines that is as old as the interval at most, and younger than what we changed."""
        now = time.monotonic()
        with self._lock:
            changes, listing = self._changes, self._listing
        if listing is not None and listing[0] == changes and now < listing[1] + self.settings.interval:
            return listing[2]
        vms = self._list(_MINE, seconds=min(_POLL_SECONDS, self.settings.timeout))
        with self._lock:
            self._listing = (changes, now, vms)
        return vms

    def _list(self, whose: int, seconds: float | None = None) -> list[OpenNebulaVm]:
        """All machines that are not done, page by page.

        Raises:
            UnreachableError: oned does not answer, or the list changes faster than it can be read.
        """
        for _ in range(_LISTINGS):
            found = self._pages(whose, seconds)
            if found is not None:
                return found
        raise UnreachableError("OpenNebula's list of machines changes while it is read")

    def _pages(self, whose: int, seconds: float | None) -> list[OpenNebulaVm] | None:
        """The list, or None when a machine may be missing because others went away between two pages."""
        client = self._oned()
        vms: dict[int, OpenNebulaVm] = {}
        offset, last = 0, None
        while True:
            # The short form, vmpool.info, has no tags.
            text = client.ask("vmpool.infoextended", whose, offset, -_PAGE, _NOT_DONE, seconds=seconds)
            page = [parse_vm(each) for each in parse_xml(text).iterfind("VM")]
            if last is not None and (not page or page[0].id != last):
                return None
            vms.update((vm.id, vm) for vm in page)
            if len(page) < _PAGE:
                return [vm for vm in vms.values() if vm.phase != "gone"]
            # Pages share one machine: where it is not found again, the list has moved.
            offset, last = offset + len(page) - 1, page[-1].id
