"""What containers use, read from the kernel where the engine is on this machine, else asked of the engine."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tradewind.problem import Usage

_ROOT = Path("/sys/fs/cgroup")


@dataclass(frozen=True, slots=True)
class Meters:
    """The files in which the kernel counts for one container.

    Attributes:
        peak: The most memory, in bytes.
        cpu: The processor time.
        unified: True for cgroup v2, whose file of processor time has several lines.
    """

    peak: Path
    cpu: Path
    unified: bool

    def read(self) -> Usage | None:
        """What it used so far; None when it has ended, or may not be known."""
        try:
            peak = int(self.peak.read_bytes())
            text = self.cpu.read_text()
            if self.unified:
                words = dict(line.split() for line in text.splitlines())
                return Usage(peak, int(words["usage_usec"]) / 1e6)
            return Usage(peak, int(text) / 1e9)
        except (OSError, ValueError, KeyError):
            return None


def meters_of(pid: int, container: str) -> Meters | None:
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
        return Meters(
            _ROOT / "memory" / groups["memory"] / "memory.max_usage_in_bytes",
            _ROOT / "cpuacct" / cpu / "cpuacct.usage",
            False,
        )
    if container in groups.get("", ""):
        # A container may have groups within its own: the outermost that has its id counts all of them.
        parts = groups[""].split("/")
        own = next(i for i, part in enumerate(parts) if container in part)
        top = _ROOT.joinpath(*parts[: own + 1])
        return Meters(top / "memory.peak", top / "cpu.stat", True)
    return None


def usage_of(stats: Mapping[str, Any]) -> Usage:
    """What an engine's statistics say of a container."""
    memory = stats.get("memory_stats") or {}
    peak = memory.get("max_usage") or memory.get("usage")
    cpu = ((stats.get("cpu_stats") or {}).get("cpu_usage") or {}).get("total_usage")
    return Usage(int(peak) if peak else None, cpu / 1e9 if cpu else None)


def larger(old: Usage, new: Usage) -> Usage:
    """Both together: what was used only grows."""
    peaks = [each.peak_memory_bytes for each in (old, new) if each.peak_memory_bytes is not None]
    times = [each.cpu_seconds for each in (old, new) if each.cpu_seconds is not None]
    return Usage(max(peaks, default=None), max(times, default=None))
