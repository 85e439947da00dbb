"""Follows the runs of one engine: one list for all of them, and a closer look at those that changed.

Events of the engine say when containers start and end. What they use is read from the kernel where the engine is on
this machine, and otherwise asked of the engine.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tradewind.deployer.runner.docker import names
from tradewind.deployer.runner.docker.engine import CALL_SECONDS, LOOK_SECONDS, ContainerEngine
from tradewind.deployer.runner.docker.file_transfer import containers_of
from tradewind.deployer.runner.docker.load_generator import LoadStarter, load_status, readiness
from tradewind.deployer.runner.docker.names import RUN, InspectedContainer, ListedContainer
from tradewind.deployer.runner.docker.settings import DockerSettings
from tradewind.deployer.runner.docker.status import DockerData, ended_status
from tradewind.deployer.runner.exit_reasons import lost_status
from tradewind.deployer.runner.load_generators import with_load_usage
from tradewind.errors import DeployError, TradewindError
from tradewind.problem import Handle, RunState, RunStatus, Usage

_RECONNECT_SECONDS = 1.0
_ROOT = Path("/sys/fs/cgroup")
_LOOKS = 50
_SAMPLES, _FAR_SAMPLES = 20, 3
_NOT_FOUND = 404
_REACH_SECONDS = 2.0
_AGAIN_SECONDS = 30.0


class EventListener:
    """Listens to the events of one engine in a thread.

    Args:
        engine: The engine.
        heard: The event that is set when a container of a run has started or ended, and when listening begins.
    """

    def __init__(self, engine: ContainerEngine, heard: threading.Event) -> None:
        self._engine = engine
        self._heard = heard
        self._closed = threading.Event()
        self._stream: Any = None
        self.listening = False
        self._thread = threading.Thread(target=self._listen, name="tradewind-docker-events", daemon=True)
        self._thread.start()

    def _listen(self) -> None:
        while not self._closed.is_set():
            with suppress(Exception):  # whatever ends a stream: it is opened again
                self._hear()
            self.listening = False
            self._closed.wait(_RECONNECT_SECONDS)

    def _hear(self) -> None:
        try:
            client = self._engine.client(10.0)
        except TradewindError:
            return
        try:
            filters = {"label": [RUN], "type": ["container"], "event": ["start", "die"]}
            self._stream = client.events(filters=filters, since=int(time.time()) - 1)
            self.listening = True
            # What happened before is found by the next poll.
            self._heard.set()
            for _ in self._stream:
                if self._closed.is_set():
                    return
                self._heard.set()
        finally:
            client.close()

    def close(self) -> None:
        """Stop listening."""
        self._closed.set()
        stream = self._stream
        if stream is not None:
            with suppress(Exception):
                stream.close()
        self._thread.join(timeout=5)


@dataclass(frozen=True, slots=True)
class CgroupCounters:
    """The files with the kernel's counters of one container.

    Attributes:
        peak: The file with the most memory, in bytes.
        cpu: The file with the processor time.
        unified: True for cgroup v2, whose file of processor time has several lines.
        disk: The file with the bytes read from and written to disks.
        network: The file with the bytes of its network; None where it shares the machine's.
    """

    peak: Path
    cpu: Path
    unified: bool
    disk: Path
    network: Path | None

    def read(self) -> Usage | None:
        """Read the usage so far; None when the container has ended or the files cannot be read."""
        try:
            peak = int(self.peak.read_bytes())
            text = self.cpu.read_text()
            profile = self._disk() | self._network()
            if self.unified:
                words = dict(line.split() for line in text.splitlines())
                return Usage(peak, int(words["usage_usec"]) / 1e6, profile)
            return Usage(peak, int(text) / 1e9, profile)
        except (OSError, ValueError, KeyError):
            return None

    def _disk(self) -> dict[str, float]:
        """Bytes by all devices; nothing where the kernel does not count them."""
        try:
            text = self.disk.read_text()
        except OSError:
            return {}
        if self.unified:
            pairs = [word.split("=") for word in text.split() if "=" in word]
            names = (("rbytes", "read_bytes"), ("wbytes", "written_bytes"))
            return {ours: float(sum(int(n) for name, n in pairs if name == theirs)) for theirs, ours in names}
        rows = [line.split() for line in text.splitlines() if line.count(" ") == 2]
        names = (("Read", "read_bytes"), ("Write", "written_bytes"))
        return {ours: float(sum(int(row[2]) for row in rows if row[1] == theirs)) for theirs, ours in names}

    def _network(self) -> dict[str, float]:
        """Bytes in both directions, without what stays within the container."""
        try:
            lines = self.network.read_text().splitlines()[2:] if self.network else []
        except OSError:
            return {}
        rows = {name.strip(): counts.split() for name, _, counts in (line.partition(":") for line in lines)}
        cables = [(int(row[0]), int(row[8])) for name, row in rows.items() if name != "lo" and len(row) > 8]
        return {"network_bytes": float(sum(map(sum, cables)))} if rows else {}


def counters_of(pid: int, container: str) -> CgroupCounters | None:
    """The counters of a container of this machine's engine; None where there are none.

    Args:
        pid: The number of the container's first process, or 0.
        container: The id of the container.
    """
    try:
        lines = Path(f"/proc/{pid}/cgroup").read_text().splitlines() if pid else []
    except OSError:
        return None
    groups: dict[str, str] = {}
    for line in lines:
        _, kinds, place = line.split(":", 2)
        groups |= {kind: place.lstrip("/") for kind in kinds.split(",")}
    if "memory" in groups and container in groups["memory"]:
        cpu = groups.get("cpuacct", groups["memory"])
        return CgroupCounters(
            _ROOT / "memory" / groups["memory"] / "memory.max_usage_in_bytes",
            _ROOT / "cpuacct" / cpu / "cpuacct.usage",
            False,
            _ROOT / "blkio" / groups.get("blkio", groups["memory"]) / "blkio.throttle.io_service_bytes",
            _own_network(pid),
        )
    if container in groups.get("", ""):
        # A container may have groups within its own: the outermost that has its id counts all of them.
        parts = groups[""].split("/")
        own = next(i for i, part in enumerate(parts) if container in part)
        top = _ROOT.joinpath(*parts[: own + 1])
        return CgroupCounters(top / "memory.peak", top / "cpu.stat", True, top / "io.stat", _own_network(pid))
    return None


def _own_network(pid: int) -> Path | None:
    """The file with the counters of a container's network; None for one that uses the machine's."""
    try:
        theirs, ours = (Path(f"/proc/{one}/ns/net").readlink() for one in (pid, "self"))
    except OSError:
        return None
    return Path(f"/proc/{pid}/net/dev") if theirs != ours else None


def usage_from_stats(stats: Mapping[str, Any]) -> Usage:
    """The usage in an engine's answer to ``stats``."""
    memory = stats.get("memory_stats") or {}
    peak = memory.get("max_usage") or memory.get("usage")
    cpu = ((stats.get("cpu_stats") or {}).get("cpu_usage") or {}).get("total_usage")
    profile: dict[str, float] = {}
    rows = (stats.get("blkio_stats") or {}).get("io_service_bytes_recursive") or []
    for theirs, ours in (("read", "read_bytes"), ("write", "written_bytes")):
        found = [float(row["value"]) for row in rows if str(row.get("op", "")).lower() == theirs]
        profile |= {ours: sum(found)} if found else {}
    cables = (stats.get("networks") or {}).values()
    if cables:
        profile["network_bytes"] = float(sum(one.get("rx_bytes", 0) + one.get("tx_bytes", 0) for one in cables))
    return Usage(int(peak) if peak else None, cpu / 1e9 if cpu else None, profile)


def larger_usage(old: Usage, new: Usage) -> Usage:
    """The larger of two usages, figure by figure: usage only grows."""
    peaks = [each.peak_memory_bytes for each in (old, new) if each.peak_memory_bytes is not None]
    times = [each.cpu_seconds for each in (old, new) if each.cpu_seconds is not None]
    names = dict.fromkeys((*old.profile, *new.profile))
    profile = {name: max(old.profile.get(name, 0.0), new.profile.get(name, 0.0)) for name in names}
    return Usage(max(peaks, default=None), max(times, default=None), profile)


@dataclass(slots=True)
class _KnownContainer:
    """A running container: its facts, its counters (None where the engine is asked instead), and its usage so far."""

    facts: InspectedContainer
    counters: CgroupCounters | None
    usage: Usage = field(default_factory=Usage)


class ContainerMonitor:
    """Tells the statuses of the runs of one engine, and ends those that are over their time or cancelled.

    Args:
        engine: The engine.
        settings: The settings of the runner.
    """

    def __init__(self, engine: ContainerEngine, settings: DockerSettings) -> None:
        self.engine = engine
        self._settings = settings
        self._lock = threading.RLock()
        self._known: dict[str, _KnownContainer] = {}
        self._ended: dict[str, tuple[str, RunStatus]] = {}
        self._terminated: dict[str, tuple[float, float]] = {}  # by container: when it got SIGTERM, and its grace
        self._looked_at: frozenset[str] = frozenset()
        self._unstarted: dict[str, float] = {}
        self._load_starters: dict[str, LoadStarter] = {}
        self._reaching: threading.Thread | None = None
        self._asked: dict[str, float] = {}
        self._looks = 0
        self._turn = 0

    def poll(self, handles: Sequence[Handle]) -> Mapping[str, RunStatus]:
        """The statuses of some runs, by run id; those of before, or executing, when the engine does not answer."""
        from docker.errors import APIError

        with self._lock:
            wanted = {handle.run_id: handle for handle in handles}
            known = {run_id: DockerData.of(handle) for run_id, handle in wanted.items()}
            self._asked |= {run_id: data.asked for run_id, data in known.items()}
            self._looked_at = frozenset(run_id for run_id, data in known.items() if data.look)
            try:
                if not self._reachable():
                    return self._unknown(wanted)
                rows = self._list({data.owner for data in known.values()})
                self._looks = _LOOKS
                found: dict[str, dict[str, ListedContainer]] = {}
                for row in rows:
                    if row.run_id in wanted:
                        found.setdefault(row.run_id, {})[row.role] = row
                self._sample([row.id for group in found.values() for row in group.values() if row.alive])
                return {run_id: self._status(run_id, found.get(run_id, {})) for run_id in wanted}
            except (DeployError, APIError):
                return self._unknown(wanted)

    def _reachable(self) -> bool:
        """False while a connection is down; it is opened again without anybody waiting for long."""
        if self.engine.answering:
            return True
        if self._reaching is None or not self._reaching.is_alive():
            self._reaching = threading.Thread(target=self._reach, name="tradewind-docker-tunnel", daemon=True)
            self._reaching.start()
        self._reaching.join(_REACH_SECONDS)
        return self.engine.answering

    def _reach(self) -> None:
        with suppress(TradewindError):
            self.engine.call(lambda client: client.ping())

    def _unknown(self, wanted: Mapping[str, Handle]) -> dict[str, RunStatus]:
        now = self.engine.now()
        began = {known.facts.labels.get(names.RUN): known.facts.begun for known in self._known.values()}
        return {
            run_id: self._ended[run_id][1]
            if run_id in self._ended
            else RunStatus(RunState.EXECUTING, runtime=max(0.0, now - began.get(run_id, now)))
            for run_id in wanted
        }

    def _list(self, owners: set[str]) -> list[ListedContainer]:
        [*one] = owners
        label = f"{names.OWNER}={one[0]}" if len(one) == 1 and one[0] else names.RUN
        rows = self.engine.call(lambda client: client.containers(all=True, filters={"label": [label]}))
        return [ListedContainer.of(row) for row in rows if names.RUN in (row.get("Labels") or {})]

    def _status(self, run_id: str, rows: Mapping[str, ListedContainer]) -> RunStatus:
        job, application = rows.get(names.JOB), rows.get(names.APPLICATION)
        if job is None:
            if application is not None and application.alive:
                self._end_overdue(application)
                return RunStatus(RunState.EXECUTING)
            return lost_status("there is no container of it")
        ended = self._ended.get(run_id)
        if ended is not None and ended[0] == job.id and not job.alive:
            return ended[1]
        if self._looks <= 0 and job.id not in self._known:
            return RunStatus(RunState.EXECUTING)
        try:
            status = self._load(job, application) if names.LOAD in job.labels else self._plain(job)
        except LookupError:
            return lost_status("its container was removed")
        if status.state.ended:
            self._ended[run_id] = (job.id, status)
        return status

    def _plain(self, job: ListedContainer) -> RunStatus:
        if job.alive:
            known = self._look(job)
            facts, now = known.facts, self.engine.now()
            if job.cancelled or (facts.wall is not None and now - facts.started >= facts.wall):
                self._end_overdue(job)
            return RunStatus(RunState.EXECUTING, runtime=max(0.0, now - facts.begun), usage=known.usage)
        now = time.monotonic()
        if (
            job.state == "created"
            and not job.cancelled
            and now < self._unstarted.get(job.id, -math.inf) + _AGAIN_SECONDS
        ):
            return RunStatus(RunState.SUBMITTING)
        facts = self._facts(job.id)
        if facts.state in ("running", "paused"):
            return RunStatus(RunState.EXECUTING)
        if not facts.started and not facts.error and not job.cancelled:
            self._unstarted[job.id] = now
            return RunStatus(RunState.SUBMITTING)
        return ended_status(
            facts,
            cancelled=job.cancelled,
            podman=self.engine.podman,
            usage=self._used(job.id),
            from_outside=lambda: self._from_outside(facts),
        )

    def _load(self, job: ListedContainer, application: ListedContainer | None) -> RunStatus:
        """The status of a run with a load generator; the load is started, and overdue containers are ended."""
        if application is None:
            if job.alive:
                self._end_overdue(job)
                return RunStatus(RunState.EXECUTING)
            if job.cancelled:
                return RunStatus(RunState.CANCELLED)
            return lost_status("the application's container is not there")
        if application.alive or job.alive:
            return self._load_running(job, application)
        facts, driven = self._facts(job.id), self._facts(application.id)
        if not driven.started and not driven.error and not job.cancelled:
            return RunStatus(RunState.SUBMITTING)
        return load_status(
            facts,
            driven,
            cancelled=job.cancelled,
            podman=self.engine.podman,
            usage=with_load_usage(
                self._used(application.id),
                self._used(job.id),
                facts.finished - facts.started if facts.started else 0.0,
                readiness(facts.labels).get("cpus"),
            ),
            from_outside=self._from_outside,
        )

    def _load_running(self, job: ListedContainer, application: ListedContainer) -> RunStatus:
        known = self._look(application) if application.alive else None
        if job.alive:
            self._look(job)  # its own usage is measured, too: nobody is to measure the generator
        seen, now = known or self._known.get(application.id), self.engine.now()
        runtime = max(0.0, now - seen.facts.begun) if seen else 0.0
        wall = known.facts.wall if known else None
        over = job.cancelled or (known is not None and wall is not None and now - known.facts.started >= wall)
        if over and job.run_id in self._load_starters:
            self._load_starters.pop(job.run_id).stop()
        if application.alive and (over or job.state not in ("created", "running")):
            self._end_overdue(application)
        if job.alive and (over or not application.alive):
            self._end_overdue(job)
        if known is not None and job.state == "created" and not over and job.run_id not in self._looked_at:
            starter = self._load_starters.get(job.run_id)
            if starter is None or not starter.waiting:
                self._load_starters[job.run_id] = LoadStarter(self.engine, known.facts, lambda: self._begin(job.id))
        return RunStatus(RunState.EXECUTING, runtime=runtime, usage=self._used(application.id))

    def _begin(self, container: str) -> None:
        """Start a load, unless it was started or cancelled in the meantime."""
        answer = self.engine.call(lambda client: client.inspect_container(container))
        cancelled = str(answer["Name"]).endswith(names.cancelled_name(""))
        if InspectedContainer.of(answer).state == "created" and not cancelled:
            self.engine.call(lambda client: client.start(container), CALL_SECONDS)

    def _look(self, row: ListedContainer) -> _KnownContainer:
        if row.id not in self._known:
            facts = self._facts(row.id)
            counters = counters_of(facts.pid, facts.id) if self.engine.address.local else None
            self._known[row.id] = _KnownContainer(facts, counters)
            self._measure(row.id)
        return self._known[row.id]

    def _facts(self, container: str) -> InspectedContainer:
        from docker.errors import APIError

        self._looks -= 1
        try:
            answer = self.engine.call(lambda client: client.inspect_container(container))
            run_id = ((answer.get("Config") or {}).get("Labels") or {}).get(names.RUN, "")
            return InspectedContainer.of(answer, self._asked.get(run_id, 0.0))
        except APIError as error:
            if error.status_code == _NOT_FOUND:
                raise LookupError(container) from error
            raise

    def _used(self, container: str) -> Usage:
        known = self._known.get(container)
        return known.usage if known else Usage()

    def _sample(self, alive: Sequence[str]) -> None:
        """Measure some of the containers, others the next time: following many must cost little."""
        known = [(container, self._known[container]) for container in alive if container in self._known]
        read = [container for container, each in known if each.counters is not None]
        asked = [container for container, each in known if each.counters is None]
        for some, count in ((read, _SAMPLES), (asked, _FAR_SAMPLES)):
            for i in range(min(len(some), count)):
                self._measure(some[(self._turn * count + i) % len(some)])
        self._turn += 1

    def _measure(self, container: str) -> None:
        known = self._known[container]
        if known.counters is not None:
            read = known.counters.read()
            known.usage = larger_usage(known.usage, read) if read else known.usage
        else:
            with suppress(Exception):  # a figure that is nice to have
                stats: Mapping[str, Any] = self.engine.call(
                    lambda client: client.stats(container, stream=False, one_shot=True)
                )
                known.usage = larger_usage(known.usage, usage_from_stats(stats))

    def _from_outside(self, facts: InspectedContainer) -> bool:
        """True when somebody but the job ended a container, or the engine did not see how it ended."""
        filters = {"container": [facts.id], "event": ["kill", "die"]}
        try:
            events = self.engine.call(
                lambda client: [
                    event.get("Action") or event.get("status")
                    for event in client.events(
                        since=f"{int(facts.started) - 1}",
                        until=f"{self.engine.now():.6f}",
                        filters=filters,
                        decode=True,
                    )
                ]
            )
        except Exception:
            return True
        return "kill" in events or not {"die", "died"} & set(events)

    def _end_overdue(self, row: ListedContainer) -> None:
        """End a container whose time is over, unless it is another owner's that is only looked at."""
        if row.id in self._terminated or row.run_id not in self._looked_at:
            self._end(row)

    def _end(self, row: ListedContainer) -> None:
        """End a container: SIGTERM, and SIGKILL when its grace is over; called again until it has ended."""
        now = time.monotonic()
        if row.id not in self._terminated:
            grace = names.grace_of(row.labels, self._settings.grace)
            self._terminated[row.id] = now, grace
            self._signal(row.id, "SIGTERM" if grace > 0 else "SIGKILL")
            return
        asked, grace = self._terminated[row.id]
        if now - asked >= grace:
            self._signal(row.id, "SIGKILL")

    def _signal(self, container: str, signal: str) -> None:
        from docker.errors import APIError

        self._measure(container) if container in self._known else None
        with suppress(APIError):  # it has ended, or is gone
            self.engine.call(lambda client: client.kill(container, signal), CALL_SECONDS)

    def cancel(self, run_id: str) -> None:
        """End a run; one that has ended keeps its status.

        Raises:
            DeployError: The engine does not answer.
        """
        from docker.errors import APIError

        with self._lock:
            rows = {row.role: row for row in containers_of(self.engine, run_id, LOOK_SECONDS)}
            job = rows.get(names.JOB)
            going = any(row.alive for row in rows.values())
            if job is not None and not job.cancelled and (going or job.state == "created"):
                name = names.cancelled_name(names.container_name(run_id))
                with suppress(APIError):
                    self.engine.call(lambda client: client.rename(job.id, name), CALL_SECONDS)
            starter = self._load_starters.pop(run_id, None)
            if starter is not None:
                starter.stop()
            for row in rows.values():
                if row.alive:
                    self._end(row)

    def next_change(self) -> float:
        """Seconds until a run is to get SIGTERM or SIGKILL."""
        with self._lock:
            now = self.engine.now()
            walls = [
                known.facts.started + known.facts.wall - now
                for container, known in self._known.items()
                if known.facts.wall is not None
                and container not in self._terminated
                and known.facts.labels.get(names.RUN) not in self._looked_at
            ]
            ends = [asked + grace - time.monotonic() for asked, grace in self._terminated.values()]
            return max(0.01, min([*walls, *ends], default=math.inf))

    def drop(self, run_id: str) -> None:
        """Forget all that is known of a run."""
        with self._lock:
            self._asked.pop(run_id, None)
            ended = self._ended.pop(run_id, None)
            if ended is not None:
                self._unstarted.pop(ended[0], None)
            starter = self._load_starters.pop(run_id, None)
            gone_now = [key for key, known in self._known.items() if known.facts.labels.get(names.RUN) == run_id]
            for container in gone_now:
                self._known.pop(container)
                self._terminated.pop(container, None)
        if starter is not None:
            starter.stop()

    def close(self) -> None:
        """Stop following; containers go on."""
        for starter in self._load_starters.values():
            starter.stop()
        self._load_starters.clear()
        self.engine.close()


def runs_of(engine: ContainerEngine, label: str) -> dict[str, tuple[Mapping[str, str], float | None]]:
    """The labels of all runs that an engine has containers or networks of, and the times of creation, by run id.

    Args:
        engine: The engine.
        label: The label, or ``label=value``, that they must have.

    Returns:
        By run id the labels, and the time when its container was made, in seconds since the epoch, or None.
    """
    found: dict[str, tuple[Mapping[str, str], float | None]] = {}
    filters = {"label": [label]}
    for network in engine.call(lambda client: client.networks(filters=filters)):
        labels = network.get("Labels") or {}
        found[labels.get(names.RUN, "")] = labels, None
    for row in engine.call(lambda client: client.containers(all=True, filters=filters)):
        labels = row.get("Labels") or {}
        found[labels.get(names.RUN, "")] = labels, row.get("Created")
    found.pop("", None)
    return found
