"""Files and folders that go to other machines and come back, as streams of tar."""

from __future__ import annotations

import contextlib
import secrets
import shlex
import tarfile
import tempfile
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from subprocess import PIPE, Popen
from typing import IO, Any

from tradewind.errors import DeployError, UnreachableError

TRANSFER_SECONDS = 3600.0
"""How long a transfer may take; a connection that is dead ends it within seconds anyway."""

# What a login script prints comes first.
_MARK = b"--tradewind: from here on--\n"
_NOISE_BYTES = 1 << 16
_PIECE = 1 << 18
# What a killed sender has sent ends like something whole: a file is measured, a folder gets its name by a second call.
_PUT = """
umask 077; part=$1.part.$$
cat >"$part" && chmod "$2" "$part" && {
  size=$(wc -c <"$part"); [ "$size" -eq "$3" ] || { echo "$size of $3 bytes have come" >&2; false; }
} && mv -f "$part" "$1" || { rm -f "$part"; exit 1; }
"""
_PUT_FOLDER = 'umask 077; mkdir -p "$2" && tar xf - -C "$2" || { rm -rf "$2"; exit 1; }'
_NAME_FOLDER = 'rm -rf "$1" && mv "$2" "$1" || { rm -rf "$2"; exit 1; }'


@dataclass(frozen=True, slots=True)
class CommandResult:
    """What a command on another machine came to."""

    code: int
    stdout: bytes
    stderr: bytes


class FileTransfers(ABC):
    """Sends files to a machine and brings them back; nothing half-sent ever has its final name."""

    @abstractmethod
    def session(self, argv: Sequence[str], **pipes: Any) -> AbstractContextManager[Popen[bytes]]:
        """Run a command there as a process here."""

    @abstractmethod
    def judge(self, argv: Sequence[str], answer: CommandResult, *, check: bool = True) -> CommandResult:
        """Raise what an answer means, if it means an error."""

    def put(self, source: Path | bytes, remote: str, *, mode: int = 0o600, timeout: float = TRANSFER_SECONDS) -> None:
        """Write a file there, in a folder that is there.

        Args:
            source: A file of this machine, or the content.
            remote: Its path there; a relative one starts at the login's home.
            mode: Its permissions.
            timeout: Seconds that it may take.

        Raises:
            UnreachableError: The machine does not answer, or the connection is lost.
            CredentialsError: It does not let us in.
            DeployError: It cannot be written: the disk is full, there is no such folder, ...
        """

        def send(pipe: IO[bytes]) -> None:
            if isinstance(source, bytes):
                pipe.write(source)
                return
            with source.open("rb") as file:
                while piece := file.read(_PIECE):
                    pipe.write(piece)

        size = len(source) if isinstance(source, bytes) else source.stat().st_size
        self._send(["sh", "-c", _PUT, "put", remote, f"{mode:o}", str(size)], send, timeout)

    def put_folder(self, source: Path, remote: str, *, timeout: float = TRANSFER_SECONDS) -> None:
        """Make a folder there, in place of what has its name; see `put`.

        Args:
            source: A folder of this machine, or an archive that `pack` made.
            remote: Its path there.
            timeout: Seconds that it may take.
        """

        def send(pipe: IO[bytes]) -> None:
            if source.is_dir():
                with tarfile.open(fileobj=pipe, mode="w|", format=tarfile.GNU_FORMAT) as tar:
                    tar.add(source, ".")
                return
            with source.open("rb") as file:
                while piece := file.read(_PIECE):
                    pipe.write(piece)

        part = f"{remote}.part.{secrets.token_hex(6)}"
        self._send(["sh", "-c", _PUT_FOLDER, "put", remote, part], send, timeout)
        self._send(["sh", "-c", _NAME_FOLDER, "put", remote, part], lambda _: None, timeout)

    def _send(self, argv: Sequence[str], send: Callable[[IO[bytes]], None], timeout: float) -> None:
        with (
            tempfile.TemporaryFile() as errors,
            self.session(argv, stdin=PIPE, stdout=errors, stderr=errors) as process,
            _ended_after(process, timeout) as late,
        ):
            assert process.stdin is not None
            try:
                with process.stdin as pipe:
                    send(pipe)
            except BrokenPipeError:
                pass  # the other end says why
            code = process.wait()
            errors.seek(0)
            if late.is_set():
                raise UnreachableError(f"sending files took longer than {timeout:g} s")
            self.judge([shlex.join(argv[4:5])], CommandResult(code, b"", errors.read()))

    def receive(
        self, argv: Sequence[str], take: Callable[[IO[bytes]], None], *, timeout: float = TRANSFER_SECONDS
    ) -> None:
        """Run a command there and let ``take`` read what it prints, as it comes.

        Raises:
            UnreachableError: The machine does not answer, or the connection is lost.
            CredentialsError: It does not let us in.
            DeployError: The command failed, or what ``take`` raises.
        """
        marked = ["sh", "-c", f'echo "{_MARK.decode().strip()}" && exec "$@"', "get", *argv]
        with (
            tempfile.TemporaryFile() as errors,
            self.session(marked, stdin=PIPE, stdout=PIPE, stderr=errors) as process,
            _ended_after(process, timeout) as late,
        ):
            assert process.stdout is not None
            assert process.stdin is not None
            process.stdin.close()
            problem: DeployError | None = None
            try:
                if _past_noise(process.stdout):
                    take(process.stdout)
            except DeployError as error:
                problem = error
                process.kill()
            code = process.wait()
            errors.seek(0)
            if late.is_set():
                raise UnreachableError(f"bringing files back took longer than {timeout:g} s")
            if problem is None or problem.retryable:
                # What came may be cut short because of what is said here.
                self.judge(argv, CommandResult(code if code >= 0 else 0, b"", errors.read()))
            if problem is not None:
                raise problem


def _past_noise(stream: IO[bytes]) -> bool:
    seen = 0
    while line := stream.readline(_NOISE_BYTES):
        seen += len(line)
        if line == _MARK:
            return True
        if seen > _NOISE_BYTES:
            break
    return False


@contextlib.contextmanager
def _ended_after(process: Popen[bytes], seconds: float) -> Iterator[threading.Event]:
    """Kill a process that takes too long; the event tells that it was."""
    late = threading.Event()

    def end() -> None:
        late.set()
        process.kill()

    timer = threading.Timer(seconds, end)
    timer.daemon = True
    timer.start()
    try:
        yield late
    finally:
        timer.cancel()
