"""Starts wardens and talks to them (see `tradewind.deployer.runner.warden.warden`)."""

from __future__ import annotations

import json
import os
import select
import signal
import sys
import threading
import time
from collections import deque
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tradewind.errors import DeployError

_ANSWER_SECONDS = 60.0
_PIECE = 1 << 16

# The warden must start quickly, so the packages above it are entered without running their __init__ modules.
_BOOTSTRAP = """
import sys, types
name, path = "tradewind", sys.argv[1]
for part in ("", "deployer", "runner", "warden"):
    if part:
        name, path = name + "." + part, path + "/" + part
    module = types.ModuleType(name)
    module.__path__ = [path]
    sys.modules[name] = module
from tradewind.deployer.runner.warden.warden import main
main()
"""

_PACKAGE = Path(__file__).parents[3]

_LOCK = threading.Lock()
_LEFT: set[int] = set()  # wardens that were let go of, and have to be waited for once they have ended
_IDLE: list[WardenClient] = []
_kept = 0


def warden_command() -> list[str]:
    """The command line that starts a warden."""
    return [sys.executable, "-I", "-S", "-c", _BOOTSTRAP, str(_PACKAGE)]


def keep_wardens(count: int) -> None:
    """Keep up to so many idle wardens for the next runners of this process.

    Starting one takes more processor time than a short run; a process that makes a runner for each of many runs, as the
    service's worker does, keeps some. They end with this process.
    """
    global _kept
    _kept = count


def take_warden(log: Path) -> WardenClient:
    """Take an idle warden that was kept, or start a new one.

    Args:
        log: File that gets the warden's own error messages.

    Raises:
        DeployError: It cannot be started.
    """
    with _LOCK:
        for idle in [each for each in _IDLE if each.log == log]:
            _IDLE.remove(idle)
            if not idle.ended() and idle.alive:
                return idle
            idle.let_go()
    return WardenClient(log)


class WardenClient:
    """One warden process and the pipes to it.

    Args:
        log: File that gets the warden's own error messages.

    Raises:
        DeployError: The process cannot be started.
    """

    def __init__(self, log: Path) -> None:
        self.log = log
        self._runs: set[str] = set()
        self._ended: deque[Mapping[str, Any]] = deque()
        self._text = b""
        self._open = True
        theirs_in, self._write = os.pipe()
        self._read, theirs_out = os.pipe()
        command = warden_command()
        try:
            log.parent.mkdir(parents=True, exist_ok=True)
            self.pid = os.posix_spawn(
                command[0],
                command,
                os.environ,
                file_actions=[
                    (os.POSIX_SPAWN_DUP2, theirs_in, 0),
                    (os.POSIX_SPAWN_DUP2, theirs_out, 1),
                    (os.POSIX_SPAWN_OPEN, 2, str(log), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644),
                ],
                # An interrupt from the terminal is for the controller, which decides about the jobs.
                setsid=True,
                setsigdef=[signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGPIPE],
                setsigmask=[],
            )
        except OSError as error:
            os.close(self._write)
            os.close(self._read)
            raise DeployError(f"the process runner cannot start its helper ({command[0]}): {error.strerror}") from error
        finally:
            os.close(theirs_in)
            os.close(theirs_out)

    @property
    def alive(self) -> bool:
        """False once the warden has closed its pipes."""
        return self._open

    def fileno(self) -> int:
        """The descriptor of the warden's answers, for `select.select`."""
        return self._read

    def send(self, document: Mapping[str, Any]) -> bool:
        """Send an order to the warden.

        Returns:
            False when the warden is gone.
        """
        text = json.dumps(document).encode() + b"\n"
        try:
            while text:
                text = text[os.write(self._write, text) :]
        except OSError:
            self._open = False
        return self._open

    def start(self, order: Mapping[str, Any]) -> Mapping[str, Any] | None:
        """Order the start of a run and wait for the answer.

        Returns:
            The answer (``started`` or ``refused``), or None when the warden is gone.

        Raises:
            DeployError: The warden does not answer.
        """
        if not self.send(order):
            return None
        until = time.monotonic() + _ANSWER_SECONDS
        while self._open:
            left = until - time.monotonic()
            if left <= 0:
                raise DeployError(f"the helper process {self.pid} of the process runner does not answer")
            for event in self._receive(left):
                if event["run_id"] == order["run_id"] and event["event"] != "ended":
                    return event
        return None

    def ended(self) -> list[Mapping[str, Any]]:
        """The results of runs that have come in since the last call."""
        while self._open and self._receive(0):
            pass
        results = list(self._ended)
        self._ended.clear()
        return results

    @property
    def waiting(self) -> bool:
        """True when a result has come in that `ended` has not given yet."""
        return bool(self._ended)

    def _receive(self, seconds: float) -> list[Mapping[str, Any]]:
        ready, _, _ = select.select([self._read], [], [], max(0.0, seconds))
        if not ready:
            return []
        piece = os.read(self._read, _PIECE)
        if not piece:
            self._open = False
            return []
        *lines, self._text = (self._text + piece).split(b"\n")
        events = [json.loads(line) for line in lines]
        for event in events:
            if event["event"] == "started":
                self._runs.add(event["run_id"])
            elif event["event"] == "ended":
                self._runs.discard(event["run_id"])
                self._ended.append(event["result"])
        return events

    def close(self) -> None:
        """Let go of the warden; it ends when its jobs have, or waits for the next runner (`keep_wardens`)."""
        with _LOCK:
            if self._open and not self._runs and len(_IDLE) < _kept:
                _IDLE.append(self)
            else:
                self.let_go()
            for pid in tuple(_LEFT):
                _wait_for(pid)

    def let_go(self) -> None:
        """Close the pipes; the warden ends when its jobs have."""
        self._open = False
        os.close(self._write)
        os.close(self._read)
        _LEFT.add(self.pid)


def _wait_for(pid: int) -> None:
    """Collect a warden that has ended: otherwise it would stay a zombie in the table of processes."""
    try:
        if os.waitpid(pid, os.WNOHANG)[0] == 0:
            return
    except ChildProcessError:
        pass
    _LEFT.discard(pid)
