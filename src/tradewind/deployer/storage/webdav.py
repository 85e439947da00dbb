"""WebDAV servers: Nextcloud, ownCloud, Apache and others, with a login by user and password, or none."""

from __future__ import annotations

import base64
import contextlib
import http.client
import netrc
import os
import shutil
import ssl
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import IO
from urllib.parse import quote, unquote, urlsplit
from xml.etree import ElementTree

from tradewind.deployer.storage.base import (
    SILENCE_SECONDS,
    StorageAccess,
    StorageAddress,
    StorageLocation,
    not_found_error,
    public_addresses,
    safe_join,
)
from tradewind.errors import CredentialsError, DeployError, UnreachableError
from tradewind.utils.ssrf_guard import PinnedHttpConnection, PinnedHttpsConnection

_LIST = b'<?xml version="1.0"?><propfind xmlns="DAV:"><prop><resourcetype/></prop></propfind>'
_LONGEST_LIST = 64 << 20
_LONGEST_FILE = 64 << 20
_PIECE = 1 << 20
_NOTHING = (404, 409, 410)
_MOVED = (301, 308)


class WebdavStorage(StorageLocation):
    """A file or folder of a WebDAV server."""

    def __init__(self, address: StorageAddress, access: StorageAccess) -> None:
        super().__init__(address, access)
        self._connection: http.client.HTTPConnection | None = None
        self._made: set[str] = set()

    def fetch(self, target: Path) -> None:
        """Bring a file or a folder with all that is in it; see `StorageLocation.fetch`."""
        with self._typed():
            path = self.address.path.rstrip("/")
            listed = self._list(path)
            if not listed.pop(path, False):
                self._download(path, target)
                return
            target.mkdir()
            waiting = [listed]
            while waiting:
                for name, is_folder in waiting.pop().items():
                    place = safe_join(target, name.removeprefix(f"{path}/"))
                    if is_folder:
                        place.mkdir(exist_ok=True)
                        below = self._list(name)
                        below.pop(name, None)
                        waiting.append(below)
                    else:
                        self._download(name, place)

    def read(self, name: str) -> bytes | None:
        """The content of a file; see `StorageLocation.read`."""
        with self._typed(), self._ask("GET", self._path(name), may=_NOTHING) as answer:
            return answer.read(_LONGEST_FILE) if answer.status < 300 else None

    def put(self, source: Path, name: str) -> None:
        """Upload a file, under another name until it is whole; see `StorageLocation.put`."""
        path = self._path(name)
        # Some servers misread an escaped name that a file is to be moved to: such a file is written in place.
        plain = quote(path, safe="/") == path
        part = f"{path}.part" if plain else path
        with self._typed():
            self._make_folders(path)
            with source.open("rb") as file:
                length = {"Content-Length": str(os.fstat(file.fileno()).st_size)}
                with self._ask("PUT", part, body=file, headers=length):
                    pass
            if plain:
                with self._ask("MOVE", part, headers={"Destination": self._url(path), "Overwrite": "T"}):
                    pass

    def remove(self, name: str) -> None:
        """Remove a file; see `StorageLocation.remove`."""
        with self._typed(), self._ask("DELETE", self._path(name), may=_NOTHING):
            pass

    def close(self) -> None:
        """Close the connection."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _path(self, name: str) -> str:
        return f"{self.address.path.rstrip('/')}/{name}"

    def _url(self, path: str) -> str:
        address = self.address
        scheme = "https" if address.scheme == "webdavs" else "http"
        port = f":{address.port}" if address.port else ""
        return f"{scheme}://{address.host}{port}{quote(path)}"

    def _list(self, path: str) -> dict[str, bool]:
        """List what is at a path and directly below it: path -> True for a folder."""
        found = {}
        status, reason, elsewhere, text = self._entries(path or "/")
        if status in _MOVED and self._wants_slash(path, elsewhere):
            status, reason, elsewhere, text = self._entries(f"{path}/")
        if status in _MOVED:
            raise self._refusal(status, reason, elsewhere)
        for entry in ElementTree.fromstring(text).iter("{DAV:}response"):  # noqa: S314  (expat limits expansion)
            name = unquote(urlsplit(entry.findtext("{DAV:}href", "")).path).rstrip("/")
            found[name] = next(entry.iter("{DAV:}collection"), None) is not None
        return found

    def _entries(self, path: str) -> tuple[int, str, str, bytes]:
        """Ask the server for a listing: status, reason, where else it is, and the body."""
        with self._ask("PROPFIND", path, body=_LIST, headers={"Depth": "1"}, may=_MOVED) as answer:
            return answer.status, answer.reason, answer.headers.get("Location", ""), answer.read(_LONGEST_LIST)

    def _wants_slash(self, path: str, elsewhere: str) -> bool:
        """True when a server sends us to the same place with a slash at its end, as Apache does for folders."""
        parts = urlsplit(elsewhere)
        same = parts.hostname in (None, self.address.host.lower())
        return same and unquote(parts.path) == f"{path}/"

    def _download(self, path: str, target: Path) -> None:
        with self._ask("GET", path) as answer, target.open("wb") as file:
            shutil.copyfileobj(answer, file, _PIECE)

    def _make_folders(self, path: str) -> None:
        for above in reversed(PurePosixPath(path).parents):
            folder = str(above)
            if folder in (".", "/") or folder in self._made:
                continue
            # 405: it is there; 403: a folder that is above what we may write. The upload says what is wrong.
            with self._ask("MKCOL", f"{folder}/", may=(403, 405, 409, 301)):
                self._made.add(folder)

    @contextlib.contextmanager
    def _ask(
        self,
        method: str,
        path: str,
        *,
        body: bytes | IO[bytes] | None = None,
        headers: dict[str, str] | None = None,
        may: tuple[int, ...] = (),
    ) -> Iterator[http.client.HTTPResponse]:
        """One request; redirections are not followed, so that no password goes to another server."""
        fresh = self._connection is None
        connection = self._connection = self._connection or self._connect()
        try:
            connection.request(method, quote(path), body=body, headers={**self._login(), **(headers or {})})
            answer = connection.getresponse()
        except (http.client.RemoteDisconnected, BrokenPipeError, ConnectionResetError):
            self.close()
            if fresh or not (body is None or isinstance(body, bytes)):
                raise
            # The server closed the connection while nothing was asked.
            with self._ask(method, path, body=body, headers=headers, may=may) as again:
                yield again
            return
        if answer.status >= 300 and answer.status not in may:
            answer.close()
            self.close()
            raise self._refusal(answer.status, answer.reason, answer.headers.get("Location", ""))
        try:
            yield answer
            while answer.read(_PIECE):  # the connection is used again
                pass
            if answer.length:  # reading in pieces ends silently where the connection does
                raise http.client.IncompleteRead(b"", answer.length)
        except BaseException:
            self.close()
            raise
        finally:
            answer.close()

    def _connect(self) -> http.client.HTTPConnection:
        address, seconds = self.address, SILENCE_SECONDS
        tls = ssl.create_default_context() if address.scheme == "webdavs" else None
        if self.access.reach == "public":
            port = address.port or (443 if tls else 80)
            addresses = public_addresses(address, port)
            if tls is not None:
                return PinnedHttpsConnection(address.host, port, addresses, seconds, tls)
            return PinnedHttpConnection(address.host, port, addresses, seconds)
        if tls is not None:
            return http.client.HTTPSConnection(address.host, address.port, timeout=seconds, context=tls)
        return http.client.HTTPConnection(address.host, address.port, timeout=seconds)

    def _login(self) -> dict[str, str]:
        user = self.access.user or self.address.user
        password = self.access.secret() if user and self.access.password else ""
        if not password:
            if self.access.reach == "public":
                return {}
            try:
                found = netrc.netrc().authenticators(self.address.host)
            except (OSError, netrc.NetrcParseError):
                found = None
            if found is None or user not in ("", found[0]):
                return {}
            user, password = found[0], found[2] or ""
        return {"Authorization": "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()}

    @contextlib.contextmanager
    def _typed(self) -> Iterator[None]:
        shown = self.address.shown
        try:
            yield
        except ssl.SSLCertVerificationError as error:
            raise CredentialsError(f"{shown}: its certificate is not trusted: {error.verify_message}") from error
        except http.client.IncompleteRead as error:
            raise UnreachableError(f"{shown}: the connection was cut before all had come") from error
        except (http.client.HTTPException, ElementTree.ParseError) as error:
            raise DeployError(f"{shown} does not speak WebDAV: {type(error).__name__}") from error
        except OSError as error:
            if error.filename is not None:
                raise DeployError(f"{error.filename}: {error.strerror or error}") from error
            raise UnreachableError(f"{shown} cannot be reached: {error.strerror or error}") from error

    def _refusal(self, code: int, reason: str, elsewhere: str) -> DeployError:
        shown = self.address.shown
        if code in (401, 403):
            hint = "write user and password (by reference) under deploy.places, or into ~/.netrc"
            return CredentialsError(f"{shown} does not let us in: HTTP {code} {reason}", hint=hint)
        if code in (404, 410):
            return not_found_error(self.address)
        if code == 507:
            return DeployError(f"{shown} is full", hint="free some space there")
        if elsewhere:
            return DeployError(f"{shown} is elsewhere now", hint=f"the server says: {elsewhere}", retryable=False)
        return DeployError(f"{shown}: HTTP {code} {reason}", retryable=code >= 500 or code in (408, 423, 429))
