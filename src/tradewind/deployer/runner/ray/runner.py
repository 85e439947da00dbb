"""Runs jobs on the nodes of a Ray cluster."""

from __future__ import annotations

import shutil
import threading
import time
import uuid
from collections.abc import Mapping, Sequence
from concurrent import futures
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from urllib.parse import quote

from pydantic import Field, field_validator

from tradewind import plugins
from tradewind.deployer import bundle
from tradewind.deployer.checkpoints import CHANGES, CheckpointLook, CheckpointStore
from tradewind.deployer.environment import job_environment, resolve_secrets
from tradewind.deployer.runner.base import (
    HasOwnFiles,
    HasOwnMachines,
    KeepsCheckpoints,
    LimitsMemory,
    LimitsTime,
    ListsNodes,
    Runner,
    SeveralNodes,
    StreamsLogs,
    StreamsReports,
    SurvivesController,
)
from tradewind.deployer.runner.ray.driver_client import RayDriverClient, find_ray
from tradewind.deployer.runner.ray.node_executor import FOLDER, origin
from tradewind.deployer.runner.ray.node_files import CHECKPOINT, METRICS
from tradewind.deployer.runner.ray.scheduling import why_waits
from tradewind.deployer.runner.ray.status import RayData, status_of, unreachable_status, with_expiry
from tradewind.deployer.runner.resource_limits import cpus_of, gpus_of, memory_of
from tradewind.deployer.runner.run_files import folder_error
from tradewind.deployer.runner.warden.slot_orders import slot_order
from tradewind.errors import DeployError, TradewindError
from tradewind.plugins import CallsNetwork
from tradewind.problem import Handle, Machine, RunRequest, RunState, RunStatus
from tradewind.utils.paths import slots_folder

_POLL_SECONDS = 3.0
_LOOK_SECONDS = 0.25
_FRESH_SECONDS = 0.1
_CALL_SECONDS = 30.0
_FETCH_SECONDS = 600.0


_OFFERED = {"CPU": "", "GPU": "", "memory": ", or set reserve_memory: false"}
"""Ray's names of what an offer has, and what else may be done about it."""


class RaySettings(plugins.Settings):
    """Settings of the Ray runner."""

    address: str = Field(
        "",
        description="The cluster: host:port of its head where this machine is one of its nodes, ray://host:10001 from "
        "elsewhere; empty for the one that this machine or RAY_ADDRESS names",
    )
    namespace: str = Field("tradewind", min_length=1, description="Ray's namespace of the runs")
    python: str = Field("", description="A Python with the cluster's versions of Python and Ray; empty for this one")
    resources: dict[str, float] = Field(
        default_factory=dict, description="Custom resources that each node of a run must have, by name"
    )
    instance_resource: bool = Field(
        False, description="Ask for a custom resource with the name of the offer's instance type, one on each node"
    )
    reserve_memory: bool = Field(True, description="Ask for the offer's memory too, not for its CPUs and GPUs only")
    autoscales: bool = Field(False, description="The cluster makes nodes: wait for ones that it does not have yet")
    actors: bool = Field(
        False,
        description="Give each run of one node an actor of its own: its start takes a second of processor time more, "
        "and it outlives a head that comes back (a cluster whose store is in Redis)",
    )
    keep_seconds: float = Field(
        30.0,
        gt=0,
        description="Seconds without a run after which the actor goes that keeps the runs of all who use the cluster",
    )
    share: bool = Field(
        True,
        description="On a node that is this machine: wait for CPUs and memory that runs of your other searches have "
        "here, and be held to CPUs of its own",
    )
    scratch: str = Field("", description="A folder on the nodes for the files of runs; empty for their temporary one")
    workdir_bytes: int = Field(500 * 2**20, gt=0, description="The most that the working folder may have, in bytes")
    output_bytes: int = Field(2**30, gt=0, description="The most that a run may bring back, in bytes")
    connect_seconds: float = Field(60.0, gt=0, description="Seconds that connecting to the cluster may take")

    @field_validator("resources")
    @classmethod
    def _not_the_offers(cls, given: dict[str, float]) -> dict[str, float]:
        for name, amount in given.items():
            if name in _OFFERED:
                raise ValueError(f"{name} is the offer's: take offers of another size{_OFFERED[name]}")
            if amount < 0:
                raise ValueError(f"{name} is below zero")
        return given


@dataclass(frozen=True, slots=True)
class _Seen:
    """An answer of `Driver.poll` about a run.

    Attributes:
        asked: When it was asked, on the monotonic clock.
        news: The value of `RayRunner._news` then; the answer is out of date once that has grown.
        status: The status of the run.
    """

    asked: float
    news: int
    status: RunStatus


class RayRunner(
    Runner,
    CallsNetwork,
    HasOwnFiles,
    HasOwnMachines,
    KeepsCheckpoints,
    LimitsMemory,
    LimitsTime,
    ListsNodes,
    SeveralNodes,
    StreamsLogs,
    StreamsReports,
    SurvivesController,
):
    """Runs jobs on the nodes of a Ray cluster, each as a task of a detached actor that keeps them all.

    Ray finds the node with the offer's CPUs, memory and GPUs; it counts CPUs and does not hold a job to them. The task
    watches the job: its time, and its memory 20 times a second. Where a run is, and how it ended, is in the store of
    the cluster's head. Several nodes are a placement group, one bundle on each, and an actor of the run's own; the
    command starts on the first.
    """

    name = "ray"
    Settings = RaySettings
    needs = (find_ray,)
    settings: RaySettings

    def __init__(self, *, settings: plugins.Settings, data_folder: Path) -> None:
        super().__init__(settings=settings, data_folder=data_folder)
        self._folder = data_folder / "ray"
        self._link: RayDriverClient | None = None
        self._lock = threading.Lock()
        self._heard: dict[str, float] = {}  # when a run was known to be alive
        self._known: dict[str, _Seen] = {}
        self._news = 0  # how often what was known had to be asked for anew
        self._forgetting: list[Future[Any]] = []
        self._who = uuid.uuid4().hex
        self._awaited: list[str] = []
        self._awaited_end: Future[Any] | None = None

    def _call(self, op: str, *, seconds: float, patient: bool = True, **arguments: Any) -> Any:
        namespace = self.settings.namespace
        return self._linked().call(op, seconds=seconds, patient=patient, namespace=namespace, **arguments)

    def _linked(self) -> RayDriverClient:
        given = self.settings
        with self._lock:
            if self._link is None:
                self._link = RayDriverClient.shared(
                    address=given.address,
                    python=given.python,
                    connect_seconds=given.connect_seconds,
                    log=self._folder / "helper.log",
                )
            return self._link

    @property
    def kill_seconds(self) -> float:
        """The time in which the node notices the end of the wall time, in seconds."""
        return 1.0

    def nodes(self) -> Mapping[str, Mapping[str, float]]:
        """The nodes of the Ray cluster that are alive."""
        answer: Mapping[str, Mapping[str, float]] = self._call("nodes", seconds=_FETCH_SECONDS)
        return answer

    def submit(self, request: RunRequest, machines: Sequence[Machine]) -> Handle:
        """Start a run; see `Runner.submit`."""
        values = resolve_secrets(request.secrets)
        folder = request.folder.absolute()
        data = RayData(
            owner=request.owner,
            expires=request.expires,
            created=time.time(),
            price_per_hour=request.offer.hourly,
            folder=str(folder),
            lasts=request.expires - time.time(),
            secrets=dict(request.secrets),
            memory_bytes=memory_of(request),
            wall_seconds=request.limits.wall_seconds,
            wanted=self._wanted(request),
            nodes=request.offer.nodes,
        )
        try:
            folder.mkdir(parents=True, exist_ok=True)
            packed = self._pack(request, folder)
        except OSError as error:
            raise folder_error(error, folder) from error
        order = self._order(request, data, values)
        order["bundles"] = {name: each.digest for name, each in packed.items()}
        order["archives"] = [(str(each.path), each.digest) for each in packed.values()]
        order["record"]["bundles"] = sorted(order["bundles"].values())
        self._call("submit", seconds=_FETCH_SECONDS, order=order)
        return data.handle(request.run_id, self.name)

    def _pack(self, request: RunRequest, folder: Path) -> dict[str, bundle.Bundle]:
        cache, limit = self.data_folder / "bundles", self.settings.workdir_bytes
        packed = {"work": bundle.pack(request.workdir, cache, limit_bytes=limit)}
        if request.inputs:
            packed["inputs"] = bundle.pack(folder / "inputs", cache, limit_bytes=limit)
        latest = None if request.checkpoint is None else CheckpointStore(request.checkpoint.folder).latest()
        if latest is not None:
            packed[CHECKPOINT] = bundle.pack(latest.files, cache, limit_bytes=limit)
        return packed

    def _wanted(self, request: RunRequest) -> dict[str, float]:
        """The amounts that a run asks for on each of its nodes, by Ray's names."""
        given, offer = self.settings, request.offer
        wanted = {
            "CPU": cpus_of(request) or 0,
            "GPU": gpus_of(request),
            "memory": int(offer.memory_gib * 2**30) if given.reserve_memory else 0,
            **given.resources,
            **({offer.instance_type: 1} if given.instance_resource else {}),
        }
        return {name: amount for name, amount in wanted.items() if amount or name == "CPU"}

    def _order(self, request: RunRequest, data: RayData, values: Mapping[str, str]) -> dict[str, Any]:
        given, offer, limits = self.settings, request.offer, request.limits
        return {
            "key": data.key(request.run_id),
            "name": request.run_id,
            "run_id": request.run_id,
            "record": {"run_id": request.run_id, **data.to_json()},
            "lasts": data.lasts,
            "resources": data.wanted,
            "group": offer.nodes if offer.nodes > 1 else 0,
            "actor": given.actors,
            "checkpoint": request.checkpoint is not None,
            "keep_seconds": given.keep_seconds,
            "slot": slot_order(replace(request, gang=None), slots_folder(), share=given.share),
            "origin": origin(),
            "outputs": list(request.outputs),
            "limit": given.output_bytes,
            "grows": given.autoscales,
            "scratch": given.scratch,
            "env": dict(request.env),
            "tradewind": job_environment(request, FOLDER),
            "secrets": sorted(values),
            "values": dict(values),
            "warden": {
                "op": "start",
                "run_id": request.run_id,
                "owner": request.owner,
                "argv": list(request.argv),
                "cpus": None,
                "memory_bytes": data.memory_bytes,
                "address_space": 0,
                "wall_seconds": limits.wall_seconds,
                "log_bytes": limits.log_bytes,
                "grace": 0.5,
            },
        }

    def poll(self, handles: Sequence[Handle]) -> Mapping[str, RunStatus]:
        """The statuses of some runs; see `Runner.poll`.

        An answer of a moment ago is used again, unless a run has ended or was cancelled since.
        """
        news, now = self._news, time.monotonic()
        known = {handle.run_id: self._known.get(_key(handle)) for handle in handles}
        fresh = {
            run_id: seen.status
            for run_id, seen in known.items()
            if seen is not None and seen.news == news and now - seen.asked < _FRESH_SECONDS
        }
        if len(fresh) == len(known):
            return fresh
        statuses = self._ask(handles)
        self._known |= {_key(handle): _Seen(now, news, statuses[handle.run_id]) for handle in handles}
        return statuses

    def _ask(self, handles: Sequence[Handle]) -> dict[str, RunStatus]:
        keys = {handle.run_id: _key(handle) for handle in handles}
        try:
            found = self._call("poll", seconds=_POLL_SECONDS, patient=False, keys=keys)
        except TradewindError:
            return {handle.run_id: unreachable_status(handle, self._heard.get(handle.run_id)) for handle in handles}
        statuses, waits = {}, list[Handle]()
        for handle in handles:
            facts = found[handle.run_id]
            statuses[handle.run_id] = status_of(handle, facts)
            if statuses[handle.run_id].state is RunState.SUBMITTING and not facts["state"]:
                waits.append(handle)
            if facts["live"]:
                self._heard[handle.run_id] = time.time()
                if (facts["state"] or {}).get("state") == "waiting":
                    self._send_secrets(handle)
        return {**statuses, **self._waiting(waits)}

    def _waiting(self, handles: Sequence[Handle]) -> dict[str, RunStatus]:
        """The statuses of runs that have no node yet, with why."""
        try:
            nodes = self._call("room", seconds=_POLL_SECONDS, patient=False) if handles else []
        except TradewindError:
            return {}
        given = {handle.run_id: RayData.of(handle) for handle in handles}
        whys = {run_id: why_waits(data.wanted or {}, data.nodes, nodes) for run_id, data in given.items()}
        return {run_id: RunStatus(RunState.SUBMITTING, reason=why) for run_id, why in whys.items()}

    def _send_secrets(self, handle: Handle) -> None:
        """Send a run its secrets again: the process that submitted it may have died before it had."""
        secrets = RayData.of(handle).secrets
        if secrets is None:
            return
        try:
            values = resolve_secrets(secrets)
            self._call("begin", seconds=_POLL_SECONDS, key=_key(handle), name=handle.run_id, values=values)
        except TradewindError:  # the next poll tries again
            return

    def wait(self, handles: Sequence[Handle], seconds: float) -> None:
        """Return when a run may have changed: when one has ended, and every now and then."""
        keys = sorted(map(_key, handles))
        with suppress(TradewindError):  # time passes, and the next poll says more
            if keys and (self._awaited != keys or self._awaited_end is None or self._awaited_end.done()):
                namespace = self.settings.namespace
                self._awaited = keys
                self._awaited_end = self._linked().ask(
                    "await_one", patient=False, namespace=namespace, who=self._who, keys=keys
                )
                self._awaited_end.add_done_callback(self._on_end)
        self.doze(min(seconds, _LOOK_SECONDS))

    def _on_end(self, end: Future[Any]) -> None:
        if end is self._awaited_end:  # and not one that was answered since others are awaited now
            self._news += 1
            self.wake()

    def cancel(self, handle: Handle, reason: str = "") -> None:
        """End a run with all its processes; see `Runner.cancel`."""
        self._news += 1
        self._call("cancel", seconds=_CALL_SECONDS, key=_key(handle), name=handle.run_id, reason=reason)

    def find(self, owner: str | None) -> list[Handle]:
        """All runs of an owner, or of all, that are not settled; see `Runner.find`."""
        quoted = None if owner is None else quote(owner, safe="")
        futures.wait(self._forgetting, _CALL_SECONDS)
        records = self._call("find", seconds=_CALL_SECONDS, owner=quoted)
        found = {record["run_id"]: RayData.from_json(record) for record in records}
        if owner is None:
            # Who looks at everybody's runs must not give them values of his own under the same names.
            found = {run_id: replace(data, secrets=None) for run_id, data in found.items()}
        keys = {run_id: data.key(run_id) for run_id, data in found.items()}
        facts = self._call("poll", seconds=_CALL_SECONDS, keys=keys) if keys else {}
        return [with_expiry(data, facts[run_id]).handle(run_id, self.name) for run_id, data in found.items()]

    def read_log(self, handle: Handle, stream: str, offset: int) -> bytes:
        """Read a run's log from a byte on; see `StreamsLogs.read_log`."""
        text = self._call("read", seconds=_CALL_SECONDS, key=_key(handle), stream=stream, offset=offset)
        return b"" if text is None else str(text).encode("latin-1")

    def read_report(self, handle: Handle, offset: int) -> bytes:
        """Read a run's metrics file from a byte on; see `StreamsReports.read_report`."""
        return self.read_log(handle, METRICS, offset)

    def look_at_checkpoint(self, handle: Handle) -> CheckpointLook:
        """Look at the checkpoint files on a run's first node; see `KeepsCheckpoints.look_at_checkpoint`."""
        return _look(self._call("look_at_checkpoint", seconds=_CALL_SECONDS, key=_key(handle)))

    def copy_checkpoint(self, handle: Handle, folder: Path) -> CheckpointLook:
        """Bring the checkpoint files of a run's first node here; see `KeepsCheckpoints.copy_checkpoint`.

        They may have as many bytes as a working folder: they go the same way when the next run begins at them.
        """
        archive, limit = folder.with_name("checkpoint.tar"), self.settings.workdir_bytes
        given: dict[str, Any] = {"key": _key(handle), "limit": limit, "target": str(archive)}
        try:
            found = _look(self._call("fetch_checkpoint", seconds=_FETCH_SECONDS, **given))
            if not found.fingerprint:
                raise DeployError(CHANGES)
            bundle.unpack(archive, folder, limit_bytes=limit, lenient=True)
        finally:
            archive.unlink(missing_ok=True)
        return found

    def collect(self, handle: Handle, request: RunRequest) -> None:
        """Bring the files of a run into its folder; see `Runner.collect`."""
        folder = request.folder.absolute()
        archive, place = folder / "collected.tar", folder / "collected"
        limit = self.settings.output_bytes
        try:
            folder.mkdir(parents=True, exist_ok=True)
            given: dict[str, Any] = {"patterns": list(request.outputs), "limit": limit, "target": str(archive)}
            if not self._call("fetch", seconds=_FETCH_SECONDS, key=_key(handle), **given):
                return
            bundle.unpack(archive, place, limit_bytes=limit, lenient=True)
            for found in place.iterdir():
                target = folder / found.name
                if target.is_dir() and found.is_dir():
                    shutil.rmtree(target)
                found.replace(target)
        except OSError as error:
            raise folder_error(error, folder) from error
        finally:
            archive.unlink(missing_ok=True)
            shutil.rmtree(place, ignore_errors=True)

    def forget(self, handle: Handle) -> None:
        """Remove what the cluster keeps of a run that is settled, and its files there, while others go on.

        Failed removals are tried again by the next start of the search: the record of the run is removed last.
        """
        given: dict[str, Any] = {"namespace": self.settings.namespace, "key": _key(handle), "name": handle.run_id}
        self._forgetting = [call for call in self._forgetting if not call.done()]
        self._forgetting.append(self._linked().ask("forget", **given))
        self._heard.pop(handle.run_id, None)
        self._known.pop(_key(handle), None)

    def close(self) -> None:
        """Let go of the helper process; runs go on."""
        with self._lock:
            link, self._link = self._link, None
        if link is not None:
            link.close()


def _look(answer: Mapping[str, Any]) -> CheckpointLook:
    """A look at checkpoint files; clocks of machines may differ, time spans do not."""
    return (
        CheckpointLook(answer["fingerprint"], time.time() - answer["age"])
        if answer["fingerprint"]
        else CheckpointLook()
    )


def _key(handle: Handle) -> str:
    """The key of a run in the cluster's store."""
    return RayData.of(handle).key(handle.run_id)
