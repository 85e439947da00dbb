"""One attempt at a task, on the machine that runs it: its folders, its program, and what becomes of its outputs.

Like `agent`, beside which it lies on the machines, it has nothing but the standard library and what watches jobs there
(see `tradewind.deployer.runner.warden.jobs`).
"""

from __future__ import annotations

import contextlib
import os
import resource
import shutil
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tradewind.deployer.runner.warden.jobs import WatchedJob

TASK_TAG = "TRADEWIND_TASK_KEY"
"""The variable by which the processes of an attempt are found."""

Document = dict[str, Any]

_FULL_BYTES = 1 << 16
"""Bytes that a full disk may have left."""


class Attempt:
    """One attempt at a task: it will run, runs, or has run.

    Args:
        order: The controller's order.
        folder: The attempt's folder.

    Attributes:
        key: Name of the attempt in messages of the controller, ``TASK#ATTEMPT``.
        after: The keys of the attempts that it waits for.
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
        self.gpus: list[int] = []

    def prepare(self) -> Document:
        """Make its folders, and the order to start it.

        Raises:
            FileExistsError: Its folder is there: somebody has begun this attempt before.
            OSError: They cannot be made.
        """
        self.began, self.begun = time.time(), time.monotonic()
        place = self._make_room()
        if self.order["argv"] is None:
            until = self.begun + self.order["seconds"]
            return {"run_id": self.key, "folder": str(self.folder), "argv": None, "until": until}
        env = {**os.environ, **self.order["env"], TASK_TAG: self.key}
        if self.order.get("gpus") is not None:
            env |= shown_gpus(self.gpus, os.environ)
        return {
            "run_id": self.key,
            "folder": str(self.folder),
            "cwd": str(place),
            "argv": self.order["argv"],
            "env": env,
            "plain": True,
            "log_bytes": self.order.get("log_bytes"),
        }

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
            for name in self.order["outputs"]:
                file = self.work / name
                file.parent.mkdir(parents=True, exist_ok=True)
                file.touch()
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

    def result(self, job: WatchedJob) -> Document:
        """Result of the attempt, as the controller reads it.

        Args:
            job: Its job, which has ended.
        """
        assert job.exit is not None
        status, used, ended = job.exit
        code = os.waitstatus_to_exitcode(status)
        reason = "" if code == 0 else f"it exited with code {code}" if code > 0 else f"signal {-code} ended it"
        if not reason:
            try:
                reason = self._deliver()
            except OSError as wrong:
                reason = f"its outputs cannot be kept: {wrong.strerror or wrong}"
        elif _is_full(self.work):
            reason += ", and the disk of its machine is full"
        peak = max(job.peak, used.ru_maxrss * 1024 if _grew(used.ru_maxrss) else 0)
        return {
            "outcome": "stopped" if job.ending is not None else "failed" if reason else "done",
            "reason": reason,
            "exit_code": code,
            "began": self.began,
            "seconds": ended - self.begun,
            "cpu_seconds": job.cpu_seconds,
            **({"peak_memory_bytes": peak} if peak else {}),
            **({"truncated": True} if job.truncated else {}),
        }

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


def _is_full(place: Path) -> bool:
    """True where nothing can be written any more, so that a program could not say so either."""
    with contextlib.suppress(OSError):
        there = os.statvfs(place)
        return there.f_bavail * there.f_frsize < _FULL_BYTES
    return False


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
