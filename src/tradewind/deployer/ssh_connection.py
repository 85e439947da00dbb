"""Reaches other machines by SSH: commands, files and tunnels, over one connection for each machine.

The user's own ``ssh`` program does it, so that what works in a terminal (agents, jump hosts, ``~/.ssh/config``) works
here. A command is a list of words; each is quoted for the shell of the other side, so that no value becomes a command.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import shlex
import socket
import stat
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, Any

from tradewind.deployer.link_errors import ssh_error
from tradewind.deployer.link_files import CommandResult, FileTransfers
from tradewind.deployer.ssh_target import SshSettings, SshTarget, parse_host
from tradewind.errors import CredentialsError, DeployError, MissingProgramError, UnreachableError
from tradewind.utils.dependencies import find_program
from tradewind.utils.paths import expand

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
"""Commands at the same time over one connection; sshd allows 10 unless it is told otherwise."""

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
                    raise ssh_error(errors.read(), self.target.host, opening=True)
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
            argv: Its words.
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
            argv: Its words.
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

    def judge(self, argv: Sequence[str], answer: CommandResult, *, check: bool = True) -> CommandResult:
        """Raise what an answer means, if it means an error; see `run`."""
        if answer.code == _SSH_FAILED and not self._is_open():
            raise ssh_error(answer.stderr, self.target.host, opening=False)
        if check and answer.code:
            raise ssh_error(answer.stderr, self.target.host, opening=False, program=argv[0], code=answer.code)
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
