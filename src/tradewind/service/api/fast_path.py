"""A fast path for frequent calls of programs, past FastAPI's resolution of parameters and dependencies.

FastAPI resolves the parameters and dependencies of a call one by one, each time anew, and goes into another thread to
answer it; on a route that does little, that is most of what a call costs (benchmarks/service_load). A route of this
kind reads its parameters with one model that is made of the same annotations. Where the database is a file here, it
reads what it needs at once: that takes less than waking a thread, and readers of SQLite wait for nobody. Else, and
where the caller's token has to be noted as used, it works in one thread. An unusual call, with a cookie or a wrong
parameter, goes the ordinary way: what is refused is refused in the same words.
"""

from __future__ import annotations

import inspect
import typing
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from functools import wraps
from typing import Annotated, Any

from fastapi import Depends, Request, params
from fastapi.responses import Response
from fastapi.routing import APIRoute
from pydantic import BaseModel, ValidationError, create_model
from starlette.concurrency import run_in_threadpool

from tradewind.service.api.authentication import UnverifiedCaller, context_of, unverified_caller
from tradewind.service.http.responses import check_address

Handler = Callable[[Request], Coroutine[Any, Any, Response]]


class _Plan:
    """The parameters of a route, and how it is called; calls that ``unless`` holds for take the ordinary path."""

    def __init__(
        self, route: Callable[..., Response], unless: Callable[[Request], bool] | None = None, most: int = 100
    ) -> None:
        self._route, self._unless, self._most = route, unless, most
        self._hints = typing.get_type_hints(route, include_extras=True)
        self._parameters = inspect.signature(route).parameters
        self._query: dict[str, bool] = {}  # the name that a call has for it, and whether it may come several times
        self._path: list[str] = []
        self._wants_request = "request" in self._parameters
        self._model = self._model_of()

    def signature(self) -> inspect.Signature:
        """The signature for FastAPI: the caller is only asked for, and looked up later."""
        asked = Annotated[UnverifiedCaller, Depends(unverified_caller)]
        found = [
            one.replace(annotation=asked if name == "who" else self._hints[name])
            for name, one in self._parameters.items()
        ]
        return inspect.Signature(found)

    def values(self, request: Request) -> Mapping[str, Any] | None:
        """Parse the parameters of a call; None for a call that takes the ordinary path."""
        if self._unless is not None and self._unless(request):
            return None
        given: dict[str, Any] = {name: request.path_params[name] for name in self._path}
        if request.scope["query_string"]:
            query = request.query_params
            for name, several in self._query.items():
                if name in query:
                    given[name] = query.getlist(name) if several else query[name]
        try:
            return self._model.model_validate(given).__dict__
        except ValidationError:
            return None

    def is_short(self, request: Request, token: str, values: Mapping[str, Any]) -> bool:
        """True where answering takes no longer than waking a thread for it, and waits for nobody."""
        shared = context_of(request)
        is_here = shared.database.dialect == "sqlite" and shared.accounts.only_reads(token)
        return is_here and (values.get("limit") or 0) <= self._most

    def work(self, request: Request, token: str, values: Mapping[str, Any]) -> Response:
        """Find the caller, and answer."""
        who = UnverifiedCaller(request, token).who()
        more = {"request": request} if self._wants_request else {}
        return self._route(who=who, shared=context_of(request), **more, **values)

    def _model_of(self) -> type[BaseModel]:
        fields: dict[str, Any] = {}
        for name, parameter in self._parameters.items():
            kind, *notes = typing.get_args(self._hints[name]) or (None,)
            note = next((one for one in notes if isinstance(one, params.Param)), None)
            if note is None or isinstance(note, params.Header):
                continue  # the route looks at its headers by itself
            default = ... if parameter.default is inspect.Parameter.empty else parameter.default
            fields[name] = (Annotated[kind, note], default)
            if isinstance(note, params.Path):
                self._path.append(name)
            else:
                self._query[name] = "list[" in str(kind)
        model: type[BaseModel] = create_model("Parameters", **fields)
        return model


class FastPathRoute(APIRoute):
    """A route that takes the fast path where its function is `in_one_thread`."""

    def get_route_handler(self) -> Handler:
        """Return the handler of a call."""
        ordinary = super().get_route_handler()
        plan: _Plan | None = getattr(self.endpoint, "plan", None)
        if plan is None or self.methods != {"GET"}:
            return ordinary

        async def handle(request: Request) -> Response:
            scheme, _, token = request.headers.get("authorization", "").partition(" ")
            if scheme.lower() != "bearer" or not token:
                return await ordinary(request)
            check_address(request)
            values = plan.values(request)
            if values is None:
                return await ordinary(request)
            if plan.is_short(request, token, values):
                return plan.work(request, token, values)
            return await run_in_threadpool(plan.work, request, token, values)

        return handle


def in_one_thread(route: Callable[..., Response]) -> Callable[..., Awaitable[Response]]:
    """Mark a route whose caller is found in the thread that it works in.

    By itself FastAPI goes into one thread to ask who calls, comes back, and goes into another one to work.

    Args:
        route: It has the parameters ``who`` and ``shared``.
    """
    plan = _Plan(route)

    @wraps(route)
    async def call(who: UnverifiedCaller, **values: Any) -> Response:
        return await run_in_threadpool(lambda: route(who=who.who(), **values))

    call.__signature__ = plan.signature()  # type: ignore[attr-defined]
    call.plan = plan  # type: ignore[attr-defined]
    return call


def at_once(
    short: Callable[..., Response], *, unless: Callable[[Request], bool], most: int
) -> Callable[[Callable[..., Awaitable[Response]]], Callable[..., Awaitable[Response]]]:
    """Give a route a second, faster function for its usual calls.

    Args:
        short: Answers the calls that take it; its parameters ``who`` and ``shared``, and those of the call.
        unless: True for a call that takes the ordinary path.
        most: The largest ``limit`` of a call that is answered at once; others get a thread.
    """

    def decorate(route: Callable[..., Awaitable[Response]]) -> Callable[..., Awaitable[Response]]:
        route.plan = _Plan(short, unless, most)  # type: ignore[attr-defined]
        return route

    return decorate
