"""Notices and places of results over REST: what is shown, what is refused, what is never shown."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.service.live_server import move
from tests.service.module_server import House, house

from tradewind.service.accounts.identity import Principal
from tradewind.service.settings import ServiceSettings

PLACE = "webdav://127.0.0.1:9999/dav"


@pytest.fixture(scope="module")
def there(tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    settings = ServiceSettings(
        private_addresses=True, smtp_host="127.0.0.1", mail_from="tw@example.org", results_places={"/srv/{user}": {}}
    )
    with house(tmp_path_factory.mktemp("notices"), settings) as made:
        yield made


@pytest.mark.slow
def test_how_one_is_told(there: House) -> None:
    first = there.client.get("/api/v1/me/notices", headers=there.ann).json()
    assert first == {
        "address": "",
        "mail": True,
        "email": ["finished", "failed"],
        "webhook": "",
        "calls": ["finished", "failed"],
    }
    change = {"email": ["submitted"], "webhook": "http://127.0.0.1:9999/x"}
    changed = there.client.patch("/api/v1/me/notices", json=change, headers=there.ann).json()
    assert (changed["email"], changed["webhook"], changed["calls"]) == (
        ["submitted"],
        "http://127.0.0.1:9999/x",
        ["finished", "failed"],
    )
    assert there.client.get("/api/v1/me/notices", headers=there.bob).json() == first


@pytest.mark.slow
@pytest.mark.parametrize(
    "change",
    [
        {"email": ["sometimes"]},
        {"webhook": "ftp://example.org"},
        {"webhook": "https://user:secret@example.org/"},
        {"webhook": 7},
        {"webhook": "http://nobody.invalid/"},
        {"unknown": 1},
    ],
)
def test_what_cannot_be(there: House, change: dict[str, object]) -> None:
    answer = there.client.patch("/api/v1/me/notices", json=change, headers=there.bob)
    assert answer.status_code == 422
    assert "secret" not in answer.text
    assert there.client.get("/api/v1/me/notices", headers=there.bob).json()["webhook"] == ""


def test_keys_are_shown_once(there: House) -> None:
    first = there.client.post("/api/v1/me/notices/key", headers=there.ann).json()["key"]
    second = there.client.post("/api/v1/me/notices/key", headers=there.ann).json()["key"]
    assert first.startswith("twh_") and len(first) > 40 and first != second
    assert second not in there.client.get("/api/v1/me/notices", headers=there.ann).text
    assert second not in there.client.get("/api/v1/me", headers=there.ann).text


def test_tests_are_few(there: House) -> None:
    place = "/api/v1/me/notices/test"
    assert there.client.post(place, params={"kind": "email"}, headers=there.ann).status_code == 422  # no address
    hook = {"webhook": "http://127.0.0.1:9999/x"}
    assert there.client.patch("/api/v1/me/notices", json=hook, headers=there.ann).status_code == 200
    codes = [there.client.post(place, params={"kind": "webhook"}, headers=there.ann).status_code for _ in range(7)]
    assert codes == [202] * 5 + [429] * 2
    recent = there.client.get("/api/v1/me/notices/recent", headers=there.ann).json()
    assert [(one["event"], one["state"], one["request"]) for one in recent] == [("test", "waiting", None)] * 5
    assert there.client.get("/api/v1/me/notices/recent", headers=there.bob).json() == []


@pytest.mark.slow
def test_notices_and_the_upload_of_a_request(there: House) -> None:
    ann = Principal(1, "ann", "user", "physics")
    number = there.context.requests.submit(ann, {"application": there.hello}).id
    move(there.context.requests, number, "failed")
    for path, mine in (("notices", []), ("upload", {"state": "none", "address": "", "problem": ""})):
        place = f"/api/v1/requests/{number}/{path}"
        assert there.client.get(place, headers=there.ann).json() == mine
        assert there.client.get(place, headers=there.bob).status_code == 404
        assert there.client.get(place).status_code == 401


def test_places(there: House) -> None:
    listed = there.client.get("/api/v1/me/places", headers=there.ann).json()
    assert [(one["address"], one["own"]) for one in listed] == [("/srv/ann", False)]
    wanted = {"address": PLACE, "user": "ann", "password": "correct horse", "default": True}
    made = there.client.put("/api/v1/me/places", json=wanted, headers=there.ann)
    assert (made.status_code, made.json()["secret"], made.json()["default"]) == (200, True, True)
    shown = there.client.get("/api/v1/me/places", headers=there.ann).text
    for text in (made.text, shown, there.client.get("/api/v1/me", headers=there.ann).text):
        assert "correct horse" not in text
    assert [one["own"] for one in there.client.get("/api/v1/me/places", headers=there.bob).json()] == [False]
    key = there.client.get("/api/v1/me/places/key", headers=there.ann).json()["key"]
    assert key.startswith("ssh-ed25519 ")
    check = there.client.post("/api/v1/me/places/check", params={"address": PLACE}, headers=there.ann)
    assert check.status_code == 502 and "cannot be reached" in check.json()["title"]
    gone = there.client.delete("/api/v1/me/places", params={"address": PLACE}, headers=there.ann)
    assert gone.status_code == 204
    again = there.client.delete("/api/v1/me/places", params={"address": PLACE}, headers=there.ann)
    assert again.status_code == 404
