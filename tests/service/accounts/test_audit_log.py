"""What is in the audit log besides users: what spends money, and what administrators change."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.service.live_server import HELLO, principal
from tests.service.module_server import house

from tradewind.errors import ConflictError, InputError, NotFoundError
from tradewind.service.accounts.audit_log import AuditLog
from tradewind.service.accounts.identity import Principal

ROOT = Principal(0, "somebody", "admin", "")


def test_what_spends_money_is_in_the_log_exactly_when_it_was_begun(tmp_path: Path) -> None:
    with house(tmp_path) as here:
        context = here.context
        ann = principal(context, "ann")
        before = len(context.audit.page(ROOT, action="request"))
        wanted = {"application": here.hello, "parameters": {"words": "one"}}
        row = context.requests.submit(ann, wanted, key="once")
        assert context.requests.submit(ann, wanted, key="once").id == row.id
        with pytest.raises((InputError, NotFoundError)):
            context.requests.submit(ann, {"application": "no-such-thing"})
        with pytest.raises(ConflictError):
            context.requests.retry(ann, row.id)  # it has not ended
        context.requests.cancel(ann, row.id)
        context.requests.retry(ann, row.id)
        context.requests.resubmit(ann, row.id, {"parameters": {"words": "two"}})
        log = context.audit.page(ROOT, action="request")
        assert [(line.user, line.tenant, line.action, line.subject) for line in log][: len(log) - before] == [
            ("ann", "physics", "request.submit", f"request {row.id + 1}"),
            ("ann", "physics", "request.retry", f"request {row.id}"),
            ("ann", "physics", "request.submit", f"request {row.id}"),
        ]
        assert log[0].details["kind"] == "run"
        assert {line.outcome for line in log} == {"done"}


def test_what_administrators_change_is_in_the_log(tmp_path: Path) -> None:
    with house(tmp_path) as here:
        context = here.context
        root = principal(context, "root")
        context.backends.set(root, "lab", {"users": "admins"})
        context.backends.remove(root, "lab")
        context.applications.register(root, HELLO.replace("hello", "antares"), shared=True)
        context.applications.retire(root, "antares")
        done = [(line.user, line.action, line.subject) for line in context.audit.page(ROOT, limit=4)]
        assert done == [
            ("root", "application.retire", "application antares"),
            ("root", "application.register", "application antares@1"),
            ("root", "backend.remove", "backend lab"),
            ("root", "backend.set", "backend lab"),
        ]


def test_a_line_has_no_secrets_and_is_one_line(tmp_path: Path) -> None:
    with house(tmp_path) as here:
        audit = AuditLog(here.context.database, 400)
        audit.record(ROOT, "link.open", "GET /r/abcdefghijklmnop/x\r\nGET /r/y tw_0123456789abcdef")
        (line,) = audit.page(ROOT, action="link.open")
        assert line.subject == "GET /r/.../xGET /r/y tw_..."
