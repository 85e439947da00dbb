"""Runs jobs on a Kubernetes cluster, each as a Job."""

from __future__ import annotations

import gzip
import json
import logging
import shutil
import socket
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path

from tradewind import plugins
from tradewind.deployer import bundle
from tradewind.deployer.checkpoints import FOLDER as CHECKPOINT
from tradewind.deployer.checkpoints import CheckpointLook, copy_files, look_at_files
from tradewind.deployer.environment import resolve_secrets
from tradewind.deployer.runner.base import (
    DrivesLoad,
    HasOwnFiles,
    HasOwnMachines,
    KeepsCheckpoints,
    LimitsCpu,
    LimitsMemory,
    LimitsTime,
    ListsNodes,
    NeedsImages,
    OpensChannel,
    Runner,
    SeveralNodes,
    StreamsLogs,
    SurvivesController,
    wait_by_polling,
)
from tradewind.deployer.runner.kubernetes.api import (
    ClusterApi,
    Document,
    ObjectConflict,
    ObjectNotFound,
    find_credentials,
    find_package,
)
from tradewind.deployer.runner.kubernetes.channel import open_channel
from tradewind.deployer.runner.kubernetes.checkpoints import (
    Channel,
    checkpoint_parts,
    copy_checkpoint,
    look_at_checkpoint,
)
from tradewind.deployer.runner.kubernetes.file_transfer import (
    UNPACKED_BYTES,
    content_name,
    handle_of,
    has_ended,
    share_secret,
    unpack,
    unpack_all,
    unpack_application,
    with_expiry,
)
from tradewind.deployer.runner.kubernetes.job import (
    CONTAINER,
    ENDING,
    HOME,
    MANAGED,
    OWNER,
    ROLE,
    home_label,
    job_of,
    labels_of,
    load_job_of,
    load_name_of,
    name_of,
    owner_label,
    owner_reference,
    secret_of,
    service_of,
)
from tradewind.deployer.runner.kubernetes.load_pod import LoadPods, check_load
from tradewind.deployer.runner.kubernetes.pod_scripts import APPLICATION, READY, SCRIPT
from tradewind.deployer.runner.kubernetes.settings import KubernetesSettings
from tradewind.deployer.runner.kubernetes.status import (
    FOREVER,
    KubernetesData,
    WaitLimits,
    by_uid,
    end_of,
    executes,
    explained,
    first_pod,
    job_of_pod,
    latest_messages,
    lives,
    read_marked,
    seconds_of,
    termination_figures,
    verdict,
)
from tradewind.deployer.runner.resource_limits import memory_of
from tradewind.deployer.runner.run_files import folder_error
from tradewind.errors import DeployError, ImageError, TradewindError, UnreachableError
from tradewind.plugins import CallsNetwork
from tradewind.problem import Handle, Machine, RunRequest, RunState, RunStatus
from tradewind.utils.units import format_memory

_log = logging.getLogger("tradewind.deployer")

_POLL_SECONDS = 3.0
_AGAIN_SECONDS = 1.0
_EVENTS_SECONDS = 5.0
_LOG_SECONDS = 120.0
_SECRET_BYTES = 1_000_000
_LEFT = "left"
_ALIVE = "status.phase!=Succeeded,status.phase!=Failed"
_KEEPS_OFF = ("NoSchedule", "NoExecute")


class KubernetesRunner(
    Runner,
    CallsNetwork,
    DrivesLoad,
    HasOwnFiles,
    HasOwnMachines,
    KeepsCheckpoints,
    LimitsCpu,
    LimitsMemory,
    LimitsTime,
    ListsNodes,
    NeedsImages,
    OpensChannel,
    SeveralNodes,
    StreamsLogs,
    SurvivesController,
):
    """Runs jobs on a Kubernetes cluster, each as a Job with the CPUs, memory and GPUs of its offer.

    The working folder is sent through a Secret (a megabyte, compressed) or is in a volume claim. Logs, metrics and
    outputs come back through the pod's log. Several nodes are an indexed Job with a headless service. Checkpoints are
    copied by a command in the pod while it runs, and given to the next one through Secrets (16 megabytes, compressed).
    A load generator is in the pod of its application, or in one of its own on another node.
    """

    name = "kubernetes"
    Settings = KubernetesSettings
    needs = (find_package, find_credentials)
    settings: KubernetesSettings

    def __init__(self, *, settings: plugins.Settings, data_folder: Path) -> None:
        super().__init__(settings=settings, data_folder=data_folder)
        given = self.settings
        self._api = ClusterApi(kubeconfig=given.kubeconfig, context=given.context, namespace=given.namespace)
        self._wait_limits = WaitLimits(given.image_seconds, given.schedule_seconds)
        self._loads = LoadPods(self._api)
        self._silent = False
        self._seen: dict[str, RunState] = {}
        self._asked, self._said = float("-inf"), dict[str, str]()
        self._busy = float("-inf")

    @property
    def kill_seconds(self) -> float:
        """The time in which a pod is ended, in seconds."""
        return 5.0

    def nodes(self) -> Mapping[str, Mapping[str, float]]:
        """The amounts of the nodes with the labels of the settings that take our pods, less those of others' pods."""
        selector = ",".join(f"{label}={value}" for label, value in self.settings.node_selector.items())
        nodes = self._api.listed("nodes", selector, everywhere=True)
        others = self._api.listed("pods", f"{HOME}!={home_label(self.data_folder)}", fields=_ALIVE, everywhere=True)
        return nodes_of(nodes, others, self.settings)

    def submit(self, request: RunRequest, machines: Sequence[Machine]) -> Handle:
        """Start a run; see `Runner.submit`."""
        if not request.image:
            raise ImageError("Kubernetes runs container images, and the job names none", hint="set job.image")
        check_load(request)
        load = request.load if self.settings.load_apart else None
        values = resolve_secrets(request.secrets)
        files = self._files(request)
        data = KubernetesData(
            folder=str(request.folder.absolute()),
            program=request.argv[0],
            memory_bytes=memory_of(request),
            wall_seconds=request.limits.wall_seconds,
            load_cpus=None if request.load is None else request.load.cpus,
            load_memory=None if request.load is None else request.load.memory_bytes,
            load_program="" if load is None else load.argv[0],
            ready_seconds=0.0 if load is None else load.ready_seconds,
            lasts=request.expires - self.clock.now(),
            patience=asdict(self._wait_limits),
        )
        names = {name: content_name(name, content) for name, content in files.items()}
        home = home_label(self.data_folder)
        job = job_of(request, json.dumps(data.to_json()), names, self.settings, home)
        try:
            job = self._api.document("POST", self._api.path("jobs"), job)
        except ObjectConflict:
            job = self._api.document("GET", self._api.path("jobs", name_of(request.run_id)))
        handle = handle_of(job, self.name)
        if not has_ended(job):
            self._complete(request, job, {names[name]: content for name, content in files.items()}, values)
            if load is not None:
                self._add(("jobs", load_job_of(request, names, self.settings, home, owner_reference(job))))
        return handle

    def _files(self, request: RunRequest) -> dict[str, dict[str, bytes]]:
        """The files that a pod needs beside its image, by volume and name.

        Raises:
            DeployError: They are too large for a Secret.
        """
        cache = self.data_folder / "bundles"
        files = {"work": {"run": SCRIPT.encode()}}
        if request.load is not None:
            name, script = ("ready", READY) if self.settings.load_apart else ("application", APPLICATION)
            files["work"][name] = script.encode()
        folders = {"inputs": request.folder / "inputs"} if request.inputs else {}
        if not self.settings.claim:
            folders["work"] = request.workdir
        for name, folder in folders.items():
            packed = bundle.pack(folder, cache, limit_bytes=UNPACKED_BYTES)
            content = gzip.compress(packed.path.read_bytes(), 6, mtime=0)
            if len(content) > _SECRET_BYTES:
                what = "the working folder" if name == "work" else "the inputs"
                raise DeployError(
                    f"{what} have {format_memory(len(content))} compressed, and a Secret of Kubernetes takes "
                    f"{format_memory(_SECRET_BYTES)}",
                    hint="name in .tradewindignore what the job does not need, put it into the image, or set claim",
                    retryable=False,
                )
            files.setdefault(name, {})["tar.gz"] = content
        return files | checkpoint_parts(request.checkpoint)

    def _complete(
        self, request: RunRequest, job: Document, files: Mapping[str, Mapping[str, bytes]], values: Mapping[str, str]
    ) -> None:
        """Make the objects that belong to a Job and that its pods wait for; they are removed with the Job."""
        owner = owner_reference(job)
        for name, content in files.items():
            share_secret(self._api, name, content, owner)
        objects: list[tuple[str, Document]] = []
        if values:
            content = {name: value.encode() for name, value in values.items()}
            objects.append(("secrets", secret_of(f"{name_of(request.run_id)}-env", labels_of(request), owner, content)))
        if request.offer.nodes > 1 or (request.load is not None and self.settings.load_apart):
            objects.append(("services", service_of(request, owner)))
        self._add(*objects)

    def _add(self, *objects: tuple[str, Document]) -> None:
        """Make objects, each with its kind; those that are there already stay."""
        for kind, each in objects:
            try:
                self._api.call("POST", self._api.path(kind), each)
            except ObjectConflict:
                continue

    def poll(self, handles: Sequence[Handle]) -> Mapping[str, RunStatus]:
        """The statuses of some runs; see `Runner.poll`."""
        known = {handle.run_id: KubernetesData.of(handle) for handle in handles}
        owners = sorted({owner_label(data.owner) for data in known.values()})
        selector = f"{MANAGED},{OWNER} in ({','.join(owners)})"
        try:
            # In this order: a Job that is made in between is not missed.
            pods = self._api.listed("pods", selector, seconds=_POLL_SECONDS)
            jobs = {job["metadata"]["name"]: job for job in self._api.listed("jobs", selector, seconds=_POLL_SECONDS)}
        except (TradewindError, ObjectNotFound) as error:
            if not self._silent:
                _log.warning("runs on Kubernetes are taken to be alive: %s", error)
            self._silent = True
            return {handle.run_id: RunStatus(RunState.EXECUTING) for handle in handles}
        self._silent = False
        by_job, statuses = by_uid(pods), {}
        if any(lives(pod, self.clock.now()) for pod in pods):
            self._busy = self.clock.now()
        for handle in handles:
            name, now = name_of(handle.run_id), self.clock.now()
            job = jobs.get(name)
            mine = by_job.get(job["metadata"]["uid"], ()) if job is not None else ()
            data = known[handle.run_id]
            limits = self._wait_limits_of(data)
            if data.load_program:
                load = jobs.get(load_name_of(handle.run_id))
                theirs = by_job.get(load["metadata"]["uid"], ()) if load is not None else ()
                found = self._loads.judge(data, (job, load), (mine, theirs), now, limits)
            else:
                found = verdict(data, job, mine, now, limits)
            if found.ask and job is not None:
                words = self._refusals().get(job["metadata"]["uid"], "")
                found = explained(found, words, limits, now - self._busy)
            status = found.status
            if found.mark:
                if not data.look:
                    self._mark(name, status)
                status = RunStatus(RunState.SUBMITTING, reason=status.reason)  # until its pods have gone
            statuses[handle.run_id] = status
        self._seen = {name: status.state for name, status in statuses.items()}
        return statuses

    def _wait_limits_of(self, data: KubernetesData) -> WaitLimits:
        """The wait limits that a run was submitted with."""
        if data.look:
            return FOREVER
        return WaitLimits(**data.patience) if data.patience else self._wait_limits

    def _refusals(self) -> Mapping[str, str]:
        """The cluster's messages about Jobs that it makes no pods for, by uid; asked for once in a while."""
        if self.clock.now() < self._asked + _EVENTS_SECONDS:
            return self._said
        self._asked = self.clock.now()
        query = {"fieldSelector": "involvedObject.kind=Job,reason=FailedCreate,type=Warning"}
        try:
            events = self._api.document("GET", self._api.path("events"), query=query, seconds=_POLL_SECONDS)["items"]
        except (TradewindError, ObjectNotFound) as error:
            _log.info("the events of Kubernetes cannot be read: %s", error)
        else:
            self._said = latest_messages(events)
        return self._said

    def _mark(self, name: str, status: RunStatus) -> None:
        """Write the end of a run into its Job, and let its pods go; the next poll tries again where that fails."""
        ending = {"state": status.state, "reason": status.reason, "fault": status.fault, "runtime": status.runtime}
        change = {"metadata": {"annotations": {ENDING: json.dumps(ending)}}, "spec": {"parallelism": 0}}
        try:
            self._api.patch("jobs", name, change)
        except (TradewindError, ObjectConflict, ObjectNotFound) as error:
            _log.info("run %s: %s", name, error)

    def wait(self, handles: Sequence[Handle], seconds: float) -> None:
        """Return when a run has changed its state since the last look, or after ``seconds``."""
        before = {handle.run_id: self._seen.get(handle.run_id) for handle in handles}
        wait_by_polling(self, handles, before, seconds, _AGAIN_SECONDS)

    def cancel(self, handle: Handle, reason: str = "") -> None:
        """End a run with all its processes; see `Runner.cancel`."""
        status = self.poll([handle])[handle.run_id]
        if status.state.ended:
            return
        name = name_of(handle.run_id)
        ending = {"state": RunState.CANCELLED, "reason": reason, "fault": None, "runtime": status.runtime}
        change = {"metadata": {"annotations": {ENDING: json.dumps(ending)}}, "spec": {"parallelism": 0}}
        try:
            self._api.patch("jobs", name, change)
        except ObjectNotFound:
            return

    def find(self, owner: str | None) -> list[Handle]:
        """All runs of an owner, or of all, that are not settled; see `Runner.find`."""
        selector = MANAGED if owner is None else f"{MANAGED},{OWNER}={owner_label(owner)}"
        pods, jobs = by_uid(self._api.listed("pods", selector)), self._api.listed("jobs", selector)
        found = [
            with_expiry(handle_of(job, self.name), job, pods.get(job["metadata"]["uid"], ()))
            for job in jobs
            if not job["metadata"].get("deletionTimestamp") and job["metadata"].get("labels", {}).get(ROLE) != "load"
        ]
        if owner is not None:
            return found
        # Who looks at everybody's runs gives none of them up: only `cancel` may end them.
        return [replace(KubernetesData.of(each), look=True).handle(each.run_id, self.name) for each in found]

    def _pod_of(self, handle: Handle) -> Document | None:
        pods, uid = self._api.listed("pods", f"job-name={name_of(handle.run_id)}"), KubernetesData.of(handle).uid
        return first_pod([pod for pod in pods if uid in ("", job_of_pod(pod))])

    def _logging_pod(self, handle: Handle) -> Document | None:
        """The pod whose log is the run's: that of the load generator, where it has its own."""
        if not KubernetesData.of(handle).load_program:
            return self._pod_of(handle)
        return first_pod(self._api.listed("pods", f"job-name={load_name_of(handle.run_id)}"))

    def _log_of(self, pod: Document) -> bytes:
        path = self._api.path("pods", f"{pod['metadata']['name']}/log")
        try:
            return self._api.call("GET", path, query={"container": CONTAINER}, seconds=_LOG_SECONDS)
        except ObjectNotFound:
            return b""

    def read_log(self, handle: Handle, stream: str, offset: int) -> bytes:
        """Read a run's log from a byte on, in whole lines; see `StreamsLogs.read_log`."""
        pod = self._logging_pod(handle)
        return read_marked(self._log_of(pod)).streams[stream][offset:] if pod is not None else b""

    def collect(self, handle: Handle, request: RunRequest) -> None:
        """Bring the files of a run into its folder; see `Runner.collect`."""
        pod, folder = self._logging_pod(handle), request.folder.absolute()
        if KubernetesData.of(handle).load_program and (driven := self._pod_of(handle)) is not None:
            archive = read_marked(self._log_of(driven)).archive
        else:
            archive = None
        if pod is not None:
            self._collect(pod, folder, request)
        if archive is not None:
            unpack_application(archive, folder, request)

    def _collect(self, pod: Document, folder: Path, request: RunRequest) -> None:
        """Bring what the log of a pod has into a run's folder."""
        said = termination_figures(end_of(pod) or {})
        log = read_marked(self._log_of(pod))
        try:
            folder.mkdir(parents=True, exist_ok=True)
            for name, content in log.streams.items():
                (folder / name).write_bytes(content)
            if log.archive is not None:
                unpack(log.archive, folder, request)
            shutil.rmtree(folder / _LEFT, ignore_errors=True)
        except OSError as error:
            raise folder_error(error, folder) from error
        large = said.get("large")
        if large:
            raise DeployError(
                f"the outputs have {format_memory(int(large))} compressed, and output_bytes is "
                f"{format_memory(self.settings.output_bytes)}",
                hint="let the job keep less, or put large results into a storage of its own",
                retryable=False,
            )
        if log.archive is None and said.get("state") == "ended":
            raise DeployError(
                "the cluster has not kept all of the run's log, and its outputs were in it",
                hint="print less, or raise the cluster's containerLogMaxSize",
                retryable=False,
            )

    def open_channel(self, handle: Handle, argv: Sequence[str]) -> socket.socket:
        """Run a command in the working folder of a run's first pod; see `OpensChannel`."""
        pod = self._pod_of(handle)
        try:
            if pod is not None:
                return open_channel(self._api, pod["metadata"]["name"], argv)
        except ObjectNotFound:
            pass
        raise UnreachableError(f"run {handle.run_id} has no pod")

    def look_at_checkpoint(self, handle: Handle) -> CheckpointLook:
        """Look at the checkpoint files in a run's first pod; see `KeepsCheckpoints.look_at_checkpoint`."""
        if (channel := self._executing(handle)) is not None:
            return look_at_checkpoint(channel)
        brought = self._brought(handle)
        return CheckpointLook() if brought is None else self._by_node_clock(handle, look_at_files(brought))

    def copy_checkpoint(self, handle: Handle, folder: Path) -> CheckpointLook:
        """Bring the checkpoint files of a run's first pod here; see `KeepsCheckpoints.copy_checkpoint`."""
        if (channel := self._executing(handle)) is not None:
            return copy_checkpoint(channel, folder)
        brought = self._brought(handle)
        return CheckpointLook() if brought is None else self._by_node_clock(handle, copy_files(brought, folder))

    def _by_node_clock(self, handle: Handle, left: CheckpointLook) -> CheckpointLook:
        """A look at files from a pod's log, whose times are whole seconds of the clock of its node."""
        pod = self._pod_of(handle)
        end = 0.0 if pod is None else seconds_of((end_of(pod) or {}).get("finishedAt")) or 0.0
        if not left.fingerprint or not end:
            return left
        return CheckpointLook.by_seconds(left.fingerprint.encode(), end - left.written, time.time())

    def _executing(self, handle: Handle) -> Channel | None:
        """Runs commands in the first pod of a run; None where that does not execute."""
        pod = self._pod_of(handle)
        if pod is None or not executes(pod):
            return None
        name = pod["metadata"]["name"]

        def channel(argv: Sequence[str]) -> socket.socket:
            try:
                return open_channel(self._api, name, argv)
            except ObjectNotFound:
                raise UnreachableError(f"run {handle.run_id} has no pod any more") from None

        return channel

    def _brought(self, handle: Handle) -> Path | None:
        """The checkpoint that a run has left for others to begin at, which is in its pod's log; None for none."""
        place = Path(KubernetesData.of(handle).folder) / _LEFT
        if not place.is_dir():
            pod = self._pod_of(handle)
            archive = read_marked(self._log_of(pod)).archive if pod is not None and end_of(pod) is not None else None
            if archive is None:
                return None
            place.parent.mkdir(parents=True, exist_ok=True)
            unpack_all(archive, place)
        return place / CHECKPOINT if (place / CHECKPOINT).is_dir() else None

    def forget(self, handle: Handle) -> None:
        """Delete the Job of a run that is settled; all objects that belong to it are removed with it."""
        options = {"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": "Background"}
        try:
            self._api.call("DELETE", self._api.path("jobs", name_of(handle.run_id)), options)
        except ObjectNotFound:
            return

    def close(self) -> None:
        """Close the connections; runs go on."""
        self._api.close()


def nodes_of(
    nodes: Iterable[Document], pods: Iterable[Document], settings: KubernetesSettings
) -> dict[str, dict[str, float]]:
    """The amounts of each node for our pods, by its name: what is allocatable less what others' pods request there.

    Args:
        nodes: The nodes as the API has them; those without the labels of `settings` are left out already.
        pods: Pods of others that have not ended, on any node.
        settings: The settings of the runner: tolerations, the name of a GPU, and the share of an offer that a pod
            requests.

    Returns:
        ``cpu``, ``memory`` in GiB, and ``gpu`` where there are some, of the nodes that are ready, not cordoned, and
        without a taint that keeps our pods off. Where pods request a share of their offers, more offers fit: amounts
        are those of the offers.
    """
    share = settings.request_share or 1.0
    kinds = {"cpu": "cpu", "memory": "memory", "gpu": settings.gpu_resource}
    units = {"cpu": share, "memory": 2**30 * share, "gpu": 1.0}
    taken: dict[tuple[str, str], float] = {}
    for pod in pods:
        for theirs, amount in _requested(pod["spec"], kinds.values()).items():
            place = pod["spec"].get("nodeName", ""), theirs
            taken[place] = taken.get(place, 0.0) + amount
    found = {}
    for node in nodes:
        if not _takes_pods(node, settings.tolerations):
            continue
        name, has = node["metadata"]["name"], node["status"].get("allocatable", {})
        left = {
            kind: max(0.0, _node_amount(has.get(theirs, "0")) - taken.get((name, theirs), 0.0)) / units[kind]
            for kind, theirs in kinds.items()
        }
        found[name] = {kind: amount for kind, amount in left.items() if amount}
    return found


def _requested(spec: Document, kinds: Iterable[str]) -> dict[str, float]:
    """The amounts that a pod requests of a node, as the scheduler counts them ("Resource sharing within containers").

    Its containers run together, with the init containers that go on (sidecars); the other init containers run before,
    one by one, beside the sidecars that were started by then. The pod's overhead is added.
    """
    found = {}
    for kind in kinds:
        together, before = 0.0, 0.0
        for each in spec.get("initContainers") or ():
            amount = _request(each, kind)
            if each.get("restartPolicy") == "Always":
                together += amount
            before = max(before, together if each.get("restartPolicy") == "Always" else together + amount)
        together += sum(_request(each, kind) for each in spec.get("containers") or ())
        found[kind] = max(before, together) + _node_amount((spec.get("overhead") or {}).get(kind, "0"))
    return found


def _request(container: Document, kind: str) -> float:
    return _node_amount((container.get("resources", {}).get("requests") or {}).get(kind, "0"))


def _takes_pods(node: Document, tolerations: Iterable[Mapping[str, str | int]]) -> bool:
    ready = any(each["type"] == "Ready" and each["status"] == "True" for each in node["status"].get("conditions") or ())
    spec = node.get("spec", {})
    taints = [taint for taint in spec.get("taints") or () if taint["effect"] in _KEEPS_OFF]
    kept_off = any(not any(_tolerates(each, taint) for each in tolerations) for taint in taints)
    return ready and not spec.get("unschedulable") and not kept_off


def _tolerates(toleration: Mapping[str, str | int], taint: Mapping[str, str]) -> bool:
    """True when a toleration matches a taint: without a key it matches all taints, without an effect all effects."""
    if toleration.get("effect") not in (None, "", taint["effect"]):
        return False
    if toleration.get("operator", "Equal") == "Exists":
        return toleration.get("key", "") in ("", taint["key"])
    return (toleration.get("key"), toleration.get("value", "")) == (taint["key"], taint.get("value", ""))


def _node_amount(quantity: str | int) -> float:
    """Convert a quantity of Kubernetes to a number: ``3920m``, ``16Gi``."""
    from kubernetes.utils import parse_quantity

    return float(parse_quantity(quantity))  # type: ignore[no-untyped-call]
