"""Supervises a child process of the server: starts it, restarts it when it dies, and ends it."""

from __future__ import annotations

import contextlib
import json
import logging
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tradewind.service.operations.server_log import start_logging
from tradewind.service.settings import ServiceSettings


def child_configuration(settings: ServiceSettings, url: str, data_folder: Path, **more: Any) -> dict[str, Any]:
    """Build the configuration of a child process, which it reads as one line of JSON from standard input.

    Args:
        settings: The server's settings.
        url: Address of the store.
        data_folder: Folder for runs, runners and refreshed prices.
        more: Further values for this kind of process.
    """
    return {"settings": settings.model_dump(mode="json"), "url": url, "data_folder": str(data_folder), **more}


def read_configuration() -> tuple[ServiceSettings, dict[str, Any]] | None:
    """Read the configuration of this process from standard input, and start its log.

    Returns:
        The settings, and the whole configuration; None when the server ended before it wrote one.
    """
    line = sys.stdin.buffer.readline()
    if not line:
        return None
    document = json.loads(line)
    settings = ServiceSettings.model_validate(document["settings"])
    start_logging(settings.log_format, settings.log_level)
    return settings, document


_FIRST_WAIT, _LONGEST_WAIT = 0.5, 30.0
_SETTLED_SECONDS = 60.0
"""Seconds of life after which a process counts as healthy: the next one is started at once."""

_log = logging.getLogger("tradewind.service.children")


class ChildProcess:
    """A process that is kept alive by a thread.

    It gets its configuration as one line of JSON on standard input, which stays open: when this process is gone, the
    child reads the end of it, and ends too.

    Args:
        name: Name in logs.
        words: The program and its arguments.
        configuration: Its configuration; see `child_configuration`.
        keeps: File descriptors of this process that it inherits.
    """

    def __init__(
        self, name: str, words: Sequence[str], configuration: Mapping[str, Any], keeps: Sequence[int] = ()
    ) -> None:
        self.name = name
        self.restarts = 0
        self._words = list(words)
        self._keeps = tuple(keeps)
        self._configuration = json.dumps(dict(configuration)).encode() + b"\n"
        self._process: subprocess.Popen[bytes] | None = None
        self._ending = threading.Event()
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._look_after, name=f"tradewind-{name}", daemon=True)

    @property
    def alive(self) -> bool:
        """True while the process runs."""
        process = self._process
        return process is not None and process.poll() is None

    @property
    def pid(self) -> int | None:
        """Process id of the process that runs now."""
        return self._process.pid if self.alive and self._process is not None else None

    def start(self) -> None:
        """Start it, and supervise it from now on."""
        self._thread.start()

    def end(self) -> None:
        """Ask it to end, and do not start it again."""
        self._ending.set()
        with self._lock:
            if self._process is not None:
                self._process.terminate()

    def send_signal(self, number: int) -> None:
        """Send it a signal, if it runs."""
        with self._lock:
            if self._process is not None:
                self._process.send_signal(number)

    def join(self, seconds: float) -> bool:
        """Wait until it has ended; kill it when it takes longer.

        Returns:
            True where it ended by itself.
        """
        self._thread.join(seconds)
        if not self._thread.is_alive():
            return True
        _log.error("%s did not end within %.0f s, and was killed", self.name, seconds)
        self.kill()
        self._thread.join(5.0)
        return False

    def kill(self) -> None:
        """Kill it at once."""
        self._ending.set()
        with self._lock:
            if self._process is not None:
                self._process.kill()

    def _look_after(self) -> None:
        wait = 0.0
        while not self._ending.wait(wait):
            started = time.monotonic()
            try:
                process = self._spawn()
            except OSError as error:
                _log.error("%s cannot be started: %s", self.name, error)
                wait = self._next(wait, 0.0)
                continue
            if process is None:
                return
            code = process.wait()
            with contextlib.suppress(OSError):
                process.stdin.close()  # type: ignore[union-attr]
            if self._ending.is_set():
                _log.info("%s has ended", self.name)
                return
            self.restarts += 1
            wait = self._next(wait, time.monotonic() - started)
            how = f"was ended by signal {-code}" if code < 0 else f"ended with code {code}"
            facts = {"child": self.name, "code": code, "restarts": self.restarts}
            _log.error("%s %s; it is started again in %.1f s", self.name, how, wait, extra={"facts": facts})

    def _spawn(self) -> subprocess.Popen[bytes] | None:
        with self._lock:  # so that `end` finds either no process, or one that it can tell
            if self._ending.is_set():
                return None
            # A session of its own: Ctrl-C in the terminal is for this process, which tells its children.
            process = subprocess.Popen(self._words, stdin=subprocess.PIPE, start_new_session=True, pass_fds=self._keeps)
            self._process = process
        assert process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            process.stdin.write(self._configuration)
            process.stdin.flush()
        _log.info("%s is process %d", self.name, process.pid)
        return process

    @staticmethod
    def _next(wait: float, lived: float) -> float:
        if lived >= _SETTLED_SECONDS:
            return _FIRST_WAIT
        return min(max(2 * wait, _FIRST_WAIT), _LONGEST_WAIT)
