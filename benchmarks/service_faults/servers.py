"""A PostgreSQL and servers of Tradewind on it that are killed and started again."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil

TAG = "TRADEWIND_BENCHMARK"


@contextmanager
def postgresql() -> Iterator[str]:
    """The address of an empty database, until the block ends."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    if not found:
        raise SystemExit("PostgreSQL is not installed: apt-get install postgresql")
    binaries, folder = found[-1].parent, Path(tempfile.mkdtemp(prefix="twpg-"))
    options: dict[str, Any] = {"check": True, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    if os.geteuid() == 0:  # the server refuses to be run by root
        entry = pwd.getpwnam("postgres")
        shutil.chown(folder, "postgres")
        options |= {"user": entry.pw_uid, "group": entry.pw_gid, "extra_groups": []}
    data = folder / "data"
    try:
        subprocess.run([binaries / "initdb", "-D", data, "-U", "tw", "-A", "trust", "-E", "UTF8"], **options)
        flags = f"-k {folder} -c listen_addresses= -c max_connections=100"
        subprocess.run([binaries / "pg_ctl", "-D", data, "-w", "-l", folder / "log", "-o", flags, "start"], **options)
        try:
            yield f"postgresql+psycopg://tw@/postgres?host={folder}"
        finally:
            subprocess.run([binaries / "pg_ctl", "-D", data, "-m", "immediate", "stop"], **options)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


class Server:
    """``tradewind serve`` with its worker.

    Args:
        name: What its logs are called.
        database: Address of the store.
        home: The data folder, which all servers share.
        port: Where it listens.
        runs: Requests that it carries out at a time.
    """

    def __init__(self, name: str, database: str, home: Path, port: int, runs: int) -> None:
        self.url = f"http://127.0.0.1:{port}"
        self._log = home.parent / f"{name}.log"
        kept = {key: value for key, value in os.environ.items() if not key.startswith("TRADEWIND_")}
        self._environment = {**kept, "TRADEWIND_HOME": str(home), TAG: str(home)}
        words = ["serve", "--port", str(port), "--runs", str(runs), "--database", database]
        self._command = [sys.executable, "-m", "tradewind", *words]
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it; it listens a moment later."""
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                self._command, env=self._environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )

    @property
    def alive(self) -> bool:
        """Whether it runs."""
        return self._process is not None and self._process.poll() is None

    def worker(self) -> psutil.Process | None:
        """Its worker, or None while there is none."""
        with suppress(psutil.Error):
            for child in psutil.Process(self._process.pid).children() if self._process else ():
                if "worker_process" in " ".join(child.cmdline()):
                    return child
        return None

    def kill(self, what: str) -> None:
        """Kill with SIGKILL: the ``worker``, the ``server``, or ``both`` as a power cut does."""
        worker = self.worker()
        if what in ("server", "both") and self._process is not None:
            self._process.kill()
        if what in ("worker", "both") and worker is not None:
            with suppress(psutil.Error):
                worker.kill()
        if what != "worker" and self._process is not None:
            self._process.wait(10.0)

    def end(self) -> None:
        """End it in good order."""
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(20.0)
            if self._process.poll() is None:
                self._process.kill()


def left(home: Path, patience: float = 15.0) -> list[str]:
    """Processes of the servers, of their workers and of runs that are still there when all should be over."""
    until = time.monotonic() + patience
    while True:
        found = []
        for process in psutil.process_iter():
            with suppress(psutil.Error):
                if process.pid != os.getpid() and process.environ().get(TAG) == str(home):
                    found.append(f"{process.pid} {' '.join(process.cmdline())[:100]}")
        if not found or time.monotonic() > until:
            return found
        time.sleep(0.2)
