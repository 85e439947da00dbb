"""Tokens of programs."""

from __future__ import annotations

import time

import pytest
from fastapi.testclient import TestClient

from tradewind.errors import ConflictError, SignInError, StoreFullError
from tradewind.service.accounts import account_service
from tradewind.service.context import Context

Headers = dict[str, str]


@pytest.mark.slow
def test_a_token_is_made_used_listed_and_taken_away(client: TestClient, ann: Headers) -> None:
    before = time.time()
    made = client.post("/api/v1/tokens", headers=ann, json={"name": "laptop", "days": 30}).json()
    assert made["token"].startswith("tw_")
    assert made["used"] is None
    assert made["expires"] == pytest.approx(before + 30 * 86400, abs=60)
    mine = {"Authorization": f"Bearer {made['token']}"}
    assert client.get("/api/v1/me", headers=mine).json()["name"] == "ann"
    listed = client.get("/api/v1/tokens", headers=mine).json()
    assert [row["name"] for row in listed] == ["laptop", "test"]
    assert listed[0]["used"] == pytest.approx(before, abs=60)
    assert "token" not in listed[0]
    assert client.delete(f"/api/v1/tokens/{made['id']}", headers=ann).status_code == 204
    assert client.get("/api/v1/me", headers=mine).status_code == 401
    assert client.delete(f"/api/v1/tokens/{made['id']}", headers=ann).status_code == 404


def test_a_token_runs_out(context: Context, monkeypatch: pytest.MonkeyPatch) -> None:
    user = context.accounts.add_user("ann")
    secret = context.accounts.make_token(user.id, "a day", days=1)
    assert context.accounts.by_token(secret).name == "ann"
    real = time.time
    monkeypatch.setattr(time, "time", lambda: real() + 86401)
    with pytest.raises(SignInError, match="has run out"):
        context.accounts.by_token(secret)


def test_its_last_use_is_not_written_with_every_call(context: Context, monkeypatch: pytest.MonkeyPatch) -> None:
    user = context.accounts.add_user("ann")
    secret = context.accounts.make_token(user.id, "poller")
    writes: list[float] = []
    monkeypatch.setattr(context.accounts.store, "touch_token", lambda number, used: writes.append(used))
    context.accounts.by_token(secret)
    assert len(writes) == 1
    context.accounts.store.__class__.touch_token(context.accounts.store, 1, writes[0])
    for _ in range(5):
        context.accounts.by_token(secret)
    assert len(writes) == 1


def test_only_its_digest_is_stored(context: Context) -> None:
    secret = context.accounts.make_token(context.accounts.add_user("ann").id, "laptop")
    with context.database.read() as connection:
        dump = "\n".join(connection.connection.driver_connection.iterdump())  # type: ignore[union-attr]
    assert "laptop" in dump
    assert secret not in dump
    assert secret.removeprefix("tw_") not in dump


@pytest.mark.slow
def test_other_peoples_tokens_are_not_there(client: TestClient, context: Context, ann: Headers, bob: Headers) -> None:
    (mine,) = client.get("/api/v1/tokens", headers=ann).json()
    theirs = client.delete(f"/api/v1/tokens/{mine['id']}", headers=bob)
    missing = client.delete("/api/v1/tokens/999999", headers=bob)
    assert theirs.status_code == missing.status_code == 404
    assert theirs.json() == missing.json()
    assert client.get("/api/v1/tokens", headers=ann).json()[0]["id"] == mine["id"]


@pytest.mark.slow
@pytest.mark.parametrize("body", [{}, {"name": ""}, {"name": " \t"}, {"name": "\ud800\x00"}, {"name": "x" * 101}])
def test_a_token_has_a_name(client: TestClient, ann: Headers, body: dict[str, str]) -> None:
    import json

    answer = client.post("/api/v1/tokens", headers=ann, content=json.dumps(body))
    assert answer.status_code == 422
    assert len(client.get("/api/v1/tokens", headers=ann).json()) == 1


@pytest.mark.slow
@pytest.mark.parametrize("days", ["0", "-1", "1e300", "NaN", "Infinity", '"soon"'])
def test_days_are_days(client: TestClient, ann: Headers, days: str) -> None:
    answer = client.post("/api/v1/tokens", headers=ann, content=f'{{"name": "laptop", "days": {days}}}')
    assert answer.status_code == 422


def test_there_are_not_endlessly_many(context: Context, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(account_service, "MOST_TOKENS", 3)
    user = context.accounts.add_user("ann")
    for _ in range(3):
        context.accounts.make_token(user.id, "laptop")
    with pytest.raises(ConflictError, match="3 tokens already"):
        context.accounts.make_token(user.id, "laptop")


@pytest.mark.slow
def test_a_locked_user_s_token_opens_nothing_until_it_is_unlocked(
    client: TestClient, root: Headers, ann: Headers
) -> None:
    path = "/api/v1/users/ann"
    assert client.patch(path, headers=root, json={"state": "locked"}).json()["state"] == "locked"
    refused = client.get("/api/v1/me", headers=ann)
    assert refused.status_code == 401
    assert refused.json() == client.get("/api/v1/me", headers={"Authorization": "Bearer tw_nobody"}).json()
    assert client.patch(path, headers=root, json={"state": "active"}).status_code == 200
    assert client.get("/api/v1/me", headers=ann).status_code == 200


@pytest.mark.slow
def test_a_full_disk_refuses_no_readers(
    client: TestClient,
    context: Context,
    ann: Headers,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    user = context.accounts.store.user_named("ann")
    assert user.name == client.get("/api/v1/me", headers=ann).json()["name"]
    context.accounts.store.touch_token(1, 0.0)

    def full(*_: object, **__: object) -> None:
        raise StoreFullError("the disk under the store is full")

    monkeypatch.setattr(context.database, "write_batched", full)
    assert client.get("/api/v1/me", headers=ann).status_code == 200
    assert client.get("/api/v1/me", headers={"Authorization": "Bearer tw_wrong"}).status_code == 401
    assert "last use of token 1 was not kept" in caplog.text
    assert "audit log could not be written" in caplog.text
