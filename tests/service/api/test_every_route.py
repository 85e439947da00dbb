"""Rules that every route keeps; the routes are read from the server, so that a new one is tested by itself."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from fastapi import FastAPI
from fastapi.routing import RouteContext, iter_route_contexts
from fastapi.testclient import TestClient
from httpx2 import Response
from tests.service.live_server import HELLO, principal
from tests.service.module_server import House, house

from tradewind.service.http.session_cookies import CSRF_FIELD, CSRF_HEADER, csrf_token_of
from tradewind.store.clusters.cluster_store import JobRow
from tradewind.testing.stores import study_row, trial

pytestmark = pytest.mark.slow

SECRET = "physics-only"
"""What ann's things are called: nobody else may read it anywhere."""

OPEN = {
    "/openapi.json",
    "/healthz",
    "/readyz",
    "/favicon.ico",
    "/static/{digest}/{name:path}",
    "/sign-in",
    "/r/{secret}",
    "/r/{secret}/{path:path}",
}
"""Routes without authentication; `/r/` asks for a secret of its own (tests/service/results/test_share_links.py)."""

BY_ADDRESS = {"/metrics"}
"""Routes that ask where a call comes from."""

MISSING: dict[str, str] = {
    "requests.number": "999999",
    "studies.number": "999999",
    "queue.number": "999999",
    "tokens.number": "999999",
    "users.name": "nobody-here",
    "start.name": "nothing-here",
    "install.which": "nothing-here",
    "tenants.name": "nobody-here",
    "applications.name": "nothing-here",
    "clusters.name": "nothing-here",
    "backends.name": "nothing-here",
    "links.link": "0" * 16,
    "sessions.start": "0" * 16,
}
"""Things that are not there, by the word before the parameter of a path and its name."""

FIXED: dict[str, str] = {
    "trials.trial": "0",
    "logs.stream": "stdout",
    "log.stream": "stdout",
    "files.path": "stdout",
    "shown.path": "outputs/picture.png",
    "requests.action": "cancel",
    "results.action": "check",
    "workflow.path": "outputs/results.json",
}
"""Parameters that name a part of a thing."""

BODIES: dict[tuple[str, str], Any] = {
    ("POST", "/api/v1/requests"): {"application": "antares"},
    ("POST", "/api/v1/proposals"): {"application": "antares"},
}
"""What is sent along, where an empty object is not enough to be asked for somebody's things."""


@dataclass(frozen=True)
class Scene:
    """A server with things of ann's, and a session of bob's."""

    house: House
    things: dict[str, str]
    cookie: str


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    """One for all tests of this module: who may not see a thing cannot change it either."""
    with house(tmp_path_factory.mktemp("routes")) as here:
        yield furnish(here)


def furnish(here: House) -> Scene:
    """Give ann one thing of every kind, all called by `SECRET`."""
    context, ann = here.context, principal(here.context, "ann")
    application = context.applications.register(ann, HELLO.replace("hello", "antares").replace("Say antares", SECRET))
    document = {"application": here.hello, "name": SECRET, "parameters": {"words": SECRET}}
    request = context.requests.submit(ann, document)
    study = context.store.create_study(study_row(SECRET))
    from tradewind.store.base import Change

    context.store.write(study.id, Change([trial(0, 0.5)]))
    context.requests.store.change_free(request.id, ("pending",), {"study_id": study.id}, _remark())
    job = context.cluster.submit(JobRow(0, "physics", SECRET, {}))
    link, _ = context.links.make(ann, request.id)
    token, _ = context.accounts.new_token(ann, SECRET)
    context.users.change(principal(context, "root"), "ann", password="correct horse battery", email=f"{SECRET}@x.org")
    context.users.change(principal(context, "root"), "bob", password="correct horse battery")
    context.accounts.sign_in("ann", "correct horse battery", "10.0.0.1", SECRET)
    things = {
        "requests.number": str(request.id),
        "studies.number": str(study.id),
        "queue.number": str(job.id),
        "tokens.number": str(token.id),
        "users.name": "ann",
        "start.name": MISSING["start.name"],
        "install.which": MISSING["install.which"],
        "tenants.name": "physics",
        "applications.name": application.name,
        "clusters.name": MISSING["clusters.name"],
        "backends.name": "local",
        "links.link": link.id,
        "sessions.start": context.accounts.sessions(ann)[0].digest,
    }
    return Scene(here, things, context.accounts.sign_in("bob", "correct horse battery", "10.0.0.2").secret)


def _remark() -> Any:
    from tradewind.store.service.requests import NewRequestEvent

    return NewRequestEvent("pending", SECRET)


def routes(client: TestClient) -> list[tuple[str, str, RouteContext]]:
    """Every method of every route."""
    assert isinstance(client.app, FastAPI)
    found = [
        (method, str(one.path), one) for one in iter_route_contexts(client.app.routes) for method in one.methods or ()
    ]
    assert len(found) > 60, "the routes were not found"
    return found


def filled(path: str, things: dict[str, str]) -> str:
    """A path with the things of one's choice in the place of its parameters."""
    before = ""

    def value(match: re.Match[str]) -> str:
        nonlocal before
        words = [word for word in path[: match.start()].split("/") if word and "{" not in word]
        before = f"{words[-1] if words else ''}.{match[1].partition(':')[0]}"
        known = {**FIXED, **MISSING, **things}
        assert before in known, f"say in {__name__} what {{{match[1]}}} of {path} may be ({before})"
        return known[before]

    return re.sub(r"\{([^}]+)\}", value, path)


def body_of(method: str, path: str) -> dict[str, Any]:
    """What is sent along."""
    if method in ("GET", "HEAD", "DELETE"):
        return {}
    return {"json": BODIES.get((method, path), {})}


def is_rest(path: str) -> bool:
    """Whether it is for programs."""
    return path.startswith("/api/")


def test_who_says_no_name_is_told_nothing(scene: Scene) -> None:
    client = scene.house.client
    for method, path, _ in routes(client):
        if path in OPEN | BY_ADDRESS:
            continue
        address = filled(path, scene.things)
        for headers in ({}, {"Authorization": "Bearer tw_" + "x" * 43}):
            answer = client.request(method, address, headers=headers, follow_redirects=False, **body_of(method, path))
            if is_rest(path):
                assert answer.status_code == 401, f"{method} {path}: {answer.status_code} {answer.text[:200]}"
                assert answer.headers["content-type"] == "application/problem+json"
                assert answer.headers["www-authenticate"] == "Bearer"
            elif path == "/RPC2":
                assert answer.status_code == 401
            else:
                assert answer.status_code in (303, 401, 403), f"{method} {path}: {answer.status_code}"
                assert answer.headers.get("location", "/sign-in").startswith("/sign-in"), f"{method} {path}"
            assert SECRET not in answer.text


def test_what_is_anothers_is_not_there(scene: Scene) -> None:
    """For each route with something of ann's in its path: bob hears what he hears of what is not there at all."""
    client, tried = scene.house.client, 0
    for method, path, _ in routes(client):
        if not is_rest(path) or "{" not in path:
            continue
        own, missing = filled(path, scene.things), filled(path, {})
        theirs, nothing = (call(client, method, path, one, scene.house.bob) for one in (own, missing))
        assert theirs.status_code in (403, 404), f"{method} {path}: {theirs.status_code} {theirs.text[:300]}"
        said = alike(theirs, own, scene.things), alike(nothing, missing, MISSING)
        assert said[0] == said[1], f"{method} {path} tells what is there"
        assert SECRET not in theirs.text
        tried += 1
    assert tried > 25


def test_the_pages_hide_what_is_anothers_too(scene: Scene) -> None:
    client, tried = scene.house.client, 0
    headers = {
        "Cookie": f"tradewind_session={scene.cookie}",
        "Accept": "text/html",
        CSRF_HEADER: csrf_token_of(scene.cookie),
    }
    for method, path, _ in routes(client):
        if is_rest(path) or path in OPEN | BY_ADDRESS or path == "/RPC2" or path == "/sign-out":
            continue
        data: dict[str, Any] = {"data": {CSRF_FIELD: csrf_token_of(scene.cookie)}} if method == "POST" else {}
        answer = client.request(method, filled(path, scene.things), headers=headers, follow_redirects=False, **data)
        assert SECRET not in answer.text, f"{method} {path}"
        if "{number" in path:
            assert answer.status_code == 404, f"{method} {path}: {answer.status_code}"
            tried += 1
    assert tried > 3


def test_no_list_has_what_is_anothers(scene: Scene) -> None:
    client = scene.house.client
    seen_by_ann = 0
    for method, path, _ in routes(client):
        if method != "GET" or not is_rest(path) or "{" in path:
            continue
        theirs = client.get(path, headers=scene.house.bob)
        assert theirs.status_code in (200, 403, 404), f"{path}: {theirs.status_code} {theirs.text[:300]}"
        assert SECRET not in theirs.text, path
        own = client.get(path, headers=scene.house.ann)
        seen_by_ann += SECRET in own.text
    assert seen_by_ann >= 5, "the lists have nothing to hide"


def test_what_is_ones_own_is_there(scene: Scene) -> None:
    """Otherwise the tests above would find nothing wherever they look."""
    client = scene.house.client
    for method, path, _ in routes(client):
        if (
            method != "GET"
            or not is_rest(path)
            or "{" not in path
            or path.endswith("{path:path}")
            or "clusters" in path
        ):
            continue
        headers = scene.house.root if re.search(r"users|tenants|backends", path) else scene.house.ann
        answer = client.get(filled(path, scene.things), headers=headers)
        assert answer.status_code == 200, f"{path}: {answer.status_code} {answer.text[:300]}"


def test_addresses_that_no_database_takes(scene: Scene) -> None:
    client = scene.house.client
    for method, path, _ in routes(client):
        if method != "GET" or not is_rest(path):
            continue
        for strange in (
            "%00",
            "a%00b",
            "9" * 30,
            "-1",
            "%ff",
            "..%2f..%2fetc%2fpasswd",
            "%ed%a0%80",
            "a" * 5000,
            "''\"<>",
        ):
            address = re.sub(r"\{[^}]+\}", strange, path) if "{" in path else f"{path}?text={strange}&before={strange}"
            answer = client.get(address, headers=scene.house.ann)
            assert answer.status_code < 500, f"{address}: {answer.status_code} {answer.text[:300]}"


def call(client: TestClient, method: str, path: str, address: str, headers: dict[str, str]) -> Response:
    """One call."""
    return client.request(method, address, headers=headers, **body_of(method, path))


def alike(answer: Response, address: str, things: dict[str, str]) -> tuple[int, str]:
    """An answer without what was asked for in it."""
    text = answer.text
    for value in sorted(things.values(), key=len, reverse=True):
        if value in address:
            text = re.sub(rf"\b{re.escape(value)}\b", "...", text)
    return answer.status_code, text
