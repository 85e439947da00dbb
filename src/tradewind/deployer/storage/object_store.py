"""Object stores: Amazon S3 and what speaks its language, and Google Cloud Storage."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path, PurePosixPath
from typing import Any

import obstore
from obstore import exceptions
from obstore.store import GCSStore, S3Store

from tradewind.deployer.storage.base import (
    SILENCE_SECONDS,
    StorageAccess,
    StorageAddress,
    StorageLocation,
    not_found_error,
    safe_join,
)
from tradewind.deployer.storage.egress_proxy import EgressProxy
from tradewind.errors import CredentialsError, DeployError, UnreachableError

_RETRIES: Any = {"max_retries": 3, "retry_timeout": timedelta(seconds=30)}
_SETTLED_SECONDS = 300


class ObjectStorage(StorageLocation):
    """Objects of a bucket below a common prefix."""

    def __init__(self, address: StorageAddress, access: StorageAccess) -> None:
        super().__init__(address, access)
        self._prefix = address.path.strip("/")
        self._store: Any = None
        self._proxy: EgressProxy | None = None

    def close(self) -> None:
        """Close the proxy, where there is one."""
        if self._proxy is not None:
            self._proxy.close()
            self._proxy = self._store = None

    def fetch(self, target: Path) -> None:
        """Bring an object, or all objects below a prefix; see `StorageLocation.fetch`."""
        with self._typed():
            try:
                self._download(self._prefix, target)
                return
            except FileNotFoundError:
                pass
            entries = [
                (str(entry["path"]), int(entry["size"]))
                for batch in obstore.list(self._bucket(), prefix=self._prefix or None)
                for entry in batch
            ]
            if not entries:
                raise not_found_error(self.address)
            target.mkdir(parents=True, exist_ok=True)
            folders = {str(above) for path, _ in entries for above in PurePosixPath(path).parents} | {self._prefix}
            for path, size in entries:
                # Consoles and file systems mark a folder by an empty object "folder/", listed here without the slash.
                if size == 0 and path in folders:
                    continue
                place = safe_join(target, str(PurePosixPath(path).relative_to(self._prefix or ".")))
                place.parent.mkdir(parents=True, exist_ok=True)
                try:
                    self._download(path, place)
                except FileNotFoundError:
                    if size:
                        raise
                    place.mkdir(exist_ok=True)  # the mark of an empty folder

    def read(self, name: str) -> bytes | None:
        """The content of an object; see `StorageLocation.read`."""
        with self._typed():
            try:
                return bytes(obstore.get(self._bucket(), self._key(name)).bytes())
            except FileNotFoundError:
                return None

    def put(self, source: Path, name: str) -> None:
        """Upload an object, in parts if it is large; see `StorageLocation.put`."""
        with self._typed():
            obstore.put(self._bucket(), self._key(name), source)

    def remove(self, name: str) -> None:
        """Remove an object; see `StorageLocation.remove`."""
        with self._typed(), contextlib.suppress(FileNotFoundError):
            obstore.delete(self._bucket(), self._key(name))

    def _key(self, name: str) -> str:
        return f"{self._prefix}/{name}".lstrip("/")

    def _download(self, key: str, target: Path) -> None:
        if not key:
            raise FileNotFoundError
        stream = obstore.get(self._bucket(), key).stream()
        with target.open("wb") as file:
            for piece in stream:
                file.write(piece)

    def _bucket(self) -> Any:
        if self._store is not None:
            return self._store
        address, access = self.address, self.access
        options: Any = {"timeout": timedelta(seconds=600), "connect_timeout": timedelta(seconds=10)}
        options["read_timeout"] = timedelta(seconds=SILENCE_SECONDS)
        if access.reach == "public" and access.endpoint:  # the names of Amazon and Google are nobody else's
            self._proxy = EgressProxy(address.shown)
            options["proxy_url"] = self._proxy.url
        elif _endpoint(access).startswith("http://"):
            options["allow_http"] = True
        if address.scheme == "gs":
            extra: Any = {"url": access.endpoint} if access.endpoint else None
            self._store = GCSStore(address.host, client_options=options, retry_config=_RETRIES, config=extra)
            return self._store
        self._store = S3Store(
            address.host,
            config=_config(access),
            client_options=options,
            retry_config=_RETRIES,
            credential_provider=_own(access) if access.user else _amazon,
        )
        return self._store

    @contextlib.contextmanager
    def _typed(self) -> Iterator[None]:
        shown = self.address.shown
        try:
            yield
        except (exceptions.PermissionDeniedError, exceptions.UnauthenticatedError) as error:
            hint = "see that the keys are right and may use the bucket"
            raise CredentialsError(f"{shown} does not let us in: {_first(error)}", hint=hint) from error
        except (FileNotFoundError, exceptions.NotFoundError) as error:
            raise not_found_error(self.address) from error
        except exceptions.BaseError as error:
            if self._proxy is not None and self._proxy.refusal is not None:
                raise self._proxy.refusal from error
            words, status = _first(error), http_status(error)
            if status == "404" or "NoSuchBucket" in str(error):
                raise not_found_error(self.address) from error
            if "error sending request" in str(error) or "connect" in str(error).lower():
                raise UnreachableError(f"{shown} cannot be reached: {words}") from error
            if status == "403" or "SignatureDoesNotMatch" in str(error) or "InvalidAccessKeyId" in str(error):
                raise CredentialsError(f"{shown} does not let us in: {words}") from error
            raise DeployError(f"{shown}: {words}") from error
        except OSError as error:
            raise DeployError(f"{shown}: {error.strerror or error}") from error


def http_status(error: BaseException) -> str:
    """The HTTP status of a server's answer, read from the package's message; empty without an answer.

    Its words have the address too, with a port of any digits, and how long it took.
    """
    found = re.search(r"status(?: code:)? (\d{3})\b", str(error))
    return found[1] if found else ""


def _first(error: BaseException) -> str:
    """The first line of what the package says; what follows are its own internals."""
    return str(error).partition("\n")[0].strip()[:300]


def _endpoint(access: StorageAccess) -> str:
    """The address that Amazon's language is spoken to; empty for Amazon's own."""
    return access.endpoint or ("" if access.user else os.environ.get("AWS_ENDPOINT_URL", ""))


def _config(access: StorageAccess) -> Any:
    """Settings of the package, which takes all that is not said here from Amazon's environment variables."""
    from tradewind.deployer.aws_credentials import default_region

    region = default_region() or "us-east-1"
    config: dict[str, Any] = {"region": region}
    if access.user:
        config["skip_signature"] = False
    if access.endpoint or access.user:
        config["endpoint"] = access.endpoint or f"https://s3.{region}.amazonaws.com"
        config["virtual_hosted_style_request"] = False
        if "AWS_ENDPOINT_URL_S3" in os.environ:  # it would count more; not all versions of the package know it
            config["aws_endpoint_url_s3"] = config["endpoint"]
    return config


def _own(access: StorageAccess) -> Any:
    """A place's own keys, apart from the settings: beside keys there, the environment's session token would count."""
    keys = {"access_key_id": access.user, "secret_access_key": access.secret(), "expires_at": None}
    return lambda: keys


def _amazon() -> Any:
    """Amazon's credentials from where all its programs look for them."""
    import datetime

    from tradewind.deployer.aws_credentials import find_aws_credentials

    keys = find_aws_credentials()
    later = datetime.datetime.now(datetime.UTC) + timedelta(seconds=_SETTLED_SECONDS)
    found: dict[str, Any] = {"access_key_id": keys.access_key, "secret_access_key": keys.secret_key}
    return {**found, "expires_at": later, **({"token": keys.token} if keys.token else {})}
