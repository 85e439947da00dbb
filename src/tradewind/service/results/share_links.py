"""Share links to the results of requests: whoever has one may look, and nobody can guess one."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import BinaryIO

from tradewind.errors import InputError, NotFoundError
from tradewind.service.accounts.audit_log import AuditLog
from tradewind.service.accounts.credentials import new_secret, secret_digest
from tradewind.service.accounts.identity import Principal
from tradewind.service.requests.request_service import RequestService
from tradewind.service.requests.run_archive import archive_pieces
from tradewind.service.requests.run_files import RunFileEntry
from tradewind.service.settings import ServiceSettings
from tradewind.store.service.accounts import AccountStore
from tradewind.store.service.request_results import LinkRow, LinkStore
from tradewind.store.service.requests import RequestRow
from tradewind.store.sql.database import Database

# Within the class `list` is its own function.
ShareLinkRows = list[LinkRow]

SHARE_PATH = "/r"
"""Path below which shared results are."""

_MOST_LINKS = 50
_LONGEST_DAYS = 3650.0


@dataclass(frozen=True, slots=True)
class SharedResults:
    """The results behind a link.

    Attributes:
        link: The link.
        request: The request.
        files: Files that may be looked at, by path; empty while the request is not over.
    """

    link: LinkRow
    request: RequestRow
    files: list[RunFileEntry]


class ShareLinkService:
    """Share links to the results of requests.

    Args:
        database: The open database.
        settings: The server's settings.
        requests: The requests that they lead to.
        audit: The audit log.
    """

    def __init__(
        self, database: Database, settings: ServiceSettings, requests: RequestService, audit: AuditLog
    ) -> None:
        self._store = LinkStore(database)
        self._accounts = AccountStore(database)
        self._settings = settings
        self._requests = requests
        self._audit = audit

    def make(
        self, who: Principal, request_id: int, *, days: float | None = None, path: str = ""
    ) -> tuple[LinkRow, str]:
        """Make a link; its secret is shown this once.

        Args:
            who: The user who makes it.
            request_id: The request.
            days: Days until it leads nowhere any more; without it, those of the settings.
            path: Only this file, or what is below this folder.

        Returns:
            The link, and its path on this server: ``/r/...``.

        Raises:
            NotFoundError: There is no such request that this user may see.
            InputError: The days or the path make no sense, or there are too many links already.
        """
        self._requests.get(who, request_id)
        days = self._settings.link_days if days is None else days
        if not 0 < days <= _LONGEST_DAYS:
            raise InputError(f"a link cannot last {days:g} days", hint=f"write from 1 to {_LONGEST_DAYS:.0f}")
        if len(self._store.of_request(request_id)) >= _MOST_LINKS:
            raise InputError(f"there are {_MOST_LINKS} links already", hint="take some away that nobody uses")
        secret = new_secret("")
        now = time.time()
        row = self._store.add(LinkRow(secret_digest(secret), request_id, _clean(path), now, now + 86400 * days))
        self._audit.record(who, "link.make", f"request {request_id}", link=row.id, days=days)
        return row, f"{SHARE_PATH}/{secret}"

    def list(self, who: Principal, request_id: int) -> ShareLinkRows:
        """List the links of a request that still lead anywhere, the newest first.

        Raises:
            NotFoundError: There is no such request that this user may see.
        """
        self._requests.get(who, request_id)
        return self._store.of_request(request_id)

    def revoke(self, who: Principal, request_id: int, link_id: str) -> None:
        """Revoke a link: it leads nowhere from now on.

        Raises:
            NotFoundError: There is no such request or link.
        """
        self._requests.get(who, request_id)
        if not self._store.delete(request_id, link_id):
            raise NotFoundError("there is no such link")
        self._audit.record(who, "link.revoke", f"request {request_id}", link=link_id)

    def open(self, secret: str) -> SharedResults:
        """Return the results behind a link, for anybody who has it.

        Raises:
            NotFoundError: It leads nowhere, or not any more.
        """
        link, request, owner = self._follow(secret)
        entries = self._requests.files(owner, request.id) if request.over else []
        return SharedResults(link, request, [entry for entry in entries if _within(link.path, entry.path)])

    def file(self, secret: str, path: str) -> BinaryIO:
        """Open a file that a link leads to, for anybody who has it.

        Raises:
            NotFoundError: The link leads nowhere, or not to such a file.
        """
        link, request, owner = self._follow(secret)
        if not request.over or not _within(link.path, path):
            raise NotFoundError("the link leads to no such file")
        return self._requests.open(owner, request.id, path)

    def archive(self, secret: str) -> Iterator[bytes]:
        """Return the pieces of a zip file with all files that a link leads to, for anybody who has it.

        Raises:
            NotFoundError: The link leads nowhere, or to no file.
        """
        files = self.open(secret).files
        if not files:
            raise NotFoundError("the link leads to no file")
        return archive_pieces(files, lambda path: self.file(secret, path))

    def _follow(self, secret: str) -> tuple[LinkRow, RequestRow, Principal]:
        link = self._store.find(secret_digest(secret))
        if link is not None:
            request = self._requests.store.get(link.request_id)
            user = self._accounts.user(request.user_id)
            # What a locked user has handed out is locked, too.
            if user.state == "active":
                return link, request, Principal(user.id, user.name, "user", request.tenant)
        raise NotFoundError(
            "this link is wrong, has expired, or was taken back", hint="ask who gave it to you for a new one"
        )


def _clean(path: str) -> str:
    pieces = PurePosixPath(path).parts
    if path.startswith("/") or ".." in pieces or not path.isprintable():
        raise InputError(f"{path!r} is no path of a result", hint="write a file or a folder, such as outputs")
    return "/".join(piece for piece in pieces if piece != ".")


def _within(top: str, path: str) -> bool:
    return not top or path == top or path.startswith(f"{top}/")
