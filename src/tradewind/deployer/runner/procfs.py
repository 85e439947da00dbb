"""Looks at processes through /proc: which live, which belong to a run, how much memory they hold.

Nothing here imports more than the warden can afford at its start (see `tradewind.deployer.runner.warden.warden`).
A process is named by its pid together with its start time in clock ticks, so that a pid that the kernel gave to
somebody else is never mistaken for ours.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Collection, Iterable
from typing import NamedTuple

RUN_TAG = "TRADEWIND_RUN_ID"
OWNER_TAG = "TRADEWIND_OWNER"

_PAGE = os.sysconf("SC_PAGE_SIZE")


class ProcessStat(NamedTuple):
    """Some columns of ``/proc/PID/stat``.

    Attributes:
        state: The state as a letter: ``R``, ``S``, ``Z``, ...
        parent: Pid of the parent.
        group: Id of the process group.
        session: Id of the session.
        ticks: Start time, in clock ticks since boot.
    """

    state: str
    parent: int
    group: int
    session: int
    ticks: int


def _read(path: str) -> bytes | None:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        pieces = []
        while piece := os.read(fd, 65536):
            pieces.append(piece)
        return b"".join(pieces)
    except OSError:  # the process ended between open and read
        return None
    finally:
        os.close(fd)


def boot_id() -> str:
    """The kernel's id of this boot of the machine, which changes when it restarts."""
    return (_read("/proc/sys/kernel/random/boot_id") or b"").decode().strip()


def stat(pid: int) -> ProcessStat | None:
    """The state of a process, or None when there is none; a zombie has one."""
    text = _read(f"/proc/{pid}/stat")
    if not text:
        return None
    # The program's name stands in parentheses and may itself hold spaces and parentheses.
    columns = text[text.rindex(b")") + 2 :].split()
    return ProcessStat(columns[0].decode(), int(columns[1]), int(columns[2]), int(columns[3]), int(columns[19]))


def alive(pid: int, ticks: int) -> bool:
    """True when that very process is there and no zombie."""
    found = stat(pid)
    return found is not None and found.ticks == ticks and found.state not in "ZX"


def send(pid: int, ticks: int, number: int) -> bool:
    """Send a signal to that very process, never to another one that got its pid.

    Returns:
        False when it is gone.
    """
    try:
        fd = os.pidfd_open(pid)
    except OSError:
        return False
    try:
        # The descriptor holds the process; only now does the start time say whether it is the right one.
        if not alive(pid, ticks):
            return False
        signal.pidfd_send_signal(fd, number)
    except OSError:
        return False
    finally:
        os.close(fd)
    return True


def all_pids() -> list[int]:
    """The pids of all processes."""
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]  # noqa: PTH208  (no pathlib in the warden)


def _scanned_children() -> dict[int, list[int]]:
    table: dict[int, list[int]] = {}
    for pid in all_pids():
        found = stat(pid)
        if found is not None:
            table.setdefault(found.parent, []).append(pid)
    return table


_KERNEL_LISTS_CHILDREN = os.path.exists(f"/proc/self/task/{os.getpid()}/children")  # noqa: PTH110


def children(pid: int) -> list[int]:
    """The direct children of a process, zombies included."""
    if not _KERNEL_LISTS_CHILDREN:
        return _scanned_children().get(pid, [])
    try:
        threads = os.listdir(f"/proc/{pid}/task")  # noqa: PTH208
    except OSError:
        return []
    found: list[int] = []
    for thread in threads:
        found += map(int, (_read(f"/proc/{pid}/task/{thread}/children") or b"").split())
    return found


def tree(roots: list[int]) -> list[int]:
    """Some processes and all that descend from them."""
    found = list(dict.fromkeys(roots))
    known = set(found)
    table = None if _KERNEL_LISTS_CHILDREN else _scanned_children()
    for pid in found:  # the list grows while it is walked
        for child in children(pid) if table is None else table.get(pid, []):
            if child not in known:
                known.add(child)
                found.append(child)
    return found


def start_times(pids: Iterable[int]) -> dict[int, int]:
    """The start times of some processes by their pids, in clock ticks; those that are gone are left out."""
    return {pid: seen.ticks for pid in pids if (seen := stat(pid)) is not None}


def first_process_of(container: str) -> tuple[int, int] | None:
    """Pid and start time of the oldest process of a container of this machine, or None when it has none.

    Args:
        container: The engine's id of it, which is in the names of its control groups.
    """
    inside = [pid for pid in all_pids() if container.encode() in (_read(f"/proc/{pid}/cgroup") or b"")]
    times = {pid: ticks for pid, ticks in start_times(inside).items() if alive(pid, ticks)}
    return min(times.items(), key=lambda each: each[1], default=None)


def resident(pid: int) -> int:
    """Bytes of resident memory; pages shared with other processes count in full."""
    columns = (_read(f"/proc/{pid}/statm") or b"").split()
    return int(columns[1]) * _PAGE if len(columns) > 1 else 0


def proportional(pid: int) -> int:
    """Bytes of resident memory; a page shared by n processes counts as one n-th."""
    for line in (_read(f"/proc/{pid}/smaps_rollup") or b"").splitlines():
        if line.startswith(b"Pss:"):
            return int(line.split()[1]) * 1024
    return resident(pid)


def traffic() -> tuple[int, int]:
    """Bytes that this machine's network has carried since boot: over its interfaces, both ways, and within itself."""
    cables = within = 0
    for line in (_read("/proc/self/net/dev") or b"").splitlines()[2:]:
        name, _, columns = line.partition(b":")
        counts = columns.split()
        if len(counts) > 8 and name.strip() == b"lo":
            within += int(counts[0])
        elif len(counts) > 8:
            cables += int(counts[0]) + int(counts[8])
    return cables, within


def variable(pid: int, name: str) -> str | None:
    """A variable of the environment that a process was started with, as far as it may be read."""
    # All processes of a machine are asked for it, and some have an environment of megabytes.
    content = b"\0" + (_read(f"/proc/{pid}/environ") or b"")
    start = b"\0" + name.encode() + b"="
    at = content.find(start)
    if at < 0:
        return None
    end = content.find(b"\0", at + 1)
    return content[at + len(start) : end if end >= 0 else None].decode("utf-8", "surrogateescape")


def _writes_below(pid: int, folder: str) -> bool:
    for number in (1, 2):
        try:
            if os.readlink(f"/proc/{pid}/fd/{number}").startswith(folder + "/"):  # noqa: PTH115
                return True
        except OSError:
            continue
    return False


def members(
    run_id: str,
    owner: str = "",
    folder: str = "",
    leader: tuple[int, int] | None = None,
    grouped: Collection[int] = (),
) -> list[tuple[int, int]]:
    """All living processes of a run, whoever started them, as pid and start time.

    A process belongs to the run when its environment has the run's and the owner's tag, when its standard output or
    error is a file below the run's folder, when it is in the session of the run's first process, as long as that
    lives, or in its control group.

    Args:
        run_id: The run.
        owner: Its owner; if that is empty, tags are not looked at: others may have runs of the same name.
        folder: Its folder, or empty.
        leader: Pid and start time of its first process.
        grouped: The processes in its control group.
    """
    session = leader[0] if leader and alive(*leader) else None
    found = []
    for pid in all_pids():
        if pid == os.getpid():
            continue
        seen = stat(pid)
        if seen is None or seen.state in "ZX":
            continue
        tagged = owner != "" and variable(pid, RUN_TAG) == run_id and variable(pid, OWNER_TAG) == owner
        if tagged or pid in grouped or seen.session == session or (folder and _writes_below(pid, folder)):
            found.append((pid, seen.ticks))
    return found


def kill_members(
    run_id: str,
    owner: str = "",
    folder: str = "",
    leader: tuple[int, int] | None = None,
    grouped: Collection[int] = (),
) -> int:
    """Send SIGKILL to all living processes of a run; see `members`.

    Returns:
        The number of those processes.
    """
    found = members(run_id, owner, folder, leader, grouped)
    for pid, ticks in found:
        send(pid, ticks, signal.SIGKILL)
    return len(found)


def _namespace(pid: str) -> str:
    """The name of a process's namespace of processes; a container has one of its own."""
    try:
        return os.readlink(f"/proc/{pid}/ns/pid")  # noqa: PTH115
    except OSError:
        return ""


def runs_of(owner: str | None) -> set[tuple[str, str]]:
    """The tags (owner, run id) of all living processes of an owner, or of all owners; not of those in containers."""
    found = set()
    here = _namespace("self")
    for pid in all_pids():
        whose = variable(pid, OWNER_TAG)
        if whose and owner in (None, whose) and _namespace(str(pid)) == here:
            run_id = variable(pid, RUN_TAG)
            seen = stat(pid)
            if run_id and seen is not None and seen.state not in "ZX":
                found.add((whose, run_id))
    return found
