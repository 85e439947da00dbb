"""One attempt at a task, on the machine that runs it: a program, or a process that only sleeps.

Like `agent`, beside which it lies on the machines, it has nothing but the standard library. A process that only sleeps
can be made before its task may begin, and waits for one word then. Should its agent die, it goes away.
"""

from __future__ import annotations

import contextlib
import errno
import gc
import json
import os
import resource
import shutil
import signal
import struct
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

Document = dict[str, Any]

_FEW_FILES = 1 << 16
_DEFAULT_SIGNALS = (signal.SIGINT, signal.SIGHUP, signal.SIGPIPE, signal.SIGXFSZ)
"""Signals that this process or Python ignores, and that a program must be able to receive."""
_GO = struct.Struct("d")


class Attempt:
    """One attempt at a task: it will run, runs, or has run.

    Args:
        order: The controller's order.
        folder: The attempt's folder.

    Attributes:
        key: Name of the attempt in messages of the controller, ``TASK#ATTEMPT``.
        after: The keys of the attempts that it waits for.
        pid: Id of its process, or 0.
        kill_at: Time of the monotonic clock at which it is killed.
        stopped: True when it is to end early.
        gpus: Places of the GPUs that it has to itself, among those that its machine may use.
    """

    def __init__(self, order: Document, folder: Path) -> None:
        self.order = order
        self.folder = folder
        self.key: str = order["key"]
        self.after: set[str] = set()
        self.work = Path(order["work"])
        self.began = time.time()
        self.begun = time.monotonic()
        self.pid = 0
        self.kill_at = float("inf")
        self.stopped = False
        self.gpus: list[int] = []
        self._go = self._words = -1

    # ------------------------------------------------------------------ in the agent

    def prepare(self) -> None:
        """Make the process, which waits for `go`, if it only sleeps; a program is started faster without a fork.

        Raises:
            OSError: It cannot be made.
        """
        if self.pid or self.order["argv"] is not None:
            return
        waits, go = os.pipe()
        try:
            words, says = os.pipe()
        except OSError:
            os.close(waits)
            os.close(go)
            raise
        try:
            pid = os.fork()
        except OSError:
            for fd in (waits, go, words, says):
                os.close(fd)
            raise
        if not pid:
            _Child(self).run(waits, says)
        os.close(waits)
        os.close(says)
        self.pid, self._go, self._words = pid, go, words

    def go(self) -> None:
        """Begin now.

        Raises:
            FileExistsError: Its folder is there: somebody has begun this attempt before.
            OSError: It cannot be begun.
        """
        self.began, self.begun = time.time(), time.monotonic()
        place = self._make_room()
        if self.order["argv"] is not None:
            self._start(place)
            return
        self.prepare()
        try:
            os.write(self._go, _GO.pack(self.begun))
        except BrokenPipeError:  # somebody has ended it while it waited
            self.drop()
            self.prepare()
            os.write(self._go, _GO.pack(self.begun))
        os.close(self._go)
        self._go = -1

    def _make_room(self) -> Path:
        """Make its folder, and return its working folder.

        Outputs of an attempt before are removed: they would hide that this one writes nothing.
        """
        self.folder.mkdir(parents=True)
        for name in self.order["clears"]:
            path = self.work / name
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path, ignore_errors=True)
            else:
                path.unlink(missing_ok=True)
        if self.order["argv"] is None:
            return self.work
        place = self._isolate() if self.order["isolated"] else self.work
        for name in self.order["outputs"]:
            if "/" in name:
                (place / name).parent.mkdir(parents=True, exist_ok=True)
        return place

    def _isolate(self) -> Path:
        """A working folder of its own, with nothing but the task's inputs.

        What it updates is a copy: a program that replaces a file would replace a link, and what was behind it stays.
        """
        work = self.folder / "work"
        work.mkdir()
        for name in self.order["inputs"]:
            if not name.startswith("/"):
                (work / name).parent.mkdir(parents=True, exist_ok=True)
                if name not in self.order["updates"]:
                    (work / name).symlink_to(self.work / name)
                elif (self.work / name).is_dir():
                    shutil.copytree(self.work / name, work / name, symlinks=True)
                elif (self.work / name).exists():
                    shutil.copy2(self.work / name, work / name)
        return work

    def _start(self, place: Path) -> None:
        """Start its program."""
        env = {**os.environ, **self.order["env"]}
        if self.order.get("gpus") is not None:
            env |= shown_gpus(self.gpus, os.environ)
        self.pid = _spawn(self.order["argv"], place, self.folder, env)

    def drop(self) -> None:
        """Let go of its process, if there is one: it ends without having done anything."""
        for fd in (self._go, self._words):
            if fd >= 0:
                os.close(fd)
        self.pid, self._go, self._words = 0, -1, -1

    def kill(self, number: int) -> None:
        """Send a signal to all processes of the task."""
        self.stopped = True
        assert self.pid, "this would be everybody"
        try:
            os.killpg(self.pid, number)
        except ProcessLookupError:  # it has not even got a group of its own
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def result(self, status: int, used: Any) -> Document:
        """Result of the attempt, as the controller reads it.

        Args:
            status: Wait status of its process.
            used: Resource usage of its process, as `os.wait4` gives it.
        """
        seconds = time.monotonic() - self.begun
        before, peak, error = self._read_words()
        self.drop()
        if error is not None and not self.stopped:
            place = f": {error['file']}" if error["file"] else ""
            reason = f"it cannot be started: {error['words']}{place}"
            return {"outcome": "failed", "reason": reason, "began": self.began, "seconds": 0.0}
        code = os.waitstatus_to_exitcode(status)
        reason = "" if code == 0 else f"it exited with code {code}" if code > 0 else f"signal {-code} ended it"
        if not reason:
            try:
                reason = self._deliver()
            except OSError as wrong:
                reason = f"its outputs cannot be kept: {wrong.strerror or wrong}"
        grew = used.ru_maxrss > peak if peak else _grew(used.ru_maxrss)
        return {
            "outcome": "stopped" if self.stopped else "failed" if reason else "done",
            "reason": reason,
            "exit_code": code,
            "began": self.began,
            "seconds": seconds,
            "cpu_seconds": max(0.0, used.ru_utime + used.ru_stime - before),
            **({"peak_memory_bytes": used.ru_maxrss * 1024} if grew else {}),
        }

    def _read_words(self) -> tuple[float, int, Any]:
        """Read the messages of its process: processor time and memory (KiB) at its begin, and an error or None."""
        if self._words < 0:
            return 0.0, 0, None
        with contextlib.suppress(BlockingIOError):  # somebody else holds the other end, and has said nothing
            os.set_blocking(self._words, False)
            said = os.read(self._words, 1 << 16)
            used, error = {"cpu": 0.0, "peak": 0}, None
            for line in said.splitlines():
                document = json.loads(line)
                used, error = (used, document) if "words" in document else (document, error)
            return used["cpu"], int(used["peak"]), error
        return 0.0, 0, None

    def _deliver(self) -> str:
        """Check that the outputs exist, and move them to where others find them; returns the trouble in words."""
        isolated = self.order["isolated"] and self.order["argv"] is not None
        place = self.folder / "work" if isolated else self.work
        outputs = [*self.order["outputs"], *self.order["updates"]]
        missing = [name for name in outputs if not (place / name).exists()]
        if missing:
            more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
            return f"it ended without writing its output {missing[0]}{more}"
        if isolated:
            for number, name in enumerate(outputs):
                target = self.work / name
                target.parent.mkdir(parents=True, exist_ok=True)
                old = self.folder / f"old{number}"
                if target.is_dir() and not target.is_symlink():  # one folder does not replace another
                    target.replace(old)
                (place / name).replace(target)
                shutil.rmtree(old, ignore_errors=True)
            shutil.rmtree(place, ignore_errors=True)
        return ""


def shown_gpus(places: Sequence[int], machine: Mapping[str, str]) -> dict[str, str]:
    """Make the variables that show a task some of the GPUs of its machine, and no others.

    Args:
        places: Places of the GPUs among those that the machine's program may use.
        machine: Environment of that program; it may be shown some of the GPUs of a larger machine.
    """

    def names(variable: str) -> str:
        known = [name.strip() for name in machine[variable].split(",")] if machine.get(variable) else []
        return ",".join(known[place] if place < len(known) else str(place) for place in places)

    found = {"CUDA_VISIBLE_DEVICES": names("CUDA_VISIBLE_DEVICES")}
    found["CUDA_DEVICE_ORDER"] = machine.get("CUDA_DEVICE_ORDER", "PCI_BUS_ID")
    if "ROCR_VISIBLE_DEVICES" in machine or "HIP_VISIBLE_DEVICES" in machine:
        # HIP counts among the devices that ROCr shows.
        found["ROCR_VISIBLE_DEVICES"] = names("ROCR_VISIBLE_DEVICES")
        found["HIP_VISIBLE_DEVICES"] = ",".join(str(place) for place in range(len(places)))
    return found


def _spawn(argv: list[str], place: Path, folder: Path, env: dict[str, str]) -> int:
    """Start a program, in a session of its own; `subprocess` takes 0.2 ms longer.

    Args:
        argv: The program and its arguments.
        place: Working folder.
        folder: Folder of the files for stdout and stderr.
        env: Environment variables of the program.

    Returns:
        The id of its process.

    Raises:
        OSError: It cannot be started.
    """
    prints = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
    files = [
        (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
        (os.POSIX_SPAWN_OPEN, 1, str(folder / "stdout"), prints, 0o666),
        (os.POSIX_SPAWN_OPEN, 2, str(folder / "stderr"), prints, 0o666),
    ]
    here = os.open("/", os.O_RDONLY | os.O_DIRECTORY)
    with contextlib.suppress(OSError):  # the folder that this process was started in may be gone
        here, root = os.open(".", os.O_RDONLY | os.O_DIRECTORY), here
        os.close(root)
    try:
        os.chdir(place)
        error = OSError(errno.ENOENT, os.strerror(errno.ENOENT), argv[0])
        for program in _found(argv[0], env):
            try:
                return os.posix_spawn(program, argv, env, file_actions=files, setsid=True, setsigdef=_DEFAULT_SIGNALS)
            except OSError as wrong:
                error = OSError(wrong.errno, wrong.strerror, argv[0])
        raise error
    finally:
        os.fchdir(here)
        os.close(here)


def _found(name: str, env: dict[str, str]) -> list[str]:
    """The files that a program's name may mean; one with a slash means a place, from the folder where it works."""
    if "/" in name:
        return [name]
    places = [f"{folder}/{name}" for folder in os.get_exec_path(env)]
    return [place for place in places if os.access(place, os.F_OK)]


_most_seen = 0


def _grew(peak: int) -> bool:
    """True if a process has had more memory than this one ever had; it begins with the memory of its parent.

    Args:
        peak: Most memory that it had, in KiB.
    """
    global _most_seen
    if peak > _most_seen:  # this one only grows, and looking takes a tenth of a millisecond
        _most_seen = _most_memory()
    return peak > _most_seen


def _most_memory() -> int:
    """KiB that this process has had at most; what `getrusage` says has that of who started it in it."""
    with contextlib.suppress(OSError, ValueError, StopIteration):
        lines = Path("/proc/self/status").read_text(encoding="ascii", errors="replace").splitlines()
        return int(next(line for line in lines if line.startswith("VmHWM:")).split()[1])
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


class _Child:
    """The process of an attempt that only sleeps.

    Args:
        attempt: The attempt.
    """

    def __init__(self, attempt: Attempt) -> None:
        self._order, self._work = attempt.order, attempt.work

    def run(self, waits: int, says: int) -> NoReturn:
        """Wait for the word, and do the task."""
        try:
            gc.disable()
            signal.set_wakeup_fd(-1)
            for number in (signal.SIGTERM, signal.SIGCHLD, signal.SIGINT, signal.SIGHUP):
                signal.signal(number, signal.SIG_DFL)
            os.setsid()
            low, high = sorted((waits, says))
            for first, last in ((3, low), (low + 1, high), (high + 1, _FEW_FILES)):
                os.closerange(first, last)  # or others would not see when the agent dies
            self._say_used(says)
            word = os.read(waits, _GO.size)
            if len(word) == _GO.size:  # or the agent is gone, or does not want it any more
                self._sleep(says, _GO.unpack(word)[0])
        finally:
            os._exit(1)

    def _sleep(self, says: int, now: float) -> NoReturn:
        """Sleep for as long as the task would take."""
        try:
            for name in self._order["outputs"]:
                file = self._work / name
                file.parent.mkdir(parents=True, exist_ok=True)
                file.touch()
        except OSError as error:
            self._fail(says, error, error.filename)
        time.sleep(max(0.0, now + self._order["seconds"] - time.monotonic()))
        os._exit(0)

    def _say_used(self, says: int) -> None:
        used = resource.getrusage(resource.RUSAGE_SELF)
        document = {"cpu": used.ru_utime + used.ru_stime, "peak": used.ru_maxrss}
        os.write(says, json.dumps(document).encode() + b"\n")

    def _fail(self, says: int, error: OSError, file: Any) -> NoReturn:
        document = {"words": error.strerror or str(error), "file": os.fsdecode(file) if file else ""}
        os.write(says, json.dumps(document).encode() + b"\n")
        os._exit(1)
