"""What containers use, read from the kernel where the engine is on this machine, else asked of the engine."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tradewind.problem import Usage

_ROOT = Path("/sys/fs/cgroup")


@dataclass(frozen=True, slots=True)
class CgroupCounters:
    """The files in which the kernel counts for one container.

    Attributes:
        peak: The most memory, in bytes.
        cpu: The processor time.
        unified: True for cgroup v2, whose file of processor time has several lines.
        disk: What its disks have read and written.
        network: What its network has carried; None where it shares the machine's.
    """

    peak: Path
    cpu: Path
    unified: bool
    disk: Path
    network: Path | None

    def read(self) -> Usage | None:
        """What it used so far; None when it has ended, or may not be known."""
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
    """The files for a container of this machine's engine; None where there are none."""
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
    """Where the kernel counts what a container's network carries; None for one that uses the machine's."""
    try:
        theirs, ours = (Path(f"/proc/{one}/ns/net").readlink() for one in (pid, "self"))
    except OSError:
        return None
    return Path(f"/proc/{pid}/net/dev") if theirs != ours else None


def usage_from_stats(stats: Mapping[str, Any]) -> Usage:
    """What an engine's statistics say of a container."""
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
    """Both together: what was used only grows."""
    peaks = [each.peak_memory_bytes for each in (old, new) if each.peak_memory_bytes is not None]
    times = [each.cpu_seconds for each in (old, new) if each.cpu_seconds is not None]
    names = dict.fromkeys((*old.profile, *new.profile))
    profile = {name: max(old.profile.get(name, 0.0), new.profile.get(name, 0.0)) for name in names}
    return Usage(max(peaks, default=None), max(times, default=None), profile)
