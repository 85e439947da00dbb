"""Notices from what happened to what the receivers got, over real SMTP and HTTP."""

from __future__ import annotations

import hmac
import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.service.live_server import HELLO, move
from tests.service.notification_receivers import PASSWORD, USER, Calls, Mails, certificate, http_server, mail_server
from tests.waiting import eventually

from tradewind.service.accounts.identity import Principal
from tradewind.service.context import Context, open_context
from tradewind.service.notifications import sender
from tradewind.service.notifications.sender import NotificationSender
from tradewind.service.settings import ServiceSettings
from tradewind.store.service.notices import NoticeRow

pytestmark = pytest.mark.slow


@pytest.fixture
def mails() -> Iterator[Mails]:
    with mail_server() as server:
        yield server


@pytest.fixture
def calls() -> Iterator[Calls]:
    with http_server() as server:
        yield server


@pytest.fixture
def settings(mails: Mails) -> ServiceSettings:
    return ServiceSettings(
        public_url="https://tradewind.example.org",
        smtp_host="127.0.0.1",
        smtp_port=mails.port,
        smtp_security="none",
        mail_from="tradewind@example.org",
        private_addresses=True,
    )


@pytest.fixture
def ann(context: Context) -> Principal:
    user = context.accounts.add_user("ann", tenant="physics", email="ann@example.org")
    context.applications.register(Principal(0, "root", "admin", "physics"), HELLO, shared=True)
    return Principal(user.id, "ann", "user", "physics")


def submit(context: Context, who: Principal, **more: object) -> int:
    return context.requests.submit(who, {"application": "hello", "name": "my run", **more}).id


@pytest.fixture
def drain(context: Context, settings: ServiceSettings) -> Iterator[Callable[[], list[NoticeRow]]]:
    """Sends all that is due; gives all notices of the first user."""
    running = NotificationSender(context.database, settings, context.notices, 0.02)

    def work() -> list[NoticeRow]:
        while running.gather():
            pass
        eventually(lambda: not any(row.due <= time.time() and row.state in ("waiting", "sending") for row in rows()))
        return rows()

    def rows() -> list[NoticeRow]:
        return list(reversed(context.notices.store.of_user(1, 100)))

    running.start()
    yield work
    running.stop(5.0)


def test_a_request_from_its_start_to_its_end(
    context: Context, ann: Principal, mails: Mails, calls: Calls, drain: Callable[[], list[NoticeRow]]
) -> None:
    context.notices.change(ann, email=["submitted", "finished"], webhook=f"{calls.url}/hook", calls=["finished"])
    number = submit(context, ann)
    for state in ("booting", "executing", "done"):
        move(context.requests, number, state, cost=0.25)
    found = drain()
    assert [(row.kind, row.document["event"], row.state, row.attempts) for row in found] == [
        ("email", "request.submitted", "sent", 1),
        ("email", "request.finished", "sent", 1),
        ("webhook", "request.finished", "sent", 1),
    ]
    assert mails.to == [["ann@example.org"], ["ann@example.org"]]
    subjects = sorted(mail["Subject"] for mail in mails.got)
    assert subjects == ["[Tradewind] my run: finished", "[Tradewind] my run: submitted"]
    end = next(mail for mail in mails.got if "finished" in mail["Subject"])
    plain, page = end.get_body(("plain",)), end.get_body(("html",))
    assert plain is not None and page is not None
    assert "Your request 1, my run, has finished." in plain.get_content()
    assert "Cost: $0.25" in plain.get_content()
    assert "https://tradewind.example.org/requests/1" in plain.get_content()
    assert '<a href="https://tradewind.example.org/requests/1">' in page.get_content()
    assert "\r\nApplication: Say hello\r\nwords: hello\r\ntimes: 1\r\n" in plain.get_content()
    assert end["Auto-Submitted"] == "auto-generated"
    assert end["Message-ID"] == f"<{found[1].delivery}@example.org>"
    (call,) = calls.got
    body = json.loads(call.body)
    assert (body["event"], body["request"]["id"], body["request"]["state"]) == ("request.finished", 1, "done")
    assert body["delivery"] == call.headers["X-Tradewind-Delivery"] == found[2].delivery


def test_each_event_is_told_once_whoever_gathers(
    context: Context, ann: Principal, settings: ServiceSettings, tmp_path: Path
) -> None:
    number = submit(context, ann)
    move(context.requests, number, "failed", problem="no such file", hint="look at the command")
    other = open_context(settings, context.url, tmp_path / "home")
    try:
        both = [NotificationSender(one.database, settings, one.notices) for one in (context, other)]
        assert both[0].gather() == 2
        assert both[1].gather() == both[0].gather() == 0
    finally:
        other.close()
    (row,) = context.notices.of_request(ann, number)
    assert row.document["request"]["problem"] == "no such file"


def test_remarks_and_retries(context: Context, ann: Principal, drain: Callable[[], list[NoticeRow]]) -> None:
    context.notices.change(ann, email=["submitted", "failed"])
    number = submit(context, ann)
    move(context.requests, number, "executing")
    move(context.requests, number, "executing", "half of it is done")
    move(context.requests, number, "timed_out", "it took too long")
    context.requests.retry(ann, number)
    move(context.requests, number, "preempted", "the machine is gone")
    told = [(row.document["event"], row.document["request"]["state"]) for row in drain()]
    assert told == [
        ("request.submitted", "pending"),
        ("request.failed", "timed_out"),
        ("request.submitted", "pending"),
        ("request.failed", "preempted"),
    ]


def test_a_request_has_preferences_of_its_own(
    context: Context, ann: Principal, calls: Calls, drain: Callable[[], list[NoticeRow]]
) -> None:
    context.notices.change(ann, email=[])
    quiet = submit(context, ann)
    loud = submit(context, ann, notify={"email": True, "webhook": f"{calls.url}/this"})
    for number in (quiet, loud):
        move(context.requests, number, "done")
    found = drain()
    assert sorted((row.request_id, row.kind, row.target) for row in found) == [
        (loud, "email", "ann@example.org"),
        (loud, "webhook", f"{calls.url}/this"),
    ]
    assert [call.path for call in calls.got] == ["/this"]


def test_an_error_that_nobody_expected_ends_no_thread(
    context: Context, ann: Principal, settings: ServiceSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sender, "_AFTER_FAULT", 0.01)
    running, gather, failed = (
        NotificationSender(context.database, settings, context.notices, 0.02),
        NotificationSender.gather,
        list[int](),
    )

    def broken(self: NotificationSender) -> int:
        if len(failed) < 2:
            failed.append(1)
            raise RuntimeError("broken")
        return gather(self)

    monkeypatch.setattr(NotificationSender, "gather", broken)
    submit(context, ann, notify={"email": True})
    context.notices.test(ann, "email")
    running.start()
    eventually(lambda: context.notices.recent(ann)[0].state == "sent")
    running.stop(5.0)
    assert len(failed) == 2


def test_a_call_is_signed(context: Context, ann: Principal, calls: Calls, drain: Callable[[], list[NoticeRow]]) -> None:
    key = context.notices.key(ann)
    context.notices.change(ann, webhook=calls.url)
    context.notices.test(ann, "webhook")
    drain()
    (call,) = calls.got
    stamp, sign = (piece.partition("=")[2] for piece in call.headers["X-Tradewind-Signature"].split(","))
    assert abs(time.time() - int(stamp)) < 30
    assert hmac.compare_digest(sign, hmac.new(key.encode(), stamp.encode() + b"." + call.body, "sha256").hexdigest())
    assert context.notices.key(ann) != key


def test_what_is_not_taken_is_tried_again_under_the_same_name(
    context: Context,
    ann: Principal,
    calls: Calls,
    drain: Callable[[], list[NoticeRow]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sender, "WAITS", (0.05, 0.05, 0.05))
    calls.answer = lambda number: (503, "") if number < 3 else (200, "")
    context.notices.change(ann, webhook=calls.url)
    context.notices.test(ann, "webhook")
    eventually(lambda: drain()[0].state == "sent")
    (row,) = drain()
    assert (row.attempts, row.problem) == (3, "")
    assert len({call.headers["X-Tradewind-Delivery"] for call in calls.got}) == 1
    calls.answer = lambda _number: (500, "")
    context.notices.test(ann, "webhook")
    eventually(lambda: drain()[1].state == "failed")
    assert drain()[1].attempts == 4
    assert "HTTP 500" in drain()[1].problem


def test_redirections_are_not_followed(
    context: Context, ann: Principal, calls: Calls, drain: Callable[[], list[NoticeRow]]
) -> None:
    with http_server() as elsewhere:
        calls.answer = lambda _number: (307, f"{elsewhere.url}/secret")
        context.notices.change(ann, webhook=calls.url)
        context.notices.test(ann, "webhook")
        (row,) = drain()
        assert elsewhere.got == []
    assert (row.state, "not followed" in row.problem) == ("failed", True)


def test_addresses_inside_are_refused_when_set_and_when_called(tmp_path: Path, calls: Calls) -> None:
    from tradewind.errors import InputError
    from tradewind.store.service.shared_values import SharedValueStore

    settings = ServiceSettings()
    context = open_context(settings, f"sqlite:///{tmp_path}/other.db", tmp_path / "home")
    try:
        user = context.accounts.add_user("eve")
        eve = Principal(user.id, "eve", "user", "eve")
        for url in (calls.url, "http://169.254.169.254/latest/meta-data", "http://[::1]:8765/"):
            with pytest.raises(InputError, match="inside this network"):
                context.notices.change(eve, webhook=url)
        # What a name points at may have changed since, and so may the settings.
        kept = {"webhook": calls.url, "calls": ["finished"], "email": [], "generation": 1}
        SharedValueStore(context.database).change_user(user.id, "notices", kept)
        context.notices.test(eve, "webhook")
        running = NotificationSender(context.database, settings, context.notices, 0.02)
        running.start()
        eventually(lambda: context.notices.recent(eve)[0].state == "failed")
        running.stop(5.0)
        assert "inside" in context.notices.recent(eve)[0].problem
        assert calls.got == []
    finally:
        context.close()


def test_an_address_that_is_not_taken_is_given_up(
    context: Context, ann: Principal, mails: Mails, drain: Callable[[], list[NoticeRow]]
) -> None:
    mails.unknown.add("ann@example.org")
    context.notices.test(ann, "email")
    (row,) = drain()
    assert (row.state, row.problem) == ("failed", "the address is refused: 550 no such user here")


def test_a_mail_server_that_is_busy_is_asked_again(
    context: Context,
    ann: Principal,
    mails: Mails,
    drain: Callable[[], list[NoticeRow]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sender, "WAITS", (0.05, 30.0))
    mails.refuse = "451 come back later"
    context.notices.test(ann, "email")
    eventually(lambda: drain()[0].attempts == 2 and drain()[0].state == "waiting")
    (row,) = drain()
    assert "451 come back later" in row.problem
    assert row.due > time.time() + 20


def test_mail_over_starttls_with_a_login(tmp_path: Path) -> None:
    tls = certificate(tmp_path / "tls")
    (tmp_path / "password").write_text(PASSWORD + "\n")
    with mail_server(tls) as mails:
        settings = ServiceSettings(
            smtp_host="127.0.0.1",
            smtp_port=mails.port,
            smtp_user=USER,
            smtp_password=f"file:{tmp_path}/password",
            smtp_authorities=tls[0],
            mail_from="tradewind@example.org",
        )
        told = _one_test_mail(tmp_path / "a", settings)
        assert (told.state, mails.logins, len(mails.got)) == ("sent", [USER], 1)
        unknown = _one_test_mail(tmp_path / "b", settings.model_copy(update={"smtp_authorities": None}))
        assert "certificate" in unknown.problem and "not trusted" in unknown.problem
        plain = _one_test_mail(tmp_path / "c", settings.model_copy(update={"smtp_security": "none"}))
        assert plain.state == "waiting"
        assert len(mails.got) == 1
        (tmp_path / "password").write_text("wrong")
        wrong = _one_test_mail(tmp_path / "d", settings)
        assert "does not know smtp_user" in wrong.problem
        assert "wrong" not in wrong.problem


def _one_test_mail(folder: Path, settings: ServiceSettings) -> NoticeRow:
    context = open_context(settings, f"sqlite:///{folder}/service.db", folder / "home")
    try:
        user = context.accounts.add_user("ann", email="ann@example.org")
        ann = Principal(user.id, "ann", "user", "ann")
        context.notices.test(ann, "email")
        running = NotificationSender(context.database, settings, context.notices, 0.02)
        running.start()
        eventually(lambda: (row := context.notices.recent(ann)[0]).state == "sent" or row.problem)
        running.stop(5.0)
        return context.notices.recent(ann)[0]
    finally:
        context.close()


@pytest.mark.parametrize(
    "name", ["x\r\nBcc: eve@example.org", "a\nb", "\u2028", "x" * 500, "<script>alert(1)</script>"]
)
def test_nothing_gets_into_the_headers(
    context: Context, ann: Principal, mails: Mails, drain: Callable[[], list[NoticeRow]], name: str
) -> None:
    """Whatever a request is called, the mail has our headers, one receiver, and no markup of others."""
    number = submit(context, ann)
    move(context.requests, number, "failed", name=name, problem=f"{name}\r\nX-Evil: 1\r\n\r\n<b>body</b>")
    drain()
    (mail,) = mails.got
    assert mails.to == [["ann@example.org"]]
    assert mail["Bcc"] is None and mail["X-Evil"] is None
    assert len(mail["Subject"]) <= 200
    page = mail.get_body(("html",))
    assert page is not None
    assert "<script>" not in page.get_content() and "<b>" not in page.get_content()


def test_a_process_that_dies_leaves_its_notices_to_the_next(
    context: Context, ann: Principal, mails: Mails, settings: ServiceSettings
) -> None:
    """kill -9 between taking a notice and sending it: when the lease is over, another process does."""
    context.notices.store.add(NoticeRow(0, ann.user_id, "email", "ann@example.org", {"event": "test"}))
    (taken,) = context.notices.store.claim("email", 10, 0.3)
    assert context.notices.store.claim("email", 10, 60.0) == []
    running = NotificationSender(context.database, settings, context.notices, 0.02)
    running.start()
    eventually(lambda: context.notices.recent(ann)[0].state == "sent")
    running.stop(5.0)
    (sent,) = context.notices.recent(ann)
    assert (sent.delivery, sent.attempts, len(mails.got)) == (taken.delivery, 2, 1)
    # What the dead one says afterwards changes nothing.
    context.notices.store.finish(taken, problem="it was me")
    assert context.notices.recent(ann)[0].state == "sent"
