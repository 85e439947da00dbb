"""What administrators do with users and tenants, and what others may not."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any

import pytest
from fastapi.testclient import TestClient

from tradewind.errors import SignInError
from tradewind.service.context import Context
from tradewind.store.service.requests import NewRequestEvent, RequestRow

pytestmark = pytest.mark.slow

Headers = dict[str, str]
WORDS = "five boats in a row"


def expect(answer: Any, status: int) -> Any:
    assert answer.status_code == status, answer.text
    return answer.json() if answer.content else None


def test_a_user_is_added_seen_changed_and_removed(client: TestClient, context: Context, root: Headers) -> None:
    new = {"name": "Ann", "tenant": "Physics", "email": "ann@example.org", "password": WORDS}
    made = expect(client.post("/api/v1/users", headers=root, json=new), 201)
    shown = {"name": "ann", "role": "user", "tenant": "physics", "email": "ann@example.org", "state": "active"}
    assert made == {**shown, "password": True, "created": made["created"]}
    assert expect(client.get("/api/v1/users/ANN", headers=root), 200) == made
    assert [u["name"] for u in expect(client.get("/api/v1/users", headers=root), 200)] == ["ann", "root"]
    assert [u["name"] for u in client.get("/api/v1/users?limit=1&after=ann", headers=root).json()] == ["root"]
    session = context.accounts.sign_in("ann", WORDS, "192.0.2.1")
    changed = expect(client.patch("/api/v1/users/ann", headers=root, json={"role": "admin", "tenant": "lab"}), 200)
    assert (changed["role"], changed["tenant"], changed["email"]) == ("admin", "lab", "ann@example.org")
    assert context.accounts.by_session(session.secret)[0].is_admin
    expect(client.patch("/api/v1/users/ann", headers=root, json={"password": "seven ships at sea"}), 200)
    with pytest.raises(SignInError):
        context.accounts.by_session(session.secret)
    assert context.accounts.sign_in("ann", "seven ships at sea", "192.0.2.1").secret
    expect(client.delete("/api/v1/users/ann", headers=root), 204)
    expect(client.get("/api/v1/users/ann", headers=root), 404)
    expect(client.delete("/api/v1/users/ann", headers=root), 404)
    expect(client.post("/api/v1/users", headers=root, json=new), 201)


def test_a_change_is_whole_or_none(client: TestClient, root: Headers, ann: Headers) -> None:
    before = client.get("/api/v1/users/ann", headers=root).json()
    for bad in ({"password": "short"}, {"tenant": "a b"}, {"email": "nowhere"}, {"role": "king"}, {"state": "removed"}):
        answer = client.patch("/api/v1/users/ann", headers=root, json={"role": "admin", "tenant": "lab", **bad})
        expect(answer, 422)
    assert client.get("/api/v1/users/ann", headers=root).json() == before


def test_who_has_made_requests_leaves_a_name(client: TestClient, context: Context, root: Headers, ann: Headers) -> None:
    user = context.accounts.store.user_named("ann")
    row = RequestRow(0, "physics", user.id, "run", {}, "a run")
    context.requests.store.add(row, NewRequestEvent("pending", "asked for by ann"))
    expect(client.delete("/api/v1/users/ann", headers=root), 204)
    expect(client.get("/api/v1/me", headers=ann), 401)
    expect(client.get("/api/v1/users/ann", headers=root), 404)
    assert [u["name"] for u in client.get("/api/v1/users", headers=root).json()] == ["root"]
    gone = client.get("/api/v1/users?removed=true", headers=root).json()[0]
    assert (gone["name"], gone["state"], gone["role"], gone["email"]) == ("ann", "removed", "user", "")
    expect(client.post("/api/v1/users", headers=root, json={"name": "ann"}), 409)
    with pytest.raises(SignInError):
        context.accounts.sign_in("ann", WORDS, "192.0.2.1")


def test_the_last_administrator_stays(client: TestClient, context: Context, root: Headers) -> None:
    for change in ({"role": "user"}, {"state": "locked"}):
        assert expect(client.patch("/api/v1/users/root", headers=root, json=change), 409)["code"] == "service.conflict"
    expect(client.delete("/api/v1/users/root", headers=root), 409)
    context.accounts.add_user("second", role="admin")
    expect(client.patch("/api/v1/users/root", headers=root, json={"role": "user"}), 200)
    expect(client.get("/api/v1/users", headers=root), 403)


def test_only_administrators_may(client: TestClient, root: Headers, ann: Headers) -> None:
    calls: list[tuple[str, str, dict[str, Any] | None]] = [
        ("GET", "/users", None),
        ("POST", "/users", {"name": "eve", "role": "admin"}),
        ("GET", "/users/root", None),
        ("PATCH", "/users/ann", {"role": "admin"}),
        ("DELETE", "/users/root", None),
        ("GET", "/users/root/tokens", None),
        ("DELETE", "/users/root/tokens/1", None),
        ("PUT", "/tenants/physics", {"weight": 1000}),
        ("GET", "/audit", None),
    ]
    for method, path, body in calls:
        answer = client.request(method, f"/api/v1{path}", headers=ann, json=body)
        assert expect(answer, 403)["code"] == "service.forbidden"
        assert "root" not in answer.text
        assert expect(client.request(method, f"/api/v1{path}", json=body), 401)["code"] == "service.sign-in"
    assert [user["name"] for user in client.get("/api/v1/users", headers=root).json()] == ["ann", "root"]


def test_a_user_cannot_become_another(client: TestClient, ann: Headers) -> None:
    """What a body brings besides what may be changed is refused, not taken over (mass assignment)."""
    for more in ({"role": "admin"}, {"tenant": "biology"}, {"name": "root"}, {"id": 1}, {"state": "active"}):
        expect(client.patch("/api/v1/me", headers=ann, json={"email": "ann@example.org", **more}), 422)
    me = client.get("/api/v1/me", headers=ann).json()
    assert (me["name"], me["role"], me["tenant"], me["email"]) == ("ann", "user", "physics", "")


def test_a_user_sets_settings(client: TestClient, ann: Headers) -> None:
    expect(client.patch("/api/v1/me", headers=ann, json={"settings": {"notify": True, "theme": "dark"}}), 200)
    me = expect(client.patch("/api/v1/me", headers=ann, json={"settings": {"theme": "light"}}), 200)
    assert me["settings"] == {"notify": True, "theme": "light"}
    expect(client.patch("/api/v1/me", headers=ann, json={"settings": {"x": "y" * 30_000}}), 422)
    expect(client.patch("/api/v1/me", headers=ann, content=b'{"settings": {"x": NaN}}'), 422)
    assert client.get("/api/v1/me", headers=ann).json() == me


def test_tokens_of_others_for_administrators(client: TestClient, root: Headers, ann: Headers) -> None:
    (token,) = expect(client.get("/api/v1/users/ann/tokens", headers=root), 200)
    assert token["name"] == "test"
    expect(client.delete(f"/api/v1/users/root/tokens/{token['id']}", headers=root), 404)
    expect(client.delete(f"/api/v1/users/ann/tokens/{token['id']}", headers=root), 204)
    expect(client.get("/api/v1/me", headers=ann), 401)


def test_tenants_and_their_quotas(client: TestClient, root: Headers, ann: Headers) -> None:
    assert expect(client.get("/api/v1/tenants", headers=ann), 200) == [
        {"name": "physics", "weight": 1.0, "priority": 0, "quota": {}, "preempt": None}
    ]
    put = client.put("/api/v1/tenants/physics", headers=root, json={"weight": 2, "quota": {"cpu": 8, "dollars": 32}})
    assert expect(put, 200)["quota"] == {"cpu": 8.0, "dollars": 32.0}
    kept = expect(client.put("/api/v1/tenants/physics", headers=root, json={"priority": 3}), 200)
    quota = {"cpu": 8.0, "dollars": 32.0}
    assert kept == {"name": "physics", "weight": 2.0, "priority": 3, "quota": quota, "preempt": None}
    assert [row["name"] for row in client.get("/api/v1/tenants", headers=root).json()] == ["physics", "root"]
    for bad in ({"quota": {"gold": 1}}, {"quota": {"cpu": -1}}, {"weight": 0}, {"priority": 10**12}):
        expect(client.put("/api/v1/tenants/physics", headers=root, json=bad), 422)
    assert client.get("/api/v1/tenants", headers=ann).json() == [kept]


def test_the_preemption_policy_of_a_tenant(client: TestClient, root: Headers, ann: Headers) -> None:
    where = "/api/v1/tenants/physics"
    expect(client.put(where, headers=ann, json={"preempt": {"within": "2m"}}), 403)
    put = expect(client.put(where, headers=root, json={"preempt": {"within": "2m", "pays": "owner"}}), 200)
    assert put["preempt"] == {"within": 120.0, "pays": "owner", "exempt": 60.0}
    assert expect(client.put(where, headers=root, json={"weight": 3}), 200)["preempt"] == put["preempt"]
    assert client.get("/api/v1/tenants", headers=ann).json()[0]["preempt"] == put["preempt"]
    for bad in (
        {"within": "soon"},
        {"pays": "owner"},
        {"within": 9, "pays": "me"},
        {"within": 1, "exempt": 2},
        {"x": 1},
    ):
        expect(client.put(where, headers=root, json={"preempt": bad}), 422)
    assert expect(client.put(where, headers=root, json={"preempt": {}}), 200)["preempt"] is None


def test_what_is_done_is_in_the_audit_log(client: TestClient, context: Context, root: Headers, ann: Headers) -> None:
    client.post("/api/v1/users", headers=root, json={"name": "eve", "password": WORDS})
    client.patch("/api/v1/users/eve", headers=root, json={"role": "admin", "password": "seven ships at sea"})
    client.put("/api/v1/tenants/physics", headers=root, json={"quota": {"cpu": 4}})
    client.get("/api/v1/users", headers=ann)
    with pytest.raises(SignInError):
        context.accounts.sign_in("eve", "a wrong guess", "192.0.2.66")
    context.accounts.sign_in("eve", "seven ships at sea", "192.0.2.66")
    log = expect(client.get("/api/v1/audit", headers=root), 200)
    assert [(row["user"], row["action"], row["subject"], row["outcome"]) for row in log] == [
        ("eve", "account.sign-in", "eve", "done"),
        ("", "account.sign-in", "eve", "refused"),
        ("ann", "call.refused", "GET /api/v1/users", "refused"),
        ("root", "tenant.set", "tenant physics", "done"),
        ("root", "user.change", "user eve", "done"),
        ("root", "user.add", "user eve", "done"),
    ]
    assert log[4]["details"] == {"fields": ["password", "role"], "role": "admin"}
    assert {row["address"] for row in log} == {"192.0.2.66", "testclient"}
    assert WORDS not in repr(log)
    assert "seven ships" not in repr(log)
    second = client.get(f"/api/v1/audit?limit=2&before={log[1]['id']}", headers=root).json()
    assert second == log[2:4]
    assert client.get("/api/v1/audit?action=user", headers=root).json() == log[4:]
    assert client.get("/api/v1/audit?outcome=refused&user=ann", headers=root).json() == [log[2]]
    expect(client.get("/api/v1/audit?user=%00%F0%28", headers=root), 422)


def test_who_is_refused_again_and_again_does_not_fill_the_log(
    client: TestClient, root: Headers, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = SimpleNamespace(time=time.time, monotonic=lambda: 1000.0)  # all in one minute
    monkeypatch.setattr("tradewind.service.accounts.audit_log.time", clock)
    for _ in range(100):
        expect(client.get("/api/v1/me", headers={"Authorization": "Bearer tw_guess"}), 401)
    assert 30 <= len(client.get("/api/v1/audit?action=call.refused", headers=root).json()) <= 60


def test_old_lines_are_forgotten(context: Context, monkeypatch: pytest.MonkeyPatch) -> None:
    import time

    who = context.accounts.by_token(context.accounts.make_token(context.accounts.add_user("r", role="admin").id, "t"))
    real = time.time
    with monkeypatch.context() as past:
        past.setattr(time, "time", lambda: real() - 401 * 86400)
        context.audit.record(who, "request.submit", "request 1", cost=1.5)
    context.audit.record(who, "request.submit", "request 2", cost=2.5)
    assert [row.subject for row in context.audit.page(who)] == ["request 2", "request 1"]
    context.audit._store.forget(400)
    assert [(row.subject, row.details) for row in context.audit.page(who)] == [("request 2", {"cost": 2.5})]
