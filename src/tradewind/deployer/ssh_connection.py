"""Reaches other machines by SSH: commands, files and tunnels, over one connection for each machine.

The user's own ``ssh`` program does it, so that what works in a terminal (agents, jump hosts, ``~/.ssh/config``) works
here. A command is a list of words; each is quoted for the shell of the other side, so that no value becomes a command.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import secrets
import shlex
import socket
import stat
import subprocess
import tarfile
import tempfile
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from subprocess import PIPE, Popen
from typing import IO, Any

from tradewind.deployer.ssh_target import SshSettings, SshTarget, parse_host
from tradewind.errors import CredentialsError, DeployError, MissingProgramError, UnreachableError
from tradewind.utils.dependencies import find_program
from tradewind.utils.paths import expand


def ssh_error(stderr: bytes, target: SshTarget, *, opening: bool, program: str = "", code: int = 255) -> DeployError:
    """Make the error that fits the messages of ``ssh``, or of a command on the other machine.

    Args:
        stderr: What it said.
        target: The machine, and how it was reached.
        opening: True when the connection was being opened.
        program: The command, if it was started.
        code: Its exit code.
    """
    text, host = stderr.decode(errors="replace"), target.host
    lines = [line.strip() for line in text.splitlines() if line.strip() and not line.startswith(("Warning:", "@"))]
    why = lines[-1] if lines else "no reason given"
    if program:
        if "No space left on device" in text or "Disk quota exceeded" in text:
            return DeployError(f"the disk of {host} is full", hint="make room there")
        return DeployError(f"{program} on {host}: {lines[0] if lines else f'exit code {code}'}")
    return _refusal(text, target, why) or _silence(text, host, why, opening=opening)


_CHANGED_KEY = re.compile(r"Host key for (\S+) has changed")
_OLD_KEY_FILE = re.compile(r"Offending \S+ key in (.+):\d+")
_UNKNOWN_KEY = re.compile(r"host key is known for (\S+) and")
_LOOSE_KEY = re.compile(r"Permissions \d+ for ['\"](.+)['\"] are too open")
_ASKED_PORT = re.compile(r"connect to host \S+ port (\d+)")


def _refusal(text: str, target: SshTarget, why: str) -> CredentialsError | None:
    """The error where somebody answered and did not let us in.

    What ssh names is taken from its own words: with jump hosts, it may speak of another machine than the target.
    """
    host = target.host
    if "REMOTE HOST IDENTIFICATION HAS CHANGED" in text:
        name, file = _CHANGED_KEY.search(text), _OLD_KEY_FILE.search(text)
        words = ["ssh-keygen", "-R", name[1] if name else host, *(["-f", file[1]] if file else [])]
        return CredentialsError(
            f"{host}: its host key is not the one that is known: it has changed, or another machine answers",
            hint=f"if that is right, remove the old key: {shlex.join(words)}",
        )
    if "Host key verification failed" in text or "host key is known" in text:
        name = _UNKNOWN_KEY.search(text)
        return CredentialsError(
            f"{host}: its host key is not known",
            hint=f"{_by_hand(target, name[1] if name else '')} once by hand and compare the key, or set known_hosts",
        )
    # Then ssh goes on without the key, and ends with "Permission denied".
    if loose := _LOOSE_KEY.search(text):
        return CredentialsError(
            f"{host} does not let us in: others may read the private key {loose[1]}, so ssh does not use it",
            hint=shlex.join(["chmod", "600", loose[1]]),
        )
    if "invalid format" in text or "error in libcrypto" in text:
        return CredentialsError(f"the private key for {host} cannot be used: {why}", hint="take another key")
    if "Permission denied" in text or "Too many authentication failures" in text:
        return CredentialsError(f"{host} does not let us in: {why}", hint="set user and identity, or load the agent")
    if "Bad configuration option" in text or "Bad owner or permissions" in text:
        return CredentialsError(f"ssh does not like its configuration: {why}", hint="look into ~/.ssh/config")
    return None


def _by_hand(target: SshTarget, named: str) -> str:
    """The command that opens the connection by hand, so that ssh asks whether the host key is right.

    Args:
        target: The machine.
        named: The machine as its key is looked up by: ``host``, or ``[host]:port``; empty where ssh did not say.
    """
    host, port = target.host, target.port
    if named:
        inner, _, outer = named.removeprefix("[").partition("]:")
        host, port = inner, int(outer) if outer.isdigit() else None
    words = ["ssh", *(["-o", f"UserKnownHostsFile={expand(target.known_hosts)}"] if target.known_hosts else [])]
    login = f"{target.user}@{host}" if target.user else host
    return shlex.join([*words, *(["-p", str(port)] if port else []), login])


def _silence(text: str, host: str, why: str, *, opening: bool) -> UnreachableError:
    if "Could not resolve hostname" in text:
        return UnreachableError(f"there is no host named {host}", hint="check the spelling, or the DNS")
    port = f" on port {asked[1]}" if (asked := _ASKED_PORT.search(text)) else ""
    if "Connection refused" in text:
        return UnreachableError(
            f"{host} refuses connections{port}", hint="is its SSH server running, and is this its port?"
        )
    if "timed out" in text or "Timeout" in text:
        return UnreachableError(f"{host} does not answer{port}", hint="is it up, and does a firewall let SSH through?")
    if "No route to host" in text or "Network is unreachable" in text:
        return UnreachableError(f"there is no way to {host}: {why}")
    if not opening:
        return UnreachableError(f"the connection to {host} was lost: {why}")
    return UnreachableError(f"{host} cannot be reached: {why}")


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
    """Result of a command on another machine."""

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
            mode: The permissions of the file.
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
    """Kill a process that takes too long; the event is set when that happened."""
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


__all__ = [
    "MAX_SESSIONS",
    "CommandResult",
    "SshConnection",
    "SshSettings",
    "SshTarget",
    "find_ssh",
    "parse_host",
    "shell_line",
]

MAX_SESSIONS = 8
"""Commands at the same time over one connection; sshd allows 10 unless it is configured otherwise."""

_SSH_FAILED = 255
_IDLE_SECONDS = 60
_CHECK_SECONDS = 5.0
_END_SECONDS = 3.0
_ODD = re.compile(r"[\n!\\]")
"""What login shells read in different ways inside quotes: csh line ends and `!`, fish backslashes."""
_SUN_PATH = 108 - 18  # a socket's path has 108 bytes at most, and ssh appends some while it makes one


def find_ssh() -> str:
    """The path of ``ssh``.

    Raises:
        MissingProgramError: There is none.
    """
    return find_program("ssh", "apt-get install openssh-client")


class SshConnection(FileTransfers):
    """Commands, files and tunnels to one machine, over one multiplexed connection that is opened when it is needed.

    It may be used by several threads. Every call ends: with an answer, or with an error after ``timeout``. A connection
    that was lost is opened again by the next call.

    Args:
        target: The machine.
        connect_seconds: How long opening the connection may take.
    """

    def __init__(self, target: SshTarget, *, connect_seconds: float = 10.0) -> None:
        self.target = target
        self._connect_seconds = connect_seconds
        name = hashlib.sha256(f"{target}/{os.getpid()}/{id(self)}/{time.time_ns()}".encode()).hexdigest()[:16]
        self._control = _private_folder() / name
        self._opening = threading.Lock()
        self._sessions = threading.BoundedSemaphore(MAX_SESSIONS)
        self._master: int | None = None
        self._forwards: dict[str, Path] = {}
        self._anchor: subprocess.Popen[bytes] | None = None

    def command(self, *options: str) -> list[str]:
        """The words that start ``ssh`` to the machine over the connection, without a command.

        Raises:
            MissingProgramError: There is no ``ssh``.
            CredentialsError: The file with the private key is not there.
        """
        words = [*self._words(), "-o", "ControlMaster=no", "-o", f"ControlPath={self._control}"]
        return [*words, *options, "--", self.target.host]

    def _words(self) -> list[str]:
        target = self.target
        words = [find_ssh(), "-o", "BatchMode=yes", "-o", f"ConnectTimeout={max(1, round(self._connect_seconds))}"]
        words += ["-o", "ServerAliveInterval=5", "-o", "ServerAliveCountMax=2"]
        # The user's own configuration may ask for a terminal, or for tmux, on each login.
        words += ["-T", "-o", "RemoteCommand=none"]
        if target.accept_new:
            words += ["-o", "StrictHostKeyChecking=accept-new"]
        if target.known_hosts:
            words += ["-o", f"UserKnownHostsFile={expand(target.known_hosts)}"]
        if target.identity:
            identity = expand(target.identity)
            if not identity.is_file():
                raise CredentialsError(f"there is no private key {identity}", hint=f"for {target.host}: set identity")
            words += ["-i", str(identity), "-o", "IdentitiesOnly=yes"]
        proxy: list[str] = []
        for hop in filter(None, target.jump.split(",")):
            user, port, host = parse_host(hop.strip())
            login = [*(["-l", user] if user else []), *(["-p", str(port)] if port else [])]
            # ssh -J would forget the key and the known hosts; each ssh replaces % words once.
            through = ["-o", f"ProxyCommand={shlex.join(proxy)}"] if proxy else []
            proxy = [each.replace("%", "%%") for each in [*words, *through, *login]] + ["-W", "%h:%p", "--", host]
        if proxy:
            words += ["-o", f"ProxyCommand={shlex.join(proxy)}"]
        if target.port is not None:
            words += ["-p", str(target.port)]
        if target.user:
            words += ["-l", target.user]
        return words

    def _ensure_open(self) -> None:
        """Open the connection unless it is.

        Raises:
            UnreachableError: The machine does not answer.
            CredentialsError: It does not let us in.
        """
        with self._opening:
            if self._is_open():
                return
            self._end_master()
            words = [*self._words(), "-M", "-N", "-f", "-S", str(self._control)]
            words += ["-o", "ControlMaster=yes", "-o", f"ControlPersist={_IDLE_SECONDS}", "--", self.target.host]
            # Into a file: what stays in the background would keep a pipe open.
            with tempfile.TemporaryFile() as errors:
                try:
                    done = subprocess.run(
                        words,
                        stdin=subprocess.DEVNULL,
                        stdout=errors,
                        stderr=errors,
                        timeout=self._connect_seconds + 5.0,
                        env=_environment(),
                        start_new_session=True,
                        check=False,
                    )
                except subprocess.TimeoutExpired:
                    raise UnreachableError(f"{self.target.host} did not let us in within {self._limit}") from None
                if done.returncode:
                    errors.seek(0)
                    raise ssh_error(errors.read(), self.target, opening=True)
            self._master = self._pid()
            for remote, local in self._forwards.items():
                self._forward(remote, local)

    @property
    def _limit(self) -> str:
        return f"{self._connect_seconds:g} s"

    def _is_open(self) -> bool:
        with socket.socket(socket.AF_UNIX) as sock:
            try:
                sock.connect(str(self._control))
            except OSError:
                return False
        return True

    def _control_command(self, order: str, *options: str) -> subprocess.CompletedProcess[bytes]:
        words = self.command("-O", order, *options)
        try:
            return subprocess.run(
                words,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=_CHECK_SECONDS,
                env=_environment(),
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise UnreachableError(f"the connection to {self.target.host} hangs") from None

    def _pid(self) -> int | None:
        words = self._control_command("check").stderr.decode(errors="replace")  # Master running (pid=123)
        digits = words.partition("pid=")[2].partition(")")[0]
        return int(digits) if digits.isdigit() else None

    @contextlib.contextmanager
    def session(self, argv: Sequence[str], **pipes: Any) -> Iterator[subprocess.Popen[bytes]]:
        """Run a command there as a process here, whose input and output are the command's; it is killed at the end.

        Args:
            argv: The command and its arguments.
            **pipes: ``stdin``, ``stdout`` and ``stderr``, as `subprocess.Popen` has them.

        Raises:
            UnreachableError: The machine does not answer, or too many commands run there for us already.
            CredentialsError: It does not let us in.
        """
        if not self._sessions.acquire(timeout=max(30.0, self._connect_seconds)):
            raise UnreachableError(f"{MAX_SESSIONS} commands are running on {self.target.host} already")
        try:
            self._ensure_open()
            words = [*self.command(), shell_line(argv)]
            process = subprocess.Popen(words, env=_environment(), start_new_session=True, **pipes)
            try:
                yield process
            finally:
                process.kill()
                for pipe in (process.stdin, process.stdout, process.stderr):
                    if pipe is not None:
                        with contextlib.suppress(OSError):
                            pipe.close()
                process.wait()
        finally:
            self._sessions.release()

    def run(
        self, argv: Sequence[str], *, stdin: bytes | IO[bytes] = b"", timeout: float = 30.0, check: bool = True
    ) -> CommandResult:
        """Run a command there and wait for its end.

        Args:
            argv: The command and its arguments.
            stdin: What it reads.
            timeout: Seconds that it may take.
            check: Raise when its exit code is not 0.

        Raises:
            UnreachableError: The machine does not answer, or not in time.
            CredentialsError: It does not let us in.
            DeployError: The command failed, with ``check``.
        """
        pipe = stdin if not isinstance(stdin, bytes) else subprocess.PIPE
        with self.session(argv, stdin=pipe, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
            try:
                out, err = process.communicate(stdin if isinstance(stdin, bytes) else None, timeout)
            except subprocess.TimeoutExpired:
                raise UnreachableError(f"{self.target.host} did not answer within {timeout:g} s") from None
        return self.judge(argv, CommandResult(process.returncode, out, err), check=check)

    def open_stream(self, argv: Sequence[str], *, folder: str) -> socket.socket:
        """Run a command there with a stream to its standard input and from its standard output.

        Args:
            argv: The command and its arguments.
            folder: The folder that it works in.

        Returns:
            The stream; the command is ended when it is closed.

        Raises:
            UnreachableError: The machine does not answer, or too many commands run there for us already.
            CredentialsError: It does not let us in.
            DeployError: The folder is not there.
        """
        script = f'cd "$1" && shift && echo "{_MARK.decode().strip()}" && exec "$@"'
        words = ["sh", "-c", script, "stream", folder, *argv]
        ours, theirs = socket.socketpair()
        held = contextlib.ExitStack()
        try:
            errors = held.enter_context(tempfile.TemporaryFile())  # noqa: SIM115  (the stack closes it)
            process = held.enter_context(self.session(words, stdin=theirs, stdout=theirs, stderr=errors))
            theirs.close()
            ours.settimeout(self._connect_seconds + _CHECK_SECONDS)
            seen = b""
            while not seen.endswith(_MARK):  # what login scripts print comes first
                piece = ours.recv(1) if len(seen) < _NOISE_BYTES else b""
                if not piece:
                    with contextlib.suppress(subprocess.TimeoutExpired):
                        process.wait(_END_SECONDS)
                    process.kill()
                    code = process.wait()
                    errors.seek(0)
                    self.judge(words[5:], CommandResult(code, b"", errors.read()))
                    raise UnreachableError(f"the connection to {self.target.host} was lost")
                seen += piece
        except BaseException as error:
            theirs.close()
            ours.close()
            held.close()
            if isinstance(error, OSError):
                raise UnreachableError(f"{self.target.host} does not answer") from None
            raise
        ours.settimeout(None)

        def see_off() -> None:
            with held:
                process.wait()

        threading.Thread(target=see_off, name="tradewind-ssh-stream", daemon=True).start()
        return ours

    def judge(self, argv: Sequence[str], answer: CommandResult, *, check: bool = True) -> CommandResult:
        """Raise what an answer means, if it means an error; see `run`."""
        if answer.code == _SSH_FAILED and not self._is_open():
            raise ssh_error(answer.stderr, self.target, opening=False)
        if check and answer.code:
            raise ssh_error(answer.stderr, self.target, opening=False, program=argv[0], code=answer.code)
        return answer

    def forward_socket(self, remote: str) -> Path:
        """A socket of this machine that leads to one of the other machine, as long as the link is not closed.

        Asking again gives the same path, and opens the connection again if it was lost.

        Args:
            remote: The path of a socket there (``/var/run/docker.sock``), or ``host:port`` as seen from there.

        Raises:
            UnreachableError: The machine does not answer.
            CredentialsError: It does not let us in.
            DeployError: It does not forward.
        """
        self._ensure_open()
        with self._opening:
            if remote not in self._forwards:
                suffix = hashlib.sha256(remote.encode()).hexdigest()[:8]
                local = self._control.with_name(f"{self._control.name}-{suffix}")
                self._forward(remote, local)
                self._forwards[remote] = local
            if self._anchor is None or self._anchor.poll() is not None:
                self._end_anchor()
                # While this one runs the connection is not idle; it ends when this process does, and makes no
                # connection of its own.
                self._anchor = subprocess.Popen(
                    [*self.command("-o", "ProxyCommand=false"), "cat"],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                    env=_environment(),
                    start_new_session=True,
                )
            return self._forwards[remote]

    def _forward(self, remote: str, local: Path) -> None:
        local.unlink(missing_ok=True)
        done = self._control_command("forward", "-L", f"{local}:{remote}")
        if done.returncode:
            words = done.stderr.decode(errors="replace").strip()
            raise DeployError(
                f"{self.target.host} does not forward {remote}: {words}",
                hint="sshd_config there: AllowTcpForwarding and AllowStreamLocalForwarding",
                retryable=False,
            )

    def close(self) -> None:
        """Close the connection, with all that goes over it."""
        with self._opening:
            self._end_anchor()
            self._end_master()
            for path in (self._control, *self._forwards.values()):
                path.unlink(missing_ok=True)
            self._forwards.clear()

    def _end_anchor(self) -> None:
        if self._anchor is not None:
            self._anchor.kill()
            self._anchor.communicate()
            self._anchor = None

    def _end_master(self) -> None:
        if self._control.exists():
            with contextlib.suppress(DeployError, MissingProgramError):
                self._control_command("exit")
            # ssh makes no connection of its own where a killed one has left its socket.
            self._control.unlink(missing_ok=True)
        pid, end = self._master, time.monotonic() + _END_SECONDS
        while pid is not None and self._is_master(pid):
            if time.monotonic() > end:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, 9)
                end += _END_SECONDS
            time.sleep(0.005)
        self._master = None

    def _is_master(self, pid: int) -> bool:
        try:
            words = Path(f"/proc/{pid}/cmdline").read_bytes()
        except OSError:
            return False
        return str(self._control).encode() in words


def shell_line(argv: Sequence[str]) -> str:
    """The words of a command as one line that every login shell reads alike: sh, bash, zsh, fish, csh."""
    words = shlex.join(argv)
    if not _ODD.search(words):
        return words
    plain = re.sub(rb"[^ \w./=:,-]", lambda found: b"\\0%03o" % ord(found[0]), os.fsencode(words)).decode("ascii")
    return f"""sh -c 'eval "exec $(printf %b "$1")"' sh '{plain}'"""


def _environment() -> dict[str, str]:
    """Ours, with messages in English: they are read."""
    kept = {key: value for key, value in os.environ.items() if key not in ("LC_ALL", "LANGUAGE")}
    return {**kept, "LC_MESSAGES": "C"}


def _private_folder() -> Path:
    """A folder with a short path that is ours alone."""
    for base in (tempfile.gettempdir(), "/tmp"):  # noqa: S108  (checked below to be ours)
        place = Path(base) / f"tradewind-ssh-{os.getuid()}"
        if len(str(place)) + 26 < _SUN_PATH:
            break
    place.mkdir(mode=0o700, exist_ok=True)
    facts = place.lstat()
    if not stat.S_ISDIR(facts.st_mode) or facts.st_uid != os.getuid() or facts.st_mode & 0o077:
        raise CredentialsError(f"{place} belongs to somebody else, or others may use it", hint="remove it")
    return place
