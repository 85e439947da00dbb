"""Requests on the screen."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

import typer

from tradewind.cli.output import printable
from tradewind.cli.service.common import print_table
from tradewind.utils.units import format_duration, format_money

if TYPE_CHECKING:
    from tradewind.client.models import EventInfo, RequestInfo


def print_request_list(found: Sequence[RequestInfo]) -> None:
    """Print a table of requests."""
    rows = [
        (
            str(one.id),
            printable(one.name),
            one.kind,
            _state(one),
            format_money(one.cost),
            _ago(one.created),
            _took(one),
            f"{one.user} of {one.tenant}",
        )
        for one in found
    ]
    print_table(("id", "name", "kind", "state", "cost", "asked", "took", "by"), rows)


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
    """Where a downloaded file goes: below a folder, with the folders that it has below outputs.

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
    return printable(", ".join(f"{name}={value}" for name, value in values.items()))


def _best(request: RequestInfo) -> str:
    """The best trial of a search, in a line."""
    from tradewind.reporting.words import value_words

    facts, metric = request.progress.get("best"), str(request.progress.get("metric") or "")
    if not isinstance(facts, dict) or not isinstance(facts.get("objective"), int | float):
        return ""
    value = value_words(metric, float(facts["objective"]))
    return printable(f"{metric} {value}, trial {facts.get('trial')}: ") + _words(facts.get("configuration"))
