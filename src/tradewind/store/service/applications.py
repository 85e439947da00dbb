"""Stores applications: their versions, the backends they run on, and files handed in with forms."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import sqlalchemy as sa

from tradewind.errors import ConflictError, NotFoundError
from tradewind.problem import Trial
from tradewind.store import codec
from tradewind.store.sql.database import Database
from tradewind.store.sql.schema import applications, backends, requests, studies, trials, uploads
from tradewind.store.studies import rows

SHARED = ""
"""The tenant of an application that all tenants see."""


@dataclass(frozen=True, slots=True)
class ApplicationRow:
    """A version of an application; it never changes, but for its state.

    Attributes:
        id: The store's own number; 0 before it is stored.
        tenant: Whose it is; empty where all tenants see it.
        name: The application's name, unique within its tenant.
        version: 1 for the first.
        document: The YAML that it was registered with.
        author: Who registered it.
        trusted: Whether that was an administrator: it may then run programs of the server.
        state: ``active`` or ``retired``.
        created: Seconds since the epoch.
    """

    id: int
    tenant: str
    name: str
    version: int
    document: str
    author: str
    trusted: bool = False
    state: Literal["active", "retired"] = "active"
    created: float = 0.0

    @property
    def reference(self) -> str:
        """``name@version``, as requests name it."""
        return f"{self.name}@{self.version}"

    @property
    def address(self) -> str:
        """``tenant/name@version``, ``/name@version`` of a shared one: it and no other one of the same name."""
        return f"{self.tenant}/{self.reference}"

    @property
    def shared(self) -> bool:
        """True when all tenants see it."""
        return self.tenant == SHARED


@dataclass(frozen=True, slots=True)
class BackendRow:
    """A backend as the store keeps it.

    Attributes:
        name: The backend's name, unique in the store.
        document: What the administrator wrote.
        users: Who may choose it: ``everyone`` or ``admins``.
        created: Seconds since the epoch.
    """

    name: str
    document: Mapping[str, Any] = field(default_factory=dict)
    users: Literal["everyone", "admins"] = "everyone"
    created: float = 0.0


@dataclass(frozen=True, slots=True)
class PastTrialRow:
    """A trial of an earlier request, with what was typed into its form.

    Attributes:
        study_id: The study that ran it.
        problem_key: Of the study.
        parameters: The request's parameters, as they were given.
        trial: The trial.
    """

    study_id: int
    problem_key: str
    parameters: Mapping[str, Any]
    trial: Trial


_COLUMNS = [applications.c[name] for name in ApplicationRow.__dataclass_fields__]
# What is read for each request is put together once.
_OF_NAME = (applications.c.tenant == sa.bindparam("tenant")) & (applications.c.name == sa.bindparam("name"))
_NEWEST = sa.select(*_COLUMNS).where(_OF_NAME, applications.c.state == sa.literal("active"))
_NEWEST = _NEWEST.order_by(applications.c.version.desc()).limit(1)
_VERSION = sa.select(*_COLUMNS).where(_OF_NAME, applications.c.version == sa.bindparam("version"))
_BY_NUMBER = sa.select(*_COLUMNS).where(applications.c.id == sa.bindparam("number"))
_BACKENDS = sa.select(*(backends.c[name] for name in BackendRow.__dataclass_fields__)).order_by(backends.c.name)
_INFORM = ("succeeded", "failed", "aborted")
_SEEN = requests.c.tenant == sa.bindparam("seen_by")
_REQUESTS = requests.join(applications, requests.c.application_id == applications.c.id)
_Both = tuple[sa.Select[Any], sa.Select[Any]]
"""Of the requests of all tenants, and of those ``seen_by`` one."""
_COUNTED: Any = (sa.func.count(), sa.func.max(requests.c.updated))
_marks: sa.Select[Any] = sa.select(*_COUNTED).select_from(_REQUESTS).where(_OF_NAME)
_MARKS: _Both = (_marks, _marks.where(_SEEN))
_pasts: sa.Select[Any] = sa.select(studies.c.id, studies.c.problem_key, requests.c.document, *rows.TRIAL_COLUMNS)
_pasts = _pasts.select_from(
    _REQUESTS.join(studies, requests.c.study_id == studies.c.id).join(trials, trials.c.study_id == studies.c.id)
)
# Not IN: a list is put into the text anew each time.
_pasts = _pasts.where(_OF_NAME, sa.or_(*(trials.c.state == sa.literal(state) for state in _INFORM)))
_pasts = _pasts.where(requests.c.updated >= sa.bindparam("since"))
_pasts = _pasts.order_by(requests.c.id.desc(), trials.c.number.desc()).limit(sa.bindparam("limit"))
_PASTS: _Both = (_pasts, _pasts.where(_SEEN))


class ApplicationStore:
    """The tables of applications, backends and uploads.

    Args:
        database: The open database.
    """

    def __init__(self, database: Database) -> None:
        self._database = database

    # ------------------------------------------------------------------ applications

    def add(self, row: ApplicationRow) -> ApplicationRow:
        """Add the next version of an application, after those of the same tenant and name."""
        same = (applications.c.tenant == row.tenant) & (applications.c.name == row.name)
        with self._database.write() as connection:
            last = connection.execute(sa.select(sa.func.max(applications.c.version)).where(same)).scalar() or 0
            values = {name: getattr(row, name) for name in ApplicationRow.__dataclass_fields__ if name != "id"}
            values |= {"version": last + 1, "created": row.created or time.time()}
            (number,) = connection.execute(sa.insert(applications).values(values)).inserted_primary_key or (0,)
            return _one(connection, applications.c.id == number)

    def application(self, number: int) -> ApplicationRow:
        """One version, by the store's number.

        Raises:
            NotFoundError: There is none.
        """
        found = self._database.rows(_BY_NUMBER, number=number)
        if not found:
            raise _no_application()
        return _application(found[0])

    def find(self, tenant: str, name: str, version: int | None = None) -> ApplicationRow | None:
        """A version of an application, the newest active one unless said otherwise; None where there is none."""
        of_name = {"tenant": tenant, "name": rows.storable_text(name)}
        if version is None:
            found = self._database.rows(_NEWEST, **of_name)
        else:
            found = self._database.rows(_VERSION, **of_name, version=version)
        return _application(found[0]) if found else None

    def applications(
        self, tenants: Collection[str] | None = None, *, name: str | None = None, retired: bool = False
    ) -> list[ApplicationRow]:
        """The newest active version of each application, by name; with ``name`` all versions of that one.

        Args:
            tenants: Only those of these tenants; None for all.
            name: The name.
            retired: Also what was retired.
        """
        query = sa.select(*_COLUMNS)
        if tenants is not None:
            query = query.where(applications.c.tenant.in_(sorted(tenants)))
        if name is not None:
            query = query.where(applications.c.name == name)
        if not retired:
            query = query.where(applications.c.state == "active")
        order = (applications.c.name, applications.c.tenant, applications.c.version.desc())
        with self._database.read() as connection:
            found = [_application(row) for row in connection.execute(query.order_by(*order))]
        if name is not None:
            return found
        newest: dict[tuple[str, str], ApplicationRow] = {}
        for row in found:
            newest.setdefault((row.tenant, row.name), row)
        return list(newest.values())

    def retire(self, tenant: str, name: str, version: int | None = None) -> int:
        """Retire one version of an application, or all; no request begins with it any more.

        Returns:
            How many versions were active before.
        """
        where = (applications.c.tenant == tenant) & (applications.c.name == name) & (applications.c.state == "active")
        if version is not None:
            where &= applications.c.version == version
        with self._database.write() as connection:
            return int(connection.execute(sa.update(applications).where(where).values(state="retired")).rowcount)

    # ------------------------------------------------------------------ what was learned

    def watermark(self, tenant: str, name: str, seen_by: str | None = None) -> tuple[int, float]:
        """The number of an application's requests, and their newest change: they differ when there are new runs.

        Args:
            tenant: Whose the application is.
            name: The application's name.
            seen_by: Only requests of this tenant; None for those of all.
        """
        query, whose = _of(_MARKS, tenant, name, seen_by)
        ((count, newest),) = self._database.rows(query, **whose)
        return int(count), float(newest or 0.0)

    def past(
        self, tenant: str, name: str, *, seen_by: str | None = None, since: float = 0.0, limit: int = 2_000
    ) -> list[PastTrialRow]:
        """The trials of all requests of an application, whatever its version, the newest last.

        Args:
            tenant: Whose the application is.
            name: The application's name.
            seen_by: Only requests of this tenant; None for those of all.
            since: Only requests that have changed since then, in seconds since the epoch.
            limit: The most that is read; the newest are kept.
        """
        query, whose = _of(_PASTS, tenant, name, seen_by)
        found = self._database.rows(query, **whose, since=since, limit=limit)
        return [_past(*row) for row in reversed(found)]

    # ------------------------------------------------------------------ backends

    def set_backend(self, row: BackendRow) -> BackendRow:
        """Add a backend, or replace the one of that name."""
        values = {
            "document": codec.dumps(dict(row.document)),
            "users": row.users,
            "created": row.created or time.time(),
        }
        with self._database.write() as connection:
            changed = connection.execute(sa.update(backends).where(backends.c.name == row.name).values(values))
            if not changed.rowcount:
                connection.execute(sa.insert(backends).values({"name": row.name, **values}))
        return row

    def backends(self) -> list[BackendRow]:
        """All backends, by name."""
        return [
            BackendRow(name, json.loads(document), users, created)
            for name, document, users, created in self._database.rows(_BACKENDS)
        ]

    def remove_backend(self, name: str) -> bool:
        """Remove a backend; requests that run on it go on.

        Returns:
            Whether it was there.
        """
        with self._database.write() as connection:
            return bool(connection.execute(sa.delete(backends).where(backends.c.name == name)).rowcount)

    # ------------------------------------------------------------------ uploads

    def add_upload(self, tenant: str, digest: str, data: bytes, *, most: int) -> None:
        """Keep a file that a user handed in; one that is there already is kept for longer.

        Args:
            tenant: Whose it is.
            digest: SHA-256 of it, in hexadecimal.
            data: The file.
            most: Bytes that the files of a tenant may have together.

        Raises:
            ConflictError: They would have more.
        """
        with self._database.write() as connection:
            _keep(connection, tenant, digest, data, most=most, used=time.time())

    def add_piece(self, tenant: str, piece: str, data: bytes, *, most: int, used: float) -> None:
        """Keep a piece of a file that comes in pieces; see `add_upload` and `join_pieces`.

        Args:
            tenant: Whose it is.
            piece: A digest of it that no whole file has.
            data: The piece.
            most: Bytes that the files of a tenant may have together.
            used: The time from which on it counts as unused, in seconds since the epoch.

        Raises:
            ConflictError: They would have more.
        """
        with self._database.write() as connection:
            _keep(connection, tenant, piece, data, most=most, used=used)

    def join_pieces(self, tenant: str, pieces: Sequence[str], *, most: int) -> tuple[str, int]:
        """Make one file of its pieces, which are dropped.

        Args:
            tenant: Whose they are.
            pieces: What `add_piece` had, in order; a piece may stand there twice.
            most: Bytes that the files of a tenant may have together.

        Returns:
            SHA-256 of the file, in hexadecimal, and its bytes.

        Raises:
            NotFoundError: A piece is not there, or not the tenant's.
            ConflictError: The tenant's files would have more.
        """
        own = (uploads.c.tenant == tenant) & uploads.c.digest.in_(set(pieces))
        with self._database.write() as connection:
            found = {row.digest: bytes(row.data) for row in connection.execute(sa.select(uploads).where(own))}
            if missing := [one for one in pieces if one not in found]:
                raise NotFoundError(f"the piece {missing[0][:12]} is not kept", hint="send the file again")
            data = b"".join(found[one] for one in pieces)
            digest = hashlib.sha256(data).hexdigest()
            connection.execute(sa.delete(uploads).where(own))
            _keep(connection, tenant, digest, data, most=most, used=time.time())
        return digest, len(data)

    def uploaded_bytes(self, tenant: str) -> int:
        """Count the bytes of the files that a tenant handed in."""
        with self._database.read() as connection:
            return _total(connection, tenant)

    def use_upload(self, tenant: str, digest: str) -> int | None:
        """Bytes of a file that a tenant handed in, which is kept for longer then; None where it did not."""
        own = (uploads.c.tenant == tenant) & (uploads.c.digest == digest)
        with self._database.write() as connection:
            connection.execute(sa.update(uploads).where(own).values(used=time.time()))
            size = connection.execute(sa.select(uploads.c.size).where(own)).scalar()
        return None if size is None else int(size)

    def upload(self, digest: str) -> bytes:
        """The bytes of a file that was handed in.

        Raises:
            NotFoundError: It is not kept any more.
        """
        query = sa.select(uploads.c.data).where(uploads.c.digest == digest).limit(1)
        with self._database.read() as connection:
            data = connection.execute(query).scalar()
        if data is None:
            raise NotFoundError(f"the file {digest[:12]} is not kept any more", hint="hand it in again")
        return bytes(data)

    def drop_uploads(self, before: float, but: Sequence[str] = ()) -> int:
        """Drop files that nobody used since a time, in seconds since the epoch.

        Returns:
            How many there were.
        """
        where = uploads.c.used < before
        if but:
            where &= uploads.c.digest.not_in(list(but))
        with self._database.write() as connection:
            return int(connection.execute(sa.delete(uploads).where(where)).rowcount)


def _total(connection: sa.engine.Connection, tenant: str) -> int:
    total = sa.select(sa.func.coalesce(sa.func.sum(uploads.c.size), 0)).where(uploads.c.tenant == tenant)
    return int(connection.execute(total).scalar() or 0)


def _keep(connection: sa.engine.Connection, tenant: str, digest: str, data: bytes, *, most: int, used: float) -> None:
    own = (uploads.c.tenant == tenant) & (uploads.c.digest == digest)
    if connection.execute(sa.update(uploads).where(own).values(used=used)).rowcount:
        return
    if _total(connection, tenant) + len(data) > most:
        raise ConflictError(
            f"the files of {tenant} take more than the {most / 2**20:.0f} MiB that they may",
            hint="files that nobody used for a month go by themselves; ask the administrator for more",
        )
    values = {"tenant": tenant, "digest": digest, "size": len(data), "data": data, "used": used}
    connection.execute(sa.insert(uploads).values(values))


def _of(both: _Both, tenant: str, name: str, seen_by: str | None) -> tuple[sa.Select[Any], dict[str, str]]:
    """The query for the requests of all tenants or of one, with its first parameters."""
    whose = {"tenant": tenant, "name": name}
    return (both[0], whose) if seen_by is None else (both[1], whose | {"seen_by": seen_by})


def _past(study_id: int, key: str, document: str, *trial: Any) -> PastTrialRow:
    given = json.loads(document).get("parameters")
    return PastTrialRow(study_id, key, given if isinstance(given, dict) else {}, rows.trial_of(trial))


def _one(connection: sa.engine.Connection, where: sa.ColumnElement[bool]) -> ApplicationRow:
    row = connection.execute(sa.select(*_COLUMNS).where(where)).first()
    if row is None:
        raise _no_application()
    return _application(row)


def _no_application() -> NotFoundError:
    return NotFoundError("there is no such application", hint="tradewind application list shows all")


def _application(row: Sequence[Any]) -> ApplicationRow:
    found = ApplicationRow(*row)
    return found if isinstance(found.trusted, bool) else replace(found, trusted=bool(found.trusted))
