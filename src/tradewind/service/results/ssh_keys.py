"""SSH keys of the service, one for each user, who lets its public part into the login of a results folder.

Each user has another one, so that none reaches a folder that was opened to somebody else.
"""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

from tradewind.errors import DeployError, InputError
from tradewind.service.secret_vault import SecretVault
from tradewind.service.settings import ServiceSettings
from tradewind.store.service.shared_values import SharedValueStore
from tradewind.store.sql.database import Database
from tradewind.utils.atomic_files import write_atomically
from tradewind.utils.dependencies import find_program

_HOST_KEY = re.compile(r"(ssh-ed25519|ssh-rsa|ecdsa-sha2-nistp(256|384|521)) [A-Za-z0-9+/]{40,1000}={0,3}", re.ASCII)
_SCAN_SECONDS = 10.0


class UserSshKeys:
    """The SSH keys of users.

    Args:
        database: The open database.
        settings: The server's settings.
        sealer: Keeps the private keys.
        folder: Folder in which ``sftp`` finds them.
    """

    def __init__(self, database: Database, settings: ServiceSettings, sealer: SecretVault, folder: Path) -> None:
        self._values = SharedValueStore(database)
        self._settings = settings
        self._sealer = sealer
        self._folder = folder

    def public(self, user_id: int) -> str:
        """Return the public key of a user, as a line of ``authorized_keys``; it is made on the first call."""
        from cryptography.hazmat.primitives import serialization

        key = serialization.load_ssh_private_key(self._private(user_id).encode(), None)
        public = key.public_key().public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
        return f"{public.decode()} tradewind-{user_id}"

    def identity(self, user_id: int) -> Path:
        """Return the file of a user's private key, for ``sftp``."""
        return self._write(user_id, "id", self._private(user_id))

    def known_hosts(self, user_id: int, host: str, port: int | None, keys: str) -> Path:
        """Return the file of a host's keys, for ``sftp``.

        Args:
            user_id: The user.
            host: The host.
            port: Port; None for 22.
            keys: The keys, one a line.
        """
        name = host if port in (None, 22) else f"[{host}]:{port}"
        lines = "".join(f"{name} {key}\n" for key in keys.splitlines())
        return self._write(user_id, f"hosts-{re.sub(r'[^A-Za-z0-9.-]', '_', name)}", lines)

    def _private(self, user_id: int) -> str:
        from cryptography.hazmat.primitives import serialization
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

        name = f"results.key.{user_id}"
        reference = self._values.get(name)
        if reference is None:
            made = Ed25519PrivateKey.generate().private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.OpenSSH, serialization.NoEncryption()
            )
            mine = self._sealer.seal(made.decode())
            reference = self._values.first(name, mine)
            if reference != mine:  # another server was quicker
                self._sealer.forget(mine)
        return self._sealer.read(reference)

    def _write(self, user_id: int, name: str, text: str) -> Path:
        folder = self._folder / str(user_id)
        path = folder / name
        try:
            if path.exists() and path.read_text() == text:
                return path
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            write_atomically(path, text, mode=0o600)
        except OSError as error:
            raise DeployError(f"{path} cannot be written: {error.strerror or error}") from None
        return path


def read_host_keys(text: str) -> str:
    """Parse the keys of a host, and return them as they are kept, one a line.

    Args:
        text: Lines of ``ssh-keyscan`` or ``known_hosts``, with or without the host's name.

    Raises:
        InputError: There is none in it.
    """
    found = [match[0] for line in text.splitlines()[:50] if (match := _HOST_KEY.search(line))]
    if not found:
        raise InputError("this is no key of an SSH host", hint="write what ssh-keyscan HOST prints")
    return "\n".join(dict.fromkeys(found))


def scan_host_keys(host: str, port: int | None, address: str) -> str:
    """Ask a host for its keys.

    Args:
        host: Name of the host, for messages.
        port: Port; None for 22.
        address: The address that was judged.

    Raises:
        DeployError: It does not answer.
        MissingProgramError: There is no ``ssh-keyscan``.
    """
    program = find_program("ssh-keyscan", "install openssh-client")
    words = [program, "-T", "5", "-p", str(port or 22), "--", address]
    try:
        done = subprocess.run(words, capture_output=True, timeout=_SCAN_SECONDS, check=False, stdin=subprocess.DEVNULL)
        return read_host_keys(done.stdout.decode(errors="replace"))
    except (subprocess.TimeoutExpired, InputError):
        raise DeployError(f"{host} does not say its SSH keys", hint="is it an SSH server, at this port?") from None


def fingerprints(keys: str) -> list[str]:
    """Compute the fingerprints of keys, as ``ssh-keygen -l`` prints them."""
    import base64
    import hashlib

    found = []
    for key in keys.splitlines():
        kind, _, data = key.partition(" ")
        digest = base64.b64encode(hashlib.sha256(base64.b64decode(data)).digest()).decode().rstrip("=")
        found.append(f"SHA256:{digest} ({kind.removeprefix('ssh-')})")
    return found
