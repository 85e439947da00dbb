"""What users set of their own accounts, and what is set elsewhere."""

from __future__ import annotations

import json
from typing import Any

import pytest
from fastapi.testclient import TestClient

from tradewind.service.context import Context
from tradewind.service.notifications.preferences import PREFERENCES_KEY as NOTICES
from tradewind.service.results.result_storage import RESULTS_KEY as RESULTS
from tradewind.store.service.shared_values import SharedValueStore

Headers = dict[str, str]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"a": "\ud800"}, "U+D800"),
        ({"a": {"b\x00": 1}}, "U+0000"),
        ({NOTICES: {"webhook": "http://\ud800/x"}}, "settings.notices is not set here"),
        ({NOTICES: {"webhook": "http://example.org"}}, "use /api/v1/me/notices"),
        ({RESULTS: {"places": {"sftp://h/x": {"hosts": "h ssh-ed25519 AAAA"}}}}, "use /api/v1/me/places"),
        ({"a": "x" * 20_000}, "too large"),
    ],
)
def test_settings_that_cannot_be_kept(client: TestClient, ann: Headers, given: dict[str, Any], why: str) -> None:
    assert client.patch("/api/v1/me", headers=ann, json={"settings": {"kept": 1}}).status_code == 200
    body = json.dumps({"settings": given})  # the client's own way of writing JSON takes no half of a character
    answer = client.patch("/api/v1/me", headers={**ann, "Content-Type": "application/json"}, content=body)
    assert answer.status_code == 422
    assert why in answer.text
    assert client.get("/api/v1/me", headers=ann).json()["settings"] == {"kept": 1}


def test_settings_can_be_sent_back_as_they_were_read(client: TestClient, ann: Headers) -> None:
    assert client.patch("/api/v1/me/notices", headers=ann, json={"email": ["failed"]}).status_code == 200
    read = client.get("/api/v1/me", headers=ann).json()["settings"]
    answer = client.patch("/api/v1/me", headers=ann, json={"settings": {**read, "theme": "dark"}})
    assert answer.status_code == 200
    assert answer.json()["settings"] == {**read, "theme": "dark"}
    assert client.get("/api/v1/me/notices", headers=ann).json()["email"] == ["failed"]


def test_an_account_with_half_a_character_in_its_settings_works(
    client: TestClient, context: Context, ann: Headers
) -> None:
    number = context.accounts.store.user_named("ann").id
    SharedValueStore(context.database).change_user(number, "a", {"b\ud800": "\U0001f600\udfff"})
    assert client.get("/api/v1/me", headers=ann).json()["settings"] == {"a": {"b?": "\U0001f600?"}}
    assert client.patch("/api/v1/me", headers=ann, json={"settings": {"a": 1}}).json()["settings"] == {"a": 1}
