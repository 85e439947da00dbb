"""What somebody tries who means harm: nothing of it works, and nothing of it tells more than a plain refusal."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient
from tests.service.live_server import HELLO, principal
from tests.service.module_server import house

from tradewind.service.app import create_app
from tradewind.service.context import Context
from tradewind.service.http.session_cookies import safe_redirect_path
from tradewind.service.operations.server_log import JsonFormatter, TextFormatter

Headers = dict[str, str]
WORDS = "five boats in a row"
PAGE = {"Accept": "text/html"}


@pytest.fixture
def browser(context: Context, client: TestClient) -> TestClient:
    """A browser that has not signed in yet; ``ann`` of ``physics`` may."""
    context.accounts.add_user("ann", tenant="physics", password=WORDS)
    return client


def sign_in(browser: TestClient, path: str = "/", **more: str) -> str:
    """Sign ann in; where it goes on to."""
    answer = browser.post(
        "/sign-in", data={"name": "ann", "password": WORDS, "next": path, **more}, follow_redirects=False
    )
    assert answer.status_code == 303, answer.text
    return str(answer.headers["location"])


# ---------------------------------------------------------------------- sessions


@pytest.mark.slow
@pytest.mark.parametrize(("scheme", "name"), [("http", "tradewind_session"), ("https", "__Host-tradewind_session")])
def test_the_cookie_is_kept_from_scripts_and_other_sites(
    context: Context, browser: TestClient, scheme: str, name: str
) -> None:
    with TestClient(create_app(context), base_url=f"{scheme}://tradewind.test") as visitor:
        sign_in(visitor)
        answer = visitor.post("/sign-in", data={"name": "ann", "password": WORDS}, follow_redirects=False)
        (cookie,) = (value for value in answer.headers.get_list("set-cookie") if "session" in value)
        assert cookie.startswith(f"{name}=tw_session_")
        attributes = {part.strip().lower() for part in cookie.split(";")[1:]}
        assert {"httponly", "samesite=lax", "path=/"} <= attributes
        assert ("secure" in attributes) == (scheme == "https")
        assert not any(part.startswith(("domain", "max-age", "expires")) for part in attributes)


@pytest.mark.slow
def test_a_planted_session_is_not_the_one_that_is_begun(browser: TestClient) -> None:
    browser.cookies.set("tradewind_session", "tw_session_planted", domain="tradewind.test", path="/")
    sign_in(browser)
    first = browser.cookies["tradewind_session"]
    assert first != "tw_session_planted"
    sign_in(browser)
    assert browser.cookies["tradewind_session"] != first
    attacker = TestClient(
        browser.app, base_url="http://tradewind.test", cookies={"tradewind_session": "tw_session_planted"}
    )
    assert attacker.get("/api/v1/me").status_code == 401
    attacker.cookies = {"tradewind_session": first}  # who signs in again leaves no session behind
    assert attacker.get("/api/v1/me").status_code == 401


@pytest.mark.slow
def test_signing_out_is_for_good_and_nobody_elses_to_do(browser: TestClient) -> None:
    sign_in(browser)
    session = browser.cookies["tradewind_session"]
    assert browser.post("/sign-out").status_code == 403
    assert browser.post("/sign-out", data={"csrf": "0" * 64}).status_code == 403
    assert browser.get("/sign-out").status_code in (404, 405)
    page = browser.get("/account", headers=PAGE).text
    found = re.search(r'name="csrf" (?:value|content)="([0-9a-f]{64})"', page)
    assert found is not None
    assert browser.post("/sign-out", data={"csrf": found[1]}, follow_redirects=False).status_code == 303
    assert "tradewind_session" not in browser.cookies
    browser.cookies.set("tradewind_session", session)
    assert browser.get("/api/v1/me").status_code == 401


def test_another_site_cannot_sign_somebody_in(browser: TestClient) -> None:
    form = {"name": "ann", "password": WORDS}
    answer = browser.post("/sign-in", data=form, headers={"Origin": "https://evil.example"}, follow_redirects=False)
    assert answer.status_code == 403
    assert "set-cookie" not in answer.headers


@pytest.mark.slow
def test_forms_of_other_sites_change_nothing(browser: TestClient, context: Context) -> None:
    sign_in(browser)
    forms = [
        ("/account/password", {"old": WORDS, "new": "seven ships at sea", "again": "seven ships at sea"}),
        ("/account/tokens", {"name": "stolen"}),
        ("/account/sessions/end", {"session": "0" * 16}),
        ("/account/notices", {"address": "eve@evil.example"}),
    ]
    for path, fields in forms:
        for proof in ({}, {"csrf": ""}, {"csrf": "0" * 64}, {"csrf": browser.cookies["tradewind_session"]}):
            assert browser.post(path, data={**fields, **proof}).status_code == 403, path
    user = context.accounts.store.user_named("ann")
    assert user.email == ""
    assert context.accounts.store.tokens_of(user.id) == []
    sign_in(browser)


# ---------------------------------------------------------------------- where a browser is sent

ELSEWHERE = [
    "https://evil.example/",
    "//evil.example/",
    "/\\evil.example",
    "\\\\evil.example",
    "/\t/evil.example",
    "/\n/evil.example",
    " //evil.example",
    "javascript:alert(1)",
    "data:text/html,x",
    "evil.example",
    "///evil.example",
    "/\x00/evil.example",
    "/a\r\nSet-Cookie: x=1",
    "/" + "x" * 5000,
    "",
]


@pytest.mark.slow
def test_signing_in_leads_to_this_server_only(browser: TestClient) -> None:
    for path in ELSEWHERE:
        assert safe_redirect_path(path) == "/"
        if "\x00" not in path:  # the whole form is refused then
            assert sign_in(browser, path) == "/"
    assert "x" not in browser.cookies


@pytest.mark.parametrize("path", ["/requests", "/requests/7?tab=log#end", "/a:b", "/запрос", "/@evil"])
def test_signing_in_leads_to_where_one_wanted_to_go(path: str) -> None:
    assert safe_redirect_path(path) == path


# ---------------------------------------------------------------------- what is none of one's business

# That other tenants' things are as if they were not there is in api/test_every_route.py, for every route.

PATHS = [
    "/static/../settings.py",
    "/static/..%2f..%2fsettings.py",
    "/static/%2e%2e/%2e%2e/settings.py",
    "/static/..%5c..%5csettings.py",
    "/static/....//settings.py",
    "/static//etc/passwd",
    "/static/%2fetc%2fpasswd",
    "/static/%252e%252e%252fsettings.py",
    "/static/css/..;/..;/settings.py",
    "/static/%00/etc/passwd",
    "/r/../../etc/passwd",
    "/r/x/..%2f..%2fetc%2fpasswd",
    "/api/v1/requests/1/files/..%2f..%2fetc%2fpasswd",
    "/api/v1/requests/1/files/%2fetc%2fpasswd",
    "/api/v1/applications/..%2f..%2fsettings",
    "/api/v1/users/..%2froot",
]


@pytest.mark.slow
def test_no_path_leads_out_of_its_folder(client: TestClient, root: Headers) -> None:
    for path in PATHS:
        answer = client.get(path, headers=root)
        assert 400 <= answer.status_code < 500, path
        assert "root:" not in answer.text
        assert "class ServiceSettings" not in answer.text


# ---------------------------------------------------------------------- words that are more than words


@pytest.mark.slow
def test_words_of_users_are_words_on_pages(browser: TestClient, context: Context) -> None:
    sign_in(browser)
    user = context.accounts.store.user_named("ann")
    texts = ("{{7*7}}", "${7*7}", "<script>alert(1)</script>", "'\"><img src=x onerror=alert(1)>")
    for text in texts:
        context.accounts.make_token(user.id, text)
    pages = [browser.get("/account/tokens", headers=PAGE).text]
    stranger = TestClient(browser.app, base_url="http://tradewind.test")
    pages += [stranger.post("/sign-in", data={"name": text, "password": "x"}).text for text in texts]
    assert all(words in pages[0] for words in ("{{7*7}}", "${7*7}", "&lt;script&gt;alert(1)", "&lt;img src=x"))
    for page in pages:
        assert "<script>alert" not in page
        assert "<img src=x" not in page
        assert ">49<" not in page


NAMES = ["' OR 1=1 --", "root'--", "ann\x00", "Robert'); DROP TABLE users;--", "%", "_", "*", "ann\r\nX: y", "a" * 300]


@pytest.mark.slow
def test_names_are_no_language(client: TestClient, context: Context, root: Headers) -> None:
    for name in NAMES:
        made = client.post("/api/v1/users", headers=root, content=json.dumps({"name": name}))
        assert made.status_code == 422, name
        form = {"name": name, "password": "' OR '1'='1"}
        status = client.post("/sign-in", data=form, follow_redirects=False).status_code
        assert status == (422 if "\x00" in name else 401), name
    assert [user.name for user in context.accounts.store.users()] == ["root"]


@pytest.mark.slow
def test_answers_have_no_headers_of_the_callers_making(client: TestClient, ann: Headers) -> None:
    for path in ("/requests?a=%0d%0aSet-Cookie:%20x=1", "/%0d%0aSet-Cookie:%20x=1", "/sign-in?next=/%0d%0aX-Evil:%201"):
        answer = client.get(path, headers=PAGE, follow_redirects=False)
        assert "x-evil" not in answer.headers
        assert "x=1" not in answer.headers.get("set-cookie", "")
        assert not re.search(r"[\r\n]", answer.headers.get("location", ""))
    marked = client.get("/api/v1/me", headers={**ann, "X-Request-Id": "a\tb <script>"})
    assert re.fullmatch(r"[0-9a-f]+", marked.headers["x-request-id"])


@pytest.mark.slow
def test_very_long_words_are_refused_shortly(client: TestClient, root: Headers) -> None:
    calls: list[tuple[str, str, dict[str, object] | None]] = [
        ("POST", "/api/v1/tokens", {"name": "x" * 3_000_000}),
        ("POST", "/api/v1/users", {"name": "я" * 1_000_000, "password": "x" * 1_000_000}),
        ("PATCH", "/api/v1/me", {"email": "a@" * 1_000_000}),
        ("PATCH", "/api/v1/me", {"settings": {"x" * 1_000_000: 1}}),
        ("PUT", "/api/v1/me/password", {"old": "x" * 3_000_000, "new": "y" * 3_000_000}),
        ("PUT", "/api/v1/tenants/" + "x" * 5000, {}),
        ("GET", "/api/v1/users?after=" + "x" * 5000, None),
    ]
    for method, path, body in calls:
        answer = client.request(method, path, headers=root, json=body)
        assert answer.status_code == 422, path[:40]
        assert len(answer.content) < 5000


def test_deep_and_broken_documents_are_refused(client: TestClient, ann: Headers) -> None:
    bodies = [
        b"[" * 100_000,
        b'{"settings": ' + b'{"a":' * 5000 + b"1" + b"}" * 5001,
        b"\xff\xfe",
        b'{"email": "\\ud800@x"}',
        b"",
    ]
    for body in bodies:
        answer = client.patch("/api/v1/me", headers=ann, content=body)
        assert answer.status_code in (400, 422), body[:20]
        assert len(answer.content) < 5000


HUGE = 10**400
"""A number that no float holds."""

ODD_NUMBERS: dict[str, tuple[str, str, Any]] = {
    "cpus": ("POST", "requests", {"application": "hello", "resources": {"nodes": 1, "cpu": HUGE}}),
    "seconds": ("POST", "requests", {"application": "hello", "resources": {"nodes": 1, "time": HUGE}}),
    "nodes": ("POST", "requests", {"template": "executable = run.sh\nqueue\n", "resources": {"nodes": HUGE}}),
    "dollars": ("POST", "requests", {"application": "hello", "search": {"budget": HUGE}}),
    "nothing": ("POST", "requests", {"application": "ranges", "configuration": {"nodes": None}}),
    "list": ("POST", "requests", {"application": "ranges", "configuration": {"nodes": [1]}}),
    "changes": ("POST", "requests/1/resubmit", {"parameters": {"times": HUGE}}),
    "field": ("POST", "applications", {"name": "x", "application": {"fields": {"n": {"max": HUGE}}}}),
    "yaml": ("POST", "applications", HELLO.replace("max: 100", f"max: {HUGE}")),
    "address": ("PUT", "me/places", {"address": "https://[::1"}),
    "bucket": ("PUT", "me/places", {"address": "s3://[x/y"}),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", ODD_NUMBERS)
def test_numbers_and_addresses_that_nothing_holds_are_refused(tmp_path: Path, name: str) -> None:
    method, path, body = ODD_NUMBERS[name]
    words = {"Content-Type": "application/yaml" if isinstance(body, str) else "application/json"}
    content = body if isinstance(body, str) else json.dumps(body)
    with house(tmp_path) as here:
        here.client.post("/api/v1/requests", headers=here.ann, json={"application": "hello"})
        ranges = HELLO.replace("name: hello", "name: ranges").replace("[1, 2]", "1..2")
        here.context.applications.register(principal(here.context, "root"), ranges, shared=True)
        answer = here.client.request(method, f"/api/v1/{path}", headers={**here.ann, **words}, content=content)
    assert answer.status_code == 422, answer.text
    assert len(answer.content) < 5000
    assert "no such" not in answer.text
    assert "Extra" not in answer.text


# ---------------------------------------------------------------------- what is said and written


@pytest.mark.slow
def test_nothing_secret_is_logged_or_told(
    client: TestClient, context: Context, root: Headers, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    secrets = [root["Authorization"].removeprefix("Bearer "), WORDS, "seven ships at sea", "a wrong guess entirely"]
    told: list[str] = []

    def call(method: str, path: str, headers: Headers = root, **more: object) -> dict[str, object]:
        answer = client.request(method, path, headers=headers, **more)  # type: ignore[arg-type]
        told.append(answer.text)
        return answer.json() if answer.text.startswith("{") else {}

    call("POST", "/api/v1/users", json={"name": "ann", "password": WORDS})
    call("POST", "/api/v1/users", json={"name": "ann", "password": WORDS})
    call("POST", "/api/v1/users", json={"name": "eve", "password": WORDS, "sudo": True})
    call("POST", "/api/v1/users", json={"name": "eve", "password": [WORDS]})
    call("PATCH", "/api/v1/users/ann", json={"password": "seven ships at sea"})
    call("PUT", "/api/v1/me/password", json={"old": "a wrong guess entirely", "new": WORDS})
    call("POST", "/sign-in", {}, data={"name": "ann", "password": "a wrong guess entirely"})
    call("POST", "/sign-in", {}, data={"name": "a wrong guess entirely", "password": "ann"})
    client.post("/sign-in", data={"name": "ann", "password": "seven ships at sea"})
    secrets.append(client.cookies["tradewind_session"])
    client.cookies.clear()
    made = client.post("/api/v1/tokens", headers=root, json={"name": "laptop"}).json()
    secrets.append(made["token"])
    call("GET", "/api/v1/me", {"Authorization": f"Bearer {made['token']}x"})
    call("GET", f"/api/v1/me?token={made['token']}", {})
    told.append(json.dumps([*map(str, context.audit.page(context.accounts.by_token(made["token"])))]))
    user = context.accounts.store.user_named("ann")
    secrets += [str(user.password), *(row.digest for row in context.accounts._sessions.of_user(user.id))]
    assert len(caplog.records) > 15
    for record in caplog.records:
        told += [formatter.format(record) for formatter in (JsonFormatter(), TextFormatter())]
    for secret in secrets:
        assert len(secret) >= 12
        assert [line for line in told if secret in line and "<form" not in line] == []


@pytest.mark.slow
def test_a_fault_of_ours_tells_callers_nothing(context: Context, ann: Headers, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> Callable[[], None]:
        raise RuntimeError("the password of the database is sesame")

    monkeypatch.setattr(context.accounts, "tokens", broken)
    with TestClient(create_app(context), base_url="http://tradewind.test", raise_server_exceptions=False) as client:
        answer = client.get("/api/v1/tokens", headers=ann)
    assert answer.status_code == 500
    assert "sesame" not in answer.text
    assert "RuntimeError" not in answer.text
