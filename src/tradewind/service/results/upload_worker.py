"""Continues uploads that were not complete when their requests ended: in a thread of the worker, until they are."""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tradewind.deployer.result_uploads import upload_run
from tradewind.deployer.runner.run_files import read_document
from tradewind.errors import InputError, TradewindError
from tradewind.service.operations.restarting_thread import RestartingThread
from tradewind.service.results.result_storage import ResultStorageService
from tradewind.store.service.request_queries import last_event_number
from tradewind.store.service.request_results import ResultUploadStore
from tradewind.store.service.request_values import RequestRow
from tradewind.store.sql.database import Database

WAITS = (10.0, 30.0, 120.0, 600.0, 900.0)
"""Seconds until an upload is tried again, after the first attempt, the second, and so on; the last one counts on."""

GIVE_UP = 14 * 86400.0
"""Seconds after which an upload that never came to its end is given up; the files stay with the request."""

_GIVEN_UP = ".given-up"

_log = logging.getLogger("tradewind.service.results")


@dataclass(slots=True)
class _Waiting:
    """An upload that did not succeed yet."""

    due: float = 0.0
    attempts: int = 0


class UploadWorker:
    """Uploads what the requests of this machine still have to upload.

    While a request is carried out, its own `tradewind.deployer.result_uploads.ResultUploader` does; it
    leaves notes for this one, which uses the location's credentials as they are set by then. An upload that a user
    wants tried again is tried at the next look, also if it was given up, and has as long again.

    Args:
        database: The open database.
        results: Locations that results are uploaded to.
        data_folder: Its folder ``uploads`` has the notes.
        seconds: Time between two looks.
    """

    def __init__(
        self, database: Database, results: ResultStorageService, data_folder: Path, seconds: float = 5.0
    ) -> None:
        self._database = database
        self._store = ResultUploadStore(database)
        self._results = results
        self._folder = data_folder / "uploads"
        self._seconds = seconds
        self._waiting: dict[Path, _Waiting] = {}
        self._told: dict[int, str] = {}
        self._asked: set[str] = set()
        self._heard: int | None = None
        self._stop = threading.Event()
        self.thread = RestartingThread("uploads", self._work, self._stop)

    def start(self) -> None:
        """Start the thread."""
        self.thread.start()

    def stop(self, seconds: float) -> None:
        """End after what is being uploaded; what takes longer is left to the next process."""
        self._stop.set()
        self.thread.join(seconds)

    def _work(self, turn: Callable[[], None]) -> None:
        while not self._stop.wait(self._seconds):
            turn()
            try:
                self.turn()
            except TradewindError as error:  # the database is away: it comes back
                _log.warning("uploads wait: %s", error)

    def turn(self) -> None:
        """Try what is due, each once."""
        # Before the folders: what is asked of a later one is heard of the next time.
        newest = last_event_number(self._database)
        folders = [folder for folder in sorted(self._folder.glob("*")) if _notes(folder) or _notes(folder, _GIVEN_UP)]
        if folders:
            # After a start those count that nobody has answered; later each server hears each wish once.
            self._asked |= self._store.asked([folder.name for folder in folders], self._heard, newest)
        self._heard = newest
        for folder in folders:
            asked = folder.name in self._asked
            now = time.monotonic()
            due = [note for note in _notes(folder) if asked or self._waiting.get(note, _Waiting()).due <= now]
            if not due and not asked:
                continue
            request = self._store.request_of(folder.name)
            # Another one's are those of a search on the command line, which sees to them itself.
            if request is None or not request.over or request.hold_holder is not None:
                continue
            if asked:
                self._told.pop(request.id, None)
                due = self._begin_again(folder)
            problem = ""
            for note in due:
                if self._stop.is_set():
                    return
                problem = self._try(note, request) or problem
            if self._record(request, problem, folder):
                self._asked.discard(folder.name)

    def _begin_again(self, folder: Path) -> list[Path]:
        """Reset all notes of a folder, also those that were given up, as if their runs had just ended."""
        for note in _notes(folder, _GIVEN_UP):
            with contextlib.suppress(OSError):  # the request may be removed at this moment
                note.rename(note.with_suffix(".json"))
        notes = _notes(folder)
        for note in notes:
            self._waiting.pop(note, None)
            with contextlib.suppress(OSError):
                os.utime(note)
        return notes

    def _try(self, note: Path, request: RequestRow) -> str:
        """Upload what a note says; return why not, if it cannot be."""
        problem = ""
        with _alone(note) as content:
            if content is None:
                return ""
            try:
                upload_run({**content, "places": self._places(content, request)})
            except Exception as error:  # whatever it was, the files stay here, and it is tried again
                known = isinstance(error, TradewindError | OSError)
                problem = str(error) if known else f"{type(error).__name__}: {error}"
                self._later(note, request, problem)
            else:
                note.unlink(missing_ok=True)
                self._waiting.pop(note, None)
        return problem

    def _places(self, content: Mapping[str, Any], request: RequestRow) -> Mapping[str, Any]:
        """Return the credentials of a location: of the user's account by now, or of the start of the request."""
        try:
            is_admin = bool(request.plan.get("admin"))
            found = self._results.destination(request.user_id, str(content["to"]), is_admin=is_admin)
        except InputError:  # it is the backend's, or was taken out of the account
            return content.get("places", {})  # type: ignore[no-any-return]
        return found.places or content.get("places", {})

    def _later(self, note: Path, request: RequestRow, problem: str) -> None:
        waiting = self._waiting.setdefault(note, _Waiting())
        delay = WAITS[min(waiting.attempts, len(WAITS) - 1)]
        waiting.attempts += 1
        waiting.due = time.monotonic() + delay
        _log.warning("request %d: results are not uploaded yet, next try in %.0f s: %s", request.id, delay, problem)
        with contextlib.suppress(OSError):
            if time.time() - note.stat().st_mtime > GIVE_UP:
                note.rename(note.with_suffix(_GIVEN_UP))
                self._waiting.pop(note, None)

    def _record(self, request: RequestRow, problem: str, folder: Path) -> bool:
        """Record the progress, once for each new state; return True where it was new."""
        more, lost = _notes(folder), _notes(folder, _GIVEN_UP)
        if more and not problem:  # another process is at it, or the next one is not due yet
            return False
        if more:
            words, state = f"results are not uploaded yet: {problem}", "waiting"
        elif lost:
            problem = problem or "others of its runs are"
            words, state = f"results were not uploaded, and it is given up: {problem}", "failed"
        else:
            words, state = "results are uploaded", "done"
        if self._told.get(request.id) != words:
            self._told[request.id] = words
            self._store.remark(request.id, words, state)
        return True


def _notes(folder: Path, suffix: str = ".json") -> list[Path]:
    """List the notes of a request that lie in its folder."""
    return sorted(folder.glob(f"*{suffix}"))


@contextlib.contextmanager
def _alone(note: Path) -> Iterator[dict[str, Any] | None]:
    """Read a note, held so that no other process of this machine works on it; None where one does."""
    try:
        handle = os.open(note, os.O_RDWR)
    except OSError:
        yield None
        return
    try:
        yield read_document(note) if _locked(handle) else None
    finally:
        os.close(handle)


def _locked(handle: int) -> bool:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True
