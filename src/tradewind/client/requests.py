"""Calls about requests: ask, watch, wait, end."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tradewind.client.models import EventInfo, RequestInfo, UploadInfo
from tradewind.client.transport import SILENCE, ApiCalls, as_json, is_away, plain
from tradewind.errors import AwayError, BusyError, ServiceError, StoreError, TooManyError

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
        tenant: str = "",
        limit: int | None = None,
    ) -> Iterator[RequestInfo]:
        """Requests, the newest first; pages are fetched as you go on.

        Args:
            states: Only in these states.
            application: Only of this one.
            text: Only with this in the name.
            tenant: Only of this tenant.
            limit: So many at most.
        """
        given = plain({"state": list(states), "application": application, "text": text, "tenant": tenant})
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
        """How far the upload of a request's results to the user's folder is.

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
        """What happens, as it happens; it comes back by itself when the connection ends, and leaves nothing out.

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
        """What has happened so far, the oldest first.

        Args:
            request: To this request; without it to all that you may see.
            since: Only after this event.
            limit: So many at most.
        """
        path = "/events" if request is None else f"/requests/{int(request)}/events"
        return [EventInfo.from_json(one) for one in self._get(path, params={"since": since, "limit": limit})]
