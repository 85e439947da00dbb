"""Places of results: what users may name, what is kept of them, and real servers that get files."""

from __future__ import annotations

import hashlib
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from tests.engines.files import PASSWORD, USER, Process, Server, objects, sftp, webdav
from tests.engines.ssh import Sshd
from tests.service.requests.request_world import World, working, world
from tests.waiting import eventually

from tradewind.deployer.storage import open_storage
from tradewind.errors import ConflictError, CredentialsError, DeployError, InputError, NotFoundError
from tradewind.service.accounts.identity import Principal
from tradewind.service.results.result_storage import RESULTS_KEY
from tradewind.service.results.upload_state import upload_of
from tradewind.service.results.upload_worker import UploadWorker
from tradewind.service.settings import ServiceSettings
from tradewind.store.service.shared_values import SharedValueStore

__all__ = ["objects", "sftp", "webdav"]


@pytest.fixture
def settings() -> ServiceSettings:
    return ServiceSettings(private_addresses=True)


@pytest.fixture
def there(tmp_path: Path, settings: ServiceSettings) -> Iterator[World]:
    with world(tmp_path / "world", settings=settings) as made:
        yield made


@pytest.fixture(scope="module")
def inside(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """A server as it is without settings: users reach nothing inside."""
    with world(tmp_path_factory.mktemp("inside")) as made:
        yield made


def kept(there: World, who: Principal) -> str:
    """All that the database has of a user's places and secrets."""
    user = there.context.accounts.store.user(who.user_id)
    return str(user.settings) + str(SharedValueStore(there.context.database).named(""))


@pytest.mark.parametrize(
    ("address", "why"),
    [
        ("/etc", "no folder of the server|not a folder of the server"),
        ("file:///etc", "do not go to file"),
        ("gs://bucket/x", "do not go to gs"),
        ("webdav://example.org/x", "in the clear"),
        ("webdavs://127.0.0.1/x", "inside"),
        ("webdavs://localhost/x", "inside"),
        ("sftp://[::1]/x", "no address of results"),
        ("webdavs://169.254.169.254/latest", "inside"),
        ("webdavs://ann:secret@cloud.example.org/x", "password"),
        ("webdavs://cloud.example.org/a/../b", "no address"),
        ("webdavs://cloud.example.org/a/%2e%2e/b", "no address"),
        ("webdavs://cloud.example.org/a/%252e%252e/b", "no address"),
        ("webdavs://cloud.example.org/a\r\nX: 1", "no address"),
        ("webdavs://cloud.example.org/a?x=1", "no address"),
        ("webdavs://8.8.8.8:25/x", "port 25"),
        ("ftp://example.org/x", "not understood"),
        ("", "no|not"),
    ],
)
def test_what_users_may_not_name(inside: World, address: str, why: str) -> None:
    with pytest.raises(InputError, match=why) as caught:
        inside.context.results.set_place(inside.ann, address, user="ann", password="secret")
    assert "secret@" not in str(caught.value)
    if address:
        with pytest.raises(InputError):
            inside.context.results.destination(inside.ann.user_id, address)


@pytest.mark.slow
def test_what_the_server_has_is_for_nobody_else(there: World) -> None:
    """No place is entered with the server's own environment, keys or ~/.netrc, whatever a user writes."""
    results = there.context.results
    for user, password in (("", None), ("ann", None), ("ann", ""), ("", "x")):
        with pytest.raises(InputError, match="of your own"):
            results.set_place(there.ann, "webdav://127.0.0.1:9999/x", user=user, password=password)
    # Nor where such a setting came there in another way: references to the server's secrets count as no password.
    for reference in ("env:HOME", "file:/etc/passwd", "keyring:a/b"):
        forged = {"default": "", "places": {"webdav://127.0.0.1:9999/x": {"user": "ann", "password": reference}}}
        with pytest.raises(InputError, match="is not set here"):
            there.context.accounts.change_me(there.ann, settings={RESULTS_KEY: forged})
        SharedValueStore(there.context.database).change_user(there.ann.user_id, RESULTS_KEY, forged)
        with pytest.raises(InputError, match="set the place again"):
            results.destination(there.ann.user_id, "webdav://127.0.0.1:9999/x")
    odds: list[Any] = [7, {"x": 3}, [], "x", {"y": {"user": 5}}]
    for odd in odds:
        SharedValueStore(there.context.database).change_user(there.ann.user_id, RESULTS_KEY, {"places": odd})
        assert all(row.own for row in results.places(there.ann))


@pytest.mark.slow
def test_a_password_is_sealed_and_never_shown(there: World) -> None:
    results = there.context.results
    address = "webdav://127.0.0.1:9999/dav"
    row = results.set_place(there.ann, address, user="ann", password="correct horse", default=True)
    assert (row.secret, row.default, row.user) == (True, True, "ann")
    assert "correct horse" not in repr(results.places(there.ann))
    assert "correct horse" not in kept(there, there.ann)
    found = results.destination(there.ann.user_id)
    assert found.results == address
    assert there.context.sealer.read(found.places[address]["password"]) == "correct horse"
    # Another one takes its place, and the first is forgotten.
    first = found.places[address]["password"]
    results.set_place(there.ann, address, user="ann", password="battery staple")
    with pytest.raises(DeployError, match="not there any more"):
        there.context.sealer.read(first)
    results.set_place(there.ann, address, user="eve")  # without a password, the one that is there is kept
    again = results.destination(there.ann.user_id, address + "/below")
    assert there.context.sealer.read(again.places[address]["password"]) == "battery staple"
    results.remove_place(there.ann, address)
    assert results.places(there.ann) == []
    assert "sealed:" not in kept(there, there.ann)
    with pytest.raises(NotFoundError):
        results.remove_place(there.ann, address)


@pytest.mark.slow
def test_places_of_users_are_judged_when_they_are_connected_to(
    inside: World, there: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A name that pointed outside when the place was set, and points inside when something is written."""
    answers = ["8.8.8.8"]

    def answer(host: str, port: int, *_args: Any, **_more: Any) -> Any:
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (answers[0], port))]

    monkeypatch.setattr(socket, "getaddrinfo", answer)
    results, ann = inside.context.results, inside.ann
    for address, endpoint in (("webdavs://rebind.example.org/x", ""), ("s3://bucket/x", "https://rebind.example.org")):
        answers[0] = "8.8.8.8"
        results.set_place(ann, address, user="ann", password="secret", endpoint=endpoint)
        found = results.destination(ann.user_id, address)
        assert found.places[address]["reach"] == "public"
        answers[0] = "127.0.0.1"
        with closing(open_storage(address, found.places)) as place, pytest.raises(DeployError, match="inside"):
            place.read("x")
        with pytest.raises(InputError, match="inside"):
            results.destination(ann.user_id, address)
    with pytest.raises(InputError, match="in the clear"):
        results.set_place(ann, "s3://bucket/y", user="ann", password="secret", endpoint="http://rebind.example.org")
    # Where the administrator lets users reach what the server reaches, nothing is judged.
    there.context.results.set_place(there.ann, "webdav://rebind.example.org/x", user="ann", password="secret")
    found = there.context.results.destination(there.ann.user_id, "webdav://rebind.example.org/x")
    assert "reach" not in found.places["webdav://rebind.example.org/x"]


def test_places_are_of_one_user(there: World) -> None:
    results = there.context.results
    results.set_place(there.ann, "webdav://127.0.0.1:9999/ann", user="ann", password="x")
    assert results.places(there.bob) == []
    for address in ("webdav://127.0.0.1:9999/ann", "webdav://127.0.0.1:9999/annex", "webdav://127.0.0.1:9999"):
        with pytest.raises(InputError, match="do not go to"):
            results.destination(there.bob.user_id, address)
    with pytest.raises(InputError, match="do not go to"):
        results.destination(there.ann.user_id, "webdav://127.0.0.1:9999/annex")


@pytest.mark.slow
def test_places_of_the_administrator(tmp_path: Path) -> None:
    offered = {f"{tmp_path}/home/{{tenant}}/{{user}}": {}, "s3://company/{user}": {"user": "k", "password": "env:KEY"}}
    settings = ServiceSettings(results_places=offered, own_places=False)
    with world(tmp_path / "world", settings=settings) as there:
        results = there.context.results
        rows = results.places(there.ann)
        assert [row.address for row in rows] == [f"{tmp_path}/home/physics/ann", "s3://company/ann"]
        assert not any(row.own for row in rows)
        found = results.destination(there.ann.user_id, "s3://company/ann/deep")
        assert found.places == {"s3://company/ann": {"user": "k", "password": "env:KEY"}}
        for address in ("s3://company/bob", f"{tmp_path}/home/physics/ann/../bob", f"{tmp_path}/home", "/etc"):
            with pytest.raises(InputError):
                results.destination(there.ann.user_id, address)
        with pytest.raises(ConflictError, match="administrator"):
            results.set_place(there.ann, "s3://mine/x", user="a", password="b")
        results.set_default(there.ann, rows[0].address)
        assert results.check(there.ann) == rows[0].address
        assert list((tmp_path / "home/physics/ann").iterdir()) == []
        assert results.destination(there.root.user_id, "/anywhere", is_admin=True).results == "/anywhere"
        with pytest.raises(InputError, match="written in full"):
            results.destination(there.root.user_id, "somewhere", is_admin=True)


@pytest.mark.slow
def test_checking_a_place(there: World, webdav: tuple[Server, Process]) -> None:
    server, _ = webdav
    results = there.context.results
    address = f"{server.address}/check"
    results.set_place(there.ann, address, user=USER, password="wrong")
    with pytest.raises(CredentialsError, match="does not let us in"):
        results.check(there.ann, address)
    results.set_place(there.ann, address, user=USER, password=PASSWORD)
    assert results.check(there.ann, address) == address
    assert server.folder is not None
    assert list((server.folder / "check").iterdir()) == []


def _arrived(folder: Path, row_folder: str = "") -> list[Path]:
    return sorted(folder.glob(f"**/{row_folder}SHA256SUMS"))


def _whole(sums: Path) -> bool:
    """Whether each file is what the list of sums says."""
    lines = [line.split("  ", 1) for line in sums.read_text().splitlines()]
    return bool(lines) and all(hashlib.sha256((sums.parent / n).read_bytes()).hexdigest() == d for d, n in lines)


@pytest.mark.slow
def test_results_arrive_by_webdav(there: World, webdav: tuple[Server, Process]) -> None:
    server, _ = webdav
    address = f"{server.address}/ann's results"
    there.context.results.set_place(there.ann, address, user=USER, password=PASSWORD, default=True)
    with working(there.context):
        row = there.ended(there.submit())
    assert row.state == "done", row.problem
    assert server.folder is not None
    (sums,) = _arrived(server.folder / "ann's results")
    assert _whole(sums)
    assert (sums.parent / "stdout").read_text() == "done\n"
    state = upload_of(there.context, there.ann, row.id)
    assert (state.state, state.problem) == ("done", "")
    assert state.address.startswith(server.address)
    with pytest.raises(NotFoundError):
        upload_of(there.context, there.bob, row.id)


@pytest.mark.slow
def test_results_arrive_by_sftp_with_the_users_own_key(there: World, sftp: tuple[Server, Sshd]) -> None:
    server, daemon = sftp
    results = there.context.results
    address = f"{server.address}/of-ann"
    row = results.set_place(there.ann, address, default=True)
    assert row.fingerprints and all(one.startswith("SHA256:") for one in row.fingerprints)
    assert results.public_key(there.ann) == results.public_key(there.ann) != results.public_key(there.bob)
    with pytest.raises(CredentialsError):
        results.check(there.ann)
    with daemon.keys.client.with_suffix(".pub").open("a") as file:
        file.write(f"\n{results.public_key(there.ann)}\n")
    assert results.check(there.ann) == address
    identity = Path(results.destination(there.ann.user_id).places[address]["identity"])
    assert identity.stat().st_mode & 0o077 == 0
    assert "PRIVATE KEY" not in kept(there, there.ann)
    with working(there.context):
        ended = there.ended(there.submit())
    assert ended.state == "done", ended.problem
    assert server.folder is not None
    (sums,) = _arrived(server.folder / "of-ann")
    assert _whole(sums)


@pytest.mark.slow
def test_results_arrive_in_a_bucket(there: World, objects: tuple[Server, Process]) -> None:
    server, _ = objects
    results = there.context.results
    results.set_place(
        there.ann, server.address, user="key", password="secret", endpoint=server.access["endpoint"], default=True
    )
    assert results.check(there.ann) == server.address
    with working(there.context):
        row = there.ended(there.submit())
    assert row.state == "done", row.problem
    assert upload_of(there.context, there.ann, row.id).state == "done"


@pytest.mark.slow
def test_what_did_not_arrive_is_gone_on_with(there: World, webdav: tuple[Server, Process]) -> None:
    """The server of the results is away when the request ends, its password is changed meanwhile: nothing is lost."""
    server, process = webdav
    context = there.context
    address = f"{server.address}/later"
    context.results.set_place(there.ann, address, user=USER, password="old and wrong", default=True)
    uploads = UploadWorker(context.database, context.results, there.home, 0.05)
    try:
        process.stop()
        with working(context):
            row = there.ended(there.submit(), 90.0)
        assert row.state == "done"
        uploads.turn()
        away = upload_of(context, there.ann, row.id)
        assert (away.state, "cannot be reached" in away.problem) == ("waiting", True)
    finally:
        process.start()
    refused = _later(uploads, lambda: "does not let us in" in upload_of(context, there.ann, row.id).problem)
    assert refused
    context.results.set_place(there.ann, address, user=USER, password=PASSWORD)
    assert _later(uploads, lambda: upload_of(context, there.ann, row.id).state == "done")
    assert server.folder is not None
    (sums,) = _arrived(server.folder / "later")
    assert _whole(sums)
    told = [event.text for event in context.requests.events(there.ann, row.id) if event.details.get("results")]
    assert len(told) == 3
    assert told[-1] == "results are uploaded"
    assert context.requests.get(there.ann, row.id).state == "done"


def _later(uploads: UploadWorker, what: Callable[[], bool]) -> bool:
    """Let time pass for what waits, and look again."""

    def turned() -> bool:
        for waiting in uploads._waiting.values():
            waiting.due = 0.0
        uploads.turn()
        return what()

    eventually(turned, 30.0)
    return True


def test_a_place_that_is_none_refuses_the_request(there: World) -> None:
    with pytest.raises(InputError, match="do not go to"):
        there.submit(results="webdav://127.0.0.1:9999/not-mine")
    started = time.monotonic()
    with pytest.raises(InputError):
        there.submit(results="/etc")
    assert time.monotonic() - started < 5
