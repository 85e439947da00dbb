"""``tradewind request``: ask for runs and searches, watch them, and take what they left; here or on a server."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tradewind.cli.common import command_group
from tradewind.cli.output import printable
from tradewind.cli.service.common import print_table
from tradewind.cli.service.connection import Database, Server
from tradewind.errors import InputError
from tradewind.utils.units import format_duration, format_money, shortened

if TYPE_CHECKING:
    from tradewind.cli.service.local_client import LocalClient
    from tradewind.client import Client
    from tradewind.client.models import EventInfo, RequestInfo


_PARAMETERS = 40
"""Characters of the parameters of a request in a list."""

_FILES = (".yaml", ".yml", ".json")


def request_document(
    place: Client | LocalClient, what: str, params: Sequence[str] | None, more: Mapping[str, Any]
) -> dict[str, Any]:
    """The document of a request.

    Args:
        place: Where it will be made: files and jobs are handed in there.
        what: An application, a job YAML (which is registered as an application of the user), or a whole document.
        params: ``NAME=VALUE`` of fields; ``@file`` hands a file in.
        more: The other options.

    Raises:
        InputError: Something is wrong.
    """
    given = _more(more)
    values = _values(place, params)
    if Path(what).suffix.lower() not in _FILES:
        return {"application": what, **({"parameters": values} if values else {}), **given}
    text, document = _read(Path(what))
    if "job" in document:
        reference = place.register(
            text if "application" in document else f"{text.rstrip()}\napplication: {{}}\n"
        ).reference
        return {"application": reference, **({"parameters": values} if values else {}), **given}
    if "template" in document and "application" not in document:
        return {**document, **({"user_data": {**document.get("user_data", {}), **values}} if values else {}), **given}
    if isinstance(document.get("application"), str):
        merged = {**document, **given}
        if values:
            merged["parameters"] = {**document.get("parameters", {}), **values}
        return merged
    raise InputError(
        "it is no job and no request", hint="a job has job: and space:, a request application: or template:", file=what
    )


def _read(file: Path) -> tuple[str, dict[str, Any]]:
    from tradewind.problem.yaml_source import read_source

    source = read_source(file)
    return file.read_text(encoding="utf-8-sig"), dict(source.document)


def _values(place: Client | LocalClient, params: Sequence[str] | None) -> dict[str, Any]:
    from tradewind.cli.common import pair, value_of

    found: dict[str, Any] = {}
    for word in params or ():
        name, text = pair(word, "--param", "size=4000")
        found[name] = place.upload(Path(text[1:])) if text.startswith("@") else value_of(text)
    return found


def _more(more: Mapping[str, Any]) -> dict[str, Any]:
    from tradewind.cli.common import pair, pairs, tried_values

    found = {key: more[key] for key in ("backend", "results", "name") if more[key]}
    if more["configuration"]:
        # As texts: only the parameter knows whether 1.10 is a number.
        found["configuration"] = dict(pair(word, "--configure", "nodes=2") for word in more["configuration"])
    resources = pairs(more["resources"], "--resource", "nodes=2")
    limits = {"dollars": more["budget"], "trials": more["trials"]}
    budget = {key: value for key, value in limits.items() if value is not None}
    if more["search"] or budget:
        first = [tried_values(text) for text in more["tries"] or ()]
        wanted = {"budget": budget, "deadline": more["deadline"], "try_first": first}
        found["search"] = {key: value for key, value in wanted.items() if value}
    elif more["tries"]:
        raise InputError("--try is for a search", hint="add --search or --budget 2; for one run it is --configure")
    elif more["deadline"]:
        resources["time"] = more["deadline"]
    if resources:
        found["resources"] = resources
    return found


def print_request_list(found: Sequence[RequestInfo]) -> None:
    """Print a table of requests."""
    rows = [
        (
            str(one.id),
            printable(one.name),
            one.kind,
            shortened(_words(one.parameters), _PARAMETERS),
            _state(one),
            format_money(one.cost),
            _ago(one.created),
            _took(one),
            f"{one.user} of {one.tenant}",
        )
        for one in found
    ]
    print_table(("id", "name", "kind", "parameters", "state", "cost", "asked", "took", "by"), rows)


def print_request(request: RequestInfo, events: Sequence[EventInfo]) -> None:
    """Print all that is known of a request."""
    typer.echo(f"Request {request.id}: {printable(request.name)}")
    rows = [
        ("state", _state(request)),
        ("why", printable(request.problem)),
        ("what to do" if request.state != "done" else "ended because", printable(request.hint)),
        ("waiting for", printable(str(request.progress.get("waiting", ""))) if not request.over else ""),
        ("trouble", printable(str(request.progress.get("trouble", ""))) if not request.over else ""),
        ("kind", request.kind),
        ("application", request.application),
        ("parameters", _words(request.document.get("parameters"))),
        ("configuration", _words(request.plan.get("configuration"))),
        ("best", _best(request)),
        ("code", str(request.plan.get("code", ""))[:12]),
        ("cost", f"{format_money(request.cost)} so far" if not request.over else format_money(request.cost)),
        ("study", str(request.study or "")),
        ("asked", f"{_ago(request.created)} by {request.user} of {request.tenant}"),
        ("took", _took(request)),
    ]
    for name, text in rows:
        if text:
            typer.echo(f"  {name:<13} {text}")
    if events:
        typer.echo("What happened:")
    for event in events:
        typer.echo(f"  {event_words(event, request.created)}")


def event_words(event: EventInfo, start: float) -> str:
    """An event as a line: when after the request was made, in which state, and what."""
    return f"{format_duration(max(0.0, event.at - start)):>9}  {event.stage:<13} {printable(event.text)}"


def download_target(folder: Path, path: str) -> Path:
    """Path of a downloaded file: below a folder, with the folders that it has below outputs.

    Args:
        folder: The folder.
        path: The file's path on the server, which may be anybody's idea of one.
    """
    pieces = [piece for piece in PurePosixPath(path).parts if piece not in ("/", "..", ".")]
    below = pieces[1:] if len(pieces) > 1 and pieces[0] == "outputs" else pieces[-1:]
    target = folder.joinpath(*below) if below else folder / "file"
    target.parent.mkdir(parents=True, exist_ok=True)
    return target


def _state(request: RequestInfo) -> str:
    return f"{request.state}, to be cancelled" if request.wanted == "cancel" and not request.over else request.state


def _took(request: RequestInfo) -> str:
    if request.started is None:
        return ""
    return format_duration((request.ended or time.time()) - request.started)


def _ago(at: float) -> str:
    return f"{format_duration(max(0.0, time.time() - at))} ago"


def _words(values: object) -> str:
    if not isinstance(values, dict) or not values:
        return ""
    return printable(", ".join(f"{name}={_value(value)}" for name, value in values.items()))


def _value(value: object) -> object:
    """A value in few words: a file by its name."""
    return value.get("name") or "a file" if isinstance(value, Mapping) and "file" in value else value


def _best(request: RequestInfo) -> str:
    """The best trial of a search, in a line."""
    from tradewind.reporting.words import value_words

    facts, metric = request.progress.get("best"), str(request.progress.get("metric") or "")
    if not isinstance(facts, dict) or not isinstance(facts.get("objective"), int | float):
        return ""
    value = value_words(metric, float(facts["objective"]))
    return printable(f"{metric} {value}, trial {facts.get('trial')}: ") + _words(facts.get("configuration"))


request_app = command_group("request", "Ask for runs and searches, watch them, and take what they left.")

Number = Annotated[int, typer.Argument(help="The request's number.", min=1, show_default=False)]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Dollars = Annotated[
    str | None, typer.Option("--budget", help="Dollars that the search may spend: makes it one.", show_default=False)
]
Tries = Annotated[
    list[str] | None,
    typer.Option("--try", help="Values that the search tries first, nodes=2,instance=c5.large; repeatable."),
]
Trial = Annotated[int | None, typer.Option(help="Of this trial of a search; else of the last.", show_default=False)]


@request_app.command("submit")
def submit(
    what: Annotated[
        str, typer.Argument(help="An application (NAME or NAME@3), a job YAML, or a document.", show_default=False)
    ],
    param: Annotated[
        list[str] | None,
        typer.Option("--param", "-p", help="A field of the form: size=4000, mesh=@mesh.dat; repeatable."),
    ] = None,
    configure: Annotated[
        list[str] | None, typer.Option("--configure", "-c", help="A parameter of the space: nodes=2; repeatable.")
    ] = None,
    resource: Annotated[
        list[str] | None, typer.Option(help="Instead: nodes=2, cpu=4, memory=4096 (MiB), time=600; repeatable.")
    ] = None,
    search: Annotated[bool, typer.Option("--search", help="Search for the best configuration.")] = False,
    budget: Dollars = None,
    trials: Annotated[int | None, typer.Option(help="Trials of the search at most: makes it one.", min=1)] = None,
    tries: Tries = None,
    deadline: Annotated[str | None, typer.Option(help="Time of one run: 30m.", show_default=False)] = None,
    backend: Annotated[str, typer.Option(help="Where it runs.", show_default=False)] = "",
    results: Annotated[str, typer.Option(help="Where results go: s3://bucket/folder.", show_default=False)] = "",
    name: Annotated[str, typer.Option(help="What you call it.", show_default=False)] = "",
    key: Annotated[
        str | None, typer.Option(help="A call with the same key again is the same request.", show_default=False)
    ] = None,
    wait: Annotated[bool, typer.Option("--wait", help="Wait until it is over; fail if it does.")] = False,
    user: Annotated[str, typer.Option(help="The user that asks, on this machine's store.", show_default=False)] = "",
    as_json: Json = False,
    server: Server = None,
    database: Database = None,
) -> None:
    """Ask for a run of an application or a job, or with --search, --budget or --trials for a search."""
    from tradewind.cli.service.connection import connect, emit_dataclasses

    more = {
        "configuration": configure,
        "resources": resource,
        "search": search,
        "budget": budget,
        "trials": trials,
        "tries": tries,
        "deadline": deadline,
        "backend": backend,
        "results": results,
        "name": name,
    }
    with connect(server, database, user) as place:
        request = place.submit(request_document(place, what, param, more), key=key)
        if wait:
            request = _waited(place, request, quiet=as_json)
    if as_json:
        emit_dataclasses(request)
    elif not wait:
        where = f" --server {server}" if server and database is None else ""
        typer.echo(
            f"Request {request.id} ({request.name}) is {request.state}: tradewind request show {request.id}{where}"
        )
    if wait:
        _fail(request)


@request_app.command("list")
def list_requests(
    state: Annotated[list[str] | None, typer.Option(help="Only in this state; repeatable.")] = None,
    application: Annotated[str, typer.Option(help="Only of this one.", show_default=False)] = "",
    text: Annotated[str, typer.Option(help="Only with this in the name.", show_default=False)] = "",
    param: Annotated[
        list[str] | None,
        typer.Option("--param", "-p", help="Only with such a parameter: stars=1000, 'stars>500'; repeatable."),
    ] = None,
    tenant: Annotated[str, typer.Option(help="Only of this tenant.", show_default=False)] = "",
    limit: Annotated[int, typer.Option(help="Show this many.", min=1)] = 20,
    as_json: Json = False,
    server: Server = None,
    database: Database = None,
) -> None:
    """List requests, the newest first."""
    from tradewind.cli.service.connection import connect, emit_dataclasses

    with connect(server, database) as place:
        filters = {"application": application, "text": text, "tenant": tenant}
        found = list(place.requests(states=state or (), parameters=param or (), limit=limit, **filters))
    if as_json:
        emit_dataclasses(found)
        return
    if not found:
        typer.echo(
            "There is no such request." if state or param or any(filters.values()) else "There is no request yet."
        )
        return
    print_request_list(found)


@request_app.command("show")
def show(number: Number, as_json: Json = False, server: Server = None, database: Database = None) -> None:
    """Show a request: how far it is, what it costs, what happened, and why it failed."""
    from tradewind.cli.service.connection import connect, emit_dataclasses

    with connect(server, database) as place:
        request, events = place.get(number), place.history(number)
    if as_json:
        emit_dataclasses(request)
        return
    print_request(request, events)


@request_app.command("wait")
def wait(
    number: Number,
    timeout: Annotated[str | None, typer.Option(help="Wait this long at most: 30m.", show_default=False)] = None,
    as_json: Json = False,
    server: Server = None,
    database: Database = None,
) -> None:
    """Wait until a request is over, and say what happens meanwhile; fail if it does."""
    from tradewind.cli.service.connection import connect, emit_dataclasses
    from tradewind.errors import ServiceError
    from tradewind.utils.units import parse_duration

    seconds = None if timeout is None else parse_duration(timeout)
    with connect(server, database) as place:
        if seconds is None:
            request = _waited(place, place.get(number), quiet=as_json)
        else:
            try:
                request = place.wait(number, timeout=seconds)
            except TimeoutError as error:
                raise ServiceError(str(error), hint="it goes on") from None
    if as_json:
        emit_dataclasses(request)
    _fail(request)


@request_app.command("logs")
def logs(
    number: Number,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on until nothing more will come.")] = False,
    stderr: Annotated[bool, typer.Option("--stderr", help="The standard error.")] = False,
    stream: Annotated[str, typer.Option(help="Or another log: hooks.log, application.stdout, ...")] = "stdout",
    trial: Trial = None,
    server: Server = None,
    database: Database = None,
) -> None:
    """Print what a request's program has printed."""
    import sys

    from tradewind.cli.service.connection import connect

    with connect(server, database) as place:
        for piece in place.logs(number, "stderr" if stderr else stream, follow=follow, trial=trial):
            sys.stdout.write(piece)
            sys.stdout.flush()


@request_app.command("files")
def files(
    number: Number,
    trial: Trial = None,
    as_json: Json = False,
    server: Server = None,
    database: Database = None,
) -> None:
    """List the files that a request's last run has left."""
    from tradewind.cli.output import printable
    from tradewind.cli.service.common import print_table
    from tradewind.cli.service.connection import connect, emit_dataclasses
    from tradewind.utils.units import format_memory

    with connect(server, database) as place:
        found = place.files(number, trial=trial)
    if as_json:
        emit_dataclasses(found)
        return
    if not found:
        typer.echo("There are no files.")
        return
    print_table(("file", "size"), [(printable(one.path), format_memory(one.size)) for one in found])


@request_app.command("download")
def download(
    number: Number,
    path: Annotated[
        list[str] | None, typer.Argument(help="Which files, as files lists them; else all below outputs.")
    ] = None,
    to: Annotated[Path, typer.Option("--to", help="The folder that they go to.")] = Path(),
    trial: Trial = None,
    server: Server = None,
    database: Database = None,
) -> None:
    """Save files that a request's last run has left; those below outputs keep their folders."""
    from tradewind.cli.output import printable
    from tradewind.cli.service.connection import connect
    from tradewind.errors import NotFoundError

    with connect(server, database) as place:
        wanted = path or [one.path for one in place.files(number, trial=trial) if one.path.startswith("outputs/")]
        if not wanted:
            raise NotFoundError(f"request {number} has no outputs", hint=f"tradewind request files {number} lists all")
        for one in wanted:
            saved = place.download(number, one, download_target(to, one), trial=trial)
            typer.echo(printable(str(saved)))


@request_app.command("cancel")
def cancel(number: Number, server: Server = None, database: Database = None) -> None:
    """End a request; what it has used is paid."""
    from tradewind.cli.service.connection import connect

    with connect(server, database) as place:
        request = place.cancel(number)
    typer.echo(f"Request {number} is {'cancelled' if request.over else 'being cancelled'}")


@request_app.command("retry")
def retry(number: Number, server: Server = None, database: Database = None) -> None:
    """Carry a request that did not end well out once more."""
    from tradewind.cli.service.connection import connect

    with connect(server, database) as place:
        request = place.retry(number)
    typer.echo(f"Request {number} is {request.state}")


@request_app.command("upload")
def upload(number: Number, as_json: Json = False, server: Server = None, database: Database = None) -> None:
    """Have the upload of a request's results tried again at once, also one that was given up."""
    from tradewind.cli.output import printable
    from tradewind.cli.service.connection import connect, emit_dataclasses

    with connect(server, database) as place:
        found = place.upload_again(number)
    if as_json:
        emit_dataclasses(found)
        return
    typer.echo(f"The results of request {number} are uploaded to {printable(found.address)} within moments")


@request_app.command("delete")
def delete(number: Number, server: Server = None, database: Database = None) -> None:
    """Remove a request with its files; one that is being carried out is cancelled first."""
    from tradewind.cli.service.connection import connect
    from tradewind.errors import NotFoundError

    with connect(server, database) as place:
        place.delete(number)
        try:
            place.get(number)
        except NotFoundError:
            typer.echo(f"Request {number} is removed")
        else:
            typer.echo(f"Request {number} is being cancelled, and is removed when it has ended")


def _waited(place: Client | LocalClient, request: RequestInfo, *, quiet: bool) -> RequestInfo:
    """The request when it is over; what happens is said meanwhile."""
    if quiet:
        return place.wait(request.id)
    for event in place.events(request.id):
        typer.echo(event_words(event, request.created))
    return place.wait(request.id)


def _fail(request: RequestInfo) -> None:
    """End with an error where a request did not end well.

    Raises:
        JobFailedError: It did not.
    """
    from tradewind.errors import JobFailedError

    if not request.ok:
        why = f": {request.problem}" if request.problem else ""
        raise JobFailedError(f"request {request.id} is {request.state}{why}", hint=request.hint or None)
