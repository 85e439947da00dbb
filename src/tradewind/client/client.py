"""The client of a server."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self
from urllib.parse import quote

from tradewind.client.models import ApplicationInfo, FormInfo, ProposalInfo, StudyInfo, UserInfo
from tradewind.client.requests import FileCalls, RequestCalls
from tradewind.client.transport import PATIENCE, ApiCalls, Transport, as_json, plain
from tradewind.errors import InputError

if TYPE_CHECKING:
    import httpx2


_PIECE = 4 * 2**20
"""Bytes of a piece of a file: larger files come in several."""


class ApplicationCalls(ApiCalls):
    """Applications and proposals."""

    def applications(self) -> list[ApplicationInfo]:
        """The newest version of every application that you see, by name."""
        return [ApplicationInfo.from_json(one) for one in self._get("/applications")]

    def application(self, name: str) -> ApplicationInfo:
        """One application, with its document.

        Raises:
            NotFoundError: There is none.
            ConflictError: It was retired.
        """
        return ApplicationInfo.from_json(self._get(f"/applications/{quote(name, safe='@')}"))

    def form(self, name: str) -> FormInfo:
        """The form of an application.

        Raises:
            NotFoundError: There is none.
            ConflictError: It was retired.
        """
        return FormInfo.from_json(self._get(f"/applications/{quote(name, safe='@')}/form"))

    def register(
        self, document: str | Mapping[str, Any], *, shared: bool = False, vouch: bool = False
    ) -> ApplicationInfo:
        """Register an application, or the next version of one.

        Args:
            document: YAML, or the same as a mapping.
            shared: For all tenants; administrators only.
            vouch: You have read it, and vouch that typed text is data wherever it says so; administrators only.

        Raises:
            SpecError: Something in it is wrong.
        """
        params = {name: "true" for name, wanted in (("shared", shared), ("vouch", vouch)) if wanted}
        if isinstance(document, str):
            headers = {"Content-Type": "application/yaml"}
            sent: dict[str, Any] = {"content": document.encode(), "headers": headers}
        else:
            sent = {"json": as_json(document)}
        return ApplicationInfo.from_json(self._transport.call("POST", "/applications", params=params, **sent).json())

    def retire(self, name: str) -> None:
        """Retire an application, or one version of it: no new request can use it.

        Raises:
            NotFoundError: There is none.
        """
        self._transport.call("DELETE", f"/applications/{quote(name, safe='@')}")

    def upload(self, file: str | Path, name: str = "") -> dict[str, Any]:
        """Hand in a file for a form.

        Args:
            file: The file.
            name: What you call it; without it, what the file is called.

        Returns:
            The value of the form's field.

        Raises:
            InputError: The file cannot be read.
        """
        path = Path(file)
        try:
            with path.open("rb") as opened:
                data = opened.read(_PIECE)
                if len(data) < _PIECE:
                    return self._upload("/uploads", data, name=name or path.name)
                pieces = []
                while data:
                    pieces.append(self._upload("/uploads/pieces", data)["piece"])
                    data = opened.read(_PIECE)
        except OSError as error:
            raise InputError(f"{path} cannot be read: {error.strerror or error}") from error
        document = {"name": name or path.name, "pieces": pieces}
        found: dict[str, Any] = self._transport.call("POST", "/uploads/join", json=document).json()
        return found

    def _upload(self, where: str, data: bytes, **params: str) -> dict[str, Any]:
        headers = {"Content-Type": "application/octet-stream"}
        call = self._transport.call("POST", where, again=True, params=params, content=data, headers=headers)
        found: dict[str, Any] = call.json()
        return found

    def propose(
        self,
        application: str,
        parameters: Mapping[str, Any] | None = None,
        *,
        backend: str = "",
        deadline: float | str | None = None,
        resources: Mapping[str, Any] | None = None,
        count: int = 5,
    ) -> ProposalInfo:
        """Configurations for an application with these parameters, the best first; nothing is run.

        Args:
            application: ``name`` or ``name@3``.
            parameters: The values of its form.
            backend: Where to run; without it the application's own.
            deadline: Time that the run may take, in seconds or as ``30m``.
            resources: What a node must have at least.
            count: How many configurations at most.

        Raises:
            FormError: A parameter is wrong, missing or unknown.
            NotFoundError: There is no such application or backend.
        """
        given = {"backend": backend, "deadline": deadline, "resources": resources, "count": count}
        wanted = {"application": application, "parameters": dict(parameters or {}), **plain(given)}
        return ProposalInfo.from_json(
            self._transport.call("POST", "/proposals", again=True, json=as_json(wanted)).json()
        )


class StudyCalls(ApiCalls):
    """Studies."""

    def studies(
        self, *, states: Sequence[str] = (), text: str = "", single_runs: bool = False, limit: int | None = None
    ) -> Iterator[StudyInfo]:
        """Studies, the newest first; pages are fetched as you go on.

        Args:
            states: Only in these: ``running``, ``stopped``, ``finished``, ``interrupted``.
            text: Only with this in the name.
            single_runs: Also those of requests for a single run, which have one trial each.
            limit: So many at most.
        """
        given = plain({"state": list(states), "text": text, "single_runs": single_runs or None})
        return (StudyInfo.from_json(one) for one in self._pages("/studies", given, limit))

    def study(self, number: int) -> StudyInfo:
        """One study.

        Raises:
            NotFoundError: There is none that you may see.
        """
        return StudyInfo.from_json(self._get(f"/studies/{int(number)}"))

    def trials(self, study: int) -> dict[str, Any]:
        """The trials of a study, by column.

        Raises:
            NotFoundError: There is no such study that you may see.
        """
        found: dict[str, Any] = self._get(f"/studies/{int(study)}/trials")
        return found


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
        """The account that the token belongs to."""
        return UserInfo.from_json(self._get("/me"))
