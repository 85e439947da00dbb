"""Runs jobs in containers, with Docker or Podman, here or on other machines."""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from tradewind import plugins
from tradewind.deployer.checkpoints import CheckpointLook
from tradewind.deployer.runner.base import (
    DrivesLoad,
    FolderCheckpoints,
    HasOwnFiles,
    LimitsCpu,
    LimitsMemory,
    LimitsTime,
    NeedsImages,
    OpensChannel,
    Runner,
    StreamsLogs,
    SurvivesController,
    UsesImages,
    UsesMachines,
)
from tradewind.deployer.runner.docker import checkpoints, names
from tradewind.deployer.runner.docker.channel import open_channel
from tradewind.deployer.runner.docker.engine import (
    LOOK_SECONDS,
    ContainerEngine,
    EngineAddress,
    default_address,
    find_engine,
    find_package,
    machine_address,
)
from tradewind.deployer.runner.docker.file_transfer import (
    LogPosition,
    collect,
    containers_of,
    read_container_log,
    remove_containers,
)
from tradewind.deployer.runner.docker.monitor import ContainerMonitor, EventListener, runs_of
from tradewind.deployer.runner.docker.queue import ContainerQueue, wanted_slot
from tradewind.deployer.runner.docker.reaper import ensure_reaper
from tradewind.deployer.runner.docker.settings import DockerSettings
from tradewind.deployer.runner.docker.status import DockerData
from tradewind.deployer.runner.docker.submit import ContainerStart
from tradewind.deployer.runner.resource_limits import fits_here
from tradewind.deployer.runner.run_files import RunNotes
from tradewind.deployer.runner.warden.slots import Slot
from tradewind.errors import DeployError, TradewindError, UnreachableError
from tradewind.plugins import CallsNetwork
from tradewind.problem import Handle, Machine, Offer, RunRequest, RunState, RunStatus

_DEAF_SECONDS = 0.25
_ROOM_SECONDS = 0.05
"""Between two looks for room, while a run waits for it."""


class DockerRunner(
    Runner,
    CallsNetwork,
    DrivesLoad,
    FolderCheckpoints,
    HasOwnFiles,
    LimitsCpu,
    LimitsMemory,
    LimitsTime,
    NeedsImages,
    OpensChannel,
    StreamsLogs,
    SurvivesController,
    UsesImages,
    UsesMachines,
):
    """Runs each job in a container of its image, held to the CPUs and the memory of its offer.

    The engine is Docker or Podman: of this machine, or of the machine that a provisioner gives, through an SSH tunnel.
    The job starts in ``/tradewind/work``: the working folder itself with this machine's engine, a copy of it elsewhere.
    Memory is limited with swap off. The process that polls enforces the wall time, and when none does, a small process
    of this machine; if this machine is turned off, a container on another machine outlives both.
    """

    name = "docker"
    Settings = DockerSettings
    needs = (find_package, find_engine)
    settings: DockerSettings

    def __init__(self, *, settings: plugins.Settings, data_folder: Path) -> None:
        super().__init__(settings=settings, data_folder=data_folder)
        self._folder = data_folder / "docker"
        self._notes = RunNotes(self._folder / "runs")
        self._lock = threading.Lock()
        self._monitors: dict[EngineAddress, ContainerMonitor] = {}
        self._listeners: dict[EngineAddress, EventListener] = {}
        self._log_positions: dict[tuple[str, str], LogPosition] = {}
        self._queue = ContainerQueue(self.wake)

    @property
    def kill_seconds(self) -> float:
        """The grace between SIGTERM and SIGKILL and the time in which the end is noticed, in seconds."""
        return self.settings.grace + 2.0

    def refuses(self, offer: Offer, *, given: bool) -> str:
        """Refuse several machines, two engines at once, and other providers' offers here; see `Runner.refuses`."""
        if given and offer.nodes > 1:
            return f"it runs a job on one machine, not on {offer.nodes}"
        if given and self.settings.host:
            return f"the provisioner gives it machines, and its setting host names {self.settings.host}: leave one out"
        if given or self.settings.host or os.environ.get("DOCKER_HOST") or offer.provider == "local":
            return ""
        return f"it would run on this machine's engine, which is no machine of {offer.provider}"

    def room(self, offer: Offer, running: Sequence[Offer]) -> bool:
        """True when this machine has the CPUs and the memory; offers of other providers have machines of their own."""
        return any(each.provider != "local" for each in (*running, offer)) or fits_here(offer, running)

    def _monitor(self, address: EngineAddress) -> ContainerMonitor:
        with self._lock:
            if address not in self._monitors:
                self._monitors[address] = ContainerMonitor(ContainerEngine(address, self.settings), self.settings)
            return self._monitors[address]

    def _listen(self, address: EngineAddress) -> None:
        with self._lock:
            if address not in self._listeners:
                self._listeners[address] = EventListener(self._monitors[address].engine, self._woken)

    def _address_of(self, handle: Handle) -> EngineAddress:
        return DockerData.of(handle).address or default_address(self.settings)

    def _data(self, run_id: str, owner: str, expires: float | None, folder: str, address: EngineAddress) -> DockerData:
        # Whoever asks now may not be who asked it to start.
        note = self._notes.read(owner, run_id)
        asked = DockerData.of(Handle.from_json(note)).asked if note else 0.0
        return DockerData(owner=owner, expires=expires, folder=folder, engine=address.to_json(), asked=asked)

    def submit(self, request: RunRequest, machines: Sequence[Machine]) -> Handle:
        """Start a run; see `Runner.submit`."""
        if len(machines) > 1:
            raise DeployError(
                f"runner docker runs on one machine, and {len(machines)} were made",
                hint="allow one node in the space, or use a runner for several nodes",
                retryable=False,
            )
        far = [machine for machine in machines if machine.address and machine.address != "localhost"]
        address = machine_address(self.settings, far[0]) if far else default_address(self.settings)
        monitor = self._monitor(address)
        folder = str(request.folder.absolute())
        if address.local and self._notes.read(request.owner, request.run_id) is None:
            # What was never noted was never asked for: where there is no engine nothing is left to be given back.
            monitor.engine.facts()
        data = self._data(request.run_id, request.owner, request.expires, folder, address)
        # The engine, or its machine, may not answer when the run is looked for.
        self._note(request.run_id, data)
        self._listen(address)

        def asked(moment: float, container: str) -> None:
            nonlocal data
            data = replace(data, asked=moment)
            # Before it is asked: what is killed right after it still knows when the run began to be paid for.
            self._note(request.run_id, data)
            self._queue.note_container(request.run_id, container)

        def start(slot: Slot | None) -> Handle:
            nonlocal data
            expires = request.expires
            if slot is not None:  # it may have waited, and its expiry counts from its beginning
                expires = max(expires, time.time() + lasts)
            data = replace(data, expires=expires)
            ports = begin.run(slot, expires)
            if request.limits.wall_seconds is not None and self.settings.reaper:
                ensure_reaper(self._folder, address, self.settings)
            return replace(data, ports=dict(ports)).handle(request.run_id, self.name)

        lasts = request.expires - time.time()
        begin = ContainerStart(monitor.engine, self.settings, request, self._folder / "bundles", asked)
        wanted = wanted_slot(request, monitor.engine, share=self.settings.share)
        if wanted is None:
            return start(None)
        begin.prepare()
        return self._queue.enter(request.run_id, wanted, start) or data.handle(request.run_id, self.name)

    def _note(self, run_id: str, data: DockerData) -> None:
        self._notes.write(data.owner, run_id, data.handle(run_id, self.name).to_json())

    def poll(self, handles: Sequence[Handle]) -> Mapping[str, RunStatus]:
        """The statuses of some runs; see `Runner.poll`."""
        groups: dict[EngineAddress, list[Handle]] = {}
        self._queue.advance()
        waits = {handle.run_id: self._queue.status(handle.run_id) for handle in handles}
        found = {run_id: status for run_id, status in waits.items() if status is not None}
        for handle in [self._queue.newest(each) for each in handles if each.run_id not in found]:
            try:
                groups.setdefault(self._address_of(handle), []).append(handle)
            except TradewindError:  # the settings are wrong now: what runs there cannot be known
                found[handle.run_id] = RunStatus(RunState.EXECUTING)
        monitors = [(self._monitor(address), group) for address, group in groups.items()]
        if len(monitors) <= 1:
            for monitor, group in monitors:
                found |= monitor.poll(group)
        else:
            with ThreadPoolExecutor(min(32, len(monitors))) as pool:
                for answer in pool.map(lambda pair: pair[0].poll(pair[1]), monitors):
                    found |= answer
        for run_id, status in found.items():
            if status.state.ended:
                self._queue.end(run_id)  # before anybody hears of it, and starts the next one
        return found

    def wait(self, handles: Sequence[Handle], seconds: float) -> None:
        """Return when a container has started or ended, or after ``seconds``."""
        until = time.monotonic() + seconds
        with suppress(TradewindError):
            for address in {self._address_of(handle) for handle in handles}:
                until = min(until, time.monotonic() + self._monitor(address).next_change())
                self._listen(address)
        deaf = not all(listener.listening for listener in self._listeners.values())
        left = until - time.monotonic()
        pause = min(left, _DEAF_SECONDS) if deaf else left
        until = time.monotonic() + pause
        while self._queue.waits and (pause := until - time.monotonic()) > _ROOM_SECONDS:
            if self.doze(_ROOM_SECONDS):
                return
            self._queue.advance()
        self.doze(pause)

    def cancel(self, handle: Handle, reason: str = "") -> None:
        """End a run with all its containers; see `Runner.cancel`."""
        if self._queue.cancel(handle.run_id, reason):
            return
        self._monitor(self._address_of(handle)).cancel(handle.run_id)

    def find(self, owner: str | None) -> list[Handle]:
        """All runs of an owner, or of all, whose containers are not removed; see `Runner.find`."""
        noted = [Handle.from_json(note.content) for note in self._notes.all(owner)]
        found: dict[str, Handle] = {}
        silent = set()
        with suppress(UnreachableError):  # what is noted below counts; there may be no engine on this machine
            self._find_at(default_address(self.settings), owner, found)
        for address in {self._address_of(handle) for handle in noted}:
            try:
                self._find_at(address, owner, found)
            except TradewindError:
                silent.add(address)
        for handle in noted:
            address = self._address_of(handle)
            if handle.run_id in found:
                continue
            if address in silent and (address.local or time.time() < (DockerData.of(handle).expires or 0.0)):
                found[handle.run_id] = handle  # unknown counts as alive
            else:
                self._notes.remove(DockerData.of(handle).owner, handle.run_id)
        if owner is None:
            return [replace(DockerData.of(each), look=True).handle(each.run_id, self.name) for each in found.values()]
        return list(found.values())

    def _find_at(self, address: EngineAddress, owner: str | None, found: dict[str, Handle]) -> None:
        wanted = names.RUN if owner is None else f"{names.OWNER}={owner}"
        for run_id, (labels, made) in runs_of(self._monitor(address).engine, wanted).items():
            whose, expires = labels.get(names.OWNER, ""), _number(labels.get(names.EXPIRES, ""))
            data = self._data(run_id, whose, expires, labels.get(names.FOLDER, ""), address)
            price = _number(labels.get(names.PRICE, ""))
            data = replace(data, created=None if made is None else float(made), price_per_hour=price)
            found[run_id] = data.handle(run_id, self.name)

    def collect(self, handle: Handle, request: RunRequest) -> None:
        """Bring the logs, and where files are copied those too, into the run's folder; see `Runner.collect`.

        Raises:
            DeployError: The container is gone, or its files are too large.
        """
        if self._queue.status(handle.run_id) is not None:  # it was never started
            return
        collect(self._monitor(self._address_of(handle)).engine, request, self.settings.copy_limit)

    def read_log(self, handle: Handle, stream: str, offset: int) -> bytes:
        """Read a run's log from a byte on; see `StreamsLogs.read_log`."""
        engine = self._monitor(self._address_of(handle)).engine
        found = [row for row in containers_of(engine, handle.run_id) if row.role == names.JOB]
        if not found:
            return b""
        key = (found[0].id, stream)
        client = engine.client(LOOK_SECONDS)
        try:
            piece, self._log_positions[key] = read_container_log(
                client, found[0].id, stream, offset, self._log_positions.get(key, LogPosition())
            )
        except Exception as error:
            raise engine.trouble(error) from error
        finally:
            client.close()
        return piece

    def checkpoint_parent(self, handle: Handle) -> Path | None:
        """The run's folder, which containers of this machine's engine see; see `FolderCheckpoints`."""
        folder = DockerData.of(handle).folder
        return Path(folder) if folder else None

    def look_at_checkpoint(self, handle: Handle) -> CheckpointLook:
        """Look at the checkpoint files of a run; see `KeepsCheckpoints.look_at_checkpoint`."""
        engine = self._monitor(self._address_of(handle)).engine
        if engine.mounts:
            return super().look_at_checkpoint(handle)
        return checkpoints.look_at_checkpoint(engine, handle.run_id)

    def copy_checkpoint(self, handle: Handle, folder: Path) -> CheckpointLook:
        """Bring the checkpoint files of a run here; see `KeepsCheckpoints.copy_checkpoint`."""
        engine = self._monitor(self._address_of(handle)).engine
        if engine.mounts:
            return super().copy_checkpoint(handle, folder)
        return checkpoints.copy_checkpoint(engine, handle.run_id, folder, self.settings.copy_limit)

    def open_channel(self, handle: Handle, argv: Sequence[str]) -> socket.socket:
        """Run a command in a run's container; see `OpensChannel`."""
        return open_channel(self._monitor(self._address_of(handle)).engine, handle.run_id, argv)

    def forget(self, handle: Handle) -> None:
        """Remove the containers and the network of a run that is settled; its folder stays."""
        address = self._address_of(handle)
        monitor = self._monitor(address)
        monitor.drop(handle.run_id)
        self._queue.forget(handle.run_id)
        try:
            remove_containers(monitor.engine, handle.run_id)
        except DeployError:
            # A machine that was given back took its containers along; elsewhere the next sweep removes them.
            if address.local:
                return
        self._notes.remove(DockerData.of(handle).owner, handle.run_id)

    def close(self) -> None:
        """Close the connections; containers go on. What waited for a slot waits no more."""
        self._queue.close()
        for listener in self._listeners.values():
            listener.close()
        for monitor in self._monitors.values():
            monitor.close()
        self._listeners.clear()
        self._monitors.clear()


def _number(text: str) -> float | None:
    """The number in a label; None where there is none."""
    try:
        return float(text)
    except ValueError:
        return None
