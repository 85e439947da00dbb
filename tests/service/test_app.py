from __future__ import annotations

from fastapi.testclient import TestClient


def test_nobody_is_told_anything(client: TestClient) -> None:
    answer = client.get("/api/v1/me")
    assert answer.status_code == 401
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.json()["code"] == "service.sign-in"


def test_a_token_says_who_asks(client: TestClient, ann: dict[str, str]) -> None:
    found = client.get("/api/v1/me", headers=ann).json()
    assert (found["name"], found["role"], found["tenant"]) == ("ann", "user", "physics")


def test_a_wrong_token_is_refused(client: TestClient, ann: dict[str, str]) -> None:
    assert client.get("/api/v1/me", headers={"Authorization": ann["Authorization"] + "x"}).status_code == 401
