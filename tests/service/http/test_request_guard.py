"""What every call passes, and what every answer gets."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from fastapi.testclient import TestClient
from tests.service.async_thread import run_apart

from tradewind.errors import TradewindError
from tradewind.service.app import create_app
from tradewind.service.context import Context
from tradewind.service.http.request_guard import RequestGuard
from tradewind.service.settings import ServiceSettings

Headers = dict[str, str]


@pytest.fixture
def settings() -> ServiceSettings:
    return ServiceSettings(max_body_mib=0.01, public_url="https://wind.example.org")


@pytest.fixture
def client(context: Context) -> TestClient:
    return TestClient(create_app(context), base_url="https://wind.example.org")


@pytest.mark.slow
def test_browsers_are_told_what_not_to_do(client: TestClient, ann: Headers) -> None:
    answer = client.get("/sign-in")
    policy = answer.headers["content-security-policy"]
    assert "script-src 'self';" in policy
    assert "unsafe" not in policy
    assert "frame-ancestors 'none'" in policy
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["x-frame-options"] == "DENY"
    assert answer.headers["referrer-policy"] == "same-origin"
    assert answer.headers["cache-control"] == "no-store"
    assert answer.headers["strict-transport-security"] == "max-age=31536000"
    data = client.get("/api/v1/me", headers=ann).headers
    assert data["content-security-policy"] == "default-src 'none'; frame-ancestors 'none'; sandbox"
    assert "no-store" in data["cache-control"]
    for path in ("/api/v1/me", "/no-such-page", "/api/v1/no-such-thing"):  # refusals as well
        assert client.get(path).headers["x-content-type-options"] == "nosniff"


@pytest.mark.slow
def test_plain_http_promises_no_tls(context: Context) -> None:
    plain = TestClient(create_app(context), base_url="http://localhost:8765").get("/sign-in")
    assert plain.status_code == 200
    assert "strict-transport-security" not in plain.headers


def test_another_name_is_not_ours(client: TestClient, ann: Headers) -> None:
    for host in ("evil.example", "wind.example.org.evil.example", "", "wind.example.org@evil.example", "127.0.0.2"):
        answer = client.get("/api/v1/me", headers={**ann, "Host": host})
        assert (answer.status_code, answer.json()["code"]) == (400, "service"), host
        assert "evil" not in answer.text
    for host in ("wind.example.org", "WIND.example.org:443", "localhost:8765", "127.0.0.1:1", "[::1]:8765"):
        assert client.get("/api/v1/me", headers={**ann, "Host": host}).status_code == 200, host


@pytest.mark.slow
def test_probes_ask_by_address(client: TestClient) -> None:
    assert client.get("/healthz", headers={"Host": "10.1.2.3:8765"}).status_code != 400


@pytest.mark.slow
@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 201),  # a program
        ({"Origin": "https://wind.example.org"}, 201),
        ({"Sec-Fetch-Site": "same-origin"}, 201),
        ({"Origin": "https://evil.example"}, 403),
        ({"Origin": "https://wind.example.org.evil.example"}, 403),
        ({"Origin": "https://wind.example.org:8443"}, 403),
        ({"Origin": "null"}, 403),
        ({"Origin": ""}, 403),
        ({"Sec-Fetch-Site": "cross-site"}, 403),
        ({"Sec-Fetch-Site": "same-site"}, 403),
    ],
)
def test_another_site_changes_nothing(client: TestClient, ann: Headers, headers: Headers, status: int) -> None:
    answer = client.post("/api/v1/tokens", headers={**ann, **headers}, json={"name": "laptop"})
    assert answer.status_code == status
    assert client.get("/api/v1/me", headers={**ann, **headers}).status_code == 200


@pytest.mark.slow
def test_a_large_body_is_refused_before_it_is_read(client: TestClient, ann: Headers, root: Headers) -> None:
    answer = client.post("/api/v1/tokens", headers=ann, content=b"x" * 20_000)
    assert (answer.status_code, answer.json()["code"]) == (413, "service.too-large")
    assert answer.headers["connection"] == "close"
    assert client.post("/sign-in", content=b"x" * 20_000).status_code == 413
    huge = {"Content-Length": "9" * 5000}
    assert client.post("/api/v1/tokens", headers={**ann, **huge}, content=b"{}").status_code == 413
    log = client.get("/api/v1/audit", headers=root).json()
    assert {(row["subject"], row["outcome"], row["details"]["code"]) for row in log} == {
        ("POST /api/v1/tokens", "refused", "service.too-large"),
        ("POST /sign-in", "refused", "service.too-large"),
    }


@pytest.mark.slow
def test_a_large_body_without_a_length_is_refused_where_it_grows(client: TestClient, ann: Headers) -> None:
    sent = 0

    def pieces() -> Any:
        nonlocal sent
        for _ in range(100):
            sent += 1
            yield b"x" * 1000

    answer = client.post("/api/v1/tokens", headers=ann, content=pieces())
    assert answer.status_code == 413
    assert len(client.get("/api/v1/tokens", headers=ann).json()) == 1


# ---------------------------------------------------------------------- bodies that do not come

Parts = Callable[[], AsyncIterator[bytes]]


def ask(parts: Parts, *, most: float = 0.01, seconds: float = 0.2) -> tuple[list[dict[str, Any]], list[str], bytes]:
    """The messages of the answer to a POST, the codes of what was refused, and what the application has read."""
    refused: list[str] = []
    answer: list[dict[str, Any]] = []
    read = bytearray()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                raise ConnectionError("the client has gone")
            read.extend(message["body"])
            if not message["more_body"]:
                break
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"ok"})

    def note(address: str, call: str, error: TradewindError) -> None:
        refused.append(f"{address} {call} {error.code}")

    async def run() -> None:
        coming = parts()

        async def receive() -> dict[str, Any]:
            try:
                return {"type": "http.request", "body": await anext(coming), "more_body": True}
            except StopAsyncIteration:
                return {"type": "http.request", "body": b"", "more_body": False}

        async def send(message: dict[str, Any]) -> None:
            answer.append(message)

        guard = RequestGuard(app, ServiceSettings(max_body_mib=most), note, seconds=seconds)
        scope = {"type": "http", "method": "POST", "path": "/x", "scheme": "http", "headers": [], "client": ("::1", 1)}
        await guard(scope, receive, send)  # type: ignore[arg-type]

    run_apart(run())
    return answer, refused, bytes(read)


def test_a_body_that_drips_is_refused() -> None:
    async def drips() -> AsyncIterator[bytes]:
        for _ in range(100):
            await asyncio.sleep(0.05)
            yield b"x"

    answer, refused, read = ask(drips)
    assert answer[0]["status"] == 408
    assert (b"connection", b"close") in answer[0]["headers"]
    assert refused == ["::1 POST /x service.slow"]
    assert 1 <= len(read) <= 10


@pytest.mark.slow
def test_a_large_body_has_the_time_that_it_needs() -> None:
    async def flows() -> AsyncIterator[bytes]:
        for _ in range(8):
            await asyncio.sleep(0.05)
            yield b"x" * 4096  # each buys a quarter of a second

    answer, refused, read = ask(flows, most=1.0)
    assert (answer[0]["status"], refused, len(read)) == (200, [], 8 * 4096)


def test_a_body_that_is_too_large_is_no_longer_passed_on() -> None:
    async def floods() -> AsyncIterator[bytes]:
        while True:
            yield b"x" * 4096

    answer, refused, read = ask(floods)
    assert [message["type"] for message in answer] == ["http.response.start", "http.response.body"]
    assert (answer[0]["status"], refused) == (413, ["::1 POST /x service.too-large"])
    assert len(read) <= 0.01 * 2**20


def test_an_error_of_the_application_stays_its_own() -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        raise ValueError("a fault of ours")

    scope = {"type": "http", "method": "GET", "path": "/", "scheme": "http", "headers": []}
    with pytest.raises(ValueError, match="of ours"):
        run_apart(RequestGuard(app, ServiceSettings())(scope, None, None))  # type: ignore[arg-type]
