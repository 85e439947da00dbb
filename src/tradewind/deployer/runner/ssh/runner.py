"""Runs jobs on machines that are reached by SSH."""

from __future__ import annotations

import contextlib
import hashlib
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from tradewind import plugins
from tradewind.deployer.checkpoints import CheckpointLook
from tradewind.deployer.environment import METRICS
from tradewind.deployer.runner.base import (
    DrivesLoad,
    HasOwnFiles,
    KeepsCheckpoints,
    LimitsCpu,
    LimitsMemory,
    LimitsTime,
    OpensChannel,
    Runner,
    SeveralNodes,
    StreamsLogs,
    StreamsReports,
    SurvivesController,
    UsesMachines,
)
from tradewind.deployer.runner.exit_reasons import lost_status
from tradewind.deployer.runner.load_generators import with_load_usage
from tradewind.deployer.runner.resource_limits import cpus_of, memory_of
from tradewind.deployer.runner.run_files import RunNotes, file_name_of
from tradewind.deployer.runner.ssh import checkpoints, outputs
from tradewind.deployer.runner.ssh.load_generator import await_application, combined_status, load_command
from tradewind.deployer.runner.ssh.remote_machine import RemoteMachine
from tradewind.deployer.runner.ssh.settings import SshRunnerSettings
from tradewind.deployer.runner.ssh.status import SshData, status_of
from tradewind.deployer.runner.ssh.submit import APPLICATION, RemoteCommand, RunArchives, lay_out, start
from tradewind.deployer.ssh_connection import SshTarget, find_ssh
from tradewind.errors import DeployError, TradewindError
from tradewind.plugins import CallsNetwork
from tradewind.problem import Handle, Machine, Offer, RunRequest, RunState, RunStatus
from tradewind.utils.units import count

_POLL_SECONDS = 4.0
_FIND_SECONDS = 15.0
_SILENT_SECONDS = 0.5
_IDLE_SECONDS = 300.0
_SURE_SECONDS = 60.0
_STALE_SECONDS = 2.0  # a command that had not begun so long ago may have by now


class SshRunner(
    Runner,
    CallsNetwork,
    DrivesLoad,
    HasOwnFiles,
    KeepsCheckpoints,
    LimitsCpu,
    LimitsMemory,
    LimitsTime,
    OpensChannel,
    SeveralNodes,
    StreamsLogs,
    StreamsReports,
    SurvivesController,
    UsesMachines,
):
    """Runs jobs on machines that are reached by SSH: those of a provisioner, or some that you have.

    The machines need nothing but a POSIX shell and the usual tools (coreutils or busybox, grep, find, tar). A small
    script there starts each run in a folder and a session of its own, holds it to its limits, and lives on when the
    connection or the controlling process is gone.
    """

    name = "ssh"
    shell_variables = True
    Settings = SshRunnerSettings
    needs = (find_ssh,)
    settings: SshRunnerSettings

    def __init__(self, *, settings: plugins.Settings, data_folder: Path) -> None:
        super().__init__(settings=settings, data_folder=data_folder)
        self._notes = RunNotes(data_folder / "ssh" / "runs")
        self._cache = data_folder / "ssh" / "bundles"
        self._machines: dict[SshTarget, RemoteMachine] = {}
        self._ended: dict[str, RunStatus] = {}
        self._asked: dict[str, float] = {}
        self._forgotten: set[tuple[str, str]] = set()
        self._lock = threading.Lock()

    @property
    def kill_seconds(self) -> float:
        """The grace between SIGTERM and SIGKILL and the time in which the far side notices, in seconds."""
        return self.settings.grace + 1.0

    def refuses(self, offer: Offer, *, given: bool) -> str:
        """Refuse offers with too few hosts, of the provisioner or of its own; see `Runner.refuses`."""
        hosts = len(self.settings.hosts)
        if given or hosts >= max(1, offer.nodes):
            return ""
        return f"it has {count(hosts, 'host')} of its own, the provisioner gives none, {offer.nodes} wanted"

    def submit(self, request: RunRequest, machines: Sequence[Machine]) -> Handle:
        """Start a run; see `Runner.submit`."""
        targets, addresses = self._targets(request, machines)
        if request.load is not None and self.settings.load_hosts:
            targets = [targets[0], self._load_target(request)]
        name = file_name_of(request.run_id)
        noted = self._noted(request.owner, request.run_id)
        data = SshData(
            owner=request.owner,
            expires=request.expires,
            created=noted.created if noted is not None and noted.created else time.time(),
            price_per_hour=request.offer.hourly,
            name=name,
            machines=[target.to_json() for target in targets],
            load=request.load is not None,
            load_cpus=_load_cpus(request, shared=len(targets) == 1),
            program=request.argv[0],
            wall_seconds=request.limits.wall_seconds,
            memory_bytes=memory_of(request),
        )
        handle = data.handle(request.run_id, self.name)
        files = RunArchives.of(request, self._cache, self.settings)
        first, *others = every = [self._machine(target) for target in targets]
        # Nothing is noted, and so nothing counts as alive, as long as a machine has never answered.
        self._together(lambda machine: machine.far_folder, every)
        self._forgotten.discard((request.owner, request.run_id))
        self._notes.write(request.owner, request.run_id, data.to_json())
        if request.load is not None:
            self._start_both(request, handle, first, (others or [first])[0], files, addresses)
            return handle
        self._together(lambda machine: lay_out(machine, request, name, files), others)
        if request.checkpoint is not None:
            checkpoints.put_checkpoint(first, name, request.checkpoint)
        start(first, request, RemoteCommand(name, request.argv, {}), files, addresses, self.settings)
        return handle

    def _start_both(
        self,
        request: RunRequest,
        handle: Handle,
        first: RemoteMachine,
        second: RemoteMachine,
        files: RunArchives,
        addresses: Sequence[str],
    ) -> None:
        assert request.load is not None
        name, load = file_name_of(request.run_id), request.load
        spare = load.ready_seconds + 60.0
        application = RemoteCommand(name + APPLICATION, request.argv, {}, spare_seconds=spare)
        start(first, request, application, files, addresses, self.settings)
        if await_application(first, application.name, load):
            part = load_command(name, load, addresses[0] if second is not first else "127.0.0.1", second is not first)
            start(second, request, part, files, addresses, self.settings)

    def _targets(self, request: RunRequest, machines: Sequence[Machine]) -> tuple[list[SshTarget], list[str]]:
        """The SSH targets of a run's machines, and their addresses among themselves."""
        given = self.settings.ssh.facts()
        found = [machine for machine in machines if machine.address or "ssh" in machine.data]
        if found:
            targets = [SshTarget.of(machine, given) for machine in found]
            return targets, [str(m.data.get("private_address") or m.address) for m in found]
        before = self._noted(request.owner, request.run_id)
        if before is not None:
            return before.targets, [target.host for target in before.targets]
        hosts = self.settings.hosts
        if len(hosts) < request.offer.nodes or not hosts:
            raise DeployError(
                f"runner ssh has {count(len(hosts), 'host')}, {request.offer.nodes} wanted",
                hint="list hosts in the provisioner's settings, or in the runner's",
                retryable=False,
            )
        used = Counter(t.host for note in self._notes.all(None) for t in SshData.from_json(note.content).targets)
        chosen = sorted(hosts, key=lambda host: used[host.host])[: request.offer.nodes]
        targets = [SshTarget(host=host.host, **host.facts(self.settings.ssh)) for host in chosen]
        return targets, [target.host for target in targets]

    def _load_target(self, request: RunRequest) -> SshTarget:
        """The machine of a run's load generator: always the same for the same run, and another one for the next."""
        hosts = self.settings.load_hosts
        host = hosts[int(hashlib.sha256(request.run_id.encode()).hexdigest(), 16) % len(hosts)]
        return SshTarget(host=host.host, **host.facts(self.settings.ssh))

    def _machine(self, target: SshTarget) -> RemoteMachine:
        with self._lock:
            if target not in self._machines:
                self._drop_idle()
                self._machines[target] = RemoteMachine(
                    target,
                    self.settings.far_folder,
                    connect_seconds=self.settings.ssh.connect_seconds,
                    patience=self.settings.patience,
                    news=self.wake,
                )
            return self._machines[target]

    def _drop_idle(self) -> None:
        """Close the connections to machines that were not used for long: most of those machines are gone."""
        for target, machine in list(self._machines.items()):
            if machine.used < time.monotonic() - _IDLE_SECONDS:
                del self._machines[target]
                threading.Thread(target=machine.close, name="tradewind-ssh-close", daemon=True).start()

    def _together(self, work: Callable[[RemoteMachine], Any], machines: Iterable[RemoteMachine]) -> None:
        """Call a function for some machines at the same time; the first error is raised when all calls have ended."""
        listed = list(machines)
        if len(listed) < 2:
            for machine in listed:
                work(machine)
            return
        with ThreadPoolExecutor(min(32, len(listed))) as pool:
            for task in [pool.submit(work, machine) for machine in listed]:
                task.result()

    def _noted(self, owner: str, run_id: str) -> SshData | None:
        found = self._notes.read(owner, run_id)
        return SshData.from_json(found) if found else None

    def _data(self, handle: Handle) -> SshData | None:
        data = SshData.of(handle)
        return data if data.machines else self._noted(data.owner, handle.run_id)

    def _parts(self, data: SshData) -> list[tuple[RemoteMachine, str]]:
        """The machine and the name of each command of a run; that of the run itself comes first."""
        machines = [self._machine(target) for target in data.targets]
        if not data.load:
            return [(machines[0], data.name)]
        return [((machines[1:] or machines)[0], data.name), (machines[0], data.name + APPLICATION)]

    def poll(self, handles: Sequence[Handle]) -> Mapping[str, RunStatus]:
        """The statuses of some runs, with one request to each machine; see `Runner.poll`."""
        known: dict[str, tuple[SshData, list[tuple[RemoteMachine, str]]]] = {}
        wanted: dict[RemoteMachine, list[str]] = {}
        for handle in handles:
            data = None if handle.run_id in self._ended else self._data(handle)
            if data is not None:
                parts = self._parts(data)
                known[handle.run_id] = data, parts
                for machine, name in parts:
                    wanted.setdefault(machine, []).append(name)
        threads = [machine.poll(names) for machine, names in wanted.items()]
        end = time.monotonic() + _POLL_SECONDS
        for thread in threads:
            if thread is not None:
                thread.join(max(0.0, end - time.monotonic()))
        found = {}
        for handle in handles:
            if handle.run_id not in self._ended and handle.run_id in known:
                found[handle.run_id] = self._judge(handle.run_id, *known[handle.run_id])
            else:
                found[handle.run_id] = self._ended.get(handle.run_id) or lost_status("nothing is known of where it was")
        return found

    def _judge(self, run_id: str, data: SshData, parts: list[tuple[RemoteMachine, str]]) -> RunStatus:
        statuses = []
        for machine, name in parts:
            age, words = machine.answer(name) or (float("inf"), "")
            expired = data.expires is not None and time.time() > data.expires + _SURE_SECONDS
            if expired and age > _SURE_SECONDS and not words.startswith("result "):
                # Whatever became of the machine, the run has been ended there.
                return lost_status(f"{machine.target.host} did not answer until it had expired")
            if not words or (words == "waiting" and age > _STALE_SECONDS):
                return RunStatus(RunState.EXECUTING)
            status = status_of(words, data, machine.target.host)
            if words.startswith("running"):
                status = RunStatus(status.state, runtime=status.runtime + age)
            statuses.append(status)
        status = statuses[0]
        if len(parts) > 1:
            _, words = parts[0][0].answer(parts[0][1]) or (0.0, "none")
            status, to_end = combined_status(statuses[0], statuses[1], started=words != "none")
            for i in to_end:
                self._end(*parts[i])
            if status.state.ended:
                load, application = statuses
                used = with_load_usage(application.usage, load.usage, load.runtime, data.load_cpus)
                status = replace(status, usage=used)
        if status.state.ended:
            self._ended[run_id] = status
        return status

    def _end(self, machine: RemoteMachine, name: str, state: str = "cancelled") -> None:
        """Request the end of a command, in a thread, at most once every five seconds."""
        now = time.monotonic()
        if now < self._asked.get(name, float("-inf")) + 5.0:
            return
        self._asked[name] = now

        def ask() -> None:
            with contextlib.suppress(TradewindError):
                machine.ask("cancel", name, state)

        threading.Thread(target=ask, name="tradewind-ssh-cancel", daemon=True).start()

    def wait(self, handles: Sequence[Handle], seconds: float) -> None:
        """Return when a far side has reported an end, or after ``seconds``."""
        end = time.monotonic() + seconds
        parts = [part for handle in handles if (data := self._data(handle)) for part in self._parts(data)]
        if any(handle.run_id in self._ended for handle in handles):
            return
        if parts and not all(machine.talks for machine, _ in parts):
            end = min(end, time.monotonic() + _SILENT_SECONDS)
        if not any(name in machine.ended for machine, name in parts):
            self.doze(end - time.monotonic())

    def cancel(self, handle: Handle, reason: str = "") -> None:
        """End a run with all its processes; see `Runner.cancel`."""
        data = self._data(handle)
        if data is None or handle.run_id in self._ended:
            return
        for machine, name in self._parts(data):
            # A machine that does not answer now gets the request again while the end is waited for.
            with contextlib.suppress(DeployError):
                machine.ask("cancel", name, "cancelled", seconds=_POLL_SECONDS)
                machine.drop(name)

    def find(self, owner: str | None) -> list[Handle]:
        """All runs of an owner, or of all, that were noted here or that our own hosts know; see `Runner.find`."""
        noted = {(note.owner, note.run_id): SshData.from_json(note.content) for note in self._notes.all(owner)}
        found = {key: data for key, data in noted.items() if key not in self._forgotten}
        every = (*self.settings.hosts, *self.settings.load_hosts)
        own = [SshTarget(host=host.host, **host.facts(self.settings.ssh)) for host in every]
        others = [target for data in found.values() for target in data.targets]
        lists: dict[SshTarget, list[str]] = {}

        def ask(target: SshTarget) -> None:
            with contextlib.suppress(TradewindError):
                lists[target] = self._machine(target).ask("list")

        threads = [threading.Thread(target=ask, args=(t,), daemon=True) for t in dict.fromkeys([*own, *others])]
        for thread in threads:
            thread.start()
        end = time.monotonic() + _FIND_SECONDS
        for thread in threads:
            thread.join(max(0.0, end - time.monotonic()))
        for target, lines in list(lists.items()):
            for line in lines:
                name, word, *facts = line.split(" ")
                if name in self._machine(target).forgotten:
                    continue
                whose, load = unquote(word), name.endswith(APPLICATION)
                name = name.removesuffix(APPLICATION)
                if owner in (None, whose) and (whose, unquote(name)) not in found:
                    # Machines need not agree on what time it is: the far side says time spans.
                    expires, created = [time.time() + float(span) if span else None for span in (*facts, "", "")[:2]]
                    found[whose, unquote(name)] = SshData(
                        owner=whose,
                        expires=expires,
                        created=created,
                        name=name,
                        machines=[target.to_json()],
                        load=load,
                    )
        return [data.handle(run_id, self.name) for (_, run_id), data in found.items()]

    def read_log(self, handle: Handle, stream: str, offset: int) -> bytes:
        """Read a run's log from a byte on; see `StreamsLogs.read_log`."""
        data = self._data(handle)
        if data is None:
            return b""
        machine, name = self._parts(data)[0]
        return outputs.read_log(machine, name, stream, offset)

    def read_report(self, handle: Handle, offset: int) -> bytes:
        """Read a run's metrics file from a byte on; see `StreamsReports.read_report`."""
        return self.read_log(handle, METRICS, offset)

    def open_channel(self, handle: Handle, argv: Sequence[str]) -> socket.socket:
        """Run a command in a run's working folder over the connection to its machine; see `OpensChannel`."""
        data = self._data(handle)
        if data is None:
            raise DeployError(f"nothing is known of where run {handle.run_id} is", retryable=False)
        machine, name = self._parts(data)[0]
        return machine.link.open_stream(argv, folder=f"{machine.far_folder}/runs/{name}/work")

    def look_at_checkpoint(self, handle: Handle) -> CheckpointLook:
        """Look at the checkpoint files on a run's first machine; see `KeepsCheckpoints.look_at_checkpoint`."""
        data = self._data(handle)
        return CheckpointLook() if data is None else checkpoints.look_at_checkpoint(*self._parts(data)[0])

    def copy_checkpoint(self, handle: Handle, folder: Path) -> CheckpointLook:
        """Bring the checkpoint files of a run's first machine here; see `KeepsCheckpoints.copy_checkpoint`."""
        data = self._data(handle)
        if data is None:
            return CheckpointLook()
        return checkpoints.copy_checkpoint(*self._parts(data)[0], folder, int(self.settings.bring_gib * 2**30))

    def collect(self, handle: Handle, request: RunRequest) -> None:
        """Bring the files of a run from its machines into its folder; see `Runner.collect`."""
        data = self._data(handle)
        if data is not None:
            outputs.collect(self._parts(data), request, int(self.settings.bring_gib * 2**30))

    def forget(self, handle: Handle) -> None:
        """Remove the note of a settled run, and its files on its machines."""
        data = self._data(handle)
        self._ended.pop(handle.run_id, None)
        if data is None:
            return
        machines = [self._machine(target) for target in data.targets]
        names = [data.name, data.name + APPLICATION] if data.load else [data.name]
        for name in names:
            self._asked.pop(name, None)
        owner, left = data.owner, Counter({"machines": len(machines)})
        self._forgotten.add((owner, handle.run_id))

        def done() -> None:
            with self._lock:
                left["machines"] -= 1
                last = left["machines"] == 0
            if last and (owner, handle.run_id) in self._forgotten:
                # A process that is killed before this finds the note, and forgets the run once more.
                self._notes.remove(owner, handle.run_id)

        for machine in machines:
            machine.forget(names, done)

    def close(self) -> None:
        """End all connections; runs are not touched."""
        with self._lock:
            machines = list(self._machines.values())
            self._machines.clear()
        for machine in machines:
            machine.close()


def _load_cpus(request: RunRequest, *, shared: bool) -> float | None:
    """CPUs that a run's load generator is held to, or None; on a shared host only those that it has of its own."""
    if request.load is None:
        return None
    return request.load.cpus or (None if shared else cpus_of(request))
