"""Uploads that wait or were given up are tried again at once when their user wants it, whichever server is asked."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.service.requests.request_world import World, working, world

from tradewind.errors import ConflictError, NotFoundError
from tradewind.service.context import Context, open_context
from tradewind.service.results.upload_state import upload_again, upload_of, upload_trouble
from tradewind.service.results.upload_worker import GIVE_UP, UploadWorker
from tradewind.service.settings import ServiceSettings
from tradewind.store.service.request_results import ResultUploadStore
from tradewind.store.service.requests import RequestRow

pytestmark = pytest.mark.slow


@pytest.fixture
def target(tmp_path: Path) -> Path:
    """A place of the administrator's; it is a file at first, so that nothing can be written below it."""
    place = tmp_path / "out"
    place.write_text("in the way")
    return place


@pytest.fixture
def there(tmp_path: Path, target: Path) -> Iterator[World]:
    with world(tmp_path / "world", settings=ServiceSettings(results_places={str(target): {}})) as made:
        yield made


def waiting(there: World, target: Path) -> RequestRow:
    """A request that is done, and whose results are not uploaded."""
    with working(there.context):
        row = there.ended(there.submit(results=str(target)), 90.0)
    assert row.state == "done", row.problem
    return row


def uploads_of(there: World, home: Path | None = None) -> UploadWorker:
    """What a worker that has just started would upload."""
    return UploadWorker(there.context.database, there.context.results, home or there.home, 0.05)


@contextmanager
def another_server(there: World, folder: Path) -> Iterator[Context]:
    """Another server on the same database, with a data folder of its own."""
    context = open_context(there.context.settings, there.url, folder)
    try:
        yield context
    finally:
        context.close()


def told(there: World, row: RequestRow) -> list[str]:
    events = there.context.requests.events(there.root, row.id)
    return [str(event.details["results"]) for event in events if event.details.get("results")]


def notes(there: World, suffix: str) -> list[Path]:
    return sorted((there.home / "uploads").glob(f"*/*{suffix}"))


def test_what_waits_is_tried_at_once_by_the_server_that_has_the_files(
    there: World, target: Path, tmp_path: Path
) -> None:
    row = waiting(there, target)
    uploads = uploads_of(there)
    uploads.turn()
    found = upload_of(there.context, there.ann, row.id)
    assert (found.state, bool(found.problem)) == ("waiting", True)
    target.unlink()
    uploads.turn()  # it is not due yet
    assert told(there, row) == ["waiting"]
    with another_server(there, tmp_path / "elsewhere") as other:
        wanted = upload_again(other, there.ann, row.id)
        assert (wanted.state, wanted.problem) == ("waiting", "")
        trouble = upload_trouble(other, row.id)
        assert trouble is not None
        assert (trouble.state, trouble.problem) == ("waiting", "")
        upload_again(other, there.ann, row.id)
        uploads_of(there, tmp_path / "elsewhere").turn()  # it has no files of this request
    assert told(there, row) == ["waiting", "again"]
    uploads.turn()
    assert told(there, row) == ["waiting", "again", "done"]
    assert upload_of(there.context, there.ann, row.id).state == "done"
    assert upload_trouble(there.context, row.id) is None
    assert len(list(target.glob("**/SHA256SUMS"))) == 1
    (line,) = [one for one in there.context.audit.page(there.root) if one.action == "request.upload"]
    assert (line.user, line.subject, line.outcome) == ("ann", f"request {row.id}", "done")
    with pytest.raises(ConflictError, match="are uploaded"):
        upload_again(there.context, there.ann, row.id)


def test_what_was_given_up_begins_again(there: World, target: Path) -> None:
    row = waiting(there, target)
    (note,) = notes(there, ".json")
    long_ago = time.time() - GIVE_UP - 10
    os.utime(note, (long_ago, long_ago))
    uploads_of(there).turn()
    assert upload_of(there.context, there.ann, row.id).state == "failed"
    assert (len(notes(there, ".json")), len(notes(there, ".given-up"))) == (0, 1)
    upload_again(there.context, there.ann, row.id)
    # The worker was not there when it was asked; the place still refuses, and the upload has as long again.
    uploads = uploads_of(there)
    uploads.turn()
    assert upload_of(there.context, there.ann, row.id).state == "waiting"
    (note,) = notes(there, ".json")
    assert note.stat().st_mtime > time.time() - 60
    assert told(there, row) == ["failed", "again", "waiting"]
    # Another start hears of no wish that was answered.
    again = uploads_of(there)
    again._waiting[note] = next(iter(uploads._waiting.values()))
    again.turn()
    assert told(there, row) == ["failed", "again", "waiting"]
    target.unlink()
    upload_again(there.context, there.ann, row.id)
    again.turn()
    assert told(there, row)[-2:] == ["again", "done"]
    assert notes(there, "") == []


def test_one_of_several_that_was_given_up_is_not_called_uploaded(there: World, target: Path) -> None:
    row = waiting(there, target)
    (note,) = notes(there, ".json")
    lost = note.with_name("lost.given-up")
    lost.write_bytes(note.read_bytes())
    target.unlink()
    uploads_of(there).turn()
    found = upload_of(there.context, there.ann, row.id)
    assert (found.state, found.problem) == ("failed", "others of its runs are")
    upload_again(there.context, there.ann, row.id)
    uploads_of(there).turn()
    assert upload_of(there.context, there.ann, row.id).state == "done"
    assert notes(there, "") == []


def test_a_request_that_was_removed_on_another_server_holds_up_no_other(
    there: World, target: Path, tmp_path: Path
) -> None:
    rows = [waiting(there, target) for _ in range(2)]
    with another_server(there, tmp_path / "elsewhere") as other:
        other.requests.delete(there.ann, rows[0].id)
    target.unlink()
    uploads_of(there).turn()
    assert upload_of(there.context, there.ann, rows[1].id).state == "done"
    assert len(list(target.glob("**/SHA256SUMS"))) == 1


def test_only_what_waits_or_has_failed_can_be_tried_again(there: World, target: Path) -> None:
    pending = there.submit(results=str(target))
    with pytest.raises(ConflictError, match="is being carried out"):
        upload_again(there.context, there.ann, pending.id)
    there.context.requests.cancel(there.ann, pending.id)
    with pytest.raises(ConflictError, match="go nowhere"):
        upload_again(there.context, there.ann, pending.id)
    for number in (pending.id, 999_999):
        with pytest.raises(NotFoundError, match="no such request"):
            upload_again(there.context, there.bob, number)


def test_the_last_word_counts_whatever_else_is_noted(there: World) -> None:
    """Words of users within other events are taken for no state of an upload."""
    row = there.submit(name='"results":"again"')
    store = ResultUploadStore(there.context.database)
    assert store.last(row.id) is None
    store.remark(row.id, "results are not uploaded yet: no", "waiting")
    from tradewind.store.service.requests import NewRequestEvent

    remark = NewRequestEvent("cancelled", "x", {"deep": {"results": "again"}, "said": '"results":"again"'})
    there.context.requests.store.change_free(row.id, ("pending",), {"state": "cancelled"}, remark)
    last = store.last(row.id)
    assert last is not None
    assert last.details == {"results": "waiting"}
    trouble = upload_trouble(there.context, row.id)
    assert trouble is not None
    assert (trouble.state, trouble.problem) == ("waiting", "no")
