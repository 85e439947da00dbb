"""Drafts of requests: from the form of the page, or an earlier request, to the document of a new one."""

from __future__ import annotations

import base64
import json
import secrets
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from starlette.datastructures import FormData, UploadFile

from tradewind.errors import ConfigurationError, InputError
from tradewind.problem.completion import parse_values
from tradewind.service.applications.form import ApplicationForm, ApplicationFormField
from tradewind.service.requests.request_document import read_document
from tradewind.utils.units import parse_duration, parse_money

BEST = "best"
"""The choice that leaves the configuration to what is proposed when the request begins."""

OWN = "own"
"""The choice of a configuration that was typed in."""

_OF_THE_FORM = {"application", "parameters"}


@dataclass(frozen=True)
class RequestDraft:
    """The values in the form of a new request.

    Attributes:
        parameters: The values of the application's form, as typed.
        files: Values of its file fields that the server keeps already.
        choice: `BEST`, `OWN`, or a proposed configuration as JSON.
        own: The values of an own configuration, as typed.
        kind: ``run`` or ``search``.
        budget: Greatest cost, in USD.
        deadline: Greatest time of each run.
        try_first: Configurations that a search tries before all others, one a line: ``nodes=2, instance=c5.large``.
        backend: Name of the backend; empty for the application's own.
        results: Location for results; empty to keep them on the server.
        email: True to notify the user by e-mail.
        webhook: URL that is called.
        name: The user's name for it.
        key: Idempotency key: makes a form that is sent twice one request.
    """

    parameters: Mapping[str, Any] = field(default_factory=dict)
    files: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    choice: str = BEST
    own: Mapping[str, str] = field(default_factory=dict)
    kind: str = "run"
    budget: str = ""
    deadline: str = ""
    try_first: str = ""
    backend: str = ""
    results: str = ""
    email: bool = False
    webhook: str = ""
    name: str = ""
    key: str = field(default_factory=lambda: secrets.token_urlsafe(12))

    def configuration(self) -> dict[str, Any] | None:
        """The chosen configuration; None to leave it to the proposal."""
        if self.choice == OWN:
            return {name: value for name, value in self.own.items() if value != ""} or None
        if self.choice == BEST:
            return None
        try:
            chosen = json.loads(self.choice)
        except (ValueError, RecursionError):
            return None
        return chosen if isinstance(chosen, dict) else None

    def errors(self) -> dict[str, str]:
        """Find errors in the values beside the application's own fields, by field."""
        wrong: dict[str, str] = {}
        if self.budget:
            _try(parse_money, self.budget, "budget", wrong)
        elif self.kind == "search":
            wrong["budget"] = "say what the search may spend, such as $2"
        if self.deadline:
            _try(parse_duration, self.deadline, "deadline", wrong)
        try:
            if self.tried_first() and self.kind != "search":
                wrong["try_first"] = "only a search tries configurations: choose one, or leave this out"
        except ConfigurationError as error:
            wrong["try_first"] = f"{error.message}: {error.hint}"
        return wrong

    def tried_first(self) -> list[dict[str, str]]:
        """Configurations that a search tries before all others.

        Raises:
            ConfigurationError: A line is not of the form ``NAME=VALUE, NAME=VALUE``.
        """
        return [parse_values(line.strip()) for line in self.try_first.splitlines() if line.strip()]

    def document(self, application: str, parameters: Mapping[str, Any]) -> dict[str, Any]:
        """Build the request's document.

        Args:
            application: ``name@version``.
            parameters: The values of its form, with files.
        """
        document: dict[str, Any] = {"application": application, "parameters": dict(parameters)}
        configuration = self.configuration()
        if self.kind == "search":
            search = {"budget": self.budget, "deadline": self.deadline, "try_first": self.tried_first()}
            document["search"] = {name: value for name, value in search.items() if value}
        else:
            document |= {"configuration": configuration} if configuration else {}
            document |= {"budget": self.budget} if self.budget else {}
            document |= {"resources": {"time": self.deadline}} if self.deadline else {}
        others = {"backend": self.backend, "results": self.results, "name": self.name}
        document |= {name: value for name, value in others.items() if value}
        document["notify"] = {"email": self.email} | ({"webhook": self.webhook} if self.webhook else {})
        return document


def new_draft(form: ApplicationForm, *, email: bool) -> RequestDraft:
    """Make the form before anything is typed in.

    Args:
        form: The application's form.
        email: True where the user wants e-mails.
    """
    return RequestDraft(parameters=form.defaults, email=email)


def draft_of_request(form: ApplicationForm, document: Mapping[str, Any]) -> RequestDraft:
    """Fill in the form like an earlier request."""
    given = _mapping(document.get("parameters"))
    files = {one.name for one in form.fields if one.type == "file"}
    search, notify = _mapping(document.get("search")), _mapping(document.get("notify"))
    chosen = document.get("configuration")
    return RequestDraft(
        parameters={**form.defaults, **{name: value for name, value in given.items() if name not in files}},
        files={name: value for name, value in given.items() if name in files and isinstance(value, Mapping)},
        choice=OWN if isinstance(chosen, Mapping) and chosen else BEST,
        own={name: str(value) for name, value in _mapping(chosen).items()},
        kind="search" if "search" in document else "run",
        budget=_dollars(search.get("budget", document.get("budget"))),
        deadline=_text(search.get("deadline", _mapping(document.get("resources")).get("time"))),
        try_first=_lines(search.get("try_first")),
        backend=str(document.get("backend", "")) if isinstance(document.get("backend"), str) else "",
        results=_text(document.get("results")),
        email=bool(notify.get("email", False)),
        webhook=_text(notify.get("webhook")),
        name=_text(document.get("name")),
    )


def document_of_best(document: Mapping[str, Any], configuration: Mapping[str, Any]) -> dict[str, Any]:
    """Make the document of a run with the best configuration of a search.

    Args:
        document: The search's.
        configuration: The values of the best trial's parameters.
    """
    kept = {name: value for name, value in document.items() if name != "search"}
    return {**kept, "configuration": dict(configuration)}


def beyond(form: ApplicationForm, document: Mapping[str, Any]) -> list[str]:
    """List what an earlier request has beside its parameters that the form would leave out or change.

    Args:
        form: The application's form.
        document: The request's.

    Returns:
        Its keys, such as ``search.parallel``, in order.
    """
    filled = draft_of_request(form, document).document(str(document.get("application", "")), {})
    try:
        before, after = _said(document), _said(filled)
    except InputError:  # it is of another time: what the form would make of it is not known
        return sorted(set(document) - _OF_THE_FORM)
    return sorted(key for key in {*before, *after} if before.get(key) != after.get(key))


def draft_of_form(form: ApplicationForm, given: FormData) -> RequestDraft:
    """Read the form as it came from the page."""
    texts = {name: value for name, value in given.multi_items() if isinstance(value, str)}
    parameters: dict[str, str | bool] = {}
    files: dict[str, dict[str, Any]] = {}
    for one in form.fields:
        name = f"p.{one.name}"
        if one.type == "file":
            kept = _kept(given.get(name), texts.get(f"k.{one.name}", ""))
            if kept:
                files[one.name] = kept
        elif one.type == "boolean":
            parameters[one.name] = name in texts
        elif name in texts:
            parameters[one.name] = texts[name]
    return RequestDraft(
        parameters=parameters,
        files=files,
        choice=texts.get("choice", BEST),
        own={name[2:]: value for name, value in texts.items() if name.startswith("c.")},
        kind="search" if texts.get("kind") == "search" else "run",
        budget=texts.get("budget", "").strip(),
        deadline=texts.get("deadline", "").strip(),
        try_first=texts.get("try_first", "").strip(),
        backend=texts.get("backend", ""),
        results=texts.get("results", "").strip(),
        email="email" in texts,
        webhook=texts.get("webhook", "").strip(),
        name=texts.get("name", "").strip()[:200],
        key=texts.get("key", "") or secrets.token_urlsafe(12),
    )


def shown_value(one: ApplicationFormField, draft: RequestDraft) -> Any:
    """Write a value for its field in the form."""
    value = draft.parameters.get(one.name, one.default)
    return "" if value is None else value


def _kept(upload: object, kept: str) -> dict[str, Any] | None:
    """Return a file as requests have it: one that came with the form, else the one that was handed in before."""
    if isinstance(upload, UploadFile) and upload.filename:
        return {"name": upload.filename, "base64": base64.b64encode(upload.file.read()).decode()}
    try:
        found = json.loads(kept) if kept else None
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def _dollars(budget: Any) -> str:
    """Write a budget in USD as it is typed in."""
    return _text(budget.get("dollars") if isinstance(budget, Mapping) else budget)


def _text(value: Any) -> str:
    return "" if value is None else str(value)


def _said(document: Mapping[str, Any]) -> dict[str, Any]:
    """Flatten a document to values by their keys, one way of the many that there are to write it."""
    own = read_document(document).own
    if own is None:
        return {}
    leaves = _leaves(own.model_dump(exclude=_OF_THE_FORM))
    # Values of a configuration are sent as texts, and read by their parameters.
    found: dict[str, Any] = {name: str(value) if name.startswith("configuration.") else value for name, value in leaves}
    if "search.try_first" in found:
        found["search.try_first"] = [_texts(one) for one in found["search.try_first"]]
    return found


def _leaves(document: Mapping[str, Any], before: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in document.items():
        if isinstance(value, Mapping):
            yield from _leaves(value, f"{before}{name}.")
        elif value is not None and value != "":
            yield f"{before}{name}", value


def _texts(values: Mapping[str, Any]) -> dict[str, str]:
    return {name: str(value) for name, value in values.items()}


def _lines(given: Any) -> str:
    """Write configurations as they are typed in; nothing where they cannot be written so."""
    if not isinstance(given, list) or not all(isinstance(one, Mapping) for one in given):
        return ""
    wanted = [_texts(one) for one in given]
    text = "\n".join(", ".join(f"{name}={value}" for name, value in one.items()) for one in wanted)
    try:
        return text if RequestDraft(try_first=text).tried_first() == wanted else ""
    except ConfigurationError:
        return ""


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _try(reader: Any, text: str, name: str, wrong: dict[str, str]) -> None:
    try:
        if reader(text) <= 0:
            wrong[name] = "must be more than nothing"
    except InputError as error:
        wrong[name] = error.message + (f": {error.hint}" if error.hint else "")
