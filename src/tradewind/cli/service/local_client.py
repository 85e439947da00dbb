"""Requests on this machine's own store: the functions of the service, in the form of its client."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tradewind.client.models import ApplicationInfo, EventInfo, FileInfo, LogPartInfo, RequestInfo, UploadInfo

if TYPE_CHECKING:
    from tradewind.service.accounts.identity import Principal
    from tradewind.service.context import Context

_PAUSE = 0.3
_PIECE = 2**20
_MOST_ROWS = 500  # that the service gives at once


class LocalClient:
    """The calls of `tradewind.client.Client`, carried out on this machine.

    Args:
        context: What the parts of the service share.
        who: Who sits before the machine: sees all.
        user: Whose new requests are; None where nobody was found.
    """

    def __init__(self, context: Context, who: Principal, user: Principal | None) -> None:
        self._context = context
        self._requests = context.requests
        self._who = who
        self._user = user

    def _author(self) -> Principal:
        from tradewind.errors import InputError

        if self._user is None:
            raise InputError("say whose request it is", hint="write --user NAME; tradewind user list shows the names")
        return self._user

    def submit(self, document: Mapping[str, Any], *, key: str | None = None) -> RequestInfo:
        """Ask for a run, or for a search with a budget; see `tradewind.client.Client.submit`."""
        return _request(self._requests.submit(self._author(), document, key=key))

    def register(self, document: str) -> ApplicationInfo:
        """Register an application of the user."""
        row = self._context.applications.register(self._author(), document)
        return ApplicationInfo(row.name, row.version, row.reference, row.tenant)

    def upload(self, file: Path) -> dict[str, Any]:
        """Keep a file for a form."""
        from tradewind.errors import InputError

        try:
            data = file.read_bytes()
        except OSError as error:
            raise InputError(f"{file} cannot be read: {error.strerror or error}") from error
        return self._context.applications.upload(self._author(), file.name, data)

    def get(self, number: int) -> RequestInfo:
        """One request."""
        return _request(self._requests.get(self._who, number))

    def requests(
        self,
        *,
        states: Sequence[str] = (),
        application: str = "",
        text: str = "",
        parameters: Sequence[str] = (),
        tenant: str = "",
        limit: int | None = None,
    ) -> Iterator[RequestInfo]:
        """Requests, the newest first."""
        before: int | None = None
        while limit is None or limit > 0:
            rows = self._requests.list(
                self._who,
                states=states,
                application=application,
                text=text,
                parameters=parameters,
                tenant=tenant,
                before=before,
                limit=min(limit or _MOST_ROWS, _MOST_ROWS),
            )
            yield from (_request(row) for row in rows)
            if len(rows) < _MOST_ROWS:
                return
            before, limit = rows[-1].id, None if limit is None else limit - len(rows)

    def cancel(self, number: int) -> RequestInfo:
        """End a request."""
        return _request(self._requests.cancel(self._who, number))

    def retry(self, number: int) -> RequestInfo:
        """Carry a request out once more."""
        return _request(self._requests.retry(self._who, number))

    def delete(self, number: int) -> None:
        """Remove a request."""
        self._requests.delete(self._who, number)

    def upload_again(self, number: int) -> UploadInfo:
        """Have the upload of a request's results tried again."""
        from dataclasses import asdict

        from tradewind.service.results.upload_state import upload_again

        return UploadInfo.from_json(asdict(upload_again(self._context, self._who, number)))

    def history(self, number: int, *, since: int = 0) -> list[EventInfo]:
        """Events of a request so far."""
        from tradewind.service.api.request_models import event_of

        found = self._requests.events(self._who, number, since, 5000)
        return [EventInfo.from_json(event_of(event).model_dump()) for event in found]

    def events(self, number: int) -> Iterator[EventInfo]:
        """Events of a request as they happen, until it is over."""
        last = 0
        while True:
            over = self.get(number).over
            for event in self.history(number, since=last):
                last = event.id
                yield event
            if over:
                return
            time.sleep(_PAUSE)

    def wait(self, number: int, *, timeout: float | None = None) -> RequestInfo:
        """Wait until a request is over."""
        ends = None if timeout is None else time.monotonic() + timeout
        while not (found := self.get(number)).over:
            if ends is not None and time.monotonic() > ends:
                raise TimeoutError(f"request {number} is {found.state} after {timeout:g} s")
            time.sleep(_PAUSE)
        return found

    def log(
        self, number: int, stream: str = "stdout", *, offset: int = 0, trial: int | None = None, run: str = ""
    ) -> LogPartInfo:
        """A part of what a program has printed."""
        part = self._requests.log(self._who, number, stream, offset, _PIECE, trial=trial, run=run)
        return LogPartInfo(part.text, part.next, part.ended, part.run, part.trial)

    def logs(
        self, number: int, stream: str = "stdout", *, follow: bool = False, trial: int | None = None
    ) -> Iterator[str]:
        """Output of a program, in pieces."""
        from tradewind.client.requests import headed

        offset, run, shown = 0, "", ""
        while True:
            part = self.log(number, stream, offset=offset, trial=trial, run=run)
            if run and part.run != run and not follow:
                return
            offset, run = part.next, part.run
            if part.text:
                yield headed(part.text, shown, run, part.trial)
                shown = run
            elif part.ended or not follow:
                return
            else:
                time.sleep(_PAUSE)

    def files(self, number: int, *, trial: int | None = None) -> list[FileInfo]:
        """The files that the last run has left."""
        return [FileInfo(one.path, one.size) for one in self._requests.files(self._who, number, trial=trial)]

    def download(self, number: int, path: str, to: Path, *, trial: int | None = None) -> Path:
        """Copy a file that the last run has left."""
        import shutil

        from tradewind.errors import InputError

        target = to / (Path(path).name or "file") if to.is_dir() else to
        with self._requests.open(self._who, number, path, trial=trial) as source:
            try:
                with target.open("wb") as copy:
                    shutil.copyfileobj(source, copy)
            except OSError as error:
                raise InputError(f"{target} cannot be written: {error.strerror or error}") from error
        return target


@contextmanager
def open_local_client(database: str | None, user: str) -> Iterator[LocalClient]:
    """The functions on this machine's store.

    Args:
        database: The store's address; None for that of the settings.
        user: Whose new requests are; empty for the one who is called as the system's user, or the only one.

    Raises:
        InputError: There is no such user.
    """
    import getpass

    from tradewind.cli.service.common import open_settings, require_service

    require_service()
    from tradewind.service.accounts.identity import Principal
    from tradewind.service.context import open_context
    from tradewind.utils.paths import data_folder

    settings, url = open_settings({} if database is None else {"database": database})
    with closing(open_context(settings, url, data_folder())) as context:
        system = getpass.getuser()
        who = Principal(0, f"{system} (command line)", "admin", "")
        yield LocalClient(context, who, _author(context, who, user, system))


def _author(context: Context, who: Principal, name: str, system: str) -> Principal | None:
    from tradewind.errors import InputError
    from tradewind.service.accounts.identity import Principal
    from tradewind.utils.suggestions import closest_match

    active = {row.name: row for row in context.users.list(who) if row.state == "active"}
    if name and name.lower() not in active:
        near = closest_match(name, active)
        hint = f"did you mean {near!r}?" if near else "tradewind user list shows the names"
        raise InputError(f"there is no active user {name!r}", hint=hint)
    row = active.get(name.lower() or system)
    if row is None and len(active) == 1:
        row = next(iter(active.values()))
    return None if row is None else Principal(row.id, row.name, row.role, row.tenant)


def _request(row: Any) -> RequestInfo:
    from tradewind.service.api.request_models import request_of

    return RequestInfo.from_json(request_of(row).model_dump())
