"""The client of a server."""

from __future__ import annotations

from types import TracebackType
from typing import TYPE_CHECKING, Self

from tradewind.client.applications import ApplicationCalls
from tradewind.client.files import FileCalls
from tradewind.client.models import UserInfo
from tradewind.client.requests import RequestCalls
from tradewind.client.studies import StudyCalls
from tradewind.client.transport import PATIENCE, Transport

if TYPE_CHECKING:
    import httpx2


class Client(RequestCalls, FileCalls, ApplicationCalls, StudyCalls):
    """A user of a server.

    Every method raises the kind of `tradewind.errors.TradewindError` that the server had, and `AwayError` where the
    server does not answer. Calls that change nothing are tried again when the connection breaks; so is `submit`, which
    the server recognises by its key. A server that was there is waited for, as while it is started anew; `wait`,
    `events` and `logs` go on where they were.

    Args:
        url: Where the server is: ``https://tradewind.example.org``.
        token: A token of the user: ``tw_...``. Unless given, that of ``TRADEWIND_TOKEN``, else the one that
            ``tradewind login`` has kept for this address; empty for none.
        timeout: Seconds that an answer may take.
        tries: How often a call is tried.
        patience: Seconds for which a server that was there is waited for.
        verify: Whether the server's certificate is checked, or the path of the PEM file to check it with.
        transport: What carries the calls; for tests.

    Raises:
        InputError: The address or the token is none.
        SignInError: No token is given, and this machine has none for the server.
        MissingProgramError: httpx2 is not installed.

    Examples:
        ``Client("https://tradewind.example.org")`` after ``tradewind login``, or with a token:
        ``Client("https://tradewind.example.org", "tw_...")``
    """

    def __init__(
        self,
        url: str,
        token: str | None = None,
        *,
        timeout: float = 30.0,
        tries: int = 3,
        patience: float = PATIENCE,
        verify: bool | str = True,
        transport: httpx2.BaseTransport | None = None,
    ) -> None:
        wire = Transport(
            url, token, timeout=timeout, tries=max(1, tries), patience=patience, verify=verify, transport=transport
        )
        super().__init__(wire)
        self.url = self._transport.url

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Give back connections."""
        self._transport.close()

    def me(self) -> UserInfo:
        """Whom the token belongs to."""
        return UserInfo.from_json(self._get("/me"))
