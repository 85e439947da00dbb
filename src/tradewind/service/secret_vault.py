"""Vault for secrets that users give the service to use: encrypted, so that a copy of the database alone opens nothing.

The key is in none of the database's tables: it is the setting ``secret_key``, or a file of the data folder.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import os
import secrets
import threading
import weakref
from pathlib import Path
from typing import TYPE_CHECKING

from tradewind.deployer.environment import add_secret_source, resolve_secrets
from tradewind.errors import DeployError, ServiceError
from tradewind.service.settings import ServiceSettings
from tradewind.store.service.shared_values import SharedValueStore
from tradewind.store.sql.database import Database

if TYPE_CHECKING:
    from cryptography.fernet import Fernet

SOURCE = "service"
"""References to sealed secrets begin with it: ``service:SERVER/NUMBER``."""

KEY_FILE = "service.key"

_MARK = "sealing.key"
_SERVER = "sealing.server"


class SecretVault:
    """Stores secrets encrypted, and derives keys.

    Args:
        database: The open database.
        settings: The server's settings.
        data_folder: Folder of the key, unless the settings have it.
    """

    def __init__(self, database: Database, settings: ServiceSettings, data_folder: Path) -> None:
        self._values = SharedValueStore(database)
        self._reference = settings.secret_key
        self._file = data_folder / KEY_FILE
        self._found: bytes | None = None
        self._lock = threading.Lock()
        self._server = ""

    def seal(self, secret: str) -> str:
        """Encrypt and store a secret.

        Returns:
            A reference to it, which whoever resolves references in this process can read.

        Raises:
            ServiceError: This server has another key than the others of its database.
        """
        name = secrets.token_hex(16)
        self._values.set(f"sealed:{name}", self._box().encrypt(secret.encode()).decode())
        server = self._begin()
        return f"{SOURCE}:{server}/{name}"

    def read(self, reference: str) -> str:
        """Return a stored secret.

        Raises:
            DeployError: It was forgotten, or sealed with another key.
        """
        from cryptography.fernet import InvalidToken

        kept = self._values.get(f"sealed:{_name(reference)}")
        if kept is None:
            raise DeployError("a secret is not there any more", hint="give it again", retryable=False)
        try:
            return self._box().decrypt(kept.encode()).decode()
        except InvalidToken:
            raise DeployError("a secret was sealed with another key", hint="give it again", retryable=False) from None

    def forget(self, reference: str) -> None:
        """Forget a secret; one that is not there is no error."""
        self._values.delete(f"sealed:{_name(reference)}")

    def derive(self, purpose: str) -> bytes:
        """Derive a key for some purpose; it is the same on every server of the database.

        Raises:
            ServiceError: This server has another key than the others of its database.
        """
        return hmac.digest(self._key(), f"tradewind:{purpose}".encode(), "sha256")

    def start(self) -> None:
        """Let references to sealed secrets be resolved in this process."""
        self._begin()

    def _begin(self) -> str:
        with self._lock:
            if not self._server:
                self._server = self._values.get(_SERVER) or self._values.first(_SERVER, secrets.token_hex(8))
                _sealers[self._server] = self
            return self._server

    def _box(self) -> Fernet:
        from cryptography.fernet import Fernet

        return Fernet(base64.urlsafe_b64encode(self.derive("sealing")))

    def _key(self) -> bytes:
        with self._lock:
            if self._found is None:
                self._found = self._checked(self._load())
            return self._found

    def _checked(self, key: bytes) -> bytes:
        """Check that this server has the key of its database: with another it could not read its secrets."""
        mark = hashlib.sha256(b"tradewind:mark:" + key).hexdigest()[:16]
        if self._values.get(_MARK) != mark and self._values.first(_MARK, mark) != mark:
            place = self._reference.partition(":")[0] or str(self._file)
            raise ServiceError(
                f"the key of this server ({place}) is not the one that its database was used with",
                hint=f"give all servers the same secret_key, or the same {KEY_FILE}",
            )
        return key

    def _load(self) -> bytes:
        if self._reference:
            text = resolve_secrets({"secret_key": self._reference})["secret_key"]
            if len(text) < 32:
                raise ServiceError("secret_key is too short", hint="openssl rand -hex 32 makes a good one")
            return hashlib.sha256(text.encode()).digest()
        try:
            self._file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            # Written aside and linked: of two processes that start together, both read the same one.
            aside = self._file.with_name(f".{KEY_FILE}-{secrets.token_hex(4)}")
            if not self._file.exists():
                handle = os.open(aside, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
                with os.fdopen(handle, "w") as file:
                    file.write(secrets.token_hex(32) + "\n")
                    file.flush()
                    os.fsync(file.fileno())
                try:
                    os.link(aside, self._file)
                except FileExistsError:
                    pass
                finally:
                    aside.unlink()
            return hashlib.sha256(self._file.read_text().strip().encode()).digest()
        except OSError as error:
            raise ServiceError(
                f"the key {self._file} cannot be read or made: {error.strerror or error}", hint="or set secret_key"
            ) from None


_sealers: weakref.WeakValueDictionary[str, SecretVault] = weakref.WeakValueDictionary()
"""By server: references say whose they are."""


def _name(reference: str) -> str:
    return reference.rpartition("/")[2]


def _resolve(place: str) -> str:
    sealer = _sealers.get(place.partition("/")[0])
    if sealer is None:
        raise DeployError("a secret of the service is known to its server only", retryable=False)
    return sealer.read(place)


add_secret_source(SOURCE, _resolve)
