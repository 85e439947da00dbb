"""SFTP servers, by the user's own ``sftp`` program.

What works in a terminal works here: agents, keys, jump hosts, ``~/.ssh/config``; and a server whose host key is not
known is refused, which Python's packages for SFTP do not do by themselves.
"""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from pathlib import Path, PurePosixPath

from tradewind.deployer.storage.base import (
    StorageAccess,
    StorageAddress,
    StorageLocation,
    not_found_error,
    public_addresses,
)
from tradewind.errors import CredentialsError, DeployError, UnreachableError
from tradewind.utils.dependencies import find_program

_CONNECT_SECONDS = 10
_SECONDS = 60.0
_SLOWEST = 20_000.0
"""Bytes a second below which a transfer counts as stuck."""

_MISSING = ("no such file", "not found")
_REFUSED = ("permission denied (", "too many authentication failures", "host key verification failed")
_LOST = (
    "connection refused",
    "could not resolve",
    "connection closed",
    "connection reset",
    "timed out",
    "no route to host",
    "network is unreachable",
    "broken pipe",
)


class SftpStorage(StorageLocation):
    """A file or folder of an SFTP server; all calls share one connection."""

    def __init__(self, address: StorageAddress, access: StorageAccess) -> None:
        super().__init__(address, access)
        self._folder: Path | None = None  # of the socket of the connection
        self._judged = ""

    def fetch(self, target: Path) -> None:
        """Bring a file or a folder with all that is in it; see `StorageLocation.fetch`."""
        source = self._path("")
        self._run([f"get -r {_word(source)} {_word(str(target))}"], seconds=24 * 3600.0)
        if not target.exists():
            raise not_found_error(self.address)

    def read(self, name: str) -> bytes | None:
        """The content of a file; see `StorageLocation.read`."""
        with tempfile.TemporaryDirectory(prefix="tradewind-") as folder:
            target = Path(folder) / "file"
            try:
                self._run([f"get {_word(self._path(name))} {_word(str(target))}"])
            except DeployError as error:
                if isinstance(error, CredentialsError | UnreachableError) or error.retryable:
                    raise
                return None
            return target.read_bytes() if target.exists() else None

    def put(self, source: Path, name: str) -> None:
        """Upload a file, under another name until it is whole; see `StorageLocation.put`."""
        path = self._path(name)
        folders = [above for above in reversed(PurePosixPath(path).parents) if str(above) not in ("/", ".")]
        lines = [f"-mkdir {_word(str(folder))}" for folder in folders]
        lines += [f"put {_word(str(source))} {_word(path + '.part')}"]
        lines += [f"rename {_word(path + '.part')} {_word(path)}"]  # over an older one, where the server can
        self._run(lines, seconds=_SECONDS + source.stat().st_size / _SLOWEST)

    def remove(self, name: str) -> None:
        """Remove a file; see `StorageLocation.remove`."""
        self._run([f"-rm {_word(self._path(name))}"])

    def close(self) -> None:
        """Close the connection."""
        if self._folder is None:
            return
        ssh = shutil.which("ssh")
        if ssh is not None and (self._folder / "s").exists():
            words = [ssh, "-o", f"ControlPath={self._folder / 's'}", "-O", "exit", "--", self.address.host]
            subprocess.run(words, capture_output=True, timeout=10, check=False, stdin=subprocess.DEVNULL)
        shutil.rmtree(self._folder, ignore_errors=True)
        self._folder = None

    def _path(self, name: str) -> str:
        path = self.address.path if not name else self.address.below(name).path
        # sftp begins in the login's folder.
        return path.removeprefix("/~/") or "." if path.startswith("/~/") else path

    def _command(self) -> list[str]:
        program = find_program("sftp", "install openssh-client")
        access, address = self.access, self.address
        words = [program, "-b", "-", "-o", "BatchMode=yes", "-o", f"ConnectTimeout={_CONNECT_SECONDS}"]
        words += ["-o", "ServerAliveInterval=5", "-o", "ServerAliveCountMax=3"]
        if self._folder is None:
            self._folder = Path(tempfile.mkdtemp(prefix="tw-sftp-"))  # a socket's path must be short
        words += ["-o", "ControlMaster=auto", "-o", f"ControlPath={self._folder / 's'}", "-o", "ControlPersist=60"]
        if access.identity:
            words += ["-i", access.identity, "-o", "IdentitiesOnly=yes"]
        if access.known_hosts:
            words += ["-o", f"UserKnownHostsFile={access.known_hosts}"]
        if address.port is not None:
            words += ["-P", str(address.port)]
        if access.reach == "public":
            words += self._pinned()
        user = access.user or address.user
        return [*words, "--", f"{user}@{address.host}" if user else address.host]

    def _pinned(self) -> list[str]:
        """Options that lead to the address that was judged; the host's key is still looked up by the name.

        Nothing of this machine's own ``ssh_config`` counts: neither its keys nor its jump hosts are for this place.
        """
        port = self.address.port or 22
        self._judged = self._judged or public_addresses(self.address, port)[0]
        name = self.address.host if port == 22 else f"[{self.address.host}]:{port}"
        return ["-F", "none", "-o", f"HostName={self._judged}", "-o", f"HostKeyAlias={name}"]

    def _run(self, lines: list[str], *, seconds: float = _SECONDS) -> None:
        """Carry out a batch; a line after ``-`` may fail.

        Raises:
            DeployError: It failed, typed by what the program said.
        """
        batch = "".join(f"{line}\n" for line in lines).encode()
        try:
            done = subprocess.run(
                self._command(), input=batch, capture_output=True, timeout=seconds, start_new_session=True
            )
        except subprocess.TimeoutExpired:
            raise UnreachableError(f"{self.address.shown} did not answer within {seconds:.0f} s") from None
        if done.returncode:
            raise self._refusal(done.stderr.decode(errors="replace"))

    def _refusal(self, stderr: str) -> DeployError:
        shown = self.address.shown
        # What a line after "-" said is no reason: the last words are those of the line that ended the batch.
        lines = [line.strip() for line in stderr.splitlines() if line.strip()]
        last = lines[-1] if lines else "no reason given"
        text = stderr.lower()
        if any(words in text for words in _REFUSED):
            hint = f"sftp {self.address.host} by hand once: the key, and the host's key, must be known"
            return CredentialsError(f"{shown} does not let us in: {last}", hint=hint)
        if any(words in text for words in _LOST):
            return UnreachableError(f"{shown} cannot be reached: {last}")
        if any(words in last.lower() for words in _MISSING):
            return not_found_error(self.address)
        if "permission denied" in last.lower():
            return CredentialsError(f"{shown}: {last}")
        return DeployError(f"{shown}: {last}")


def _word(text: str) -> str:
    """A word of a batch: within quotes sftp reads backslashes, and no patterns.

    Raises:
        DeployError: No batch can have it.
    """
    if "\n" in text or "\r" in text or "\0" in text:
        raise DeployError(f"the name {text!r} cannot be transferred: it has a line break", retryable=False)
    plain = text if text.startswith("/") else f"./{text}"  # never an option
    escaped = plain.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
