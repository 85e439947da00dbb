"""The procedures of XML-RPC; their docstrings are their help for clients."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

from tradewind.errors import InputError, NotFoundError
from tradewind.service.accounts.identity import Principal
from tradewind.service.api.request_models import request_of
from tradewind.service.api.routes.proposals import proposal_of
from tradewind.service.context import Context
from tradewind.service.document_limits import check_document
from tradewind.service.http.responses import MAX_ID, MAX_LISTED
from tradewind.store.service.requests import RequestRow

Array = list[Any]
"""Within the class `list` is a procedure."""

_TYPES = {"int": int, "string": str, "boolean": bool, "struct": dict, "array": list}
_FILTERS = ("states", "application", "text", "parameters", "tenant", "before", "limit")
_OPTIONS = ("backend", "deadline", "resources", "count")


class XmlRpcProcedures:
    """The procedures, for one user.

    Args:
        shared: The server's shared context.
        who: The user who calls.
    """

    def __init__(self, shared: Context, who: Principal) -> None:
        self._shared = shared
        self._who = who

    def submit(self, document: dict[str, Any], key: str = "") -> int:
        """Ask for a run, or for a search with a budget.

        document: a struct as in figure 4 of the publication (resources, scheduler, backend, template, user_data,
        hooks), or Tradewind's own (application, parameters, configuration, search, ...).
        key: your own name for this call; sent again with the same one, it is the same request.
        Returns the number of the request.
        """
        return self._shared.requests.submit(self._who, document, key=key or None).id

    def status(self, request: int) -> dict[str, Any]:
        """Progress of a request, and what is known of it.

        request: its number.
        Returns a struct: id, name, kind, status, status_updated_at (seconds since the epoch), problem and hint (why it
        did not end well, and what to do), cost (USD), progress, plan, and what was asked for: the members of figure 4
        where it was asked for so, otherwise document.
        """
        row = self._shared.requests.get(self._who, request)
        asked = self._shared.requests.status(self._who, request)
        own = {"document": row.document} if "template" not in asked else asked
        return {**own, **_summary(row), "plan": row.plan}

    def list(self, filters: dict[str, Any] = {}) -> Array:  # noqa: B006  (it is only read)
        """The requests that you may see, the newest first.

        filters: states (an array), application, text (in its name), parameters (an array of conditions: stars>500),
        tenant, before (a number: the next page), limit.
        Returns an array of structs, each as of status without what was asked for.
        """
        rows = self._shared.requests.list(self._who, **_known(filters, _FILTERS, "filters"))
        return [_summary(row) for row in rows]

    def cancel(self, request: int) -> bool:
        """End a request; what it has used is paid.

        request: its number.
        Returns true.
        """
        self._shared.requests.cancel(self._who, request)
        return True

    def delete(self, request: int) -> bool:
        """Remove a request with its files; one that is being carried out is cancelled first.

        request: its number.
        Returns true.
        """
        self._shared.requests.delete(self._who, request)
        return True

    def retry(self, request: int, key: str = "") -> bool:
        """Carry a request that did not end well out once more.

        request: its number.
        key: your own name for this call; sent again with the same one, it is not done twice.
        Returns true.
        """
        self._shared.requests.retry(self._who, request, key=key or None)
        return True

    def resubmit(self, request: int, changes: dict[str, Any] = {}, key: str = "") -> int:  # noqa: B006
        """Make a new request like another one.

        request: the number of the other one.
        changes: what is different: a struct changes the members that it has.
        key: your own name for this call; sent again with the same one, it is the same request.
        Returns the number of the new request.
        """
        return self._shared.requests.resubmit(self._who, request, changes, key=key or None).id

    def log(self, request: int, stream: str = "stdout", offset: int = 0, run: str = "") -> dict[str, Any]:
        """A part of what a request's program has printed.

        request: its number.
        stream: stdout or stderr.
        offset: where to begin, in bytes.
        run: the run that the offset is of, as the last answer said it: the log of the next one follows it.
        Returns a struct: text, next (the offset to go on with), run, and ended (whether nothing more will come).
        """
        part = self._shared.requests.log(self._who, request, stream, offset, run=run)
        return {"text": part.text, "next": part.next, "run": part.run, "ended": part.ended}

    def optimal_configuration(
        self,
        application: str,
        parameters: dict[str, Any] = {},  # noqa: B006  (it is only read)
        options: dict[str, Any] = {},  # noqa: B006
    ) -> dict[str, Any]:
        """The configuration to run an application with, from its past runs; nothing is run.

        application: its name, or name@3 for its version 3.
        parameters: the values of its form.
        options: backend, deadline (seconds, or 30m), resources (the least of a node), count (how many candidates).
        Returns a struct: configuration and offer (the first), candidates (an array of structs with configuration,
        offer, runtime and cost with their quantiles, chance, reason and trying), runs (how many it rests on), basis
        and advice.
        The first is the best known, or one to learn from (trying), before the best known.
        """
        wanted = _known(options, _OPTIONS, "options")
        if not 1 <= wanted.get("count", 1) <= 50:
            raise InputError("count of options is not from 1 to 50")
        found = proposal_of(self._shared.proposals.propose(self._who, application, parameters, **wanted))
        document = found.model_dump()
        best = document["candidates"][0]
        return {"configuration": best["configuration"], "offer": best["offer"], **document}

    def applications(self) -> Array:
        """The applications that you see, with their forms.

        Returns an array of structs: name, version, reference (name@version), title, description, and fields (an array
        of structs: name, type, title, help, default, required, min, max, choices, unit).
        """
        applications = self._shared.applications
        found = []
        for row in applications.list(self._who):
            form = applications.form(self._who, f"{row.tenant}/{row.reference}")
            names = ("name", "type", "title", "help", "default", "required", "min", "max", "choices", "unit")
            fields = [{name: getattr(field, name) for name in names} for field in form.fields]
            about = {"title": form.title, "description": form.description, "fields": fields}
            found.append({"name": row.name, "version": row.version, "reference": row.reference, **about})
        return found

    def system_list_methods(self) -> Array:
        """The names of all procedures.

        Returns an array of strings.
        """
        return sorted(NAMES)

    def system_method_help(self, name: str) -> str:
        """Say what a procedure does, takes and returns.

        name: the procedure.
        """
        return inspect.getdoc(_function(name)) or ""

    def system_method_signature(self, name: str) -> Array:
        """The types of a procedure's result and arguments, in every form in which it may be called.

        name: the procedure.
        Returns an array of arrays of strings.
        """
        types = [_word(one.annotation) for one in _parameters(_function(name))]
        needed = sum(one.default is inspect.Parameter.empty for one in _parameters(_function(name)))
        result = _word(inspect.signature(_function(name)).return_annotation)
        return [[result, *types[:count]] for count in range(needed, len(types) + 1)]


_SYSTEM: dict[str, Callable[..., Any]] = {
    "system.listMethods": XmlRpcProcedures.system_list_methods,
    "system.methodHelp": XmlRpcProcedures.system_method_help,
    "system.methodSignature": XmlRpcProcedures.system_method_signature,
}
_OWN: dict[str, Callable[..., Any]] = {
    name: function
    for name, function in inspect.getmembers(XmlRpcProcedures, inspect.isfunction)
    if not name.startswith(("_", "system"))
}
NAMES: Mapping[str, Callable[..., Any]] = _OWN | _SYSTEM
"""The procedures by the names that clients know them by."""


def call_procedure(shared: Context, who: Principal, name: str, arguments: tuple[Any, ...]) -> Any:
    """Call a procedure.

    Args:
        shared: The server's shared context.
        who: The user who calls.
        name: Name of the procedure.
        arguments: Arguments of the procedure, JSON-able values.

    Raises:
        NotFoundError: There is no such procedure.
        InputError: The arguments are not those that it takes.
    """
    function = _function(name)
    wanted = _parameters(function)
    needed = sum(one.default is inspect.Parameter.empty for one in wanted)
    if not needed <= len(arguments) <= len(wanted):
        count = f"{needed}" if needed == len(wanted) else f"{needed} to {len(wanted)}"
        raise InputError(f"{name} takes {count} arguments, and got {len(arguments)}", hint="see system.methodHelp")
    for parameter, value in zip(wanted, arguments, strict=False):
        _check(name, parameter, value)
    return function(XmlRpcProcedures(shared, who), *check_document(list(arguments)))


def _check(name: str, parameter: inspect.Parameter, value: Any) -> None:
    word = _word(parameter.annotation)
    # A boolean is an int for Python, but none for XML-RPC.
    if parameter.name in ("request", "offset") and isinstance(value, int) and value < (parameter.name == "request"):
        raise InputError(f"{parameter.name} of {name} is {value}", hint="see system.methodHelp")
    if not isinstance(value, _TYPES[word]) or (isinstance(value, bool) and word != "boolean"):
        raise InputError(f"{parameter.name} of {name} must be of the type {word}", hint="see system.methodHelp")


def _known(given: Mapping[str, Any], names: tuple[str, ...], what: str) -> dict[str, Any]:
    types: dict[str, tuple[type, ...]] = {
        "states": (list,),
        "parameters": (list,),
        "before": (int,),
        "limit": (int,),
        "count": (int,),
        "resources": (dict,),
        "deadline": (int, float, str),
    }
    for name, value in given.items():
        if name not in names:
            raise InputError(f"{what} has no {name[:40]!r}", hint=f"known: {', '.join(names)}")
        if isinstance(value, bool) or not isinstance(value, types.get(name, (str,))):
            raise InputError(f"{name} of {what} has the wrong type", hint="see system.methodHelp")
    for name, most in (("limit", MAX_LISTED), ("count", MAX_LISTED), ("before", MAX_ID)):
        if name in given and not 1 <= given[name] <= most:
            raise InputError(f"{name} of {what} must be from 1 to {most}")
    for name in ("states", "parameters"):
        if not all(isinstance(one, str) for one in given.get(name, ())):
            raise InputError(f"{name} of {what} must be strings")
    return dict(given)


def _summary(row: RequestRow) -> dict[str, Any]:
    found = request_of(row).model_dump(exclude={"document", "plan", "updated", "state"})
    return {**found, "status": row.state, "status_updated_at": int(row.updated)}


def _function(name: str) -> Callable[..., Any]:
    if name not in NAMES:
        raise NotFoundError(f"there is no procedure {name[:60]!r}", hint="system.listMethods lists them")
    return NAMES[name]


def _parameters(function: Callable[..., Any]) -> list[inspect.Parameter]:
    return list(inspect.signature(function).parameters.values())[1:]


def _word(annotation: str) -> str:
    """Name the XML-RPC type of a Python type, as it is written here."""
    words = {"int": "int", "str": "string", "bool": "boolean", "dict": "struct", "Array": "array"}
    return words[annotation.partition("[")[0]]
