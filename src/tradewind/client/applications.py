"""Calls about applications: register them, ask for their forms, and for the right configuration."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

from tradewind.client.models import ApplicationInfo, FormInfo, ProposalInfo
from tradewind.client.transport import ApiCalls, as_json, plain
from tradewind.errors import InputError


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

    def register(self, document: str | Mapping[str, Any], *, shared: bool = False) -> ApplicationInfo:
        """Register an application, or the next version of one.

        Args:
            document: YAML, or the same as a mapping.
            shared: For all tenants; administrators only.

        Raises:
            SpecError: Something in it is wrong.
        """
        params = {"shared": "true"} if shared else {}
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
            data = path.read_bytes()
        except OSError as error:
            raise InputError(f"{path} cannot be read: {error.strerror or error}") from error
        headers = {"Content-Type": "application/octet-stream"}
        response = self._transport.call(
            "POST", "/uploads", again=True, params={"name": name or path.name}, content=data, headers=headers
        )
        found: dict[str, Any] = response.json()
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
