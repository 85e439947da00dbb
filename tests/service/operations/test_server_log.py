from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tradewind.service.operations.server_log import JsonFormatter, TextFormatter, call_id, redact, start_logging

TOKEN = "tw_" + "Ab3_" * 10


@pytest.fixture
def root() -> Iterator[None]:
    """The root logger, put back as it was."""
    logger, ours = logging.getLogger(), logging.getLogger("tradewind")
    before = (list(logger.handlers), logger.level, ours.level)
    yield
    logger.handlers[:], level, mine = before
    logger.setLevel(level)
    ours.setLevel(mine)


@pytest.mark.parametrize(
    "text",
    [
        f"a token {TOKEN} in words",
        f"Authorization: Bearer {TOKEN}",
        "Authorization: Basic YW5uOnNlY3JldHNlY3JldA==",
        "GET /r/nY3kq0v3cVw2v0JpTnY3kq0v3cVw2v0JpT/stdout",
        "postgresql+psycopg://tw:hunter2hunter2@db/tradewind",
        "postgresql+psycopg://tw@corp:hunter2/hunter2@db/tradewind",
        "postgresql+psycopg://tw@db/tradewind?sslpassword=hunter2;hunter2&x=1",
        "?token=hunter2hunter2&x=1",
        '{"password": "hunter2hunter2"}',
        "smtp_password=hunter2hunter2",
    ],
)
def test_secrets_are_taken_out(text: str) -> None:
    shown = redact(text)
    for secret in (TOKEN, "YW5uOnNlY3JldHNlY3JldA", "nY3kq0v3cVw2v0JpT", "hunter2"):
        assert secret not in shown


def record(message: str, **more: Any) -> logging.LogRecord:
    made = logging.LogRecord("tradewind.service.x", logging.INFO, __file__, 1, message, (), None)
    made.created, made.msecs = 1795303674.5, 500.0
    for name, value in more.items():
        setattr(made, name, value)
    return made


def test_text() -> None:
    line = TextFormatter().format(record("hello", call="abc"))
    assert line == "2026-11-21T23:27:54.500Z INFO service.x [abc] hello"


def test_json() -> None:
    call_id.set("def")
    try:
        document = json.loads(JsonFormatter().format(record("hello", facts={"n": 1, "text": f"x {TOKEN}"})))
    finally:
        call_id.set("")
    assert document == {
        "at": "2026-11-21T23:27:54.500Z",
        "level": "info",
        "logger": "tradewind.service.x",
        "message": "hello",
        "call": "def",
        "n": 1,
        "text": "x tw_...",
    }


@pytest.mark.slow
@given(st.text(max_size=200))
def test_whatever_is_logged_is_one_line(text: str) -> None:
    assert len(TextFormatter().format(record(text)).splitlines()) == 1
    written = JsonFormatter().format(record(text))
    assert "\n" not in written and "\r" not in written
    assert json.loads(written)["level"] == "info"


@pytest.mark.usefixtures("root")
def test_tracebacks_are_kept_and_hide_secrets() -> None:
    for how in ("text", "json"):
        stream = io.StringIO()
        start_logging(how, "info", stream)
        try:
            raise ValueError(f"password={TOKEN}")
        except ValueError:
            logging.getLogger("tradewind.service.y").exception("it failed")
        assert "ValueError" in stream.getvalue() and "Traceback" in stream.getvalue()
        assert TOKEN not in stream.getvalue()


@pytest.mark.usefixtures("root")
def test_levels() -> None:
    stream = io.StringIO()
    start_logging("text", "info", stream)
    logging.getLogger("tradewind.x").info("ours")
    logging.getLogger("tradewind.x").debug("too much")
    logging.getLogger("somebody").info("theirs")
    logging.getLogger("somebody").warning("their warning")
    logging.getLogger("uvicorn.error").info("Started server process")
    assert [line.split(" ", 3)[3] for line in stream.getvalue().splitlines()] == ["ours", "their warning"]
