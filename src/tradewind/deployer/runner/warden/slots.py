"""Slots of this machine: which run has which CPUs, how much memory and which GPUs, whoever started it.

One file, the registry, has an entry for each run that has a slot, and for each that waits for one. All programs of a
user share it, and a lock is held while it is changed. An entry names the process that holds it, the run's warden: a run
ends with its warden, so that the entry of one that is gone, or was of an earlier boot, counts no more. Nothing has to
be given back after a crash. A container is held by whoever started it, and after that by its own first process.

Runs that need each other are a gang: the first one takes one slot for all of them, and each of them holds it.

Of those who wait the tenant is next that has used least for its weight (`slot_turns`). Within a tenant they are served
in turn, and a search that gets a slot goes behind all others that wait: each of them gets one before it gets its next.
What those before a run wait for is kept free, so that small runs cannot starve a large one.
"""

from __future__ import annotations

import errno
import fcntl
import json
import math
import os
import sys
import time
from bisect import bisect_left
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from operator import itemgetter
from typing import NamedTuple

from tradewind.deployer.runner import procfs
from tradewind.deployer.runner.warden.files import Document, StartRefused, quietly
from tradewind.deployer.runner.warden.slot_turns import DEFAULT_TENANT, UNCOUNTED, SlotTurns

FREED = "freed"
"""The file whose time of change is that of the last change by which somebody who waits may have got room."""

LOOK_SECONDS = 1.0
"""Whoever waits asks again so often: a warden that was killed gives nothing back."""

START_SECONDS = 5.0
"""So long after a container was asked for it may still begin, though whoever asked is gone."""

_FILE = "slots"
_HEAD, _HALF = 64, 1 << 20
_FORGOTTEN = 5 * LOOK_SECONDS
_SLACK = 1e-6
_EARLIER = 0.1
_MOST_NAMES = 3


_Process = tuple[str, int, int]
"""A process: the boot, its pid and its start time."""

_NOBODY = (0, 0)
"""Holds what was left to a container, until its first process is found."""

_NOT_HERE = (-1, 0)
"""Who only looks, and holds nothing."""


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
        self._devices_here = len(self.devices)
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

    def share(self, wanted: Document) -> float:
        """The largest share of any resource of the machine that somebody takes."""
        shares = [self._cpus_of(wanted) / max(1, len(self.cpus))]
        shares.append(wanted["memory"] / self._memory_here if self._memory_here else 0.0)
        shares.append(wanted["device"] / self._devices_here if self._devices_here else 0.0)
        return min(1.0, max(shares))

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
        kind = "workflow" if each["gang"] else "search"
        own = each["search"] == wanted["search"]
        names[f"this {kind}" if own else f"{kind} {each['name']}" if known else "others"] = None
    shown = sorted(names, key=lambda name: name.startswith("this "))[:_MOST_NAMES]
    more = [f"{len(names) - _MOST_NAMES} more"] if len(names) > _MOST_NAMES else []
    *first, last = [*shown, *more]
    return f"{', '.join(first)} and {last}" if first else last


class SlotRegistry:
    """The slots of the runs of one warden, or of another process that starts runs, in a registry that all share.

    Args:
        identity: What tells this process from others: ``boot``, and ``warden`` as pid and start time.
    """

    def __init__(self, identity: Mapping[str, object]) -> None:
        self._identity: Document = {key: identity[key] for key in ("boot", "warden")}
        self._me: _Process = (self._identity["boot"], *self._identity["warden"])
        self._folders: dict[str, str] = {}  # run that has a slot or waits for one -> its registry

    @classmethod
    def of_this_process(cls) -> SlotRegistry:
        """The slots that this process itself holds."""
        me = procfs.stat(os.getpid())
        assert me is not None
        return cls({"boot": procfs.boot_id(), "warden": [os.getpid(), me.ticks]})

    def take(self, run_id: str, wanted: Document, every: Collection[int]) -> Slot:
        """Take a slot for a run.

        Args:
            run_id: The run.
            wanted: The ``folder`` of the registry; ``cpu``, ``memory`` in bytes and ``device`` (GPUs), each 0 for none;
                what is here of the latter two: ``memory_here``, ``devices_here``; whose it is: ``search``, its ``name``
                and its ``group``, and where it is a tenant's, the ``tenant`` and its ``weight``. With the name of a
                ``gang`` these are the amounts of all its runs together, and ``part`` are the GPUs of this one.
            every: The CPUs that it may have.

        Raises:
            StartRefused: There is no room (``busy``, with the words why): it waits, and its turn is kept while it goes
                on asking.
            OSError: The registry cannot be written.
        """
        folder = wanted["folder"]
        os.makedirs(folder, mode=0o700, exist_ok=True)  # noqa: PTH103
        with _opened(folder, self._me) as registry:
            self._folders[run_id] = folder
            if (gang := _gang_of(registry, wanted)) is not None:
                registry.stop_waiting([each for each in registry.waits if _are_of_one_gang(each, wanted)])
                return self._join(gang, run_id, wanted)
            if (own := _own_of(registry, run_id, wanted)) is not None:
                own["warden"] = self._identity["warden"]
                return Slot(own["cpus"], own["devices"])
            now = time.monotonic()
            ticket = self._ticket(registry, run_id, wanted, now)
            before = [each for each in registry.before(ticket, now) if not _are_of_one_gang(each, wanted)]
            room = _Room(wanted, every, registry.entries)
            lack = room.lacks(ticket)
            why = _why(lack, wanted, every, registry.entries) if lack else ""
            for each in before:
                room.keep(each)
            if not lack and room.lacks(ticket) and registry.ends_before(before, ticket, (wanted, every), now):
                room = _Room(wanted, every, registry.entries)  # it gives back in time what is kept of it
            elif lack or room.lacks(ticket):
                words = why or f"the next slot is kept for {_names(wanted, before)}"
                raise StartRefused("busy", words=words, again=registry.turns.again(before, now))
            amount, slot = min(ticket["cpu"], len(room.cpus)), room.take(ticket)
            entry = {**self._entry(run_id, wanted), **slot._asdict(), "cpu": amount, "share": room.share(ticket)}
            registry.turns.began(entry, now, passed=bool(before))
            registry.entries.append(entry)
            others = [each for each in registry.waits if each is not ticket and not _are_of_one_gang(each, wanted)]
            registry.waits = sorted(others, key=lambda each: each["search"] == wanted["search"])
            registry.freed = bool(others)
            return self._join(entry, run_id, wanted) if wanted.get("gang") else slot

    def _ticket(self, registry: _Registry, run_id: str, wanted: Document, now: float) -> Document:
        """The ticket of a run that waits, or waits from now on; a gang waits once."""
        name = wanted.get("gang") or run_id
        found = [each for each in registry.waits if self._is_of(each, name)]
        ticket = found[0] if found else self._entry(run_id, wanted)
        if not found:
            registry.waits.append(ticket)
        if not _asks(ticket, now):
            registry.turns.came(ticket, [each for each in registry.waiting(now) if each is not ticket], now)
        runs = dict.fromkeys([*ticket.get("runs", ()), run_id])
        ticket |= {"seen": now, "weight": wanted.get("weight"), "runs": [*runs]}
        return ticket

    def _join(self, gang: Document, run_id: str, wanted: Document) -> Slot:
        """Let a run have its part of its gang's slot."""
        members: Document = gang["members"]
        taken = {name for each in members.values() for name in each["devices"]}
        devices = [name for name in gang["devices"] if name not in taken][: round(wanted["part"])]
        if run_id not in members and len(devices) < round(wanted["part"]):
            raise StartRefused("busy", words="the GPUs are used by other machines of this run")
        members.setdefault(run_id, {"devices": devices})["warden"] = self._identity["warden"]
        return Slot(list(gang["cpus"]), list(members[run_id]["devices"]))

    def note_container(self, run_id: str, container: str) -> None:
        """Note, right before it is started, of which container a run's slot is: it goes on when this process does not.

        Args:
            run_id: The run.
            container: The engine's id of it, which its processes have in the names of their control groups.
        """
        self._change(run_id, lambda entry: entry.update(container=container, asked=time.monotonic()))

    def leave(self, run_id: str) -> None:
        """Leave a slot to the container that it is of."""
        try:
            self._change(run_id, lambda entry: entry.update(warden=_NOBODY))
        except FileNotFoundError:  # as in `give_back`
            pass
        except OSError as error:
            sys.stderr.write(f"{run_id}: its slot cannot be left to its container: {error}\n")
        self._folders.pop(run_id, None)

    def _change(self, run_id: str, change: Callable[[Document], object]) -> None:
        if (folder := self._folders.get(run_id)) is not None:
            with _opened(folder, self._me) as registry:
                for entry in registry.entries:
                    if self._is_of(entry, run_id) or run_id in entry["members"]:
                        change(entry["members"].get(run_id, entry))

    def give_back(self, run_id: str) -> None:
        """Let others have the slot of a run that has ended, or waits no more; one that had none changes nothing."""
        if (folder := self._folders.pop(run_id, None)) is None:
            return
        try:
            with _opened(folder, self._me) as registry:
                for gang in [each for each in registry.entries if each["members"].pop(run_id, None) is not None]:
                    if not gang["members"]:
                        registry.end(gang)
                        _remove(inner_folder(folder, gang["run_id"]))
                for entry in [each for each in registry.entries if self._is_of(each, run_id)]:
                    registry.end(entry)
                asked = [each for each in registry.waits if self._is_of(each) and run_id in each["runs"]]
                for each in asked:
                    each["runs"].remove(run_id)
                registry.stop_waiting([each for each in asked if not each["runs"]])  # others of its gang may wait still
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

    def _is_of(self, entry: Document, run_id: str | None = None) -> bool:
        mine = (entry["boot"], *entry["warden"]) == self._me
        return bool(mine and (run_id is None or entry["run_id"] == run_id))

    def _entry(self, run_id: str, wanted: Document) -> Document:
        kept = {key: wanted[key] for key in ("cpu", "memory", "device", "search", "name", "group")}
        gang = wanted.get("gang", "")
        return {
            **_UNSAID,
            **self._identity,
            "run_id": gang or run_id,
            **kept,
            "tenant": wanted.get("tenant", DEFAULT_TENANT),
            "weight": wanted.get("weight"),
            "gang": gang,
            "members": {},
            "cpus": [],
            "devices": [],
        }


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
        found = _parsed(_read(file)[1], procfs.boot_id())
    finally:
        os.close(file)
    found = _held(found, (procfs.boot_id(), *_NOT_HERE))
    entries = [each for each in found.entries if each["cpus"]]
    waits = len(found.waits)
    more = f"; {waits} {'run waits' if waits == 1 else 'runs wait'}" if waits else ""
    nobody = {"memory_here": 0, "devices_here": [], "search": "", "group": ""}
    return (_why("cpu", nobody, every, entries) if entries else "no run has any") + more


class _Registry:
    """The content of a registry: the runs that have slots, those that wait, and the turns of their tenants."""

    def __init__(self, entries: list[Document], waits: list[Document], turns: SlotTurns) -> None:
        self.entries, self.waits, self.turns = entries, waits, turns
        self.freed = False

    def waiting(self, now: float) -> list[Document]:
        """The tickets of those who wait and go on asking."""
        return [each for each in self.waits if _asks(each, now)]

    def before(self, ticket: Document, now: float) -> list[Document]:
        """The tickets of those who are due before somebody, and turns that are kept for a moment."""
        kept = [each for each in self.turns.kept if each["tenant"] != ticket["tenant"]]
        order = self.turns.order([*self.waiting(now), *kept])
        return order[: next(place for place, each in enumerate(order) if each is ticket)]

    def ends_before(
        self, before: Sequence[Document], ticket: Document, here: tuple[Document, Collection[int]], now: float
    ) -> bool:
        """True when a run is expected to end before the first of those that are due before has room: EASY backfilling.

        Args:
            before: Those who are due before.
            ticket: Somebody for whom there is room now.
            here: What is asked for, with what is here of memory and GPUs; and the CPUs that may be used.
            now: The time.
        """
        seconds, first = self.turns.expected(ticket["tenant"]), before[0]
        moment = any("until" in each for each in before) or not _Room(*here, self.entries).lacks(first)
        if moment or not seconds:
            return False  # who asks in a moment gets what is free
        last = sorted(self.entries, key=lambda each: each["since"] + each["foreseen"])
        opens = bisect_left(range(len(last)), True, key=lambda ended: not _Room(*here, last[ended + 1 :]).lacks(first))
        if opens == len(last):
            return False
        # Later runs that count on the end of this one do not put it off.
        first["opens"] = min(first["opens"], last[opens]["since"] + last[opens]["foreseen"])
        return bool(now + (1.0 - _EARLIER) * seconds <= first["opens"])

    def end(self, entry: Document) -> None:
        """Take a slot back."""
        now = time.monotonic()
        self.entries = [each for each in self.entries if each is not entry]
        self.turns.ended(entry, now)
        self.turns.keep(entry, self.waiting(now), now)

    def text(self) -> bytes:
        """The content of its file."""
        turns = self.turns.document((*self.entries, *self.waits))
        return json.dumps({"entries": self.entries, "waits": self.waits, "turns": turns}).encode()

    def stop_waiting(self, tickets: Sequence[Document]) -> None:
        """Take tickets away: what was kept for them is there for who waits behind."""
        if tickets:
            self.waits = [each for each in self.waits if each not in tickets]
            self.freed = True


def _asks(ticket: Document, now: float) -> bool:
    """True of one that waits and goes on asking; another one has been stopped."""
    return bool(ticket["seen"] and now - ticket["seen"] < _FORGOTTEN)


@contextmanager
def _opened(folder: str, me: _Process) -> Iterator[_Registry]:
    """Hold the lock on a registry, without the entries of wardens that are gone; what is changed is written back."""
    file = _open(f"{folder}/{_FILE}")
    try:
        fcntl.flock(file, fcntl.LOCK_EX)
        half, text = _read(file)
        found = _parsed(text, me[0])
        registry = _held(found, me)
        kept = set(map(id, registry.entries))
        gone = [each for each in found.entries if id(each) not in kept]
        now = time.monotonic()
        for each in gone:  # nobody knows when: not long after anybody looked
            registry.turns.ended(each, min(now, each["since"] + each["foreseen"]))
        registry.turns.outlast(registry.entries, now)
        lapsed = registry.turns.lapse(now)
        registry.freed = bool(gone) or lapsed or len(registry.waits) < len(found.waits)
        try:
            yield registry
        finally:
            _write(file, 1 - half, registry.text())
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


def _parsed(text: bytes, boot: str) -> _Registry:
    """The content of a registry; nothing where there is none, or where it is of another version of this program."""
    try:
        document = json.loads(text)
        lists = [[*map(_checked, document[key])] for key in ("entries", "waits")]
        return _Registry(lists[0], lists[1], SlotTurns(boot, document.get("turns")))
    except (ValueError, LookupError, TypeError):
        return _Registry([], [], SlotTurns(boot))


_NUMBERS = itemgetter("cpu", "memory", "device", "seen", "opens", "share", "since", "foreseen", "charged")
_TEXTS = itemgetter("run_id", "search", "name", "group", "boot", "gang", "tenant")
_UNSAID: Document = {**UNCOUNTED, "seen": 0.0, "opens": math.inf}


def _checked(found: Document) -> Document:
    """An entry that has all that is asked of one."""
    entry = {**_UNSAID, **found, "cpus": [int(cpu) for cpu in found["cpus"]], "runs": [*found.get("runs", ())]}
    parts = [entry, *entry["members"].values()]
    numbers, texts, lists = [*_NUMBERS(entry), entry["weight"] or 1.0], [*_TEXTS(entry), *entry["runs"]], []
    for each in parts:
        pid, ticks = each["warden"]
        numbers += [pid, ticks, each.get("asked", 0.0)]
        texts.append(each.get("container", ""))
        lists.append(each["devices"])
    kinds = {*map(type, numbers)} <= {int, float}, {*map(type, texts)} == {str}, {*map(type, lists)} == {list}
    if not all(kinds) or "/" in entry["run_id"]:
        raise TypeError(entry)
    return entry


def _gang_of(registry: _Registry, wanted: Document) -> Document | None:
    """The entry of the gang of a run, where one of it has its slot already."""
    return next((each for each in registry.entries if _are_of_one_gang(each, wanted)), None)


def _are_of_one_gang(entry: Document, wanted: Document) -> bool:
    name = wanted.get("gang", "")
    return bool(name and (entry["gang"], entry["search"]) == (name, wanted["search"]))


def _own_of(registry: _Registry, run_id: str, wanted: Document) -> Document | None:
    """The entry of a run whose container another process has started, or was about to."""
    found = [each for each in registry.entries if (each["run_id"], each["search"]) == (run_id, wanted["search"])]
    return found[0] if found and found[0].get("container") else None


def _held(registry: _Registry, me: _Process) -> _Registry:
    """The entries that somebody holds who is alive: this process is, and those of another boot are not."""
    every = (*registry.entries, *registry.waits)
    processes = {(each["boot"], *part["warden"]) for each in every for part in (each, *each["members"].values())}
    living = {each for each in processes if each == me or (each[0] == me[0] and procfs.alive(*each[1:]))}

    def held(entry: Document) -> bool:
        if entry["members"]:
            parts = entry["members"].items()
            entry["members"] = {name: part for name, part in parts if goes_on(entry["boot"], part)}
            return bool(entry["members"])
        return goes_on(entry["boot"], entry)

    def goes_on(boot: str, part: Document) -> bool:
        return (boot, *part["warden"]) in living or (boot == me[0] and _inherited(part))

    lists = [[each for each in held_or_not if held(each)] for held_or_not in (registry.entries, registry.waits)]
    return _Registry(lists[0], lists[1], registry.turns)


def _inherited(entry: Document) -> bool:
    """True where the container of an entry, or of one of its members, goes on: its first process holds it from now."""
    if not (container := entry.get("container")):
        return False
    if (first := procfs.first_process_of(container)) is not None:
        entry["warden"] = [*first]
        return True
    return bool(0 <= time.monotonic() - entry["asked"] < START_SECONDS)


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
