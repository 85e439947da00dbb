"""Backends: named deploy sections, set by an administrator and chosen by users by name."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field, ValidationError

from tradewind.errors import ConflictError, ForbiddenError, InputError, NotFoundError
from tradewind.problem.job_spec.model import DeployModel, QueryModel
from tradewind.problem.job_spec.spec import build_spec
from tradewind.problem.job_spec.validation_errors import first_error, spec_errors
from tradewind.problem.job_spec.values import StrictModel
from tradewind.problem.yaml_source import YamlSource, parse_source
from tradewind.service.accounts.audit_log import record_action
from tradewind.service.accounts.identity import Principal
from tradewind.store.service.applications import ApplicationRow, ApplicationStore, BackendRow
from tradewind.utils.suggestions import did_you_mean

if TYPE_CHECKING:
    from tradewind.store.sql.database import Database

LOCAL = "local"
"""The backend of a fresh server: the machine that the server runs on."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


class BackendFile(StrictModel):
    """A backend, as an administrator writes it."""

    title: str = Field("", max_length=100, description="What people call it.")
    description: str = Field("", max_length=5000, description="What stands there, for people.")
    users: Literal["everyone", "admins"] = Field("everyone", description="Who may choose it: everyone or admins.")
    own_code: bool = Field(
        False,
        description="Whether programs that ordinary users bring may run there; the process runner gives them all that "
        "the server may do.",
    )
    deploy: DeployModel = Field(DeployModel(), description="Where and how runs take place, as in a job YAML.")
    offers: QueryModel = Field(QueryModel(), description="Which offers there are, as in a job YAML.")
    catalogues: dict[str, dict[str, Any]] = Field({}, description="Settings of catalogues, as in a job YAML.")


@dataclass(frozen=True, slots=True)
class Backend:
    """A place that jobs run at.

    Attributes:
        name: Unique name that requests use.
        title: What people call it.
        description: Text for people: which machines it has.
        users: Users who may choose it: ``everyone`` or ``admins``.
        own_code: True where programs that ordinary users bring may run there.
        deploy: The deploy section of a job YAML.
        offers: The offers that there are, as in a job YAML.
        catalogues: Settings of catalogues, by name.
    """

    name: str
    title: str = ""
    description: str = ""
    users: Literal["everyone", "admins"] = "everyone"
    own_code: bool = False
    deploy: Mapping[str, Any] = field(default_factory=dict)
    offers: Mapping[str, Any] = field(default_factory=dict)
    catalogues: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    @property
    def runner(self) -> str:
        """The name of the runner."""
        runner = self.deploy.get("runner", "process")
        return str(runner if isinstance(runner, str) else runner.get("use", "process"))


_FRESH = Backend(
    LOCAL,
    title="This machine",
    description="Jobs run on the server's own machine.",
    deploy={"runner": "process", "provisioner": "none"},
    offers={"provider": ["local"]},
)


BackendRows = list[Backend]
"""Within the class `list` is its own function."""


class BackendService:
    """The backends of a server.

    A fresh server has one, ``local``; one that an administrator sets under that name takes its place.

    Args:
        database: The open database.
        data_folder: Relative paths of settings are seen from here.
    """

    def __init__(self, database: Database, data_folder: Path) -> None:
        self.store = ApplicationStore(database)
        self._database = database
        self._base = data_folder

    def list(self, who: Principal) -> BackendRows:
        """List the backends that a user may choose, by name."""
        return [one for one in self._all().values() if who.is_admin or one.users == "everyone"]

    def get(self, who: Principal, name: str = "") -> Backend:
        """Return a backend that a user may choose: without a name ``local``, or the first that is open to the user.

        Raises:
            NotFoundError: There is none of that name, or it is not open to this user.
        """
        open_ones = {one.name: one for one in self.list(who)}
        wanted = name or (LOCAL if LOCAL in open_ones else next(iter(open_ones), LOCAL))
        if wanted not in open_ones:
            raise NotFoundError(f"there is no backend {wanted!r}", hint=did_you_mean(wanted, open_ones, "there are:"))
        return open_ones[wanted]

    def choose(self, who: Principal, row: ApplicationRow | None, name: str = "") -> Backend:
        """Choose the backend that a request of a user runs on.

        Args:
            who: The user who asks.
            row: The application; None for a program that the user brings with the request.
            name: The user's choice; without it the application's own, then ``local``.

        Raises:
            NotFoundError: There is none of that name, or it is not open to this user.
            ForbiddenError: It runs no programs of ordinary users, and this is one.
        """
        from tradewind.service.applications.validation import stored_application

        backend = self.get(who, name or (stored_application(row).model.backend if row else ""))
        trusted = row.trusted if row is not None else who.is_admin
        if not trusted and not backend.own_code:
            others = [one.name for one in self.list(who) if one.own_code]
            hint = f"choose {' or '.join(others)}" if others else "ask an administrator to register it"
            raise ForbiddenError(f"the backend {backend.name} runs only programs of its administrators", hint=hint)
        return backend

    def by_name(self, name: str) -> Backend:
        """Return a backend for a request that was let in already, whoever may choose it.

        Raises:
            NotFoundError: It was removed meanwhile.
        """
        found = self._all().get(name)
        if found is None:
            raise NotFoundError(f"the backend {name!r} was removed", hint="resubmit the request with another one")
        return found

    def set(self, who: Principal, name: str, document: str | Mapping[str, Any], *, file: str = "<text>") -> Backend:
        """Add a backend, or replace the one of that name.

        Args:
            who: An administrator.
            name: Name of the backend.
            document: The backend, as YAML or as a mapping; see `BackendFile`.
            file: The name that errors give the text.

        Raises:
            ForbiddenError: It is no administrator.
            SpecError: Something in it is wrong, with file and line.
        """
        _admin(who)
        if not _NAME.fullmatch(name):
            raise InputError(f"{name!r} is no name for a backend", hint="letters, digits, '.', '_' and '-'")
        source = parse_source(document, file) if isinstance(document, str) else YamlSource(dict(document), file)
        self._check(source)
        given = {key: value for key, value in source.document.items() if value is not None}
        self.store.set_backend(BackendRow(name, given, given.get("users", "everyone")))
        record_action(self._database, who, "backend.set", f"backend {name}")
        return _backend(name, given)

    def remove(self, who: Principal, name: str) -> None:
        """Remove a backend; requests that run on it go on.

        Raises:
            ForbiddenError: It is no administrator.
            NotFoundError: There is none.
            ConflictError: It is the fresh server's own: it can be replaced, not removed.
        """
        _admin(who)
        if not self.store.remove_backend(name):
            if name == LOCAL:
                raise ConflictError("the backend local is always there", hint="set it with users: admins to close it")
            raise NotFoundError(f"there is no backend {name!r}", hint=did_you_mean(name, self._all(), "there are:"))
        record_action(self._database, who, "backend.remove", f"backend {name}")

    def _all(self) -> dict[str, Backend]:
        found = {row.name: _backend(row.name, row.document) for row in self.store.backends()}
        return dict(sorted(({LOCAL: _FRESH} | found).items()))

    def _check(self, source: YamlSource) -> None:
        """Check what a backend would give a job, as a job YAML is checked."""
        try:
            BackendFile.model_validate({k: v for k, v in source.document.items() if v is not None})
        except ValidationError as error:
            raise first_error(spec_errors(error, BackendFile, source)) from None
        sections = {key: source.document[key] for key in ("deploy", "offers", "catalogues") if source.document.get(key)}
        job = {"name": "backend", "job": {"command": ["true"]}, "space": {"instance": {}}, **sections}
        build_spec(YamlSource(job, source.file, source.lines), self._base)


def _backend(name: str, document: Mapping[str, Any]) -> Backend:
    known = {key: document[key] for key in Backend.__dataclass_fields__ if document.get(key) is not None}
    return Backend(**{"title": name, **known, "name": name})


def _admin(who: Principal) -> None:
    if not who.is_admin:
        raise ForbiddenError("only an administrator may change backends")
