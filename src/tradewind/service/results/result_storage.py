"""Operations on the locations of results, called by REST, XML-RPC, the pages and the command line.

Users name no place that is entered with what the server itself has (its environment, its files, its cloud's role): to a
place of their own belongs a password of their own, which is kept sealed and never shown again.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote, urlsplit

from tradewind.deployer.storage import open_storage
from tradewind.deployer.storage.base import StorageAddress
from tradewind.errors import ConflictError, DeployError, InputError, NotFoundError, UnreachableError
from tradewind.service.accounts.audit_log import AuditLog
from tradewind.service.accounts.identity import Principal, clean_text
from tradewind.service.http.outbound_requests import parse_outbound_url
from tradewind.service.results.ssh_keys import UserSshKeys, fingerprints, read_host_keys, scan_host_keys
from tradewind.service.secret_vault import SOURCE, SecretVault
from tradewind.service.settings import ServiceSettings
from tradewind.store.service.accounts import AccountStore, UserRow
from tradewind.store.service.shared_values import SharedValueStore
from tradewind.store.sql.database import Database
from tradewind.utils.ssrf_guard import resolve_addresses

RESULTS_KEY = "results"
"""Name of the user's setting that holds them."""

CHECK_FILE = ".tradewind-check"
"""Name of the file that is written into a location, and removed, to check that it can be used."""

_OWN = ("s3", "sftp", "webdav", "webdavs")
_MOST = 20
_LONGEST = 1000


@dataclass(frozen=True, slots=True)
class ResultLocation:
    """A location that results may be uploaded to.

    Attributes:
        address: URL; results may go anywhere below it.
        user: The login or access key there; empty where none is needed.
        secret: True where a password is kept for it.
        endpoint: The object store's own address, or empty.
        fingerprints: Fingerprints of an SFTP server's keys.
        own: True where it is the user's, not the administrator's.
        default: True where results go there if a request names no location.
    """

    address: str
    user: str = ""
    secret: bool = False
    endpoint: str = ""
    fingerprints: tuple[str, ...] = ()
    own: bool = True
    default: bool = False


@dataclass(frozen=True, slots=True)
class ResultDestination:
    """Destination of a request's results, for its deploy section.

    Attributes:
        results: The address; empty for nowhere.
        places: Credentials, by address; passwords are references.
    """

    results: str = ""
    places: Mapping[str, Mapping[str, str]] = field(default_factory=dict)


class ResultStorageService:
    """Locations that results are uploaded to.

    Args:
        database: The open database.
        settings: The server's settings.
        sealer: Keeps passwords.
        audit: The audit log.
        data_folder: Folder for the SSH keys that ``sftp`` reads.
    """

    def __init__(
        self, database: Database, settings: ServiceSettings, sealer: SecretVault, audit: AuditLog, data_folder: Path
    ) -> None:
        self._accounts = AccountStore(database)
        self._values = SharedValueStore(database)
        self._settings = settings
        self._sealer = sealer
        self._audit = audit
        self._keys = UserSshKeys(database, settings, sealer, data_folder / "keys")

    def places(self, who: Principal) -> list[ResultLocation]:
        """List the locations open to the user who asks: those of the administrator, then the own ones."""
        user = self._accounts.user(who.user_id)
        kept, default = _kept(user), _default(user)
        offered = [ResultLocation(address, own=False, default=address == default) for address in self._offered(user)]
        return offered + [_row(address, one, default) for address, one in kept.items()]

    def public_key(self, who: Principal) -> str:
        """Return the line for ``authorized_keys`` of an SFTP login that results of the user who asks go to."""
        return self._keys.public(who.user_id)

    def set_place(
        self,
        who: Principal,
        address: str,
        *,
        user: str = "",
        password: str | None = None,
        endpoint: str = "",
        host_key: str = "",
        default: bool = False,
    ) -> ResultLocation:
        """Add a location of the user's own, or change it.

        Args:
            who: The user who asks.
            address: ``s3://bucket/folder``, ``webdavs://host/path``, or ``sftp://user@host/path``.
            user: The login, or the id of the access key.
            password: The password or secret key; None keeps the one that is there. It is never shown again.
            endpoint: The address of an object store that speaks Amazon's language.
            host_key: The keys of an SFTP server, as ``ssh-keyscan`` prints them; it is asked for them without.
            default: True where results go there if a request names no location.

        Returns:
            The place as it is kept; the fingerprints of an SFTP server are there to be compared.

        Raises:
            InputError: The address or what goes with it is wrong, its host has no address, or one inside.
            ConflictError: The administrator does not allow it, or there are too many.
            DeployError: An SFTP server does not say its keys.
        """
        if not self._settings.own_places:
            raise ConflictError("results go only to places of this server's administrator")
        account = self._accounts.user(who.user_id)
        try:
            parsed = self._judge(address, endpoint)
        except UnreachableError as error:
            raise InputError(error.message, hint="is its name right?") from None
        kept = _kept(account)
        before = kept.get(address, {})
        if address not in kept and len(kept) >= _MOST:
            raise ConflictError(f"there are {_MOST} places already", hint="remove one that nobody uses")
        if any(clean_text(text, _LONGEST) != text for text in (user, endpoint)):
            raise InputError("a login has no control characters in it")
        one: dict[str, str] = {"user": user, "endpoint": endpoint}
        if parsed.scheme == "sftp":
            one["hosts"] = read_host_keys(host_key) if host_key else before.get("hosts") or self._scan(parsed)
        elif password:
            one["password"] = self._sealer.seal(password)
        elif password is None and before.get("password"):
            one["password"] = before["password"]
        if parsed.scheme != "sftp" and not (user and one.get("password")):
            raise InputError(f"{parsed.scheme}:// needs a user and a password of your own")
        changed = {**kept, address: one}
        self._keep(account, changed, address if default else _default(account))
        self._forget(before, but=one)
        self._audit.record(who, "results.set", clean_text(parsed.shown))
        return _row(address, one, address if default else _default(account))

    def remove_place(self, who: Principal, address: str) -> None:
        """Remove a location of the user's own, with the password that is kept for it.

        Raises:
            NotFoundError: There is none.
        """
        account = self._accounts.user(who.user_id)
        kept = _kept(account)
        if address not in kept:
            raise NotFoundError("there is no such place")
        gone = kept.pop(address)
        self._keep(account, kept, "" if _default(account) == address else _default(account))
        self._forget(gone)
        self._audit.record(who, "results.remove", clean_text(address))

    def set_default(self, who: Principal, address: str) -> None:
        """Set the location for requests that name none; empty for none.

        Raises:
            InputError: Results of the user may not go there.
        """
        account = self._accounts.user(who.user_id)
        if address:
            self._access(account, address, who.is_admin)
        self._keep(account, _kept(account), address)

    def check(self, who: Principal, address: str = "") -> str:
        """See whether results can be written to a place: a small file is written there, and removed.

        Args:
            who: The user who asks.
            address: The place; the default one without it.

        Returns:
            The address.

        Raises:
            InputError: Results of the user may not go there, or there is no such place.
            DeployError: It cannot be written; the message says why.
        """
        found = self.destination(who.user_id, address, is_admin=who.is_admin)
        if not found.results:
            raise InputError("there is no place yet that results go to", hint="add one first")
        place = open_storage(found.results, found.places)
        try:
            with tempfile.TemporaryDirectory(prefix="tradewind-check-") as scratch:
                file = Path(scratch) / "check"
                file.write_text("Tradewind can write here. This file may be removed.\n")
                place.put(file, CHECK_FILE)
                place.remove(CHECK_FILE)
        finally:
            place.close()
        return found.results

    def destination(self, user_id: int, address: str = "", *, is_admin: bool = False) -> ResultDestination:
        """Resolve the destination of a request's results, for its deploy section.

        Args:
            user_id: The user whose request it is.
            address: Address under ``results`` of the request; the user's default without it.
            is_admin: True where the user may name any place that the server itself can write.

        Raises:
            InputError: Results of the user may not go there.
            UnreachableError: The host has no address now.
        """
        account = self._accounts.user(user_id)
        address = address or _default(account)
        if not address:
            return ResultDestination()
        return ResultDestination(address, self._access(account, address, is_admin))

    # ------------------------------------------------------------------ which places there are

    def _access(self, account: UserRow, address: str, is_admin: bool) -> dict[str, dict[str, str]]:
        """Return the credentials of an address.

        Raises:
            InputError: Results of the user may not go there.
        """
        _refuse_detours(address)
        offered = self._offered(account)
        for place in sorted(offered, key=len, reverse=True):
            if _is_below(address, place):
                return {place: dict(offered[place])} if offered[place] else {}
        kept = _kept(account)
        for place in sorted(kept, key=len, reverse=True):
            if _is_below(address, place):
                parsed = self._judge(place, kept[place].get("endpoint", ""))
                return {place: self._entered(account.id, parsed, kept[place])}
        if is_admin:
            if "://" not in address and not address.startswith("/"):
                raise InputError("a folder of the server is written in full", hint=f"write /srv/results/{address[:40]}")
            return {}
        raise InputError(
            f"results of {account.name} do not go to {clean_text(address, 200)}",
            hint="add the place to your account first, or leave it out",
        )

    def _entered(self, user_id: int, parsed: StorageAddress, one: Mapping[str, str]) -> dict[str, str]:
        # What is judged here may point elsewhere by the time of the upload: then it is judged again.
        reach = {} if self._settings.private_addresses else {"reach": "public"}
        if parsed.scheme == "sftp":
            keys = read_host_keys(one.get("hosts", ""))
            hosts = self._keys.known_hosts(user_id, parsed.host, parsed.port, keys)
            found = {"identity": str(self._keys.identity(user_id)), "known_hosts": str(hosts), **reach}
            return {**found, **({"user": one["user"]} if one.get("user") else {})}
        if not (one.get("user") and one.get("password")):
            raise InputError(f"{parsed.shown} has no user and password of your own", hint="set the place again")
        return {key: one[key] for key in ("user", "password", "endpoint") if one.get(key)} | reach

    def _offered(self, account: UserRow) -> dict[str, dict[str, str]]:
        """Return the administrator's locations, with the user's name and tenant in them."""
        found = {}
        for template, access in self._settings.results_places.items():
            escape = (lambda name: quote(name, safe="")) if "://" in template else (lambda name: name)
            address = template.replace("{user}", escape(account.name)).replace("{tenant}", escape(account.tenant))
            found[address.rstrip("/") or "/"] = {str(key): value for key, value in access.items()}
        return found

    def _judge(self, address: str, endpoint: str) -> StorageAddress:
        """Check that a location of a user's own is outside, and needs nothing of the server's.

        Raises:
            InputError: It is inside, or needs something of the server's.
        """
        _refuse_detours(address)
        if "://" not in address:
            raise InputError("a place of your own is not a folder of the server", hint="write webdavs://host/path")
        try:
            parsed = StorageAddress.parse(address)
        except DeployError as error:
            raise InputError(error.message, hint="write the password into its own field") from None
        if "[" in parsed.host:
            raise InputError("this is no address of results", hint="write the server's name, not its IPv6 address")
        if parsed.scheme not in _OWN:
            raise InputError(f"results do not go to {parsed.scheme}://", hint=f"known: {', '.join(_OWN)}")
        private = self._settings.private_addresses
        if parsed.scheme == "webdav" and not private:
            raise InputError("webdav:// would send the password in the clear", hint="write webdavs://")
        if parsed.scheme == "s3":
            if endpoint:
                target = parse_outbound_url(endpoint)
                if target.scheme == "http" and not private:
                    raise InputError("http:// would send results in the clear", hint="write https://")
                resolve_addresses(target.host, target.port, private=private)
        else:
            port = parsed.port or {"sftp": 22, "webdav": 80, "webdavs": 443}[parsed.scheme]
            if port < 1024 and port not in (22, 80, 443):
                raise InputError(f"results do not go to port {port}")
            resolve_addresses(parsed.host, port, private=private)
        return parsed

    def _scan(self, parsed: StorageAddress) -> str:
        addresses = resolve_addresses(parsed.host, parsed.port or 22, private=self._settings.private_addresses)
        return scan_host_keys(parsed.host, parsed.port, addresses[0])

    def _keep(self, account: UserRow, kept: Mapping[str, Mapping[str, str]], default: str) -> None:
        document = {"default": default, "places": {address: dict(one) for address, one in kept.items()}}
        self._values.change_user(account.id, RESULTS_KEY, document)

    def _forget(self, one: Mapping[str, str], but: Mapping[str, str] | None = None) -> None:
        reference = one.get("password", "")
        if reference and reference != (but or {}).get("password"):
            self._sealer.forget(reference)


def _kept(account: UserRow) -> dict[str, dict[str, str]]:
    document = account.settings.get(RESULTS_KEY)
    places: Any = document.get("places") if isinstance(document, Mapping) else None
    found = {}
    # Whatever way a setting came there: only what was sealed here counts as a password.
    for address, one in places.items() if isinstance(places, Mapping) else ():
        if isinstance(one, Mapping):
            kept = {key: str(one[key]) for key in ("user", "password", "endpoint", "hosts") if one.get(key)}
            if not kept.get("password", SOURCE).startswith(SOURCE):
                del kept["password"]
            found[str(address)] = kept
    return found


def _default(account: UserRow) -> str:
    document = account.settings.get(RESULTS_KEY)
    return str(document.get("default", "")) if isinstance(document, Mapping) else ""


def _row(address: str, one: Mapping[str, str], default: str) -> ResultLocation:
    prints = tuple(fingerprints(one["hosts"])) if one.get("hosts") else ()
    return ResultLocation(
        address,
        one.get("user", ""),
        bool(one.get("password")),
        one.get("endpoint", ""),
        prints,
        True,
        address == default,
    )


def _is_below(address: str, place: str) -> bool:
    return address == place or address.startswith(place.rstrip("/") + "/")


def _refuse_detours(address: str) -> None:
    """Refuse a path that a server might read as another one than the one that is compared here."""
    plain = unquote(unquote(address))
    try:
        path = urlsplit(plain).path if "://" in plain else plain
    except ValueError:  # half an address of IPv6
        path = ".."
    odd = any(not c.isprintable() for c in plain) or "\\" in plain or "?" in address or "#" in address
    if odd or ".." in path.split("/") or len(address) > _LONGEST:
        raise InputError("this is no address of results", hint="write one like webdavs://cloud.example.org/path")
