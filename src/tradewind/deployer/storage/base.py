"""The contract of storage that files come from and go to, and its addresses.

An address names a file or a folder: ``s3://bucket/path``, ``gs://bucket/path``, ``sftp://user@host:port/path`` (a
path from the root; ``/~/path`` from the login's folder), ``webdav://`` and ``webdavs://host/path``, ``file:///path``,
or a path. Credentials are read from the usual places: Amazon's and Google's environment variables and files,
``~/.ssh/config`` and the SSH agent, ``~/.netrc``; or by a user and a reference to a secret. An address with a password
in it is refused.
"""

from __future__ import annotations

import contextlib
import shutil
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from urllib.parse import unquote, urlsplit

from tradewind.deployer.environment import resolve_secrets
from tradewind.errors import DeployError, InputError
from tradewind.utils.atomic_files import atomic_path
from tradewind.utils.paths import expand
from tradewind.utils.ssrf_guard import resolve_addresses

SCHEMES = ("s3", "gs", "sftp", "webdav", "webdavs", "file")
"""What an address may begin with."""

SILENCE_SECONDS = 60.0
"""A server that says nothing for so long counts as gone."""


@dataclass(frozen=True, slots=True)
class StorageAddress:
    """Address of a file or folder on this machine or a server.

    Attributes:
        scheme: One of `SCHEMES`; ``file`` for a path of this machine.
        host: The server, or the bucket; empty for this machine.
        path: The path there, unquoted, beginning with a slash.
        user: The login, or empty.
        port: The port, or None.
    """

    scheme: str
    host: str
    path: str
    user: str = ""
    port: int | None = None

    @classmethod
    def parse(cls, text: str) -> StorageAddress:
        """Read an address.

        Raises:
            DeployError: It is none, or has a password in it; the message does not repeat one.
        """
        if "://" not in text:
            return cls("file", "", str(expand(text).absolute()))
        parts = urlsplit(text)
        if parts.password is not None:
            raise DeployError(
                f"an address of {parts.hostname} has a password in it",
                hint="leave it out, and name it under deploy.places by reference: env:NAME or file:PATH",
                retryable=False,
            )
        try:
            port = parts.port
        except ValueError:
            port = -1
        if parts.scheme not in SCHEMES or port == -1 or (not parts.hostname and parts.scheme != "file"):
            raise DeployError(f"address {text!r} is not understood", hint=_known(), retryable=False)
        # Bucket names and paths are taken as they are written; urlsplit makes hosts small.
        host = parts.netloc.rpartition("@")[2].partition(":")[0] if parts.scheme != "file" else ""
        return cls(parts.scheme, host, unquote(parts.path) or "/", parts.username or "", port)

    @property
    def shown(self) -> str:
        """The address for messages."""
        if self.scheme == "file":
            return self.path
        who = f"{self.user}@" if self.user else ""
        port = f":{self.port}" if self.port else ""
        return f"{self.scheme}://{who}{self.host}{port}{self.path}"

    def below(self, name: str) -> StorageAddress:
        """The address of something below this folder."""
        return StorageAddress(self.scheme, self.host, f"{self.path.rstrip('/')}/{name}", self.user, self.port)


@dataclass(frozen=True, slots=True)
class StorageAccess:
    """Credentials and settings for an address that the usual places do not give.

    Attributes:
        user: The user, or the id of the access key; with one, an object store takes nothing of Amazon's environment
            variables but the region.
        password: A reference to the password or secret key (``env:NAME``), or empty.
        endpoint: Another address than the provider's own, for object stores that speak its language.
        identity: The file with the private SSH key, or empty.
        known_hosts: The file with the server's host key, or empty for the user's own.
        reach: ``public`` for a place that somebody else names: connections go to addresses that everybody can reach,
            judged when they are made, and only with what stands here. Empty for all addresses.
    """

    user: str = ""
    password: str = ""
    endpoint: str = ""
    identity: str = ""
    known_hosts: str = ""
    reach: str = ""

    @classmethod
    def of(cls, address: StorageAddress, given: Mapping[str, Mapping[str, str]]) -> StorageAccess:
        """The access to an address, of what the user gave for addresses above it; the longest counts."""
        shown = address.shown
        above = [place for place in given if shown == place or shown.startswith(place.rstrip("/") + "/")]
        return cls(**given[max(above, key=len)]) if above else cls()

    def secret(self) -> str:
        """The password itself, read now.

        Raises:
            DeployError: It cannot be read.
        """
        return resolve_secrets({"password": self.password})["password"] if self.password else ""


@dataclass(slots=True)
class StorageLocation(ABC):
    """A file or folder somewhere; its methods take as long as the network does.

    All raise `DeployError` (``retryable`` says whether trying again may help), `CredentialsError`, `UnreachableError`
    or `MissingProgramError`.

    Attributes:
        address: Where it is.
        access: How it is entered.
    """

    address: StorageAddress
    access: StorageAccess = field(default_factory=StorageAccess)

    @abstractmethod
    def fetch(self, target: Path) -> None:
        """Bring the file or the whole folder to ``target``, which is not there yet."""

    @abstractmethod
    def read(self, name: str) -> bytes | None:
        """The content of a small file below the folder; None if there is no such file."""

    @abstractmethod
    def put(self, source: Path, name: str) -> None:
        """Write a file below the folder, over one that is there; readers see the old one or the whole new one."""

    @abstractmethod
    def remove(self, name: str) -> None:
        """Remove a file below the folder; one that is not there is no error."""

    def close(self) -> None:
        """Give back connections."""
        return


class LocalStorage(StorageLocation):
    """A file or folder of this machine."""

    def fetch(self, target: Path) -> None:
        """Copy it; see `StorageLocation.fetch`."""
        source = Path(self.address.path)
        with self._typed():
            if source.is_dir():
                shutil.copytree(source, target)
            else:
                shutil.copy2(source, target)

    def read(self, name: str) -> bytes | None:
        """The content of a file; see `StorageLocation.read`."""
        with self._typed():
            try:
                return (Path(self.address.path) / name).read_bytes()
            except FileNotFoundError:
                return None

    def put(self, source: Path, name: str) -> None:
        """Copy a file; see `StorageLocation.put`."""
        target = Path(self.address.path) / name
        with self._typed():
            target.parent.mkdir(parents=True, exist_ok=True)
            with atomic_path(target) as part:
                shutil.copy2(source, part)

    def remove(self, name: str) -> None:
        """Remove a file; see `StorageLocation.remove`."""
        with self._typed():
            (Path(self.address.path) / name).unlink(missing_ok=True)

    @contextlib.contextmanager
    def _typed(self) -> Iterator[None]:
        try:
            yield
        except FileNotFoundError as error:
            raise DeployError(f"there is no {error.filename}", retryable=False) from error
        except OSError as error:
            raise DeployError(f"{error.filename or self.address.path}: {error.strerror or error}") from error


def safe_join(folder: Path, name: str) -> Path:
    """The path of something that a server calls ``name``, below a folder.

    Raises:
        DeployError: The name leads out of the folder.
    """
    parts = PurePosixPath(name).parts
    if not parts or name.startswith("/") or ".." in parts or "\0" in name:
        raise DeployError(f"the server has a file named {name!r}, which leads out of its folder", retryable=False)
    return folder.joinpath(*parts)


def public_addresses(address: StorageAddress, port: int) -> list[str]:
    """The addresses of the server of a place that only addresses which everybody can reach may have.

    Raises:
        UnreachableError: It has none.
        DeployError: One of them is inside.
    """
    try:
        return resolve_addresses(address.host, port, private=False)
    except InputError as error:
        raise DeployError(f"{address.shown}: {error.message}", hint=error.hint, retryable=False) from None


def not_found_error(address: StorageAddress) -> DeployError:
    """The error for what is not there."""
    return DeployError(f"there is no {address.shown}", retryable=False)


def _known() -> str:
    return "write a path, or an address that begins with " + ", ".join(f"{scheme}://" for scheme in SCHEMES)
