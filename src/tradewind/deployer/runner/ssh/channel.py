"""A long SSH session with the far side of the ssh runner: requests and answers, and events in between.

The far side is the script that runs on a machine (``far_*.sh``). A request costs neither a new session nor a login
shell, and the far side reports by itself when a run has ended.
"""

from __future__ import annotations

import contextlib
import os
import select
import shlex
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from importlib.resources import files
from subprocess import PIPE, Popen

from tradewind.deployer.ssh_connection import CommandResult, SshConnection
from tradewind.errors import DeployError, UnreachableError

SCRIPT_PARTS = ("far_common.sh", "far_requests.sh", "far_run.sh")
"""The files that make the script of the far side, in order."""

_MARK = "--tradewind: from here on--"
_OPEN = (
    f'(umask 077; mkdir -p "$1") && echo "{_MARK}" || exit 1; f=$1/far-$2.sh; '
    'if [ -f "$f" ]; then exec sh "$f" "$1" serve; fi; echo missing'
)
_NOISE_LINES = 1000
_PIECE = 1 << 16


def script() -> bytes:
    """The script of the far side."""
    room = files("tradewind.deployer.runner.ssh")
    return b"\n".join(room.joinpath(part).read_bytes() for part in SCRIPT_PARTS)


class LostError(UnreachableError):
    """A session that broke off, or an answer that did not come in time."""


class SshChannel:
    """A session with the script on a machine, over an SSH connection; one request at a time.

    Args:
        link: The connection.
        folder: The folder on the machine.
        digest: The version of the script, as a part of its file's name.
        on_event: Called in a thread with the name and the result of each run that has ended, separated by a blank, and
            with None when the session ends.
        seconds: Seconds that the far side may take to begin.

    Raises:
        UnreachableError: The machine does not answer.
        CredentialsError: It does not let us in.
        FileNotFoundError: The script is not there yet.
        DeployError: The folder cannot be made.
    """

    def __init__(
        self, link: SshConnection, folder: str, digest: str, on_event: Callable[[str | None], None], seconds: float
    ) -> None:
        self._link = link
        self._on_event = on_event
        self._held = contextlib.ExitStack()
        self._said: deque[str] = deque(maxlen=20)
        self._buffer = b""
        self._number = 0
        self.open = True
        argv = ["sh", "-c", _OPEN, "far", folder, digest]
        self._process: Popen[bytes] = self._held.enter_context(link.session(argv, stdin=PIPE, stdout=PIPE, stderr=PIPE))
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._in, self._out = self._process.stdin.fileno(), self._process.stdout.fileno()
        os.set_blocking(self._in, False)
        self._listener = threading.Thread(target=self._listen, name="tradewind-ssh", daemon=True)
        self._listener.start()
        try:
            end = time.monotonic() + seconds
            for _ in range(_NOISE_LINES):  # what login scripts print
                if self._line(end) == _MARK:
                    break
            [hello] = [line for line in self.request("hello", seconds=seconds, first=True) if line.startswith("hello ")]
        except BaseException:
            self.close()
            raise
        words, slash, rest = hello.partition(" /")  # the folder comes last: there may be blanks in it
        self.folder = slash.strip() + rest
        _, self.host, *tools = words.split(" ")
        self.tools = frozenset(tools)

    def request(self, *words: str, seconds: float, first: bool = False) -> list[str]:
        """Send a request, and wait for the lines of the answer.

        Args:
            words: The request and its arguments.
            seconds: Seconds that the answer may take.
            first: True for the first request, which finds out that the script is missing.

        Raises:
            LostError: There is no answer in time; the session is over.
            FileNotFoundError: The script is not there yet.
        """
        self._number += 1
        end = time.monotonic() + seconds
        try:
            self._write(f"{self._number} {shlex.join(words)}\n".encode(), end)
            lines: list[str] = []
            while not (line := self._line(end)).startswith(f".end {self._number} "):
                if first and line == "missing":
                    raise FileNotFoundError
                lines.append(line)
        except BaseException:
            self.close()
            raise
        return lines

    def _write(self, data: bytes, end: float) -> None:
        poller = select.poll()
        poller.register(self._in, select.POLLOUT)
        while data:
            if not poller.poll(max(0.0, end - time.monotonic()) * 1000):
                raise self._late()
            try:
                data = data[os.write(self._in, data[:_PIECE]) :]
            except BlockingIOError:
                continue
            except BrokenPipeError:
                if not self._number or self._out_has_data():
                    return  # the lines before the end are to be read first
                raise self._lost() from None

    def _out_has_data(self) -> bool:
        return bool(self._buffer) or bool(select.select([self._out], [], [], 0)[0])

    def _line(self, end: float) -> str:
        poller = select.poll()
        poller.register(self._out, select.POLLIN)
        while b"\n" not in self._buffer:
            if not poller.poll(max(0.0, end - time.monotonic()) * 1000):
                raise self._late()
            piece = os.read(self._out, _PIECE)
            if not piece:
                raise self._lost()
            self._buffer += piece
        line, _, self._buffer = self._buffer.partition(b"\n")
        return line.decode(errors="surrogateescape")

    def _late(self) -> LostError:
        return LostError(f"{self._link.target.host} does not answer")

    def _lost(self) -> DeployError:
        self._listener.join(1.0)
        try:
            code = self._process.wait(1.0)
        except Exception:
            code = 255
        words = "\n".join(self._said).encode(errors="replace")
        try:
            self._link.judge(["the far side"], CommandResult(code, b"", words))
        except UnreachableError as error:
            return LostError(error.message, hint=error.hint)
        except DeployError as error:
            return error
        return LostError(f"the connection to {self._link.target.host} was lost")

    def _listen(self) -> None:
        assert self._process.stderr is not None
        with contextlib.suppress(OSError, ValueError):
            for raw in self._process.stderr:
                line = raw.decode(errors="replace").strip()
                if line.startswith("event "):
                    self._on_event(line.removeprefix("event "))
                else:
                    self._said.append(line)
        self.open = False
        self._on_event(None)

    @property
    def trouble(self) -> str:
        """The last line of the far side's standard error, or empty."""
        return self._said[-1] if self._said else ""

    def close(self) -> None:
        """End the session; runs are not touched."""
        self.open = False
        self._held.close()


def single_word(lines: Sequence[str]) -> str:
    """The one word that an answer consists of; empty where there is none."""
    return lines[-1] if lines else ""
