"""Sends notices, in threads of the worker: each is taken with a lease, tried, and tried again later.

A notice is marked as sent after its receiver has taken it. A process that is killed between the two leaves it to the
next one, which sends it again under the same name (``Message-ID``, ``X-Tradewind-Delivery``): that a receiver sees it
twice can be recognised by that name; it is never lost.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from functools import partial
from typing import Any

from tradewind.errors import DeployError, InputError, TradewindError
from tradewind.service.notifications import delivery
from tradewind.service.notifications import delivery as webhook
from tradewind.service.notifications.delivery import DeliveryRefused
from tradewind.service.notifications.notification_service import NotificationService
from tradewind.service.notifications.preferences import NotificationPreferences, Occasion
from tradewind.service.operations.restarting_thread import RestartingThread
from tradewind.service.settings import ServiceSettings
from tradewind.store.service.accounts import AccountStore
from tradewind.store.service.notices import NoticeKind, NoticeRow, RequestTransition
from tradewind.store.service.requests import ENDED
from tradewind.store.sql.database import Database
from tradewind.utils.retries import Backoff


def notices_of(happening: RequestTransition, url: str) -> list[NoticeRow]:
    """Make the notices of an event: none for most.

    Args:
        happening: The event.
        url: Public address of the server; empty where that is not known.
    """
    occasion = _occasion(happening)
    user = happening.user
    if occasion is None or user.state != "active":
        return []
    preferences = NotificationPreferences.of(user).of_request(happening.request.document)
    document = document_of(happening, occasion, url)
    made = []
    if user.email and occasion in preferences.email:
        made.append(NoticeRow(0, user.id, "email", user.email, document, happening.request.id))
    if preferences.webhook and occasion in preferences.calls:
        made.append(NoticeRow(0, user.id, "webhook", preferences.webhook, document, happening.request.id))
    return made


def _occasion(happening: RequestTransition) -> Occasion | None:
    stage, before = happening.event.stage, happening.before
    if stage == before:
        return None  # a remark
    if stage == "pending":
        return "submitted" if not before or before in ENDED else None
    if stage in ENDED and before not in ENDED:
        return "finished" if stage in ("done", "cancelled") else "failed"
    return None


def document_of(happening: RequestTransition, occasion: Occasion, url: str) -> dict[str, Any]:
    """Make the document of a notice: the body of a webhook call, and what an e-mail is written from."""
    request, event = happening.request, happening.event
    progress = request.progress
    facts: dict[str, Any] = {
        "id": request.id,
        "name": request.name,
        "kind": request.kind,
        "application": request.application,
        "state": event.stage,
        "problem": request.problem if event.stage in ENDED else "",
        "hint": request.hint if event.stage in ENDED else "",
        "cost": request.cost,
        "created": request.created,
        "started": request.started,
        "ended": request.ended,
        "user": happening.user.name,
        "tenant": request.tenant,
        "results": str(request.document.get("results") or ""),
        "best": progress.get("best"),
        "metric": progress.get("metric"),
    }
    if url:
        facts["url"] = f"{url.rstrip('/')}/requests/{request.id}"
    return {"event": f"request.{occasion}", "at": event.at, "request": facts}


WAITS = (10.0, 30.0, 120.0, 600.0, 3600.0, 6 * 3600.0, 12 * 3600.0)
"""Seconds until a notice is tried again, after the first attempt, the second, and so on; then it is given up."""

KINDS: tuple[NoticeKind, ...] = ("email", "webhook")
"""The ways of a notice; each has a thread."""

_AT_ONCE = 4
_LEASE_SECONDS = 180.0
"""Longer than any attempt takes."""

_BACKOFF = Backoff((0.5, 1.0, 2.0, 5.0, 5.0))
_AFTER_FAULT = 5.0
"""Seconds until the next look after an error that nobody expected."""

_log = logging.getLogger("tradewind.service.notices")


class NotificationSender:
    """Sends notices until it is stopped.

    Args:
        database: The open database.
        settings: The server's settings; ``public_url`` is the address in notices.
        notices: The notices.
        seconds: Time between two looks for due notices.
    """

    def __init__(
        self, database: Database, settings: ServiceSettings, notices: NotificationService, seconds: float = 1.0
    ) -> None:
        self._accounts = AccountStore(database)
        self._settings = settings
        self._notices = notices
        self._seconds = seconds
        self._stop = threading.Event()
        # Of its own for each way: users' servers that are slow hold up no e-mail.
        self.threads = [RestartingThread(kind, partial(self._work, kind), self._stop) for kind in KINDS]

    def start(self) -> None:
        """Start the threads."""
        for thread in self.threads:
            thread.start()

    def stop(self, seconds: float) -> None:
        """End after what is being sent; what takes longer is left to the next process."""
        self._stop.set()
        deadline = time.monotonic() + seconds
        for thread in self.threads:
            thread.join(max(0.0, deadline - time.monotonic()))

    def _work(self, kind: NoticeKind, turn: Callable[[], None]) -> None:
        pool = ThreadPoolExecutor(_AT_ONCE, f"tradewind-{kind}")
        try:
            self._look_out(kind, pool, turn)
        finally:
            pool.shutdown(wait=self._stop.is_set())  # what is being sent goes on where the work is only begun anew

    def _look_out(self, kind: NoticeKind, pool: ThreadPoolExecutor, turn: Callable[[], None]) -> None:
        running: set[Future[None]] = set()
        while not self._stop.is_set():
            turn()
            found = 0
            try:
                if kind == "email":  # one of the two does
                    self.gather()
                for notice in self._notices.store.claim(kind, _AT_ONCE - len(running), _LEASE_SECONDS):
                    running.add(pool.submit(self._send, notice))
                    found += 1
            except TradewindError as error:  # the database is away: it comes back
                _log.warning("notices wait: %s", error)
            except Exception:  # two threads serve all users: neither ends for the notice of one
                _log.exception("notices wait")
                self._stop.wait(_AFTER_FAULT)
            if running:
                _, running = wait(running, self._seconds, FIRST_COMPLETED)
            elif not found:
                self._stop.wait(self._seconds)

    def gather(self) -> int:
        """Write the notices of what has happened since the last time.

        Returns:
            The number of events that were looked at.
        """
        return self._notices.store.gather(lambda happening: notices_of(happening, self._settings.public_url))

    def _send(self, notice: NoticeRow) -> None:
        problem, final = "", False
        try:
            self._deliver(notice)
        except DeliveryRefused as error:
            problem, final = str(error), error.final
        except InputError as error:  # the address may not be used
            problem, final = str(error), True
        except DeployError as error:
            problem, final = str(error), not error.retryable
        except TradewindError as error:
            problem = str(error)
        except Exception as error:
            problem = f"unexpected {type(error).__name__}"
            _log.exception("notice %d", notice.id)
        facts = {"notice": notice.id, "kind": notice.kind, "request": notice.request_id, "attempt": notice.attempts}
        if not problem:
            _log.info("notice %d (%s) was sent", notice.id, notice.kind, extra={"facts": facts})
            self._finish(notice)
            return
        again = None if final or notice.attempts > len(WAITS) else time.time() + WAITS[notice.attempts - 1]
        then = "it is given up" if again is None else f"it is tried again in {WAITS[notice.attempts - 1]:.0f} s"
        _log.warning("notice %d (%s): %s; %s", notice.id, notice.kind, problem, then, extra={"facts": facts})
        self._finish(notice, problem, again)

    def _finish(self, notice: NoticeRow, problem: str = "", again: float | None = None) -> None:
        for pause in _BACKOFF.pauses:
            try:
                self._notices.store.finish(notice, problem=problem, again=again)
            except TradewindError as error:  # what was sent and not noted would be sent again
                _log.warning("notice %d: %s", notice.id, error)
                time.sleep(pause)
            else:
                return

    def _deliver(self, notice: NoticeRow) -> None:
        settings = self._settings
        if notice.kind == "email":
            if not self._notices.mails:
                raise DeliveryRefused("this server sends no e-mails: smtp_host and mail_from are not set", final=True)
            words = self._notices.words(notice)
            message = delivery.compose_email(notice, settings.mail_from, settings.public_url, words)
            delivery.send_email(message, settings)
            return
        preferences = NotificationPreferences.of(self._accounts.user(notice.user_id))
        key = self._notices.signing_key(notice.user_id, preferences.generation)
        webhook.call_webhook(notice, key, private=settings.private_addresses)
