"""Requests over REST: submitting, listing, tags, errors."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
from tests.service.live_server import move
from tests.service.module_server import House, house


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    """A server for all tests of this module."""
    with house(tmp_path_factory.mktemp("rest")) as opened:
        yield opened


def submit(here: House, key: str = "", **document: Any) -> dict[str, Any]:
    """A new request of ann's."""
    headers = {**here.ann, **({"Idempotency-Key": key} if key else {})}
    answer = here.client.post("/api/v1/requests", json={"application": here.hello, **document}, headers=headers)
    assert answer.status_code == 201, answer.text
    assert answer.headers["location"] == f"/api/v1/requests/{answer.json()['id']}"
    made: dict[str, Any] = answer.json()
    return made


@pytest.mark.slow
def test_a_request_is_made_and_shown(here: House) -> None:
    made = submit(here, parameters={"words": "a\u0301 \U0001f680"}, name="first")
    assert (made["name"], made["state"], made["user"], made["tenant"]) == ("first", "pending", "ann", "physics")
    shown = here.client.get(f"/api/v1/requests/{made['id']}", headers=here.ann).json()
    assert shown["document"]["parameters"]["words"] == "a\u0301 \U0001f680"
    assert shown["progress"]["waiting"]


@pytest.mark.slow
def test_the_same_key_is_the_same_request(here: House) -> None:
    first = submit(here, "key-1", name="once")
    assert submit(here, "key-1", name="once")["id"] == first["id"]
    assert submit(here, "key-2", name="once")["id"] != first["id"]
    other = {"application": here.hello, "name": "another"}
    answer = here.client.post("/api/v1/requests", json=other, headers={**here.ann, "Idempotency-Key": "key-1"})
    assert (answer.status_code, answer.json()["code"]) == (409, "service.conflict")
    # A key is its user's own.
    mine = here.client.post("/api/v1/requests", json=other, headers={**here.bob, "Idempotency-Key": "key-1"})
    assert mine.status_code == 201


@pytest.mark.slow
def test_pages_leave_nothing_out_and_show_nothing_twice(here: House) -> None:
    made = [submit(here, name=f"page {n}")["id"] for n in range(7)]
    address, seen = "/api/v1/requests?text=page&limit=3", []
    while True:
        answer = here.client.get(address, headers=here.ann)
        seen.append([one["id"] for one in answer.json()])
        link = answer.headers.get("link")
        if link is None:
            break
        found = re.fullmatch(r'<(/api/v1/requests\?[^>]+)>; rel="next"', link)
        assert found is not None
        assert "text=page" in found[1], "the next page is of the same list"
        address = found[1]
    assert [len(page) for page in seen] == [3, 3, 1]
    assert [number for page in seen for number in page] == made[::-1]


@pytest.mark.slow
def test_lists_are_filtered(here: House) -> None:
    number = submit(here, name="needle 100%")["id"]
    move(here.context.requests, number, "failed", problem="it broke", hint="mend it")

    def found(**params: Any) -> list[int]:
        answer = here.client.get("/api/v1/requests", params=params, headers=here.ann)
        assert answer.status_code == 200, answer.text
        return [one["id"] for one in answer.json()]

    assert found(text="100%") == [number]
    assert found(text="NEEDLE", state=["failed", "done"]) == [number]
    assert found(text="needle", state="done") == []
    assert number in found(application="hello")
    assert number in found(application=here.hello)
    assert found(application="hello@99") == []
    assert found(text="needle", parameter=["words=hello"]) == [number]
    assert found(text="needle", parameter=["words=hello", "words!=hello"]) == []
    assert found(tenant="biology") == []
    assert number in found(tenant="physics")
    assert here.client.get("/api/v1/requests?parameter=words", headers=here.ann).status_code == 422
    assert here.client.get("/api/v1/requests?state=sleeping", headers=here.ann).status_code == 422


def test_tags_tell_whether_anything_has_changed(here: House) -> None:
    number = submit(here, name="tagged")["id"]
    addresses = (f"/api/v1/requests/{number}", "/api/v1/requests?text=tagged")
    for address in addresses:
        first = here.client.get(address, headers=here.ann)
        tag = first.headers["etag"]
        for known in (tag, f'"other", {tag}', "*", tag.removeprefix("W/")):
            again = here.client.get(address, headers={**here.ann, "If-None-Match": known})
            assert (again.status_code, again.content, again.headers["etag"]) == (304, b"", tag)
        assert here.client.get(address, headers={**here.ann, "If-None-Match": '"other"'}).status_code == 200
        assert "private" in first.headers["cache-control"]
    before = [here.client.get(address, headers=here.ann).headers["etag"] for address in addresses]
    move(here.context.requests, number, "booting")
    after = [here.client.get(address, headers=here.ann).headers["etag"] for address in addresses]
    assert all(one != other for one, other in zip(before, after, strict=True))
    # The tag of a list is its reader's own, and of this very page.
    everything = here.client.get(addresses[1], headers=here.root).headers["etag"]
    assert everything not in after
    assert here.client.get(addresses[1] + "&limit=2", headers=here.ann).headers["etag"] not in after


def test_a_list_that_has_lost_one_has_another_tag(here: House) -> None:
    for n in range(2):
        submit(here, name=f"vanishing {n}")
    address = "/api/v1/requests?text=vanishing"
    first = here.client.get(address, headers=here.ann)
    assert here.client.delete(f"/api/v1/requests/{first.json()[1]['id']}", headers=here.ann).status_code == 204
    again = here.client.get(address, headers={**here.ann, "If-None-Match": first.headers["etag"]})
    assert (again.status_code, len(again.json())) == (200, 1)


def test_cancel_retry_resubmit_delete(here: House) -> None:
    number = submit(here, name="life", parameters={"times": 2})["id"]
    address = f"/api/v1/requests/{number}"

    def post(word: str, **body: Any) -> Any:
        return here.client.post(f"{address}/{word}", headers=here.ann, **body)

    assert post("retry").status_code == 409
    assert post("cancel").json()["state"] == "cancelled"
    assert post("cancel").status_code == 409
    assert post("retry").json()["state"] == "pending"
    new = post("resubmit", json={"parameters": {"times": 3}, "name": None})
    assert new.status_code == 201
    assert new.json()["document"]["parameters"] == {"times": 3, "words": "hello"}
    assert new.json()["name"] != "life"
    assert post("resubmit", json={"parameters": {"times": 1000}}).json()["code"] == "input.form"
    assert here.client.delete(address, headers=here.ann).status_code == 204
    assert here.client.get(address, headers=here.ann).status_code == 404


def test_retry_and_resubmit_are_done_once_with_a_key(here: House) -> None:
    number = submit(here, name="keyed life")["id"]
    address = f"/api/v1/requests/{number}"
    headers = {**here.ann, "Idempotency-Key": "once"}
    cancel = here.client.post(f"{address}/cancel", headers=here.ann)
    assert cancel.json()["state"] == "cancelled"
    for _ in range(2):
        assert here.client.post(f"{address}/retry", headers=headers).json()["state"] == "pending"
    here.client.post(f"{address}/cancel", headers=here.ann)
    assert here.client.post(f"{address}/retry", headers=headers).json()["state"] == "cancelled"
    made = [here.client.post(f"{address}/resubmit", headers=headers, json={"name": "like it"}) for _ in range(2)]
    assert [one.status_code for one in made] == [201, 201]
    assert made[0].json()["id"] == made[1].json()["id"] != number
    other = here.client.post(f"{address}/resubmit", headers=headers, json={"name": "another"})
    assert other.status_code == 409
    long = {**here.ann, "Idempotency-Key": "x" * 201}
    assert here.client.post(f"{address}/retry", headers=long).status_code == 422


def test_what_is_carried_out_is_cancelled_before_it_is_deleted(here: House) -> None:
    number = submit(here, name="held")["id"]
    claim = here.context.requests.claims.claim("elsewhere:1:1.00", 60.0, lambda lines: (number, 0.0))
    assert claim is not None
    answer = here.client.delete(f"/api/v1/requests/{number}", headers=here.ann)
    assert (answer.status_code, answer.json()["wanted"]) == (202, "delete")
    assert here.client.get(f"/api/v1/requests/{number}", headers=here.ann).status_code == 200


def test_what_happened_is_told_from_any_point_on(here: House) -> None:
    number = submit(here)["id"]
    for state in ("booting", "executing", "done"):
        move(here.context.requests, number, state)
    events = here.client.get(f"/api/v1/requests/{number}/events", headers=here.ann).json()
    assert [one["stage"] for one in events] == ["pending", "booting", "executing", "done"]
    assert {one["request"] for one in events} == {number}
    later = here.client.get(f"/api/v1/requests/{number}/events?since={events[1]['id']}", headers=here.ann).json()
    assert later == events[2:]
    header = {**here.ann, "Last-Event-ID": str(events[2]["id"])}
    assert here.client.get(f"/api/v1/requests/{number}/events", headers=header).json() == events[3:]
    everything = here.client.get(f"/api/v1/events?since={events[0]['id'] - 1}", headers=here.ann).json()
    assert everything == events
    assert here.client.get(f"/api/v1/events?since={events[0]['id'] - 1}", headers=here.bob).json() == []
    assert len(here.client.get("/api/v1/events?limit=2", headers=here.ann).json()) == 2
    strange = {**here.ann, "Last-Event-ID": "x"}
    assert here.client.get("/api/v1/events", headers=strange).status_code == 422


@pytest.mark.slow
def test_errors_are_problem_documents(here: House) -> None:
    post = [
        ({"content": b"{"}, 422, "input"),
        ({"content": b"[]", "headers": {"Content-Type": "application/json"}}, 422, "input"),
        ({"json": {}}, 422, "input"),
        ({"json": {"application": "nothing"}}, 404, "service.not-found"),
        ({"json": {"application": here.hello, "parameters": {"times": 1.5}}}, 422, "input.form"),
        ({"json": {"application": here.hello, "colour": "red"}}, 422, "input.spec"),
        ({"content": b'{"application": NaN}', "headers": {"Content-Type": "application/json"}}, 422, "input"),
        ({"content": b'{"a": 1e999}', "headers": {"Content-Type": "application/json"}}, 422, "input"),
        ({"content": b'{"a": "\\ud800"}', "headers": {"Content-Type": "application/json"}}, 422, "input"),
        ({"content": b'{"a": "\\u0000"}', "headers": {"Content-Type": "application/json"}}, 422, "input"),
        ({"content": b"\xff\xfe", "headers": {"Content-Type": "application/json"}}, 422, "input"),
        (
            {"content": b'{"a":' + b"[" * 500 + b"]" * 500 + b"}", "headers": {"Content-Type": "application/json"}},
            422,
            "input",
        ),
        (
            {"content": b'{"a":' + b"[" * 200_000, "headers": {"Content-Type": "application/json"}},
            400,
            "http.bad-request",
        ),
    ]
    for call, status, code in post:
        headers = {**here.ann, **call.pop("headers", {})}  # type: ignore[attr-defined]
        answer = here.client.post("/api/v1/requests", headers=headers, **call)  # type: ignore[arg-type]
        said = answer.json()
        assert answer.headers["content-type"] == "application/problem+json", said
        assert (answer.status_code, said["status"]) == (status, status), (call, said)
        assert said["code"].startswith(code), said
        assert said["title"]
    for method, address, status in (("GET", "/api/v1/nothing", 404), ("PATCH", "/api/v1/requests", 405)):
        answer = here.client.request(method, address, headers=here.ann)
        assert answer.headers["content-type"] == "application/problem+json"
        assert (answer.status_code, answer.json()["status"]) == (status, status)
    form = here.client.post(
        "/api/v1/requests", json={"application": here.hello, "parameters": {"times": 0, "x": 1}}, headers=here.ann
    ).json()
    assert set(form["fields"]) == {"times", "x"}


def test_logs_before_there_are_any(here: House) -> None:
    number = submit(here)["id"]
    answer = here.client.get(f"/api/v1/requests/{number}/logs/stdout", headers=here.ann)
    assert (answer.text, answer.headers["x-next-offset"], answer.headers["x-log-ended"]) == ("", "0", "false")
    assert answer.headers["content-type"].startswith("text/plain")
    assert here.client.get(f"/api/v1/requests/{number}/logs/shadow", headers=here.ann).status_code == 404
    assert here.client.get(f"/api/v1/requests/{number}/files", headers=here.ann).json() == []


def test_json_that_is_not_called_json_is_told_so(here: House) -> None:
    answer = here.client.post("/api/v1/requests", content=b'{"application": "x"}', headers=here.ann)
    assert answer.status_code == 422
    assert "Content-Type: application/json" in answer.json()["title"]
