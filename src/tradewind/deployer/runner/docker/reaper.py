"""Ends runs at their wall time when no controller does: a small process that outlives the controlling one.

It is started as ``python -m tradewind.deployer.runner.docker.reaper``, one for each data folder and engine.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

from tradewind.deployer.runner.docker import names
from tradewind.deployer.runner.docker.engine import ContainerEngine, EngineAddress
from tradewind.deployer.runner.docker.names import InspectedContainer
from tradewind.deployer.runner.docker.settings import DockerSettings
from tradewind.errors import TradewindError

_LATE_SECONDS = 0.5  # whoever polls comes first
_LOOK_SECONDS = 5.0
_IDLE_SECONDS = 1.0
_UNREACHABLE_SECONDS = 600.0


def _lock_path(folder: Path, address: EngineAddress) -> Path:
    return folder / f"reaper-{hashlib.sha256(str(address).encode()).hexdigest()[:16]}"


def _locked(path: Path) -> IO[str] | None:
    """The lock of a reaper, or None while one is at work."""
    path.parent.mkdir(parents=True, exist_ok=True)
    file = path.open("a+")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        file.close()
        return None
    return file


def ensure_reaper(folder: Path, address: EngineAddress, settings: DockerSettings) -> None:
    """Start the reaper of an engine unless there is one.

    Args:
        folder: The folder with its lock.
        address: The address of the engine.
        settings: The settings of the runner.
    """
    path = _lock_path(folder, address)
    with suppress(OSError):  # without a reaper the wall time is still kept by whoever polls
        lock = _locked(path)
        if lock is None:
            return
        # The reaper inherits the lock: there is no moment without one.
        order = {"address": address.to_json(), "settings": settings.model_dump(), "path": str(path)}
        with lock:
            command = [sys.executable, "-m", "tradewind.deployer.runner.docker.reaper", str(lock.fileno())]
            process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                pass_fds=(lock.fileno(),),
                start_new_session=True,
            )
            process.returncode = 0  # it outlives this process on purpose: the object is not to miss its end
            _RUNNING.append(process.pid)
            _RUNNING[:] = [pid for pid in _RUNNING if not _has_ended(pid)]
            assert process.stdin is not None
            with process.stdin as pipe:
                pipe.write(json.dumps(order).encode())
            os.truncate(path, 0)
            path.write_text(str(process.pid))


_RUNNING: list[int] = []
"""The reapers that this process started, kept so that they leave no zombies."""


def _has_ended(pid: int) -> bool:
    try:
        return os.waitpid(pid, os.WNOHANG)[0] == pid
    except ChildProcessError:  # another thread has collected it
        return True


class _Reaper:
    """Ends the overdue containers of one engine, each with the grace in its labels, or else ours."""

    def __init__(self, engine: ContainerEngine, grace: float) -> None:
        self._engine = engine
        self._grace = grace
        self._ends: dict[str, tuple[float, float]] = {}  # when each is overdue, and its grace
        self._terminated: set[str] = set()  # containers that have got SIGTERM

    def reap(self) -> float | None:
        """End the containers that are overdue.

        Returns:
            Seconds until the next will be; None when no container with a wall time runs.
        """
        filters = {"label": [names.WALL], "status": ["created", "running", "paused"]}
        rows = self._engine.call(lambda client: client.containers(all=True, filters=filters))
        there = {row["Id"]: row for row in rows if (row.get("Labels") or {}).get(names.WALL)}
        for container in set(there) - set(self._ends):
            if there[container]["State"] == "created":
                continue
            facts = self._facts(container)
            end = facts.started + (facts.wall or 0.0) + _LATE_SECONDS
            self._ends[container] = end, names.grace_of(facts.labels, self._grace)
        self._ends = {container: known for container, known in self._ends.items() if container in there}
        now = self._engine.now()
        for container, (end, grace) in self._ends.items():
            if now >= end + grace:
                self._signal(container, "SIGKILL")
            elif now >= end and container not in self._terminated:
                self._terminated.add(container)
                self._signal(container, "SIGTERM")
        if not self._ends:
            # What was never started has no wall time: whoever created it comes back, or it does nothing.
            return None
        moments = [(end, end + grace) for end, grace in self._ends.values()]
        pauses = [next((each - now for each in pair if each > now), _LATE_SECONDS) for pair in moments]
        return max(0.05, min(pauses))

    def _facts(self, container: str) -> InspectedContainer:
        return InspectedContainer.of(self._engine.call(lambda client: client.inspect_container(container)))

    def _signal(self, container: str, signal: str) -> None:
        from docker.errors import APIError

        with suppress(APIError):
            self._engine.call(lambda client: client.kill(container, signal))

    @property
    def last(self) -> float:
        """The time at which the last of the known runs is overdue, in seconds since the epoch; 0 without any."""
        return max((end for end, _ in self._ends.values()), default=0.0)


def main(descriptor: int, order: dict[str, Any]) -> None:
    """Reap until no container with a wall time runs.

    Args:
        descriptor: The file descriptor of the open lock.
        order: The engine's ``address``, the runner's ``settings``, and the ``path`` of the lock.
    """
    path = Path(order["path"])
    lock: IO[str] | None = os.fdopen(descriptor, "a+")
    settings = DockerSettings.model_validate(order["settings"])
    engine = ContainerEngine(EngineAddress.from_json(order["address"]), settings)
    reaper = _Reaper(engine, settings.grace)
    unheard = time.time()
    idle = 0
    while lock is not None:
        pause: float | None = _LOOK_SECONDS
        try:
            pause = reaper.reap()
            unheard = time.time()
        except (TradewindError, OSError, ValueError):
            if time.time() > max(unheard, reaper.last) + _UNREACHABLE_SECONDS:
                return
        except Exception:
            time.sleep(1.0)  # the engine said something strange: it is starting, or ending
        idle = idle + 1 if pause is None else 0
        if idle > 1:
            # Looked at once more without the lock: who starts a run from now on starts a reaper.
            lock.close()
            lock = _locked(path) if reaper.reap() is not None else None
        time.sleep(_IDLE_SECONDS if pause is None else min(_LOOK_SECONDS, pause))


if __name__ == "__main__":
    main(int(sys.argv[1]), json.load(sys.stdin))
