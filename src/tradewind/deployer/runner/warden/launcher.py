"""Starts the first process of a run, in a session of its own and where it may be in a control group.

The kernel may take 20 ms to move a process into a group, in which it waits and does nothing. So a process stands by
in a new group for the next run: it is made when a run that needs a group has begun, and only the first run waits.

An order may be ``plain``: the program has no limits, and somebody else ends it when this process dies. It is started
without a copy of this process then, which takes a third of the time. An order without ``argv`` is for a process that
only sleeps, ``until`` a moment of ``time.monotonic``; such ones can stand by, too.
"""

from __future__ import annotations

import ctypes
import errno
import json
import os
import resource
import signal
import time
from typing import NamedTuple, NoReturn

from tradewind.deployer.runner.warden.control_group import ControlGroup, GroupMaker
from tradewind.deployer.runner.warden.files import Document, StartRefused, program_of, quietly

_PIECE = 1 << 16
_MACHINE_BYTES = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") * 9 // 10
_MOST_FREE = 4
_PR_SET_PDEATHSIG = 1


class StartedProcess(NamedTuple):
    """The first process of a run.

    Attributes:
        pid: Its id.
        group: Its control group, or None where it has none.
        asked: The moment right before it was started, by ``time.time`` and by ``time.monotonic``: on a loaded machine
            the warden may get to note anything long after the job has begun.
    """

    pid: int
    group: ControlGroup | None
    asked: tuple[float, float]


class _StandBy(NamedTuple):
    """A process that waits for what it shall execute.

    Attributes:
        pid: Its id.
        group: The group that it is in, or None.
        give: The pipe into which that is written.
        report: The pipe from which is read what went wrong.
    """

    pid: int
    group: ControlGroup | None
    give: int
    report: int


class Launcher:
    """Starts processes as children of this one.

    Args:
        libc: The C library.
        name: The beginning of the names of groups, which no other living process uses.
    """

    def __init__(self, libc: ctypes.CDLL, name: str) -> None:
        self._libc = libc
        self._name = name
        self._pid = os.getpid()
        self._groups = GroupMaker()
        self._count = 0
        self._ready: _StandBy | None = None  # in a group
        self._sleepers: list[_StandBy] = []
        self._free: list[ControlGroup] = []
        self._used: list[ControlGroup] = []  # something was in them when they were given back

    @property
    def ready_pids(self) -> list[int]:
        """The processes that stand by: they belong to no run."""
        return [each.pid for each in (self._ready, *self._sleepers) if each is not None]

    def start(self, order: Document, cpus: set[int]) -> StartedProcess:
        """Start the program of an order.

        Raises:
            StartRefused: It cannot be started.
            OSError: Its files cannot be opened, or no process can be made.
        """
        argv = order["argv"]
        program = program_of(argv[0], order["cwd"], order["env"].get("PATH", os.defpath)) if argv is not None else ""
        if argv is not None and order.get("plain"):
            return _spawn(order, program)
        ready = None
        if argv is None:
            ready = self._sleepers.pop() if self._sleepers else None
        elif _wants_group(order) and self.prepare():
            ready, self._ready = self._ready, None
        if ready is not None:
            try:
                return self._hand_over(ready, order, program, cpus)
            except StartRefused as answer:
                if answer.kind != "group":
                    raise
                if ready.group is not None:
                    self._groups.give_up()
        return self._fork(order, program, cpus)

    def prepare(self) -> bool:
        """Let a process stand by in a group for the next run; False where no group can be made."""
        if self._ready is not None:
            return True
        group = self._free.pop() if self._free else self._groups.make(f"{self._name}-{self._count}")
        if group is None:
            return False
        self._count += 1
        self._ready = self._make(group)
        return True

    def stand_by(self, count: int) -> None:
        """Let so many processes stand by that will only sleep, and no more.

        Raises:
            OSError: No process can be made.
        """
        while len(self._sleepers) > count:
            self._drop(self._sleepers.pop())
        while len(self._sleepers) < count:
            self._sleepers.append(self._make(None))

    def _make(self, group: ControlGroup | None) -> _StandBy:
        take, give = os.pipe()
        opened = [take, give]
        try:
            opened += os.pipe()
            report, tell = opened[2:]
            pid = os.fork()
        except OSError:
            for fd in opened:
                os.close(fd)
            raise
        if pid == 0:
            self._wait_for_order(group, take, tell)
        os.close(take)
        os.close(tell)
        return _StandBy(pid, group, give, report)

    def _drop(self, ready: _StandBy) -> None:
        os.close(ready.give)
        os.close(ready.report)
        quietly(os.waitpid, ready.pid, 0)

    def give_back(self, group: ControlGroup) -> None:
        """Take the group of a run that has ended, for another one if there is nothing in it."""
        if len(self._free) < _MOST_FREE and group.clear():
            self._free.append(group)
        else:
            self._used.append(group)
        self._used = [used for used in self._used if not used.remove()]

    def dismiss(self) -> None:
        """End the processes that stand by, and remove all groups."""
        self.stand_by(0)
        ready, self._ready = self._ready, None
        if ready is not None:
            self._drop(ready)
            self._free += [ready.group] if ready.group is not None else []
        for group in (*self._free, *self._used):
            group.remove()

    def _hand_over(self, ready: _StandBy, order: Document, program: str, cpus: set[int]) -> StartedProcess:
        """Give an order to a process that stands by.

        Raises:
            StartRefused: It cannot be started; of kind ``group`` where another process may still be.
        """
        asked = time.time(), time.monotonic()
        try:
            if ready.group is not None:
                ready.group.limit(order.get("memory_bytes"), order.get("cpus"))
            text = json.dumps({"order": order, "program": program, "cpus": sorted(cpus)}).encode()
            while text:
                text = text[os.write(ready.give, text) :]
        except OSError as error:
            answer = f"group {error.errno}".encode()
            quietly(os.kill, ready.pid, signal.SIGKILL)
            os.close(ready.give)
        else:
            os.close(ready.give)
            # Empty once the program has been executed; what only sleeps can be begun without a wait.
            answer = os.read(ready.report, 64) if order["argv"] is not None else b""
        os.close(ready.report)
        if answer:
            quietly(os.waitpid, ready.pid, 0)
            if ready.group is not None:
                ready.group.remove()
            raise _refused(answer)
        return StartedProcess(ready.pid, ready.group, asked)

    def _wait_for_order(self, group: ControlGroup | None, take: int, tell: int) -> NoReturn:
        step = "group"
        try:
            self._detach()
            nothing = os.open(os.devnull, os.O_RDWR)
            for fd in (0, 1):  # the controller is to see the end of the warden
                os.dup2(nothing, fd)
            _close_all_but(0, 1, 2, take, tell)
            if group is not None:
                group.enter()
            text = b"".join(iter(lambda: os.read(take, _PIECE), b""))
            if not text:
                os._exit(0)
            given = json.loads(text)
            step = "system"
            if given["order"]["argv"] is None:
                self._sleep(given["order"]["until"])
            streams = _streams(given["order"]["folder"])
            self._become(given["order"], given["program"], set(given["cpus"]), tell, streams)
        except OSError as error:
            quietly(os.write, tell, f"{step} {error.errno}".encode())
        finally:
            os._exit(127)

    def _fork(self, order: Document, program: str, cpus: set[int]) -> StartedProcess:
        """Start a program without a group.

        Raises:
            StartRefused: It cannot be started.
        """
        report, tell = os.pipe()
        opened = [report, tell]
        try:
            opened += _streams(order["folder"]) if order["argv"] is not None else []
            asked = time.time(), time.monotonic()
            pid = os.fork()
            if pid == 0:
                try:
                    self._detach()
                    if order["argv"] is None:
                        _close_all_but(0, 1, 2)
                        self._sleep(order["until"])
                    self._become(order, program, cpus, tell, opened[2:])
                finally:
                    os._exit(127)
            os.close(opened.pop(1))
            answer = os.read(report, 64)  # empty once the program has been executed
        finally:
            for fd in opened:
                os.close(fd)
        if answer:
            os.waitpid(pid, 0)
            raise _refused(answer)
        return StartedProcess(pid, None, asked)

    def _detach(self) -> None:
        """In the new process: a session of its own, which ends with the warden."""
        os.setsid()
        self._libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != self._pid:
            os._exit(1)
        signal.set_wakeup_fd(-1)

    def _become(self, order: Document, program: str, cpus: set[int], tell: int, streams: list[int]) -> None:
        """In the new process: execute the program, or say what went wrong."""
        step = "system"
        try:
            os.sched_setaffinity(0, cpus)
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
            if order.get("address_space"):
                resource.setrlimit(resource.RLIMIT_AS, (order["address_space"],) * 2)
            step = "workdir"
            os.chdir(order["cwd"])
            for number, fd in enumerate(streams):
                os.dup2(fd, number)
            step = "missing"
            os.execve(program, order["argv"], order["env"])  # noqa: S606
        except OSError as error:
            os.write(tell, f"{step} {error.errno}".encode())
        except BaseException:
            os.write(tell, f"{step} {errno.EINVAL}".encode())

    def _sleep(self, until: float) -> NoReturn:
        """In the new process: sleep, as another program would run."""
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, signal.SIG_DFL)
        time.sleep(max(0.0, until - time.monotonic()))
        os._exit(0)


def _close_all_but(*kept: int) -> None:
    """Close what this process was left by its parent: others are to see the end of that, and to hear no more of it."""
    for name in os.listdir("/proc/self/fd"):  # noqa: PTH208  (no pathlib in the warden)
        if int(name) not in kept:
            quietly(os.close, int(name))


def _spawn(order: Document, program: str) -> StartedProcess:
    """Start a program without a copy of this process.

    Raises:
        StartRefused: It cannot be started.
    """
    prints = os.O_WRONLY | os.O_CREAT | os.O_APPEND
    files = [(os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0)]
    for number, name in enumerate(("stdout", "stderr"), 1):
        files.append((os.POSIX_SPAWN_OPEN, number, f"{order['folder']}/{name}", prints, 0o644))
    step = "workdir"
    try:
        os.chdir(order["cwd"])
        step, asked = "missing", (time.time(), time.monotonic())
        pid = os.posix_spawn(program, order["argv"], order["env"], file_actions=files, setsid=True)
    except OSError as error:
        raise StartRefused(step, error.errno or errno.EIO) from None
    finally:
        os.chdir("/")  # it works in the folder of no job
    return StartedProcess(pid, None, asked)


def _wants_group(order: Document) -> bool:
    cpus, memory = order.get("cpus"), order.get("memory_bytes")
    # Who may have all memory of this machine needs no group to be held to it.
    held = memory is not None and memory < _MACHINE_BYTES
    limited = held or (cpus is not None and cpus != int(cpus))
    return limited and bool(order.get("groups", True))


def _streams(folder: str) -> list[int]:
    """The descriptors of a job's standard input, output and error.

    Raises:
        OSError: A file cannot be opened.
    """
    opened = [os.open(os.devnull, os.O_RDONLY)]
    try:
        for name in ("stdout", "stderr"):
            opened += [os.open(f"{folder}/{name}", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)]
    except OSError:
        for fd in opened:
            os.close(fd)
        raise
    return opened


def _refused(answer: bytes) -> StartRefused:
    kind, _, number = answer.decode().partition(" ")
    return StartRefused(kind, int(number))
