"""What went wrong: a styled page for browsers, a document for programs, by what the call accepts."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from fastapi.testclient import TestClient
from tests.service.web.accessibility import find_wrong
from tests.service.web.conftest import Opener

from tradewind.service.app import create_app
from tradewind.service.context import Context
from tradewind.service.web.error_pages import _weights

BROWSER = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"
LARGE = {"Content-Length": str(2**40)}
WRONG = [
    ("GET", "/r/no-such-link", {}, 404),
    ("GET", "/r/no-such-link/outputs/x", {}, 404),
    ("GET", "/nothing", {}, 404),
    ("GET", "/api/v1/nothing", {}, 404),
    ("GET", "/static/nothing.css", {}, 404),
    ("GET", "/RPC2", {}, 405),
    ("PUT", "/sign-in", {}, 405),
    ("POST", "/sign-in", LARGE, 413),
    ("POST", "/sign-in", {"Origin": "https://evil.example"}, 403),
    ("GET", "/%00", {}, 404),
]


@pytest.fixture(scope="module")
def client(shared: Context) -> TestClient:
    return TestClient(create_app(shared), base_url="http://localhost:8765", raise_server_exceptions=False)


@pytest.mark.parametrize(("method", "path", "more", "status"), WRONG)
def test_errors_are_what_the_call_accepts(
    client: TestClient, method: str, path: str, more: dict[str, str], status: int
) -> None:
    page = client.request(method, path, headers={"Accept": BROWSER, **more})
    assert (page.status_code, page.headers["content-type"]) == (status, "text/html; charset=utf-8")
    assert "style-src 'self'" in page.headers["content-security-policy"]
    assert "sandbox" not in page.headers["content-security-policy"]
    style = re.search(r'<link rel="stylesheet" href="([^"]+)"', page.text)
    assert style is not None
    assert client.get(style[1]).headers["content-type"].startswith("text/css")
    for accept in ("*/*", "application/json", "application/json, text/html;q=0.5", "text/html, application/json", ""):
        document = client.request(method, path, headers={"Accept": accept, **more})
        assert (document.status_code, document.headers["content-type"]) == (status, "application/problem+json")
        assert document.json()["status"] == status


def test_what_is_accepted_is_read_with_its_weights() -> None:
    assert _weights("a/b;q=0.5, c/d , e/f; q=x") == {"a/b": 0.5, "c/d": 1.0, "e/f": 0.0}


@pytest.mark.parametrize("path", ["/", "/sign-in", "/healthz", "/readyz", "/api/v1/requests", "/openapi.json", "/r/x"])
def test_head_answers_as_get_does(client: TestClient, path: str) -> None:
    get, head = (client.request(method, path, follow_redirects=False) for method in ("GET", "HEAD"))
    assert (head.status_code, head.content) == (get.status_code, b"")
    assert head.headers.get("content-type") == get.headers.get("content-type")
    assert head.headers.get("content-length") == get.headers.get("content-length")


@pytest.mark.xdist_group("browser")
def test_a_link_that_leads_nowhere_is_a_page_with_style(open_page: Opener, shots: Path | None) -> None:
    page = open_page("", expected="404")
    for width, scheme in ((1280, "light"), (390, "dark")):
        page.set_viewport_size({"width": width, "height": 800})
        page.emulate_media(color_scheme="dark" if scheme == "dark" else "light")
        answer = page.goto("/r/no-such-link")
        assert answer is not None
        assert answer.status == 404
        logo = page.locator(".brand svg").bounding_box()
        assert logo is not None
        assert max(logo["width"], logo["height"]) <= 64, "without style it covers the page"
        assert find_wrong(page) == []
        if shots is not None:
            page.screenshot(path=shots / f"expired-{width}-{scheme}.png")
