"""Threads of the worker that last: whatever ends what they do, they begin anew, and figures tell of them."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
from fastapi.testclient import TestClient
from tests.service.module_server import house
from tests.waiting import eventually

from tradewind.errors import StoreError
from tradewind.service.notifications.sender import NotificationSender
from tradewind.service.operations import health, restarting_thread
from tradewind.service.operations.restarting_thread import RestartingThread, thread_status
from tradewind.service.results.upload_worker import UploadWorker


@pytest.mark.parametrize("fault", [RuntimeError("broken"), SystemExit(1)])
def test_work_that_ends_by_a_fault_is_begun_anew(fault: BaseException, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(restarting_thread, "_AFTER_FAULT", 0.01)
    stop, begun = threading.Event(), list[int]()

    def work(turn: Callable[[], None]) -> None:
        begun.append(1)
        if len(begun) < 3:
            raise fault
        while not stop.wait(0.01):
            turn()

    thread = RestartingThread("email", work, stop)
    thread.start()
    eventually(lambda: len(begun) == 3)
    stop.set()
    thread.join(10.0)
    told = thread_status(thread)
    assert (told["name"], told["restarts"]) == ("email", 2)
    assert told["silent"] < 10.0


def test_a_database_that_cannot_be_used_is_one_line(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """An administrator is told what to do, and not where in the program it was noticed."""
    monkeypatch.setattr(restarting_thread, "_AFTER_FAULT", 0.01)
    stop = threading.Event()

    def work(turn: Callable[[], None]) -> None:
        if thread.restarts == 2:
            stop.set()
        raise StoreError("the store cannot be written: attempt to write a readonly database")

    thread = RestartingThread("email", work, stop)
    with caplog.at_level("WARNING", logger="tradewind.service.threads"):
        thread.start()
        thread.join(10.0)
    said = [(record.levelname, record.getMessage(), record.exc_info) for record in caplog.records]
    words = "email: the store cannot be written: attempt to write a readonly database; trying again"
    assert said == [("WARNING", words, None)] * 3


@pytest.mark.slow
def test_the_threads_of_the_worker_go_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(restarting_thread, "_AFTER_FAULT", 0.01)
    faults = {"email": 1, "webhook": 1, "uploads": 1}

    def fails_once(name: str, then: Callable[..., object]) -> Callable[..., object]:
        def call(*given: object) -> object:
            if faults[name]:
                faults[name] -= 1
                raise SystemExit(name)
            return then(*given)

        return call

    with house(tmp_path) as there:
        context = there.context
        monkeypatch.setattr(NotificationSender, "gather", fails_once("email", NotificationSender.gather))
        claim = context.notices.store.claim
        monkeypatch.setattr(
            context.notices.store,
            "claim",
            lambda kind, *more: (fails_once("webhook", claim) if kind == "webhook" else claim)(kind, *more),
        )
        monkeypatch.setattr(UploadWorker, "turn", fails_once("uploads", UploadWorker.turn))
        posts = NotificationSender(context.database, context.settings, context.notices, 0.01)
        uploads = UploadWorker(context.database, context.results, tmp_path, 0.01)
        threads = (*posts.threads, uploads.thread)
        posts.start()
        uploads.start()
        eventually(lambda: [thread.restarts for thread in threads] == [1, 1, 1])
        turned = [thread.silent for thread in threads]
        eventually(lambda: all(thread.silent < 0.5 for thread in threads), what=f"turns after {turned}")
        posts.stop(5.0)
        uploads.stop(5.0)


@pytest.mark.slow
def test_a_sender_that_is_silent_shows_and_calls_go_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health, "_FRESH", -1.0)
    with house(tmp_path) as there:
        here = TestClient(there.client.app, base_url="http://localhost", client=("127.0.0.1", 5000))
        state: health.HealthChecks = there.client.app.state.health  # type: ignore[attr-defined]
        state.children = [SimpleNamespace(name="worker", alive=True, restarts=0, pid=os.getpid())]  # type: ignore[list-item]
        assert here.get("/readyz").json()["checks"]["notices"] == "ok", "it has said nothing yet"
        threads = [
            {"name": "email", "silent": 900.0, "restarts": 2},
            {"name": "webhook", "silent": 0.5, "restarts": 0},
            {"name": "uploads", "silent": 9000.0, "restarts": 0},
        ]
        with there.context.presence.here("worker", "", lambda: {"threads": threads}):
            eventually(lambda: there.context.presence.of("worker", os.getpid()))
            answer = here.get("/readyz")
            assert (answer.status_code, answer.json()["ready"], answer.json()["degraded"]) == (200, True, True)
            assert answer.json()["checks"]["notices"] == "nobody sends them for some time: email"
            figures = here.get("/metrics").text
        assert 'tradewind_thread_restarts_total{thread="email"} 2' in figures
        lines = dict(line.rsplit(" ", 1) for line in figures.splitlines() if line.startswith("tradewind_thread_silent"))
        assert float(lines['tradewind_thread_silent_seconds{thread="email"}']) >= 900.0
        assert float(lines['tradewind_thread_silent_seconds{thread="webhook"}']) < 60.0
