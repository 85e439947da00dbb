"""Log of the server: one line an event, as text or JSON, with the id of the call, and never a secret."""

from __future__ import annotations

import datetime
import json
import logging
import re
import sys
from contextvars import ContextVar
from typing import Any, Literal, TextIO

from tradewind.passwords import hide_passwords

LogFormat = Literal["text", "json"]

call_id: ContextVar[str] = ContextVar("tradewind_call", default="")
"""The id of the call that is being answered; empty outside of one."""

_SECRETS = (
    (re.compile(r"\btw_[A-Za-z0-9_-]{8,}"), "tw_..."),
    (re.compile(r"(?i)\b(bearer|basic|digest)\s+[A-Za-z0-9+/=._~-]{8,}"), r"\1 ..."),
    (re.compile(r"(/r/)[A-Za-z0-9_-]{8,}"), r"\1..."),
    (
        re.compile(r"(?i)(password|passwd|secret|token|csrf|session|signature)(['\"]?\s*[=:]\s*['\"]?)[^\s'\"&,;}]+"),
        r"\1\2...",
    ),
)
_CONTROL = re.compile(r"[\x00-\x1f\x7f\x85\u2028\u2029]")


def redact(text: str) -> str:
    """Remove from a text what looks like a token, a password or the secret of a link."""
    text = hide_passwords(text)
    for pattern, replacement in _SECRETS:
        text = pattern.sub(replacement, text)
    return text


class TextFormatter(logging.Formatter):
    """Formats a record as ``2026-11-21T23:27:54.123Z INFO service.access [8f0c] GET / 200 ...``."""

    def format(self, record: logging.LogRecord) -> str:
        """Return one line; a traceback follows on lines of its own."""
        call = getattr(record, "call", "") or call_id.get()
        words = [_at(record), record.levelname, record.name.removeprefix("tradewind.")]
        words += [f"[{call}]"] if call else []
        # What somebody sent must not look like another line of the log.
        line = _CONTROL.sub(_visible, redact(" ".join([*words, record.getMessage()])))
        if record.exc_info:
            line += "\n" + redact(self.formatException(record.exc_info))
        return line


class JsonFormatter(logging.Formatter):
    """Formats a record as a JSON object in a line: ``at``, ``level``, ``logger``, ``message``, ``call``, and facts."""

    def format(self, record: logging.LogRecord) -> str:
        """Return one line."""
        document: dict[str, Any] = {
            "at": _at(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": redact(record.getMessage()),
        }
        if call := getattr(record, "call", "") or call_id.get():
            document["call"] = call
        for name, value in _facts(record).items():
            document[name] = redact(value) if isinstance(value, str) else value
        if record.exc_info:
            document["traceback"] = redact(self.formatException(record.exc_info))
        return json.dumps(document, ensure_ascii=False, default=str)


def start_logging(how: LogFormat, level: str, stream: TextIO | None = None) -> None:
    """Send the log of this process to standard error.

    Args:
        how: Format of the lines: ``text`` or ``json``.
        level: Least severe level written: ``debug``, ``info``, ``warning`` or ``error``.
        stream: Stream to write to instead.
    """
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(JsonFormatter() if how == "json" else TextFormatter())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(max(logging.WARNING, logging.getLevelName(level.upper())))
    logging.getLogger("tradewind").setLevel(level.upper())
    # It says at length that it starts and ends, which we say ourselves.
    logging.getLogger("uvicorn.error").setLevel(logging.WARNING)


def _at(record: logging.LogRecord) -> str:
    at = datetime.datetime.fromtimestamp(record.created, datetime.UTC)
    return at.strftime("%Y-%m-%dT%H:%M:%S.") + f"{int(record.msecs):03d}Z"


def _facts(record: logging.LogRecord) -> dict[str, Any]:
    facts = getattr(record, "facts", None)
    return facts if isinstance(facts, dict) else {}


def _visible(found: re.Match[str]) -> str:
    return found[0].encode("unicode_escape").decode("ascii")
