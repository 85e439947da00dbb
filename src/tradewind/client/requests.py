"""Calls about requests: ask, watch, wait, end."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

from tradewind.client.models import EventInfo, FileInfo, LogPartInfo, RequestInfo, UploadInfo
from tradewind.client.transport import SILENCE, ApiCalls, as_json, is_away, plain
from tradewind.errors import AwayError, BusyError, InputError, ServiceError, StoreError, TooManyError
from tradewind.utils.atomic_files import atomic_path
from tradewind.utils.retries import Backoff

_TAIL_BACKOFF = Backoff.doubling(0.5, 5.0)


class FileCalls(ApiCalls):
    """Logs and files."""

    def log(
        self,
        request: int,
        stream: str = "stdout",
        *,
        offset: int = 0,
        limit: int = 65536,
        trial: int | None = None,
        run: str = "",
    ) -> LogPartInfo:
        """A part of what a request's program has printed.

        Args:
            request: The request.
            stream: ``stdout``, ``stderr``, ``application.stdout``, ``application.stderr`` or ``hooks.log``.
            offset: Where to begin, in bytes.
            limit: Bytes at most.
            trial: Of this trial of a search; without it, of the one that began last.
            run: Without a trial, the run that the offset is of, as ``run`` of the part before says it: once its log is
                read to the end, that of the next run follows from its beginning.

        Raises:
            NotFoundError: There is no such request, trial or log.
        """
        path = f"/requests/{int(request)}/logs/{quote(stream, safe='')}"
        response = self._transport.call(
            "GET", path, params=plain({"offset": offset, "limit": limit, "trial": trial, "run": run or None})
        )
        headers = response.headers
        of = int(headers["x-log-trial"]) if "x-log-trial" in headers else None
        ended = headers["x-log-ended"] == "true"
        return LogPartInfo(response.text, int(headers["x-next-offset"]), ended, headers.get("x-log-run", ""), of)

    def logs(
        self, request: int, stream: str = "stdout", *, follow: bool = False, trial: int | None = None
    ) -> Iterator[str]:
        """Output of a request's program, in pieces.

        Args:
            request: The request.
            stream: As in `log`.
            follow: Go on until nothing more will come; a line ``trial 3`` stands before what each further trial prints.
            trial: As in `log`.

        Raises:
            NotFoundError: There is no such request, trial or log.
        """
        offset, run, shown, failures = 0, "", "", 0
        while True:
            part = self.log(request, stream, offset=offset, limit=2**20, trial=trial, run=run)
            if run and part.run != run and not follow:
                return
            offset, run = part.next, part.run
            if part.text:
                yield headed(part.text, shown, run, part.trial)
                failures, shown = 0, run
            if part.ended or not (part.text or follow):
                return
            if not part.text:
                try:
                    path = f"/requests/{int(request)}/logs/{quote(stream, safe='')}"
                    for message in self._transport.messages(
                        path, params=plain({"offset": offset, "trial": trial, "run": run or None})
                    ):
                        if message.kind == "log":
                            found, offset = message.data, int(message.data["next"])
                            run = str(found.get("run", ""))
                            yield headed(str(found["text"]), shown, run, found.get("trial"))
                            shown = run
                        elif message.kind == "end":
                            return
                except ServiceError:
                    time.sleep(_TAIL_BACKOFF.pause(failures))
                    failures += 1

    def files(self, request: int, *, trial: int | None = None) -> list[FileInfo]:
        """The files that a request's last run has left.

        Raises:
            NotFoundError: There is no such request or trial.
        """
        found = self._get(f"/requests/{int(request)}/files", params=plain({"trial": trial}))
        return [FileInfo.from_json(one) for one in found]

    def download(self, request: int, path: str, to: str | Path, *, trial: int | None = None) -> Path:
        """Save a file that a request's last run has left; what is there in part is not taken for the whole.

        Args:
            request: The request.
            path: The file's path, as `files` says it.
            to: The file to write, or a folder, which gets it under the last part of its path: one that is there, or any
                that ends with ``/``, which is made.
            trial: Of this trial of a search.

        Returns:
            Where it is.

        Raises:
            NotFoundError: There is no such request, trial or file.
            InputError: It cannot be written.
        """
        target = Path(to)
        folder = str(to).endswith("/")
        if folder or target.is_dir():
            target = target / (Path(path).name or "file")
        place = f"/requests/{int(request)}/files/{quote(path)}"
        try:
            if folder:
                target.parent.mkdir(parents=True, exist_ok=True)
            with (
                self._transport.stream(place, params=plain({"trial": trial})) as response,
                atomic_path(target) as part,
                part.open("wb") as file,
            ):
                for piece in response.iter_bytes():
                    file.write(piece)
        except OSError as error:
            raise InputError(f"{target} cannot be written: {error.strerror or error}") from error
        return target


def headed(text: str, before: str, run: str, trial: int | None) -> str:
    """A piece of a log, below a line where it is of another run than the piece before it."""
    return f"trial {trial}\n{text}" if before and run != before else text


_FAILURES, _PAUSE = 3, 2.0
"""How often in a row a stream may break that has said nothing yet; seconds from one to the next at most."""


class RequestCalls(ApiCalls):
    """Requests."""

    def submit(
        self,
        document: Mapping[str, Any] | None = None,
        *,
        application: str | None = None,
        parameters: Mapping[str, Any] | None = None,
        configuration: Mapping[str, Any] | None = None,
        resources: Mapping[str, Any] | None = None,
        search: Mapping[str, Any] | None = None,
        backend: str | None = None,
        results: str | None = None,
        notify: Mapping[str, Any] | None = None,
        name: str | None = None,
        key: str | None = None,
    ) -> RequestInfo:
        """Ask for a run, or for a search with a budget.

        Args:
            document: The whole document, ours or that of figure 4 of the publication on virtual clusters; the other
                arguments are members of ours.
            application: ``name``, or ``name@3`` for its version 3.
            parameters: The values of its form.
            configuration: A value for each parameter of its space.
            resources: Instead of that: ``nodes``, ``cpu``, ``memory`` (MiB), ``time`` (s).
            search: Makes it a search: ``budget``, ``deadline`` and so on.
            backend: Where it runs.
            results: Where its results go.
            notify: ``email`` and ``webhook``.
            name: What you call it.
            key: Your own key: asked again with the same one, it is the same request. Without one there is a new one
                for each call, so that a broken connection does not make two of one.

        Raises:
            InputError: Something in the document is wrong.
            QuotaError: The tenant's money is spent.
            AwayError: The server does not answer; the hint has the key.
        """
        members = {
            "application": application,
            "parameters": parameters,
            "configuration": configuration,
            "resources": resources,
            "search": search,
            "backend": backend,
            "results": results,
            "notify": notify,
            "name": name,
        }
        whole = {**(document or {}), **{one: value for one, value in members.items() if value is not None}}
        return self._once("/requests", key, json=as_json(whole))

    def _once(self, path: str, key: str | None, **options: Any) -> RequestInfo:
        """Ask for what is done once, however often it is asked for with the same key."""
        key = key or uuid.uuid4().hex
        try:
            response = self._transport.call("POST", path, again=True, headers={"Idempotency-Key": key}, **options)
        except AwayError as error:
            hint = f"whether it was asked for is not known: asked for again with the key {key} it is the same request"
            raise AwayError(error.message, hint=hint) from error
        return RequestInfo.from_json(response.json())

    def get(self, request: int) -> RequestInfo:
        """One request.

        Raises:
            NotFoundError: There is none that you may see.
        """
        return RequestInfo.from_json(self._get(f"/requests/{int(request)}"))

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
        """Requests, the newest first; pages are fetched as you go on.

        Args:
            states: Only in these states.
            application: Only of this one.
            text: Only with this in the name.
            parameters: Only those whose parameters meet all of these conditions, such as ``stars>500``.
            tenant: Only of this tenant.
            limit: So many at most.
        """
        filters = {"application": application, "text": text, "tenant": tenant}
        given = plain({"state": list(states), "parameter": list(parameters), **filters})
        return (RequestInfo.from_json(one) for one in self._pages("/requests", given, limit))

    def cancel(self, request: int) -> RequestInfo:
        """End a request; what it has used is paid.

        Raises:
            NotFoundError: There is none that you may see.
            ConflictError: It is over.
        """
        return RequestInfo.from_json(self._post(f"/requests/{int(request)}/cancel"))

    def retry(self, request: int, *, key: str | None = None) -> RequestInfo:
        """Carry a request that did not end well out once more.

        Args:
            request: The request.
            key: Your own key, as `submit` takes one: asked again with the same one, it is not carried out twice.

        Raises:
            NotFoundError: There is none that you may see.
            ConflictError: It is not over, or ended well.
            AwayError: The server does not answer; the hint has the key.
        """
        return self._once(f"/requests/{int(request)}/retry", key)

    def resubmit(
        self, request: int, changes: Mapping[str, Any] | None = None, *, key: str | None = None
    ) -> RequestInfo:
        """Make a new request like another one, with changes; None takes a member out.

        Args:
            request: The other one.
            changes: What is different.
            key: Your own key, as `submit` takes one.

        Raises:
            NotFoundError: There is none that you may see.
            InputError: Something in the changed document is wrong.
            AwayError: The server does not answer; the hint has the key.
        """
        return self._once(f"/requests/{int(request)}/resubmit", key, json=as_json(changes or {}))

    def delete(self, request: int) -> None:
        """Remove a request with its files; one that is being carried out is cancelled first.

        Raises:
            NotFoundError: There is none that you may see.
        """
        self._transport.call("DELETE", f"/requests/{int(request)}")

    def upload_state(self, request: int) -> UploadInfo:
        """Progress of the upload of a request's results to the user's folder.

        Raises:
            NotFoundError: There is no such request that you may see.
        """
        return UploadInfo.from_json(self._get(f"/requests/{int(request)}/upload"))

    def upload_again(self, request: int) -> UploadInfo:
        """Have the upload of a request's results tried again at once, also one that was given up.

        Raises:
            NotFoundError: There is no such request that you may see.
            ConflictError: It is being carried out, its results go nowhere, or they are there.
        """
        return UploadInfo.from_json(self._post(f"/requests/{int(request)}/upload"))

    def wait(self, request: int, *, timeout: float | None = None, poll: float = 2.0) -> RequestInfo:
        """Wait until a request is over.

        It listens to the request's events; where the server has no stream for it, or none comes through, it asks.

        Args:
            request: The request.
            timeout: Seconds to wait at most.
            poll: Seconds between two questions, where it has to ask.

        Raises:
            NotFoundError: There is none that you may see.
            TimeoutError: It is not over by then.
        """
        ends = None if timeout is None else time.monotonic() + timeout
        since, streams = "", True
        while not (found := self._look(request, ends)).over:
            left = SILENCE if ends is None else ends - time.monotonic()
            if left <= 0:
                raise TimeoutError(f"request {request} is {found.state} after {timeout:g} s")
            heard = False
            try:
                if not streams:
                    raise ServiceError("no streams")
                for message in self._transport.messages(
                    f"/requests/{int(request)}/events", since=since, silence=min(SILENCE, left)
                ):
                    heard, since = True, message.id or since
                    if message.kind == "end" or (ends is not None and time.monotonic() > ends):
                        break
            except (TooManyError, BusyError):
                time.sleep(min(poll, left))
            except (ServiceError, StoreError) as error:
                # One that was heard and broke off may have a server that is started anew.
                streams = streams and heard and is_away(error)
                time.sleep(min(poll, left))
        return found

    def _look(self, request: int, ends: float | None) -> RequestInfo:
        patience = None if ends is None else min(self._transport.patience, max(0.0, ends - time.monotonic()))
        return RequestInfo.from_json(self._get(f"/requests/{int(request)}", patience=patience))

    def events(self, request: int | None = None, *, since: int | None = None) -> Iterator[EventInfo]:
        """Events as they happen; the stream reconnects by itself when the connection ends, and leaves nothing out.

        Args:
            request: To this request, from its beginning until it is over; without it to all that you may see, from now
                on and without an end.
            since: Only after this event.

        Raises:
            NotFoundError: There is no such request that you may see.
        """
        path = "/events" if request is None else f"/requests/{int(request)}/events"
        last, failures, failing = "" if since is None else str(since), 0, 0.0
        while True:
            try:
                for message in self._transport.messages(path, since=last):
                    failures, last = 0, message.id or last
                    if message.kind == "end":
                        return
                    if message.kind == "message":
                        yield EventInfo.from_json(message.data)
            except (TooManyError, BusyError) as error:
                time.sleep(error.wait or 1.0)
            except (ServiceError, StoreError) as error:
                failing = failing if failures else time.monotonic()
                failures += 1
                waits = self._transport.answered and time.monotonic() - failing < self._transport.patience
                # A connection may break; a refusal stays one.
                if not is_away(error) or not (waits or failures <= _FAILURES):
                    raise
                time.sleep(min(0.5 * failures, _PAUSE))
            if request is not None and self.get(request).over and not self.history(request, since=int(last or 0)):
                return

    def history(self, request: int | None = None, *, since: int = 0, limit: int = 5000) -> list[EventInfo]:
        """Events so far, the oldest first.

        Args:
            request: To this request; without it to all that you may see.
            since: Only after this event.
            limit: So many at most.
        """
        path = "/events" if request is None else f"/requests/{int(request)}/events"
        return [EventInfo.from_json(one) for one in self._get(path, params={"since": since, "limit": limit})]
