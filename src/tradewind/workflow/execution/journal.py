"""The journal of a run: enough to go on after the controller was killed."""

from __future__ import annotations

import fcntl
import json
import os
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from tradewind.errors import StoreFullError, StudyBusyError, WorkflowError

FORMAT = "tradewind-run-1"
_SYNC_SECONDS = 1.0

JournalRecord = dict[str, Any]


class RunJournal(Protocol):
    """The journal of a run, held by one process at a time: a file in the run's folder, or the store.

    A record outlives the process that wrote it when `write` returns; what a power cut could take is on the disk within
    a second.

    Attributes:
        records: The records that were in it when it was opened, and what `clear` has left.
    """

    records: list[JournalRecord]

    def write(self, *records: JournalRecord) -> list[JournalRecord]:
        """Add records, all of them or none, and return them, each with the time; none only asks if it is still ours.

        Raises:
            StudyBusyError: Another process has taken the run.
            StoreError: They cannot be written.
        """

    def clear(self) -> None:
        """Forget what is in it: the run begins anew."""

    def finish(self, ending: str, seconds: float) -> None:
        """Say how this session ended.

        Args:
            ending: The way that it ended.
            seconds: Seconds that the run has taken so far, without pauses.
        """

    def close(self) -> None:
        """Write it to the disk and let go of it."""


def open_locked(path: Path, flags: int) -> tuple[int, bool]:
    """Open a file and lock it against other processes of this machine, and see to it that the file has its name still.

    Args:
        path: The file; it is made where there is none.
        flags: Flags for `os.open` besides.

    Returns:
        The descriptor, and False where the file system has no such locks.

    Raises:
        BlockingIOError: Another process has locked it.
        OSError: It cannot be opened.
    """
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | flags, 0o644)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            raise
        except OSError:  # a network file system may have no such locks
            return descriptor, False
        # Whoever had it may have removed it meanwhile: then a third one could lock another file of that name.
        with suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(descriptor), path.stat()):
                return descriptor, True
        os.close(descriptor)


class FileJournal:
    """The journal in a file of the run's folder, a record on each line.

    Args:
        path: The file; it is made where there is none.
        lenient: Read it up to the first line that is no record, instead of raising.

    Attributes:
        records: The records that were in it.

    Raises:
        StudyBusyError: Another process holds it.
        WorkflowError: It is no journal.
    """

    def __init__(self, path: Path, *, lenient: bool = False) -> None:
        self._path = path
        try:
            self._fd, self._alone = open_locked(path, os.O_APPEND)
        except BlockingIOError:
            raise StudyBusyError(
                f"another process is carrying out the plan in {path.parent}",
                hint="wait for it, or give another folder with --folder",
            ) from None
        except OSError as error:
            raise WorkflowError(f"cannot write {path}: {error.strerror}") from None
        try:
            self.records = list(self._read(path, lenient))
        except WorkflowError:
            os.close(self._fd)
            raise
        self._dirty = threading.Event()
        self._closed = threading.Event()
        self._syncing = threading.Thread(target=self._sync, name="tradewind-journal", daemon=True)
        self._syncing.start()

    def _read(self, path: Path, lenient: bool) -> Iterator[JournalRecord]:
        text = path.read_bytes()
        whole, newline, torn = text.rpartition(b"\n")
        if torn:  # its writer was killed in the middle of it: it has not happened
            os.ftruncate(self._fd, len(whole) + len(newline))
        for number, line in enumerate(whole.split(b"\n") if newline else [], 1):
            try:
                record = json.loads(line)
                if not isinstance(record, dict) or "e" not in record:
                    raise ValueError
            except ValueError:
                if lenient:
                    return
                raise WorkflowError(
                    "it is no line of a run's journal", file=str(path), line=number, hint="--fresh begins anew"
                ) from None
            yield record

    def write(self, *records: JournalRecord) -> list[JournalRecord]:
        """Add records, and return them, each with the time.

        Raises:
            StoreFullError: They cannot be written.
        """
        now = time.time()
        dated = [{"at": now, **record} for record in records]
        text = b"".join(json.dumps(record).encode() + b"\n" for record in dated)
        try:
            while text:
                text = text[os.write(self._fd, text) :]
        except OSError as error:
            raise StoreFullError(f"the journal of the run cannot be written: {error.strerror}") from error
        if dated:
            self._dirty.set()
        return dated

    def finish(self, ending: str, seconds: float) -> None:
        """Do nothing: the last record and the results say it."""

    def clear(self) -> None:
        """Forget what is in it."""
        os.ftruncate(self._fd, 0)
        self.records = []

    def _sync(self) -> None:
        while not self._closed.wait(_SYNC_SECONDS):
            if self._dirty.is_set():
                self._dirty.clear()
                os.fdatasync(self._fd)

    def close(self) -> None:
        """Write it to the disk and let go of it."""
        self._closed.set()
        self._syncing.join()
        os.fdatasync(self._fd)
        if self._alone and not os.fstat(self._fd).st_size:  # nothing was begun
            with suppress(OSError):
                self._path.unlink()
        os.close(self._fd)


@dataclass
class AttemptRecord:
    """One attempt at a task, as the journal tells it.

    Attributes:
        task: The task's id.
        attempt: Number of the attempt at the task, from 1.
        vm: The name of its machine.
        pilot: Number of the pilot among those of that machine, from 1.
        at: Time at which it was written down, in seconds since the epoch.
        end: Record of its end, or None where that is not known.
    """

    task: str
    attempt: int
    vm: str
    pilot: int
    at: float
    end: JournalRecord | None = None


@dataclass(frozen=True)
class ArmedRecord:
    """A task that was given to its machine beforehand, and of which nobody has written that it began.

    Attributes:
        task: The task's id.
        attempt: Number of the attempt at the task, from 1.
        vm: The name of its machine.
        pilot: Number of the pilot among those of that machine, from 1.
        after: The attempts after whose good end the machine begins it, as the machine knows them (`attempt_key`).
    """

    task: str
    attempt: int
    vm: str
    pilot: int
    after: tuple[str, ...]


@dataclass
class RunHistory:
    """The journal of a run, put together.

    Attributes:
        header: The first record, or None in a new run.
        began: Seconds since the epoch at which tasks could begin, or None.
        sessions: Number of controllers that were started.
        pilots: The newest pilot of each machine, by name.
        requested: Times at which each machine was requested, by name, in order.
        pilot_sessions: The session that requested each machine that may still be there, by name of the machine.
        attempts: All attempts, in order of their starts.
        armings: The newest of each task that has not begun since.
        ups: Times at which each machine came up and was given back or lost (None while it is there), in order.
        replans: Number of times that the rest was planned again.
        lost: Machines that were lost, with the reason.
        away: Times from the last sign of one controller until the next one had a machine, in order.
        ending: The way that the newest session ended; empty while it goes on, or where it was killed.
    """

    header: JournalRecord | None = None
    began: float | None = None
    sessions: int = 0
    pilots: dict[str, int] = field(default_factory=dict)
    requested: dict[str, list[float]] = field(default_factory=dict)
    pilot_sessions: dict[str, JournalRecord] = field(default_factory=dict)
    attempts: dict[tuple[str, int], AttemptRecord] = field(default_factory=dict)
    armings: dict[str, ArmedRecord] = field(default_factory=dict)
    ups: list[tuple[str, float, float | None]] = field(default_factory=list)
    replans: int = 0
    lost: list[JournalRecord] = field(default_factory=list)
    away: list[tuple[float, float]] = field(default_factory=list)
    ending: str = ""
    _session: JournalRecord | None = None
    _at: float = 0.0
    _paused_at: float | None = None
    _pauses: list[tuple[float, float]] | None = None

    def take(self, record: JournalRecord) -> None:
        """Add one record."""
        self._pauses = None
        if record["e"] == "session" and self.began is not None and self._paused_at is None:
            self._paused_at = self._at
        if record["e"] == "up" and self._paused_at is not None:
            self.away.append((self._paused_at, record["at"]))
            self._paused_at = None
        if record["e"] != "left":  # nobody was there to carry anything out
            self._at = record["at"]
        match record["e"]:
            case "run":
                self.header = record
            case "session":
                self.sessions += 1
                self._session, self.ending = record, ""
            case "stop":
                self.pilot_sessions.clear()
                self.ending = str(record.get("ending", ""))
            case "pilot":
                self.pilots[record["vm"]] = record["pilot"]
                self.requested.setdefault(record["vm"], []).append(record["at"])
                if self._session is not None:
                    self.pilot_sessions[record["vm"]] = self._session
            case "up":
                self._down(record["vm"], record["at"])
                self.ups.append((record["vm"], record["at"], None))
            case "down":
                self._down(record["vm"], record["at"])
                self.pilot_sessions.pop(record["vm"], None)
                if record["lost"]:
                    self.lost.append(record)
            case "left":
                self._down(record["vm"], record["at"])
                self.pilot_sessions.pop(record["vm"], None)
            case "began":
                self.began = record["at"]
            case "arm":
                place = (record["attempt"], record["vm"], record["pilot"])
                self.armings[record["task"]] = ArmedRecord(record["task"], *place, tuple(record["after"]))
            case "start":
                self.armings.pop(record["task"], None)
                key = (record["task"], record["attempt"])
                self.attempts[key] = AttemptRecord(*key, record["vm"], record["pilot"], record["at"])
            case "end":
                found = self.attempts.get((record["task"], record["attempt"]))
                if found is not None:  # what became of its outputs since does not change when it ran
                    before = found.end or {}
                    found.end = {name: before[name] for name in ("start", "finish") if name in before} | record
            case "plan":
                self.replans += 1

    @property
    def pauses(self) -> list[tuple[float, float]]:
        """Times without a controller in which no task ran either, in order."""
        if self._pauses is None:
            self._pauses = subtract_spans(self.away, self._spans()) if self.away else []
        return self._pauses

    def _spans(self) -> list[tuple[float, float]]:
        ends = [each.end for each in self.attempts.values() if each.end is not None]
        return [(end["start"], end["finish"]) for end in ends if "finish" in end]

    def boots_from(self, name: str, at: float) -> float:
        """Time at which the simulated boot of a machine begins: that of its request, but not before the run's.

        Args:
            name: The machine.
            at: A moment at which it was there, in seconds since the epoch.
        """
        asked = [moment for moment in self.requested.get(name, ()) if moment <= at]
        return max([self.began or 0.0, *asked[-1:]])

    @property
    def last(self) -> float:
        """Time of the last record, in seconds since the epoch."""
        return self._at

    @property
    def worked(self) -> float:
        """Seconds until the newest end of an attempt, without pauses."""
        ends = [each.end["at"] for each in self.attempts.values() if each.end is not None]
        return self.clock(max(ends, default=0.0))

    def clock(self, at: float) -> float:
        """Seconds from the moment at which tasks could begin until another, without pauses.

        Args:
            at: In seconds since the epoch.
        """
        if self.began is None:
            return 0.0
        paused = sum(min(at, end) - begin for begin, end in self.pauses if at > begin)
        return max(0.0, at - self.began - paused)

    @property
    def there(self) -> list[str]:
        """The machines that came up, and of which nobody has written that they went."""
        return [name for name, _, down in self.ups if down is None]

    def _down(self, vm: str, at: float) -> None:
        self.ups = [(name, up, at) if name == vm and down is None else (name, up, down) for name, up, down in self.ups]

    def done(self) -> dict[str, AttemptRecord]:
        """The newest attempt at each task that ended well and still counts."""
        found: dict[str, AttemptRecord] = {}
        for each in self.attempts.values():
            if each.end is not None and each.end["outcome"] == "done":
                found[each.task] = each
        return found

    def open(self) -> list[AttemptRecord]:
        """The attempts of which nobody has written how they ended."""
        return [each for each in self.attempts.values() if each.end is None]


def attempt_key(task: str, attempt: int) -> str:
    """Name of an attempt in the messages to machines: ``TASK#ATTEMPT``."""
    return f"{task}#{attempt}"


def subtract_spans(
    spans: Iterable[tuple[float, float]], others: Iterable[tuple[float, float]]
) -> list[tuple[float, float]]:
    """Subtract spans of time from others; returns the rest in order."""
    taken, left = sorted(others), []
    for begin, end in sorted(spans):
        for start, finish in taken:
            if start < end and finish > begin:
                if start > begin:
                    left.append((begin, start))
                begin = max(begin, finish)
        if begin < end:
            left.append((begin, end))
    return left


def start_record(task: str, attempt: int, vm: str, pilot: int) -> JournalRecord:
    """Make the record of the beginning of an attempt.

    Args:
        task: The task's id.
        attempt: Number of the attempt at the task, from 1.
        vm: The name of its machine.
        pilot: Number of the pilot among those of that machine, from 1.
    """
    return {"e": "start", "task": task, "attempt": attempt, "vm": vm, "pilot": pilot}


def end_record(task: str, attempt: int, result: dict[str, Any], offset: float) -> dict[str, Any]:
    """Make the record of the end of an attempt; times are those of the controller's clock.

    Args:
        task: The task's id.
        attempt: Number of the attempt at the task, from 1.
        result: Result that the machine sent.
        offset: Seconds by which the controller's clock is ahead of the machine's.
    """
    record = {"e": "end", "task": task, "attempt": attempt, **result}
    if "began" in record:
        record["start"] = record.pop("began") + offset
        record["finish"] = record["start"] + record["seconds"]
    return record


def read_history(text: bytes, file: str) -> RunHistory:
    """Read a journal up to its last whole line, without taking it from the process that writes it.

    Args:
        text: Content of the file.
        file: Name of the file, for messages.

    Raises:
        WorkflowError: It is no journal of a run.
    """
    history = RunHistory()
    for number, line in enumerate(text.split(b"\n")[:-1], 1):
        try:
            history.take(json.loads(line))
        except (ValueError, KeyError, TypeError):
            raise WorkflowError("it is no line of a run's journal", file=file, line=number) from None
    return history
