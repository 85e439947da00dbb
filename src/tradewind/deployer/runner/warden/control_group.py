"""Control groups of the kernel for runs: memory and parts of CPUs held exactly, and every process of a run found.

Version 2 is used where it is mounted, and that of version 1 for memory else. A group is made below this process's own
one or, where the kernel does not allow that, beside it, but never outside of a group that has limits itself, which
would be left then. Where no group may be made, the warden looks at the processes instead.
"""

from __future__ import annotations

import os

from tradewind.deployer.runner import procfs
from tradewind.deployer.runner.warden.files import quietly, text_of

ROOT = "/sys/fs/cgroup"
PREFIX = "tradewind-"
"""The beginning of the names of our groups."""

_PIECE = 1 << 16
_CLEAN_BYTES = 4 << 20
_PERIOD = 100_000
_LEAST_QUOTA = 1000
_ALL = ("memory.max", "memory.high", "cpu.max", "pids.max", "cpuset.cpus")


class ControlGroup:
    """A control group of one run.

    Args:
        folder: Its folder in the kernel's file system.
    """

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self._limits: tuple[int | None, float | None] = (None, None)
        self._kills = self._seen = 0  # of the runs before, and at the last look
        self._old = self._has("memory.limit_in_bytes")

    def clear(self) -> bool:
        """Make it ready for another run, which is quicker than to make a new one; False where that cannot be."""
        current = "memory.usage_in_bytes" if self._old else "memory.current"
        used = _number(f"{self.folder}/{current}")
        if used is None or used > _CLEAN_BYTES:
            return False
        self._kills = self._seen
        try:
            if self._old or self._has("memory.peak"):
                _write(f"{self.folder}/{'memory.max_usage_in_bytes' if self._old else 'memory.peak'}", "0")
        except OSError:  # a kernel that does not forget the peak
            return False
        return True

    def enter(self) -> None:
        """Take the calling process into the group.

        Raises:
            OSError: The kernel does not allow it.
        """
        _write(f"{self.folder}/cgroup.procs", "0")

    def limit(self, memory: int | None, cpus: float | None) -> None:
        """Set what its processes may have together.

        Args:
            memory: Bytes of memory, or None.
            cpus: CPUs, or None; only parts of one are held here, the warden chooses whole ones.

        Raises:
            OSError: The kernel does not allow it.
        """
        if self._limits == (memory, cpus):
            return
        self._limits = (memory, cpus)
        if memory is not None and not self._old:
            _write(f"{self.folder}/memory.max", str(memory))
            quietly(_write, f"{self.folder}/memory.swap.max", "0")
            quietly(_write, f"{self.folder}/memory.oom.group", "1")
        elif memory is not None:
            _write(f"{self.folder}/memory.limit_in_bytes", str(memory))
            quietly(_write, f"{self.folder}/memory.memsw.limit_in_bytes", str(memory))
        if cpus is not None and cpus != int(cpus) and self._has("cpu.max"):
            _write(f"{self.folder}/cpu.max", f"{max(_LEAST_QUOTA, round(cpus * _PERIOD))} {_PERIOD}")

    def _has(self, name: str) -> bool:
        return os.path.exists(f"{self.folder}/{name}")  # noqa: PTH110  (no pathlib in the warden)

    def overran(self) -> bool:
        """True when the kernel has killed something of this run for its memory."""
        for line in _read(f"{self.folder}/{'memory.oom_control' if self._old else 'memory.events'}").splitlines():
            key, _, value = line.partition(b" ")
            if key == b"oom_kill" and value.isdigit():
                self._seen = int(value)
        return self._seen > self._kills

    def peak(self) -> int | None:
        """The most memory that the group had, with files that the kernel kept for it; None where it does not say."""
        return _number(f"{self.folder}/{'memory.max_usage_in_bytes' if self._old else 'memory.peak'}")

    def kill(self) -> None:
        """Have the kernel kill all that is in the group at once, where it can."""
        quietly(_write, f"{self.folder}/cgroup.kill", "1")

    def remove(self) -> bool:
        """Remove the group; False while something is in it."""
        return remove_group(self.folder)


def group_pids(folder: str) -> list[int]:
    """The processes in a group of ours, whatever they did to hide."""
    return [int(word) for word in _read(f"{folder}/cgroup.procs").split()] if _is_ours(folder) else []


def remove_group(folder: str) -> bool:
    """Remove a group of ours; False while something is in it."""
    if _is_ours(folder):
        quietly(os.rmdir, folder)
    return not os.path.isdir(folder)  # noqa: PTH112


def _is_ours(folder: str) -> bool:
    """True for a group that a warden made: what a run's folder says of it may have been changed by the job."""
    return os.path.basename(folder).startswith(PREFIX)  # noqa: PTH119


class GroupMaker:
    """Makes control groups, as far as this process may.

    Args:
        root: The folder in which the kernel shows its groups.
        membership: The file in which it says in which of them this process is.
    """

    def __init__(self, root: str = ROOT, membership: str = "/proc/self/cgroup") -> None:
        self._root = root
        self._membership = membership
        self._place: str | None = None  # empty: there is none

    def give_up(self) -> None:
        """Make no more groups: the kernel lets no process into them."""
        self._place = ""

    def make(self, name: str) -> ControlGroup | None:
        """Make a group without limits, or none where that is not allowed.

        Args:
            name: The name of its folder, without the `PREFIX`; a warden's pid, start time and a number.
        """
        if self._place is None:
            self._place = self._find_place()
            self._sweep(self._place)
        if not self._place:
            return None
        folder = f"{self._place}/{PREFIX}{name}"
        try:
            os.mkdir(folder, 0o755)  # noqa: PTH102
        except OSError:
            self.give_up()
            return None
        return ControlGroup(folder)

    def _sweep(self, place: str) -> None:
        """Remove the empty groups of wardens that were killed."""
        for name in os.listdir(place) if place else ():  # noqa: PTH208
            words = name.removeprefix(PREFIX).split("-")
            numbers = [int(word) for word in words if word.isdigit()]
            if name.startswith(PREFIX) and len(words) == len(numbers) == 3 and not procfs.alive(*numbers[:2]):
                remove_group(f"{place}/{name}")

    def _find_place(self) -> str:
        """The folder below which groups can be made, or nothing."""
        own = dict[str, str]()
        for line in (text_of(self._membership) or "").splitlines():
            _, controllers, path = line.split(":", 2)
            for controller in controllers.split(","):
                own[controller] = path.rstrip("/")
        if os.path.exists(f"{self._root}/cgroup.controllers"):  # noqa: PTH110
            return self._unified(own.get("", ""))
        place = f"{self._root}/memory"
        if "memory" not in own:
            return ""
        # In a container its own group is what is mounted.
        inner = place + own["memory"]
        place = inner if os.path.isdir(inner) else place  # noqa: PTH112
        return place if os.access(place, os.W_OK) else ""

    def _unified(self, path: str) -> str:
        """Of version 2: the nearest group, from this process's own one up, that gives memory to those below it."""
        place = self._root + path
        while os.path.isdir(place):  # noqa: PTH112
            given = (text_of(f"{place}/cgroup.subtree_control") or "").split()
            if "memory" in given and os.access(place, os.W_OK) and os.access(f"{place}/cgroup.procs", os.W_OK):
                return place
            if place == self._root or _is_limited(place):
                return ""
            place = os.path.dirname(place)  # noqa: PTH120
        return ""


def _is_limited(place: str) -> bool:
    """True for a group with a limit of its own, which a run must not leave."""
    for name in _ALL:
        words = (text_of(f"{place}/{name}") or "max").split()
        if words and words[0] != "max":
            return True
    return False


def _read(path: str) -> bytes:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return b""
    try:
        return b"".join(iter(lambda: os.read(fd, _PIECE), b""))
    except OSError:  # the group is gone
        return b""
    finally:
        os.close(fd)


def _number(path: str) -> int | None:
    text = _read(path).strip()
    return int(text) if text.isdigit() else None


def _write(path: str, value: str) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(fd, value.encode())
    finally:
        os.close(fd)
