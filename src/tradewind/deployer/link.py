"""Reaches other machines by SSH: commands, files and tunnels, over one connection for each machine.

The user's own ``ssh`` program does it, so that what works in a terminal (agents, jump hosts, ``~/.ssh/config``) works
here. A command is a list of words; each is quoted for the shell of the other side, so that no value becomes a command.
"""

from __future__ import annotations

import hashlib
import os
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tradewind.errors import CredentialsError, DeployError, MissingProgramError, UnreachableError
from tradewind.problem import Machine

_SSH_FAILED = 255


@dataclass(frozen=True, slots=True)
class SshTarget:
    """How a machine is reached.

    Attributes:
        host: Its name or address, or an alias of ``~/.ssh/config``.
        user: The login, or empty for what ``ssh`` takes by itself.
        port: The port, or None for what ``ssh`` takes by itself.
        identity: The file with the private key, or empty.
        known_hosts: The file with its host key, or empty for the user's own. A provisioner that made the machine knows
            its key, or makes a file of its own for each machine.
        accept_new: Take the host key that is offered the first time; only for machines that were just made.
        jump: A host to go through, as ``ssh -J`` takes it, or empty.
    """

    host: str
    user: str = ""
    port: int | None = None
    identity: str = ""
    known_hosts: str = ""
    accept_new: bool = False
    jump: str = ""

    @classmethod
    def of(cls, machine: Machine, given: Mapping[str, Any] | None = None) -> SshTarget:
        """The target of a machine: what its provisioner says in ``data["ssh"]``, else what the user gave."""
        facts = {**(given or {}), **machine.data.get("ssh", {})}
        return cls(**{"host": machine.address, **facts})

    def to_json(self) -> dict[str, Any]:
        """A JSON-able document, for handles; ``SshTarget(**document)`` reads it."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Answer:
    """What a command on another machine came to."""

    code: int
    stdout: bytes
    stderr: bytes


class SshLink:
    """Commands, files and tunnels to one machine, over one multiplexed connection that is opened when it is needed.

    It may be used by several threads. Every call ends: with an answer, or with an error after ``timeout``.

    Args:
        target: The machine.
        connect_seconds: How long opening the connection may take.
    """

    def __init__(self, target: SshTarget, *, connect_seconds: float = 10.0) -> None:
        self.target = target
        self._connect_seconds = connect_seconds
        # A socket's path has 108 bytes at most: never below the user's data folder.
        place = Path(tempfile.gettempdir()) / f"tradewind-ssh-{os.getuid()}"
        place.mkdir(mode=0o700, exist_ok=True)
        name = hashlib.sha256(f"{target}/{os.getpid()}/{id(self)}".encode()).hexdigest()[:16]
        self._control = place / name

    def command(self, *options: str) -> list[str]:
        """The words that start ``ssh`` to the machine, without a command."""
        program = shutil.which("ssh")
        if program is None:
            raise MissingProgramError("there is no ssh program", hint="install openssh-client")
        target = self.target
        words = [program, "-o", "BatchMode=yes", "-o", f"ConnectTimeout={max(1, round(self._connect_seconds))}"]
        words += ["-o", "ControlMaster=auto", "-o", f"ControlPath={self._control}", "-o", "ControlPersist=60"]
        words += ["-o", "ServerAliveInterval=5", "-o", "ServerAliveCountMax=2"]
        if target.accept_new:
            words += ["-o", "StrictHostKeyChecking=accept-new"]
        if target.known_hosts:
            words += ["-o", f"UserKnownHostsFile={target.known_hosts}"]
        if target.identity:
            words += ["-i", target.identity, "-o", "IdentitiesOnly=yes"]
        if target.port is not None:
            words += ["-p", str(target.port)]
        if target.user:
            words += ["-l", target.user]
        if target.jump:
            words += ["-J", target.jump]
        return [*words, *options, "--", target.host]

    def run(self, argv: Sequence[str], *, stdin: bytes = b"", timeout: float = 30.0, check: bool = True) -> Answer:
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
        command = [*self.command(), shlex.join(argv)]
        try:
            done = subprocess.run(command, input=stdin, capture_output=True, timeout=timeout, start_new_session=True)
        except subprocess.TimeoutExpired:
            raise UnreachableError(f"{self.target.host} did not answer within {timeout:g} s") from None
        if done.returncode == _SSH_FAILED:
            raise self._refusal(done.stderr)
        if check and done.returncode:
            words = done.stderr.decode(errors="replace").strip() or f"exit code {done.returncode}"
            raise DeployError(f"{argv[0]} on {self.target.host}: {words}")
        return Answer(done.returncode, done.stdout, done.stderr)

    def _refusal(self, stderr: bytes) -> DeployError:
        words = stderr.decode(errors="replace").strip().splitlines()
        why = words[-1] if words else "no reason given"
        text = " ".join(words)
        if "Host key verification failed" in text or "REMOTE HOST IDENTIFICATION HAS CHANGED" in text:
            hint = f"ssh {self.target.host} once by hand and compare the key"
            return CredentialsError(f"{self.target.host}: its host key is not the known one", hint=hint)
        if "Permission denied" in text or "Too many authentication failures" in text:
            return CredentialsError(f"{self.target.host} does not let us in: {why}", hint="set user and identity")
        return UnreachableError(f"{self.target.host} cannot be reached: {why}")

    def close(self) -> None:
        """Close the connection."""
        if self._control.exists():
            words = [*self.command("-O", "exit")]
            subprocess.run(words, capture_output=True, timeout=10, check=False)
