"""Operations on applications, called by REST, XML-RPC, the pages and the command line."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tradewind.errors import ConflictError, ForbiddenError, FormError, NotFoundError
from tradewind.problem.job_spec.spec import JobSpec
from tradewind.problem.template import fill_text
from tradewind.problem.yaml_source import YamlSource, parse_source
from tradewind.service.accounts.audit_log import record_action
from tradewind.service.accounts.identity import Principal
from tradewind.service.applications.backends import Backend, BackendService
from tradewind.service.applications.form import ApplicationForm, form_of
from tradewind.service.applications.form_values import Value, read_values
from tradewind.service.applications.parameter_words import RequestWords, request_words
from tradewind.service.applications.spec_composition import compose_spec
from tradewind.service.applications.uploaded_files import UPLOADS, FileValue, shared_job_folder, write_job_files
from tradewind.service.applications.validation import (
    CheckedApplication,
    check_application,
    parameters_of,
    stored_application,
)
from tradewind.store.service.applications import SHARED, ApplicationRow, ApplicationStore
from tradewind.store.service.request_values import RequestRow
from tradewind.utils.suggestions import did_you_mean

if TYPE_CHECKING:
    from tradewind.service.settings import ServiceSettings
    from tradewind.store.sql.database import Database

Rows = list[ApplicationRow]
"""Within the class `list` is its own function."""

_DAY = 86400.0
_MONTH = 30 * _DAY

MAX_PIECE = 4 * 2**20
"""Bytes of a piece of a file that comes in pieces: proxies and the server take as much as that."""


class ApplicationService:
    """The applications of a server.

    Args:
        database: The open database.
        settings: The server's settings.
        data_folder: The folders of jobs are made below it.
        backends: The backends that applications run on.
    """

    def __init__(
        self, database: Database, settings: ServiceSettings, data_folder: Path, backends: BackendService
    ) -> None:
        self.store = ApplicationStore(database)
        self._database = database
        self._settings = settings
        self._folder = data_folder / "applications"
        self._backends = backends

    # ------------------------------------------------------------------ registering

    def check(
        self, who: Principal, document: str | Mapping[str, Any], *, vouch: bool = False, file: str = "<text>"
    ) -> CheckedApplication:
        """Check a document as `register` does, and register nothing.

        Raises:
            ForbiddenError: Somebody else than an administrator vouches for it.
            SpecError: Something in it is wrong, with file and line.
            NotFoundError: It names a backend that is not there.
        """
        if vouch and not who.is_admin:
            raise ForbiddenError("only an administrator may vouch for where typed text goes")
        source = parse_source(document, file) if isinstance(document, str) else YamlSource(dict(document), file)
        known = check_application(source, trusted=who.is_admin, hooks=self._settings.user_hooks, vouched=vouch)
        if known.model.backend:
            self._backends.get(who, known.model.backend)
        return known

    def register(
        self,
        who: Principal,
        document: str | Mapping[str, Any],
        *,
        shared: bool = False,
        vouch: bool = False,
        file: str = "<text>",
    ) -> ApplicationRow:
        """Register an application, or the next version of one.

        Args:
            who: Who registers it.
            document: A job YAML with a block ``application``, or the same as a mapping.
            shared: For all tenants; only an administrator may do that.
            vouch: The administrator has read the document, and vouches that typed text is data where it says so, also
                where that cannot be seen from it.
            file: The name that errors give the text.

        Returns:
            The version. Where the newest one is the same, that one.

        Raises:
            SpecError: Something in it is wrong, with file and line.
            ForbiddenError: Somebody else than an administrator wants to share it, or vouches for it.
            NotFoundError: It names a backend that is not there.
        """
        if shared and not who.is_admin:
            raise ForbiddenError("only an administrator may register an application for all tenants")
        known = self.check(who, document, vouch=vouch, file=file)
        tenant = SHARED if shared else who.tenant
        text = document if isinstance(document, str) else _as_text(document)
        newest = self.store.find(tenant, known.name)
        if newest is not None and newest.document == text and newest.trusted == who.is_admin:
            return newest
        row = self.store.add(ApplicationRow(0, tenant, known.name, 0, text, who.name, who.is_admin))
        facts = {"shared": shared} | ({"vouched": True} if vouch else {})
        record_action(self._database, who, "application.register", f"application {row.reference}", **facts)
        return row

    def retire(self, who: Principal, name: str) -> None:
        """Let no request begin with an application (``name``), or with one version of it (``name@3``), any more.

        Raises:
            NotFoundError: There is none.
            ForbiddenError: It is shared, and this is no administrator.
        """
        row = self.get(who, name, retired=True)
        if row.shared and not who.is_admin:
            raise ForbiddenError(f"{row.name} is for all tenants: only an administrator may retire it")
        self.store.retire(row.tenant, row.name, row.version if "@" in name else None)
        record_action(self._database, who, "application.retire", f"application {name}", shared=row.shared)

    # ------------------------------------------------------------------ finding

    def list(self, who: Principal, *, retired: bool = False) -> Rows:
        """List the newest version of every application that a user sees, by name.

        Args:
            who: The user who asks.
            retired: Include retired applications.
        """
        tenants = None if who.is_admin else (SHARED, who.tenant)
        return self.store.applications(tenants, retired=retired)

    def versions(self, who: Principal, name: str) -> Rows:
        """All versions of an application, retired ones too, the newest first.

        Raises:
            NotFoundError: There is none.
        """
        row = self.get(who, name.partition("@")[0], retired=True)
        return self.store.applications([row.tenant], name=row.name, retired=True)

    def get(self, who: Principal, name: str, *, retired: bool = False) -> ApplicationRow:
        """Find an application that a user sees.

        Args:
            who: The user who asks.
            name: ``name`` for the newest version, ``name@3`` for that one. One's own comes before a shared one of the
                same name; ``/name`` is the shared one, and ``tenant/name`` that of a tenant.
            retired: Also one that was retired.

        Raises:
            NotFoundError: There is none.
            ConflictError: It was retired, and nobody else has one of that name which the user may take.
        """
        tenant, slash, rest = name.rpartition("/")
        bare, at, wanted = rest.partition("@")
        version = int(wanted) if wanted.isdecimal() and len(wanted) < 10 else None
        if at and version is None:
            raise NotFoundError(f"there is no version {wanted!r}", hint=f"write {bare}@1")
        tenants = [tenant] if slash else self._tenants(who, bare)
        gone: ApplicationRow | None = None
        for one in tenants:
            if one != SHARED and not who.may_see(one):
                continue
            found = self.store.find(one, bare, version)
            if found is None and version is None and retired:
                found = next(iter(self.store.applications([one], name=bare, retired=True)), None)
            if found is None:
                continue
            if found.state == "active" or retired:
                return found
            gone = gone or found
        if gone is not None:
            raise ConflictError(f"{gone.reference} was retired", hint="take another version or application")
        known = sorted({row.name for row in self.list(who)})
        raise NotFoundError(f"there is no application {name!r}", hint=did_you_mean(bare, known, "there are:"))

    def by_id(self, number: int) -> ApplicationRow:
        """Return a version by the store's number, for requests that were let in already.

        Raises:
            NotFoundError: There is none.
        """
        return self.store.application(number)

    def describe(self, requests: Iterable[RequestRow]) -> dict[int, RequestWords]:
        """Describe requests in words, by their numbers: with the titles and units of their applications' forms."""
        known: dict[int, CheckedApplication] = {}
        found: dict[int, RequestWords] = {}
        for row in requests:
            number = row.application_id
            if number is None:
                found[row.id] = request_words(row)
                continue
            if number not in known:
                known[number] = stored_application(self.store.application(number))
            model = known[number].model
            found[row.id] = request_words(row, model.title or known[number].name, model.fields)
        return found

    def _tenants(self, who: Principal, name: str) -> Sequence[str]:
        """List the tenants to search for an application: the own, the shared, and for an administrator any."""
        first = [who.tenant, SHARED]
        others = self.store.applications(None, name=name, retired=True) if who.is_admin else []
        return list(dict.fromkeys([*first, *(row.tenant for row in others)]))

    # ------------------------------------------------------------------ filling in

    def form(self, who: Principal, name: str) -> ApplicationForm:
        """Return the form of an application, with its JSON Schema.

        Raises:
            NotFoundError: There is none.
            ConflictError: It was retired.
        """
        row = self.get(who, name)
        return form_of(row, stored_application(row))

    def upload(self, who: Principal, name: str, data: bytes) -> dict[str, Any]:
        """Keep a file for a form; requests name it by what is returned.

        Args:
            who: The user who owns it.
            name: What the user calls it.
            data: The file.

        Returns:
            The value of a file field: ``{file, name, size}``.

        Raises:
            ConflictError: The tenant's files would take too much room.
        """
        value = FileValue.of(name, data)
        self._keep(who, value)
        return value.to_json()

    def upload_piece(self, who: Principal, data: bytes) -> str:
        """Keep a piece of a file for a day; `join_pieces` makes the file.

        Returns:
            The piece's name for `join_pieces`.

        Raises:
            ConflictError: The tenant's files would take too much room.
        """
        name = hashlib.sha256(b"piece" + data).hexdigest()
        self.store.drop_uploads(time.time() - _MONTH)
        self.store.add_piece(who.tenant, name, data, most=self._upload_quota, used=time.time() - _MONTH + _DAY)
        return name

    def join_pieces(self, who: Principal, name: str, pieces: Sequence[str]) -> dict[str, Any]:
        """Make a file for a form of its pieces; see `upload`.

        Raises:
            NotFoundError: A piece is not kept.
            ConflictError: The tenant's files would take too much room.
        """
        digest, size = self.store.join_pieces(who.tenant, pieces, most=self._upload_quota)
        return replace(FileValue.of(name, b""), digest=digest, size=size, data=None).to_json()

    def upload_room(self, who: Principal) -> int:
        """Bytes that the files of a tenant may still have."""
        return max(0, self._upload_quota - self.store.uploaded_bytes(who.tenant))

    @property
    def _upload_quota(self) -> int:
        return int(self._settings.upload_mib * 2**20)

    def values(self, who: Principal, row: ApplicationRow, given: Mapping[str, Any]) -> dict[str, Any]:
        """Check and read the values typed into a form, as a request keeps them; files that came with it are kept.

        Args:
            who: The user who filled in the form.
            row: The application.
            given: The typed values, by field.

        Returns:
            The value of every field, JSON-able; `spec` takes it.

        Raises:
            FormError: A field is wrong, missing or unknown: with one message for each.
            ConflictError: The tenant's files would take too much room, or it is not known whether text is data.
        """
        known = _safe(row)
        values = read_values(known.model.fields, given, words=known.words)
        wrong: dict[str, str] = {}
        for name, value in values.items():
            if isinstance(value, FileValue) and value.digest:
                size = value.size if value.data is not None else self.store.use_upload(who.tenant, value.digest)
                if size is None:
                    wrong[name] = "this file was not handed in, or is not kept any more"
                    continue
                values[name] = replace(value, size=size)
                _check_size(known, name, size, wrong)
                if value.data is not None and name not in wrong:
                    self._keep(who, value)
        if wrong:
            raise FormError(wrong)
        return {name: _as_json(value) for name, value in values.items() if _as_json(value) is not None}

    def _keep(self, who: Principal, value: FileValue) -> None:
        self.store.drop_uploads(time.time() - _MONTH)
        self.store.add_upload(who.tenant, value.digest, value.data or b"", most=self._upload_quota)

    # ------------------------------------------------------------------ running

    def spec(
        self,
        row: ApplicationRow,
        parameters: Mapping[str, Any],
        backend: Backend,
        *,
        resources: Mapping[str, Any] | None = None,
        folder: Path | None = None,
    ) -> JobSpec:
        """Build the specification of a request.

        Args:
            row: The application.
            parameters: The values of its form, as typed or as `values` returned them.
            backend: The backend that it runs on; see `BackendService.choose`.
            resources: ``nodes``, ``cpu``, ``memory`` (MiB) and ``time`` (s) where the user asks for them in numbers.
            folder: The folder to write the job's files to, for a request its own; without it one that requests with
                equal files share.

        Raises:
            FormError: A field is wrong, missing or unknown.
            InputError: The resources are none, or the application does not run on them.
            NoOfferError: The backend has nothing that the application asks for.
            NotFoundError: A file that was handed in is not kept any more.
            StoreError: The folder cannot be made.
            ConflictError: It is not known whether typed text is data.
        """
        known = _safe(row)
        values = read_values(known.model.fields, parameters, words=known.words)
        given = parameters_of(known.model, values)
        files = self._files(known, values, given)
        target = write_job_files(files, folder or shared_job_folder(files, self._folder))
        return compose_spec(known, given, backend, target, resources=resources)

    def _files(
        self, known: CheckedApplication, values: Mapping[str, Value], given: Mapping[str, float | str]
    ) -> dict[str, bytes]:
        files = {
            name: (fill_text(file.text, given, name) if file.template else file.text).encode()
            for name, file in known.model.files.items()
        }
        for name, value in values.items():
            if isinstance(value, FileValue) and value.digest:
                data = value.data if value.data is not None else self.store.upload(value.digest)
                files[f"{UPLOADS}/{name}{known.model.fields[name].suffix}"] = data
        return files


def _safe(row: ApplicationRow) -> CheckedApplication:
    known = stored_application(row)
    if known.unsafe:
        raise ConflictError(
            f"{row.reference} cannot run: {known.unsafe}", hint="register it again with its data: [...]"
        )
    return known


def _check_size(known: CheckedApplication, name: str, size: int, wrong: dict[str, str]) -> None:
    most = known.model.fields[name].max
    if most is not None and size > most * 2**20:
        wrong[name] = f"has {size / 2**20:.1f} MiB, more than {most:g}"


def _as_json(value: Value) -> Any:
    if isinstance(value, FileValue):
        return value.to_json() if value.digest else None
    return value


def _as_text(document: Mapping[str, Any]) -> str:
    """Write a document as JSON, which is YAML that keeps every text a text."""
    import json

    return json.dumps(document, indent=2, ensure_ascii=False)
