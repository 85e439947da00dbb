"""Devices (GPUs) of this machine, given to runs: to each its own ones, or a part of one.

A note for each run that has some lies in one folder, which all wardens of a data folder share; a lock on it is held
while one is added. It names the run's warden: a run ends with its warden, so that a note whose warden is gone, or was
of an earlier boot, counts no more. Nothing has to be given back after a crash.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator, Mapping, Sequence

from tradewind.deployer.runner import procfs
from tradewind.deployer.runner.warden.files import Document, StartRefused, quietly, text_of, write_document

_LOCK = "lock"
_SLACK = 1e-6


def _notes(folder: str) -> Iterator[tuple[str, Document]]:
    """The notes of living wardens, with their files; others are removed."""
    boot = procfs.boot_id()
    for name in os.listdir(folder):  # noqa: PTH208  (no pathlib in the warden)
        if not name.endswith(".json"):
            continue
        path = f"{folder}/{name}"
        try:
            note: Document = json.loads(text_of(path) or "")
            lives = note["boot"] == boot and procfs.alive(*note["warden"])
        except (ValueError, LookupError, TypeError):
            lives, note = False, {}
        if lives:
            yield path, note
        else:
            quietly(os.unlink, path)


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


class DeviceNotes:
    """The devices that the runs of one warden have.

    Args:
        identity: What tells this warden from others: ``boot``, and ``warden`` as pid and start time.
    """

    def __init__(self, identity: Mapping[str, object]) -> None:
        self._identity = identity
        self._files: dict[str, str] = {}

    def take(self, run_id: str, folder: str, names: Sequence[str], amount: float) -> list[str]:
        """Take devices for a run.

        Args:
            run_id: The run.
            folder: Where the notes are.
            names: All devices of the machine.
            amount: A whole number of devices, or a part of one.

        Returns:
            The names of its devices.

        Raises:
            StartRefused: Others have them (``busy``).
            OSError: The note cannot be written.
        """
        os.makedirs(folder, exist_ok=True)  # noqa: PTH103
        lock = os.open(f"{folder}/{_LOCK}", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            free = dict.fromkeys(names, 1.0)
            for _, note in _notes(folder):
                for name in note["devices"]:
                    if name in free:
                        free[name] -= note["part"]
            devices = choose_devices(free, amount)
            if not devices:
                raise StartRefused("busy")
            path = f"{folder}/{os.getpid()}-{len(self._files)}-{run_id}.json"
            note = {**self._identity, "run_id": run_id, "devices": devices, "part": min(1.0, amount)}
            write_document(path, note)
        finally:
            os.close(lock)
        self._files[run_id] = path
        return devices

    def give_back(self, run_id: str) -> None:
        """Let others have the devices of a run that has ended; one that had none changes nothing."""
        if (path := self._files.pop(run_id, None)) is not None:
            quietly(os.unlink, path)
