"""Slots of this machine: which run has which CPUs, how much memory and which GPUs, whoever started it.

One file, the registry, has an entry for each run that has a slot, and for each that waits for one. All wardens of a
user share it, and a lock is held while it is changed. An entry names the run's warden: a run ends with its warden, so
that the entry of one that is gone, or was of an earlier boot, counts no more. Nothing has to be given back after a
crash.

Who waits is served in turn, and a search that gets a slot goes behind all others that wait: each of them gets one
before it gets its next. What those before a run wait for is kept free, so that small runs cannot starve a large one.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import sys
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

from tradewind.deployer.runner import procfs
from tradewind.deployer.runner.warden.files import Document, StartRefused, quietly

FREED = "freed"
"""The file whose time of change is that of the last change by which somebody who waits may have got room."""

LOOK_SECONDS = 1.0
"""Whoever waits asks again so often: a warden that was killed gives nothing back."""

_FILE = "slots"
_HEAD, _HALF = 64, 1 << 20
_FORGOTTEN = 5 * LOOK_SECONDS
_SLACK = 1e-6
_MOST_NAMES = 3


_Warden = tuple[str, int, int]
"""A warden: the boot, its pid and its start time."""


class Slot(NamedTuple):
    """The part of its machine that a run has.

    Attributes:
        cpus: The numbers of its CPUs; none where it takes no account of them.
        devices: The names of its GPUs.
    """

    cpus: list[int]
    devices: list[str]


def choose_devices(free: Mapping[str, float], amount: float) -> list[str]:
    """Choose devices for a run: whole ones that nobody has, or the one with the least room that is enough for a part.

    Args:
        free: By device, the part of it that nobody has, in the order in which they are taken.
        amount: A whole number of devices, or a part of one.

    Returns:
        The devices; none where there is no room.
    """
    if amount < 1:
        enough = [name for name, room in free.items() if room >= amount - _SLACK]
        return [min(enough, key=lambda name: free[name])] if enough else []
    whole = [name for name, room in free.items() if room >= 1 - _SLACK]
    wanted = round(amount)
    return whole[:wanted] if len(whole) >= wanted else []


def choose_cpus(free: Mapping[int, float], amount: float) -> list[int]:
    """Choose the CPUs that a run is held to: as `choose_devices`, or else those on which there is most room."""
    count = max(1, int(-(-(amount - _SLACK) // 1)))
    by_name = {str(cpu): room for cpu, room in free.items()}
    found = [int(name) for name in choose_devices(by_name, amount if amount < 1 else float(count))]
    return found or sorted(free, key=lambda cpu: (-free[cpu], cpu))[:count]


class _Room:
    """The room that a machine has beside the runs that have slots.

    Args:
        wanted: What is asked for, with the memory and the GPUs of the machine.
        every: The CPUs that may be used.
        entries: The runs that have slots.
    """

    def __init__(self, wanted: Document, every: Collection[int], entries: Sequence[Document]) -> None:
        self.cpus = dict.fromkeys(sorted(every), 1.0)
        self.memory = float(wanted["memory_here"])
        self.devices = dict.fromkeys(wanted["devices_here"], 1.0)
        for each in entries:
            for cpu in each["cpus"]:
                if cpu in self.cpus:
                    self.cpus[cpu] -= each["cpu"] / len(each["cpus"])
            self.memory -= each["memory"]
            for name in each["devices"]:
                if name in self.devices:
                    self.devices[name] -= min(1.0, each["device"])
        self.cpu = sum(self.cpus.values())
        self._memory_here = float(wanted["memory_here"])

    def lacks(self, wanted: Document) -> str:
        """The kind of resource of which there is too little: ``cpu``, ``memory`` or ``device``; empty if none.

        Who asks for more than the machine has gets all of it.
        """
        if self._cpus_of(wanted) > self.cpu + _SLACK:
            return "cpu"
        if wanted["memory"] and min(wanted["memory"], self._memory_here) > self.memory:
            return "memory"
        if wanted["device"] and not choose_devices(self.devices, wanted["device"]):
            return "device"
        return ""

    def keep(self, waits: Document) -> None:
        """Keep what somebody waits for, as far as it is there."""
        self.cpu -= self._cpus_of(waits)
        self.memory -= min(waits["memory"], self._memory_here)
        if waits["device"]:
            kept = choose_devices(self.devices, waits["device"])
            # Those that it gets are not all free yet: no other one is taken before.
            for name in kept or self.devices:
                self.devices[name] -= min(1.0, waits["device"]) if kept else 1.0

    def take(self, wanted: Document) -> Slot:
        """The slot of a run for which there is room."""
        cpus = choose_cpus(self.cpus, wanted["cpu"]) if wanted["cpu"] else []
        return Slot(cpus, choose_devices(self.devices, wanted["device"]) if wanted["device"] else [])

    def _cpus_of(self, wanted: Document) -> float:
        return min(float(wanted["cpu"]), len(self.cpus))


def _why(lack: str, wanted: Document, every: Collection[int], entries: Sequence[Document]) -> str:
    """The words for what has no room beside the runs that have slots."""
    named = {"cpu": "cpus", "memory": "memory", "device": "devices"}[lack]
    of = _names(wanted, [each for each in entries if each[named]])
    room = _Room(wanted, every, entries)
    if lack == "cpu":
        return f"{len(room.cpus) - room.cpu:.3g} of {len(room.cpus)} CPUs are used by {of}"
    if lack == "memory":
        here = room.memory + sum(each["memory"] for each in entries)
        used = here - max(0.0, room.memory)
        return f"{used / 2**30:.1f} of {here / 2**30:.1f} GiB of memory are used by {of}"
    return f"the GPUs are used by {of}"


def _names(wanted: Document, others: Sequence[Document]) -> str:
    """The searches of some runs in words; those of other groups have no name for who is of one."""
    names: dict[str, None] = {}
    for each in others:
        known = not wanted["group"] or each["group"] == wanted["group"]
        own = each["search"] == wanted["search"]
        names["this search" if own else f"search {each['name']}" if known else "others"] = None
    shown = sorted(names, key=lambda name: name == "this search")[:_MOST_NAMES]
    more = [f"{len(names) - _MOST_NAMES} more"] if len(names) > _MOST_NAMES else []
    *first, last = [*shown, *more]
    return f"{', '.join(first)} and {last}" if first else last


class SlotRegistry:
    """The slots of the runs of one warden, in a registry that all share.

    Args:
        identity: What tells this warden from others: ``boot``, and ``warden`` as pid and start time.
    """

    def __init__(self, identity: Mapping[str, object]) -> None:
        self._identity: Document = {key: identity[key] for key in ("boot", "warden")}
        self._me = _holder(self._identity)
        self._folders: dict[str, str] = {}  # run that has a slot or waits for one -> its registry

    def take(self, run_id: str, wanted: Document, every: Collection[int]) -> Slot:
        """Take a slot for a run.

        Args:
            run_id: The run.
            wanted: The ``folder`` of the registry; ``cpu``, ``memory`` in bytes and ``device`` (GPUs), each 0 for none;
                what is here of the latter two: ``memory_here``, ``devices_here``; whose it is: ``search``, its ``name``
                and its ``group``.
            every: The CPUs that it may have.

        Raises:
            StartRefused: There is no room (``busy``, with the words why): it waits, and its turn is kept while it goes
                on asking.
            OSError: The registry cannot be written.
        """
        folder = wanted["folder"]
        os.makedirs(folder, mode=0o700, exist_ok=True)  # noqa: PTH103
        with _opened(folder, self._me) as registry:
            found = [each for each in registry.waits if self._is_of(each, run_id)]
            ticket = found[0] if found else {**self._entry(run_id, wanted), "seen": 0.0}
            rank = registry.waits.index(ticket) if found else len(registry.waits)
            now = time.monotonic()
            ahead = [each for each in registry.waits[:rank] if now - each["seen"] < _FORGOTTEN]
            room = _Room(wanted, every, registry.entries)
            lack = room.lacks(ticket)
            why = _why(lack, wanted, every, registry.entries) if lack else ""
            for each in ahead:
                room.keep(each)
            self._folders[run_id] = folder
            if lack or room.lacks(ticket):
                registry.waits = [*registry.waits[:rank], {**ticket, "seen": now}, *registry.waits[rank + 1 :]]
                raise StartRefused("busy", words=why or f"the next slot is kept for {_names(wanted, ahead)}")
            slot = room.take(ticket)
            amount = min(ticket["cpu"], len(room.cpus))
            registry.entries.append({**self._entry(run_id, wanted), **slot._asdict(), "cpu": amount})
            others = [each for each in registry.waits if not self._is_of(each, run_id)]
            registry.waits = sorted(others, key=lambda each: each["search"] == wanted["search"])
            registry.freed = bool(others)
        return slot

    def give_back(self, run_id: str) -> None:
        """Let others have the slot of a run that has ended, or waits no more; one that had none changes nothing."""
        if (folder := self._folders.pop(run_id, None)) is None:
            return
        try:
            with _opened(folder, self._me) as registry:
                for held in (registry.entries, registry.waits):
                    held[:] = [each for each in held if not self._is_of(each, run_id)]
                registry.freed = bool(registry.waits)
        except FileNotFoundError:  # it went with the run that this one was started by
            return
        except OSError as error:  # it counts as taken until this process ends, which others have to look after
            sys.stderr.write(f"{run_id}: its slot cannot be given back: {error}\n")
        _remove(inner_folder(folder, run_id))

    def give_up(self, running: Collection[str]) -> None:
        """Wait no more for any slot: nobody is there who would start those runs.

        Args:
            running: The runs that go on.
        """
        for run_id in self._folders.keys() - set(running):
            self.give_back(run_id)

    def _is_of(self, entry: Document, run_id: str) -> bool:
        return bool(entry["run_id"] == run_id and _holder(entry) == self._me)

    def _entry(self, run_id: str, wanted: Document) -> Document:
        kept = ("cpu", "memory", "device", "search", "name", "group")
        return {**self._identity, "run_id": run_id, **{key: wanted[key] for key in kept}, "cpus": [], "devices": []}


def inner_folder(folder: str, run_id: str) -> str:
    """The registry of what a run itself starts: it shares the CPUs of that run, and takes no more of the machine."""
    return f"{folder}/in-{run_id}"


def describe_slots(folder: str, every: Collection[int]) -> str:
    """The use of a machine in words: who has how many of its CPUs, and how many runs wait.

    Args:
        folder: The registry.
        every: The CPUs of the machine that may be used.

    Raises:
        OSError: It cannot be read.
    """
    try:
        file = os.open(f"{folder}/{_FILE}", os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return "no run has any"
    try:
        fcntl.flock(file, fcntl.LOCK_SH)
        found = _parsed(_read(file)[1])
    finally:
        os.close(file)
    living = _living(found, (procfs.boot_id(), 0, 0))
    entries = [each for each in found.entries if each["cpus"] and _holder(each) in living]
    waits = sum(_holder(each) in living for each in found.waits)
    more = f"; {waits} {'run waits' if waits == 1 else 'runs wait'}" if waits else ""
    nobody = {"memory_here": 0, "devices_here": [], "search": "", "group": ""}
    return (_why("cpu", nobody, every, entries) if entries else "no run has any") + more


class _Registry:
    """The content of a registry: the runs that have slots, and those that wait, the next one first."""

    def __init__(self, entries: list[Document], waits: list[Document]) -> None:
        self.entries, self.waits = entries, waits
        self.freed = False


@contextmanager
def _opened(folder: str, me: _Warden) -> Iterator[_Registry]:
    """Hold the lock on a registry, without the entries of wardens that are gone; what is changed is written back."""
    file = _open(f"{folder}/{_FILE}")
    try:
        fcntl.flock(file, fcntl.LOCK_EX)
        half, text = _read(file)
        found = _parsed(text)
        living = _living(found, me)
        kept = [[each for each in part if _holder(each) in living] for part in (found.entries, found.waits)]
        registry = _Registry(*kept)
        gone = [each for each in found.entries if _holder(each) not in living]
        registry.freed = bool(gone) or len(registry.waits) < len(found.waits)
        try:
            yield registry
        finally:
            _write(file, 1 - half, json.dumps({"entries": registry.entries, "waits": registry.waits}).encode())
            if registry.freed and registry.waits:
                _tell(f"{folder}/{FREED}")
            for each in gone:
                _remove(inner_folder(folder, each["run_id"]))
    finally:
        os.close(file)


def _open(path: str) -> int:
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)


def _tell(path: str) -> None:
    """Set the time of change of a file: the exact one, unlike that which the kernel would note."""
    file = _open(path)
    try:
        now = time.time_ns()
        os.utime(file, ns=(now, now))
    finally:
        os.close(file)


def _read(file: int) -> tuple[int, bytes]:
    """The half of a registry's file that holds, and its text."""
    try:
        half, length = map(int, os.pread(file, _HEAD, 0).split())
        return half & 1, os.pread(file, length, _HEAD + _HALF * (half & 1))
    except ValueError:  # it is new, or of another version of this program
        return 0, b""


def _write(file: int, half: int, text: bytes) -> None:
    """Write a text into one half of a registry's file, and then let that one hold.

    A writer that is killed in between leaves the other half. A new file in the place of the old one would do so as
    well, but file systems wait for the disk then.

    Raises:
        OSError: The disk is full, or it is too long.
    """
    if len(text) > _HALF:
        raise OSError(errno.EFBIG, os.strerror(errno.EFBIG))
    if os.pwrite(file, text, _HEAD + _HALF * half) < len(text):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    os.pwrite(file, f"{half} {len(text)}".encode().ljust(_HEAD), 0)


def _parsed(text: bytes) -> _Registry:
    """The content of a registry; nothing where there is none, or where it is of another version of this program."""
    try:
        document = json.loads(text)
        return _Registry([*map(_checked, document["entries"])], [*map(_checked, document["waits"])])
    except (ValueError, LookupError, TypeError):
        return _Registry([], [])


def _checked(entry: Document) -> Document:
    """An entry that has all that is asked of one."""
    numbers = entry["cpu"], entry["memory"], entry["device"], entry.get("seen", 0.0)
    (pid, ticks), texts = entry["warden"], [entry[key] for key in ("run_id", "search", "name", "group", "boot")]
    sound = all(isinstance(each, int | float) for each in (*numbers, pid, ticks)) and "/" not in entry["run_id"]
    if not (sound and all(isinstance(each, str) for each in texts) and isinstance(entry["devices"], list)):
        raise TypeError(entry)
    return {**entry, "cpus": [int(cpu) for cpu in entry["cpus"]]}


def _holder(entry: Mapping[str, Any]) -> _Warden:
    return (entry["boot"], *entry["warden"])


def _living(registry: _Registry, me: _Warden) -> set[_Warden]:
    """The wardens of a registry that are alive: this one is, and those of another boot are not."""
    wardens = {_holder(each) for each in (*registry.entries, *registry.waits)}
    return {each for each in wardens if each == me or (each[0] == me[0] and procfs.alive(*each[1:]))}


def _remove(folder: str) -> None:
    """Remove an inner registry, with those that are in it; most runs have none."""
    if not os.path.isdir(folder):  # noqa: PTH112
        return
    for base, folders, files in os.walk(folder, topdown=False):
        for name in files:
            quietly(os.unlink, f"{base}/{name}")
        for name in folders:
            quietly(os.rmdir, f"{base}/{name}")
    quietly(os.rmdir, folder)
