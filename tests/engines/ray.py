"""A Ray cluster on this machine: a head without CPUs and two workers, each a ``ray start --block``."""

from __future__ import annotations

import importlib.util
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path

import psutil
import pytest
from tests.waiting import eventually

_START_SECONDS = 90.0
_ATTEMPTS = 3
ENVIRONMENT = {**os.environ, "RAY_AUTH_MODE": "disabled", "RAY_USAGE_STATS_ENABLED": "0", "RAY_DEDUP_LOGS": "0"}


class RayCluster:
    """The cluster; started by `start`, stopped by the pids of what it started.

    Args:
        python: The Python whose Ray it is; empty for this one.
    """

    def __init__(self, python: str = "") -> None:
        self._program = Path(python or sys.executable).with_name("ray")
        # Sockets below it have a path of 107 bytes at most.
        self.folder = Path(tempfile.mkdtemp(prefix="tw-ray-"))
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port: int = free.getsockname()[1]
        self._nodes: dict[str, subprocess.Popen[bytes]] = {}
        self._all: set[psutil.Process] = set()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def start(self) -> None:
        # Not at the same time: two nodes of one machine may choose the same ports.
        self.start_head()
        self.start_worker("one")
        self.start_worker("two")

    def start_head(self) -> None:
        place = f"--temp-dir={self.folder}/head-{len(self._all)}"
        self._launch("head", "--head", f"--port={self.port}", "--num-cpus=0", "--include-dashboard=false", place)

    def start_worker(self, name: str) -> None:
        self._launch(name, f"--address={self.address}", "--num-cpus=1", f'--resources={{"{name}": 4}}')

    def _launch(self, name: str, *words: str) -> None:
        command = [str(self._program), "start", "--block", "--disable-usage-stats", "--memory=8000000000"]
        command += ["--object-store-memory=80000000", *words]
        for _ in range(_ATTEMPTS):
            with self._log(name).open("wb") as log:
                node = self._nodes[name] = subprocess.Popen(
                    command, stdout=log, stderr=log, env=ENVIRONMENT, start_new_session=True
                )
            eventually(partial(self._started_or_ended, name), _START_SECONDS, f"Ray's node {name}", self._log(name))
            self._all |= self._tree(name)
            if node.poll() is None:
                return
            # On a busy machine a raylet may take longer than Ray waits for it.
        raise RuntimeError(f"Ray's node {name} does not start: {self._log(name).read_text()[-2000:]}")

    def _started_or_ended(self, name: str) -> bool:
        return b"Ray runtime started" in self._log(name).read_bytes() or self._nodes[name].poll() is not None

    def _log(self, name: str) -> Path:
        return self.folder / f"{name}.log"

    def _tree(self, name: str) -> set[psutil.Process]:
        try:
            parent = psutil.Process(self._nodes[name].pid)
            return {parent, *parent.children(recursive=True)}
        except psutil.Error:
            return set()

    def raylet(self, name: str) -> psutil.Process:
        """The process without which a node is dead."""
        return next(each for each in self._tree(name) if each.name() == "raylet")

    def processes(self, words: str) -> list[psutil.Process]:
        """Those of its processes that call themselves so, `ray::` with a class or a function."""
        found = []
        for process in {each for name in self._nodes for each in self._tree(name)}:
            with suppress(psutil.Error):
                if words in " ".join(process.cmdline()):
                    found.append(process)
        return found

    def kill(self, name: str) -> None:
        """A node ends as if its power went."""
        tree = self._tree(name)
        for process in tree:
            if process.name() in ("raylet", "gcs_server"):
                process.kill()
        _end(tree)
        self._nodes.pop(name).wait()

    def stop(self) -> None:
        every = set(self._all)
        for name in self._nodes:
            every |= self._tree(name)
        for node in self._nodes.values():
            node.send_signal(signal.SIGTERM)
        psutil.wait_procs(every, timeout=5)
        _end(every)
        for node in self._nodes.values():
            node.wait()
        shutil.rmtree(self.folder, ignore_errors=True)


def _end(processes: set[psutil.Process]) -> None:
    for process in processes:
        try:
            process.kill()
        except psutil.Error:
            continue
    psutil.wait_procs(processes, timeout=10)


@pytest.fixture(scope="module")  # two gigabytes: they are not kept for the rest of the session
def ray_cluster() -> Iterator[RayCluster]:
    """A head and two workers with a CPU each; stopped at the end."""
    if importlib.util.find_spec("ray") is None:
        message = "!!! ENGINE MISSING: there is no ray: pip install 'tradewind[ray]'"
        pytest.skip(message)
    cluster = RayCluster()
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.stop()
