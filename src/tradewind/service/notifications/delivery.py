"""Delivery of notices: e-mails through the administrator's mail server, and signed calls of webhooks."""

from __future__ import annotations

import hmac
import html
import json
import smtplib
import ssl
import time
from collections.abc import Mapping
from email.headerregistry import Address
from email.message import EmailMessage
from email.utils import format_datetime, localtime
from typing import Any

from tradewind import __version__
from tradewind.deployer.environment import resolve_secrets
from tradewind.errors import InputError
from tradewind.reporting.words import compact, machines_of, value_words
from tradewind.service.accounts.identity import clean_text
from tradewind.service.applications.parameter_words import RequestWords
from tradewind.service.http.outbound_requests import parse_outbound_url, post
from tradewind.service.settings import ServiceSettings
from tradewind.store.service.notices import NoticeRow
from tradewind.utils.units import format_duration, format_money


class DeliveryRefused(Exception):  # noqa: N818  (it is an answer)
    """The receiver did not take a notice.

    Args:
        message: Reason in words.
        final: True where the receiver will never take it.
    """

    def __init__(self, message: str, *, final: bool) -> None:
        super().__init__(message)
        self.final = final


WEBHOOK_TIMEOUT_SECONDS = 10.0
"""Time limit of each step of a call, seconds."""


def call_webhook(notice: NoticeRow, key: str, *, private: bool, tls: ssl.SSLContext | None = None) -> None:
    """Send a notice to a webhook, as JSON; no redirection is followed.

    A call has the headers::

        X-Tradewind-Event: request.finished
        X-Tradewind-Delivery: 0c1f...     the same for every attempt of one notice
        X-Tradewind-Signature: t=1795303674,v1=6f1e...

    where ``v1`` is HMAC-SHA256, in hexadecimal, of the timestamp ``t``, a full stop, and the body, with the user's key.
    A receiver compares it in constant time, refuses old timestamps, and keeps the deliveries that it has seen.

    Args:
        notice: The notice.
        key: Key that it is signed with.
        private: True where the host may be inside the server's network.
        tls: Context that checks certificates; the system's authorities without it.

    Raises:
        InputError: The host may not be called.
        UnreachableError: It does not answer.
        DeliveryRefused: It does not take the call.
    """
    target = parse_outbound_url(notice.target)
    body = json.dumps({"delivery": notice.delivery, **notice.document}, ensure_ascii=False).encode()
    headers = {
        "Content-Type": "application/json",
        "User-Agent": f"Tradewind/{__version__}",
        "X-Tradewind-Event": str(notice.document.get("event", "")),
        "X-Tradewind-Delivery": notice.delivery,
        "X-Tradewind-Signature": webhook_signature(key, body, time.time()),
    }
    status, words = post(target, body, headers, private=private, seconds=WEBHOOK_TIMEOUT_SECONDS, tls=tls)
    if status < 300:
        return
    if status < 400:
        raise DeliveryRefused(
            f"{target.shown} sends on to elsewhere (HTTP {status}), which is not followed", final=True
        )
    raise DeliveryRefused(f"{target.shown} answered HTTP {status} {words[:60]}".rstrip(), final=status == 410)


def webhook_signature(key: str, body: bytes, at: float) -> str:
    """Make the signature header of a call, with its time.

    Args:
        key: The user's key.
        body: The body.
        at: Time of the call, seconds since the epoch.
    """
    stamp = str(int(at))
    return f"t={stamp},v1={hmac.new(key.encode(), stamp.encode() + b'.' + body, 'sha256').hexdigest()}"


SMTP_TIMEOUT_SECONDS = 20.0
"""Time for which the mail server may be silent, seconds."""

_WORDS = {
    "request.submitted": ("was submitted", "submitted"),
    "request.finished": ("has finished", "finished"),
    "request.failed": ("did not end well", "failed"),
    "test": ("is a test", "test"),
}
_MOST_PARAMETERS = 30
"""Parameters that an e-mail lists."""

_NO_WORDS = RequestWords()
_STATES = {"timed_out": "timed out", "preempted": "lost its machines", "cancelled": "was cancelled"}


def compose_email(notice: NoticeRow, sender: str, url: str, words: RequestWords = _NO_WORDS) -> EmailMessage:
    """Compose the e-mail of a notice, as plain text and as HTML.

    Args:
        notice: The notice.
        sender: The address that it comes from.
        url: Public address of the server; empty where that is not known.
        words: The request's application and parameters, as its page has them.

    Raises:
        InputError: An address is none.
    """
    document = notice.document
    request = document.get("request")
    facts = request if isinstance(request, Mapping) else {}
    title, lines, rows, link = _content(str(document.get("event", "")), facts, words)
    message = EmailMessage()
    # Whatever a user calls a request, it stays within the subject: of all line breaks none is left.
    message["Subject"] = clean_text(" ".join(title.split()), 200)
    message["From"] = Address("Tradewind", addr_spec=_address(sender))
    message["To"] = Address(addr_spec=_address(notice.target))
    message["Date"] = format_datetime(localtime())
    # The same for every attempt: what arrives twice is shown once by most mail programs.
    message["Message-ID"] = f"<{notice.delivery}@{_domain(sender)}>"
    message["Auto-Submitted"] = "auto-generated"
    message["X-Tradewind-Delivery"] = notice.delivery
    why = "You get this because of the notices that you have chosen" + (f": {url.rstrip('/')}/account" if url else ".")
    text = (
        [*lines, ""]
        + [f"{name}: {value}" if name else value for name, value in rows]
        + (["", link] if link else [])
        + ["", "-- ", why]
    )
    message.set_content("\n".join(text) + "\n")
    message.add_alternative(_page(lines, rows, link, why), subtype="html")
    return message


def send_email(message: EmailMessage, settings: ServiceSettings) -> None:
    """Hand an e-mail to the mail server.

    Args:
        message: The e-mail.
        settings: The server's settings.

    Raises:
        DeliveryRefused: It did not take it; ``final`` where it never will.
        DeployError: The password cannot be read.
    """
    place = f"{settings.smtp_host}:{settings.smtp_port}"
    password = (
        resolve_secrets({"smtp_password": settings.smtp_password})["smtp_password"] if settings.smtp_password else ""
    )
    try:
        context = ssl.create_default_context(cafile=settings.smtp_authorities)
        with _connect(settings, context) as server:
            if settings.smtp_security == "starttls":
                server.starttls(context=context)
            if settings.smtp_user:
                server.login(settings.smtp_user, password)
            server.send_message(message)
    except smtplib.SMTPRecipientsRefused as error:
        code, words = next(iter(error.recipients.values()))
        raise DeliveryRefused(f"the address is refused: {_said(code, words)}", final=code >= 500) from None
    except smtplib.SMTPAuthenticationError as error:
        said = _said(error.smtp_code, error.smtp_error)
        raise DeliveryRefused(f"{place} does not know smtp_user: {said}", final=False) from None
    except smtplib.SMTPNotSupportedError as error:
        raise DeliveryRefused(f"{place}: {error} (smtp_security is {settings.smtp_security})", final=False) from None
    except smtplib.SMTPResponseException as error:
        said = _said(error.smtp_code, error.smtp_error)
        raise DeliveryRefused(
            f"{place} says {said}", final=isinstance(error, smtplib.SMTPDataError) and error.smtp_code >= 500
        ) from None
    except ssl.SSLCertVerificationError as error:
        raise DeliveryRefused(
            f"the certificate of {place} is not trusted: {error.verify_message}", final=False
        ) from None
    except (smtplib.SMTPException, OSError) as error:
        why = getattr(error, "strerror", None) or error
        raise DeliveryRefused(f"{place} does not take mail: {why}", final=False) from None


def _connect(settings: ServiceSettings, context: ssl.SSLContext) -> smtplib.SMTP:
    if settings.smtp_security == "tls":
        return smtplib.SMTP_SSL(settings.smtp_host, settings.smtp_port, timeout=SMTP_TIMEOUT_SECONDS, context=context)
    return smtplib.SMTP(settings.smtp_host, settings.smtp_port, timeout=SMTP_TIMEOUT_SECONDS)


def _said(code: int, words: bytes | str) -> str:
    text = words.decode(errors="replace") if isinstance(words, bytes) else words
    return clean_text(f"{code} {' '.join(text.split())}", 200)


def _content(
    event: str, facts: Mapping[str, Any], words: RequestWords
) -> tuple[str, list[str], list[tuple[str, str]], str]:
    """Return the subject, the sentence, the table, and the link of a notice."""
    if event == "test":
        return "[Tradewind] A test", ["This is a test: notices by e-mail reach you."], [], ""
    what, short = _WORDS.get(event, ("has news", "news"))
    state = str(facts.get("state", ""))
    what, short = (_STATES.get(state, what), _STATES.get(state, short).removeprefix("was "))
    name = _line(facts.get("name"))[:120] or f"request {facts.get('id')}"
    lines = [f"Your request {facts.get('id')}, {name}, {what}."]
    rows = [
        ("Why", _line(facts.get("problem"))),
        ("What to do", _line(facts.get("hint"))),
        ("Application", _line(words.application or facts.get("application"))),
        *((_line(one.title)[:120], _line(one.words)[:300]) for one in words.parameters[:_MOST_PARAMETERS]),
        ("", f"and {more:,} more parameters" if (more := len(words.parameters) - _MOST_PARAMETERS) > 0 else ""),
        ("Cost", f"{format_money(facts['cost'])} total" if facts.get("cost") and state != "pending" else ""),
        ("Took", _took(facts)),
        ("Best", _best(facts.get("best"), str(facts.get("metric") or "objective"))),
        ("Results", _line(facts.get("results"))),
    ]
    return f"[Tradewind] {name}: {short}", lines, [row for row in rows if row[1]], str(facts.get("url", ""))


def _line(value: Any) -> str:
    if isinstance(value, Mapping):
        value = ", ".join(f"{key} {one}" for key, one in value.items() if not isinstance(one, Mapping | list))
    return clean_text(" ".join(str(value).split()), 1000) if value else ""


def _best(best: Any, metric: str) -> str:
    """Describe the best trial: ``$0.0213 cost, trial 3, 2 × c5.xlarge, us-east-1 (nodes=2)``."""
    if not isinstance(best, Mapping):
        return ""
    value, chosen = best.get("objective"), best.get("configuration")
    found = [f"{value_words(metric, value)} {metric}"] if isinstance(value, int | float) else []
    found += [f"trial {best['trial']}" if "trial" in best else "", machines_of(best.get("offer"))]
    settings = f" ({compact(chosen)})" if isinstance(chosen, Mapping) and chosen else ""
    return _line(", ".join(part for part in found if part) + settings)


def _took(facts: Mapping[str, Any]) -> str:
    started, ended = facts.get("started"), facts.get("ended")
    return format_duration(ended - started) if started and ended else ""


def _page(lines: list[str], rows: list[tuple[str, str]], link: str, why: str) -> str:
    said = "".join(f"<p>{html.escape(line)}</p>" for line in lines)
    cells = "".join(
        f'<tr><th align="left" valign="top" style="padding:2px 16px 2px 0;font-weight:600">{html.escape(name)}</th>'
        f'<td style="padding:2px 0">{html.escape(value)}</td></tr>'
        for name, value in rows
    )
    table = f'<table role="presentation" cellspacing="0">{cells}</table>' if cells else ""
    way = (
        f'<p><a href="{html.escape(link)}">Look at the request</a></p>'
        if link.startswith(("http://", "https://"))
        else ""
    )
    return (
        '<!doctype html><html lang="en"><body style="font-family:sans-serif;line-height:1.45">'
        f'{said}{table}{way}<p style="color:#666;font-size:small">{html.escape(why)}</p></body></html>\n'
    )


def _address(text: str) -> str:
    try:
        Address(addr_spec=text)
    except (ValueError, IndexError):
        raise InputError(f"{clean_text(text, 60)!r} is no e-mail address") from None
    if clean_text(text, 300) != text or "@" not in text:
        raise InputError(f"{clean_text(text, 60)!r} is no e-mail address")
    return text


def _domain(sender: str) -> str:
    return sender.rpartition("@")[2] or "localhost"
