"""Links to results: who has one may look, at what it leads to and at nothing else."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import PurePosixPath
from urllib.parse import quote

import pytest
from fastapi.testclient import TestClient
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import select, update
from tests.service.requests.request_world import World, working, world

from tradewind.errors import InputError, NotFoundError
from tradewind.service.app import create_app
from tradewind.store.service.requests import RequestRow
from tradewind.store.sql.schema import links

KEEP = """
name: keep
job:
  command:
    - sh
    - -c
    - >-
      mkdir -p "$TRADEWIND_OUTPUTS/sub dir"; cd "$TRADEWIND_OUTPUTS"; echo 42 > "sub dir/answer #1.txt";
      printf '<script>alert(1)</script>' > page.html; ln -s /etc/passwd link; ln -s / root; mkfifo pipe; echo printed
space:
  instance: {types: [local.c1]}
deploy: {billing: {granularity: 1ms}}
application: {}
"""


@dataclass(frozen=True)
class Shelf:
    world: World
    client: TestClient
    row: RequestRow


@pytest.fixture(scope="module")
def shelf(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shelf]:
    with world(tmp_path_factory.mktemp("links")) as there, working(there.context):
        there.context.applications.register(there.root, KEEP, shared=True)
        row = there.context.requests.submit(there.ann, {"application": "keep", "name": "my <b>run</b>"})
        row = there.ended(row)
        assert row.state == "done", row.problem
        with TestClient(create_app(there.context), base_url="http://tradewind.test") as client:
            yield Shelf(there, client, row)


def link(shelf: Shelf, **more: object) -> str:
    return shelf.world.context.links.make(shelf.world.ann, shelf.row.id, **more)[1]  # type: ignore[arg-type]


@pytest.mark.slow
def test_who_has_a_link_may_look(shelf: Shelf) -> None:
    path = link(shelf)
    page = shelf.client.get(path)
    assert page.status_code == 200
    assert page.headers["x-robots-tag"] == "noindex, nofollow"
    assert page.headers["referrer-policy"] == "no-referrer"
    assert "no-store" in page.headers["cache-control"]
    assert "set-cookie" not in page.headers
    assert "answer #1.txt" in page.text and "stdout" in page.text
    assert "<b>run</b>" not in page.text
    assert "link" not in [line for line in page.text.split('"') if line.endswith("/link")]
    answer = shelf.client.get(f"{path}/{quote('outputs/sub dir/answer #1.txt')}")
    assert answer.content == b"42\n"
    assert answer.headers["content-disposition"].startswith("attachment")


@pytest.mark.slow
def test_who_has_a_link_sees_previews(shelf: Shelf) -> None:
    path = link(shelf)
    first = shelf.client.get(path).text
    assert 'id="preview"' in first
    assert 'aria-label="outputs/sub dir/answer #1.txt">42\n</pre>' in first, "the output to begin with"
    page = shelf.client.get(path, params={"show": "outputs/page.html"})
    assert "&lt;script&gt;alert(1)&lt;/script&gt;</pre>" in page.text, "markup is words"
    assert "<script>alert" not in page.text
    assert "<script" not in page.text, "nothing to draw, so no script"
    assert "default-src 'none'; script-src 'self'" in page.headers["content-security-policy"]
    for wrong in ("outputs/root/etc/passwd", "../service.db", "run.json"):
        assert shelf.client.get(path, params={"show": wrong}).status_code == 404
    part = link(shelf, path="outputs/page.html")
    assert shelf.client.get(part, params={"show": "stdout"}).status_code == 404, "not beyond what the link leads to"
    for name in ("outputs/page.html", "stdout"):
        assert shelf.client.get(f"{path}/{name}", params={"shown": "1"}).status_code == 404, "no picture and no PDF"


@pytest.mark.slow
def test_what_a_program_wrote_is_no_page_of_this_server(shelf: Shelf) -> None:
    answer = shelf.client.get(f"{link(shelf)}/outputs/page.html")
    assert answer.headers["content-type"] == "application/octet-stream"
    assert answer.headers["content-disposition"].startswith("attachment")
    assert "sandbox" in answer.headers["content-security-policy"]
    assert answer.headers["x-content-type-options"] == "nosniff"


@pytest.mark.slow
@pytest.mark.parametrize(
    "path",
    [
        "outputs/link",
        "outputs/root/etc/passwd",
        "outputs/pipe",
        "outputs",
        "../../service.db",
        "%2e%2e/%2e%2e/service.db",
        "outputs/%2e%2e/%2e%2e/service.db",
        "..%2f..%2fservice.db",
        "/etc/passwd",
        "%2fetc%2fpasswd",
        "outputs//etc/passwd",
        "outputs/page.html%00.txt",
        "outputs\\..\\..\\service.db",
        "run.json",
        "status",
        "",
    ],
)
def test_nothing_else_is_there(shelf: Shelf, path: str) -> None:
    answer = shelf.client.get(f"{link(shelf)}/{path}")
    assert answer.status_code in (404, 422), path
    assert "root:" not in answer.text


@pytest.mark.slow
@given(path=st.text(max_size=60))
def test_no_path_leads_to_another_file(shelf: Shelf, path: str) -> None:
    there = {entry.path for entry in shelf.world.context.requests.files(shelf.world.ann, shelf.row.id)}
    if shelf.row.id not in _SECRET:
        _SECRET[shelf.row.id] = link(shelf).rpartition("/")[2]
    secret = _SECRET[shelf.row.id]
    if PurePosixPath(path).as_posix() in there:
        return
    with pytest.raises(NotFoundError):
        shelf.world.context.links.file(secret, path).close()


_SECRET: dict[int, str] = {}


@pytest.mark.slow
def test_a_link_may_lead_to_a_part(shelf: Shelf) -> None:
    path = link(shelf, path="outputs/sub dir")
    assert "page.html" not in shelf.client.get(path).text
    assert shelf.client.get(f"{path}/outputs/page.html").status_code == 404
    assert shelf.client.get(f"{path}/stdout").status_code == 404
    assert shelf.client.get(f"{path}/{quote('outputs/sub dir/answer #1.txt')}").status_code == 200
    for odd in ("../x", "/etc", "a\nb"):
        with pytest.raises(InputError):
            link(shelf, path=odd)


def test_only_digests_are_kept(shelf: Shelf) -> None:
    secret = link(shelf).rpartition("/")[2]
    assert len(secret) >= 43  # 256 bits
    with shelf.world.context.database.read() as connection:
        kept = [str(row) for row in connection.execute(select(links))]
    assert kept and not any(secret in row for row in kept)


@pytest.mark.slow
def test_links_run_out_and_are_taken_away(shelf: Shelf) -> None:
    context, ann = shelf.world.context, shelf.world.ann
    row, path = context.links.make(ann, shelf.row.id, days=1)
    assert row.expires == pytest.approx(time.time() + 86400, abs=60)
    context.links.revoke(ann, shelf.row.id, row.id)
    assert shelf.client.get(path).status_code == 404
    with pytest.raises(NotFoundError):
        context.links.revoke(ann, shelf.row.id, row.id)
    row, path = context.links.make(ann, shelf.row.id)
    assert shelf.client.get(path).status_code == 200
    with context.database.write() as connection:
        connection.execute(update(links).where(links.c.digest == row.digest).values(expires=time.time() - 1))
    gone = shelf.client.get(path)
    assert gone.status_code == 404
    assert gone.text == shelf.client.get("/r/" + 43 * "x").text
    assert row.id not in [one.id for one in context.links.list(ann, shelf.row.id)]
    for days in (0.0, -1.0, 4000.0, float("nan")):
        with pytest.raises(InputError):
            context.links.make(ann, shelf.row.id, days=days)


def test_a_locked_user_has_handed_out_nothing(shelf: Shelf) -> None:
    context = shelf.world.context
    path = link(shelf)
    try:
        context.accounts.store.change(shelf.world.ann.user_id, state="locked")
        assert shelf.client.get(path).status_code == 404
    finally:
        context.accounts.store.change(shelf.world.ann.user_id, state="active")
    assert shelf.client.get(path).status_code == 200


def test_other_tenants_make_none(shelf: Shelf) -> None:
    context = shelf.world.context
    for what in (context.links.make, context.links.list):
        with pytest.raises(NotFoundError):
            what(shelf.world.bob, shelf.row.id)
    row, _ = context.links.make(shelf.world.ann, shelf.row.id)
    with pytest.raises(NotFoundError):
        context.links.revoke(shelf.world.bob, shelf.row.id, row.id)


def test_over_rest(shelf: Shelf) -> None:
    secret = shelf.world.context.accounts.make_token(shelf.world.ann.user_id, "rest")
    headers = {"Authorization": f"Bearer {secret}"}
    place = f"/api/v1/requests/{shelf.row.id}/links"
    made = shelf.client.post(place, json={"days": 2}, headers=headers)
    assert made.status_code == 201
    assert made.json()["url"].startswith(f"{shelf.client.base_url}/r/")
    assert shelf.client.get(made.json()["url"]).status_code == 200
    listed = shelf.client.get(place, headers=headers).json()
    assert made.json()["id"] in [one["id"] for one in listed]
    assert all("url" not in one for one in listed)
    assert shelf.client.delete(f"{place}/{made.json()['id']}", headers=headers).status_code == 204
    assert shelf.client.get(made.json()["url"]).status_code == 404


@pytest.mark.slow
def test_a_request_that_runs_shows_nothing_yet(shelf: Shelf) -> None:
    context = shelf.world.context
    row = context.requests.submit(shelf.world.ann, {"application": "note", "parameters": {"seconds": 30}})
    _, path = context.links.make(shelf.world.ann, row.id)
    page = shelf.client.get(path)
    assert "It is not over yet" in page.text
    assert shelf.client.get(f"{path}/stdout").status_code == 404
    context.requests.cancel(shelf.world.ann, row.id)
    shelf.world.ended(row)
