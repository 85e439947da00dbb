"""Speaks XML-RPC to oned, OpenNebula's daemon, and turns its refusals into the house's errors."""

from __future__ import annotations

import http.client
import re
import socket
import time
import urllib.error
import urllib.request
import xmlrpc.client
from typing import Any
from xml.etree import ElementTree

from tradewind.errors import (
    CapacityError,
    CredentialsError,
    DeployError,
    ImageError,
    PrerequisiteError,
    UnreachableError,
)

_AUTHENTICATION, _AUTHORIZATION, _NO_EXISTS, _ACTION = 0x0100, 0x0200, 0x0400, 0x0800
_API, _INTERNAL, _ALLOCATE, _LOCKED = 0x1000, 0x2000, 0x4000, 0x8000
_ANSWER_BYTES = 256 * 2**20
_PIECE = 2**20
_AT_ONCE_SECONDS = 1.0
_NOT_SENT = (ConnectionRefusedError, socket.gaierror)


class NoSuchObjectError(DeployError):
    """The object that a call names is not there."""


class WrongStateError(DeployError):
    """The virtual machine is in a state in which it cannot do that now."""


class LostAnswerError(UnreachableError):
    """The call was sent and no answer came: it may have been carried out."""


def parse_xml(text: str) -> ElementTree.Element:
    """The root of an XML document of oned.

    Raises:
        UnreachableError: It is not one.
    """
    # A document type is the only place where entities can be declared; oned never sends one.
    if re.search(r"<!(DOCTYPE|ENTITY)", text, re.IGNORECASE):
        raise UnreachableError("the endpoint sent XML with a document type, which oned never does")
    try:
        return ElementTree.fromstring(text)  # noqa: S314  (documents that declare entities are refused above)
    except ElementTree.ParseError as error:
        raise UnreachableError(f"the endpoint sent something else than XML: {error}") from None


class OneClient:
    """Calls of OpenNebula's XML-RPC interface; it may be used by several threads.

    Args:
        endpoint: The address, with ``/RPC2`` at its end.
        session: ``user:password``.
        seconds: How long a call may take.
    """

    def __init__(self, endpoint: str, session: str, seconds: float) -> None:
        self.endpoint = endpoint
        self.user = session.partition(":")[0]
        self._session = session
        self._seconds = seconds

    def call(self, method: str, *arguments: Any, seconds: float | None = None) -> Any:
        """Call a method and give its answer.

        Args:
            method: The name of the method, without ``one.``.
            arguments: The arguments after the session.
            seconds: Seconds that it may take; None for the usual ones.

        Raises:
            UnreachableError: oned does not answer; `LostAnswerError` if it may have done what it was asked.
            CredentialsError: It does not know us, or does not let us do that.
            CapacityError: A quota is used up.
            DeployError: It refused for another reason.
        """
        order = xmlrpc.client.dumps((self._session, *arguments), f"one.{method}", encoding="utf-8").encode()
        body = self._send(order, self._seconds if seconds is None else seconds)
        try:
            # In another encoding, what `parse_xml` looks for would look otherwise.
            text = body.decode()
        except UnicodeDecodeError:
            raise LostAnswerError(f"{self.endpoint} does not speak oned's XML-RPC") from None
        parse_xml(text)
        try:
            [answer], _ = xmlrpc.client.loads(text)
        except xmlrpc.client.Fault as fault:
            raise DeployError(f"oned refused {method}: {fault.faultString}", retryable=False) from None
        except (xmlrpc.client.Error, ValueError, TypeError) as error:
            raise LostAnswerError(f"{self.endpoint} does not speak oned's XML-RPC: {error}") from None
        if not isinstance(answer, list) or len(answer) < 2:
            raise LostAnswerError(f"{self.endpoint} does not speak oned's XML-RPC")
        if answer[0]:
            return answer[1]
        raise self._refusal(method, str(answer[1]), int(answer[2]) if len(answer) > 2 else _INTERNAL)

    def ask(self, method: str, *arguments: Any, seconds: float | None = None) -> Any:
        """Call a method that may be called twice: it is, when the connection is cut.

        The arguments and errors are those of `call`.
        """
        began = time.monotonic()
        try:
            return self.call(method, *arguments, seconds=seconds)
        except LostAnswerError:
            if time.monotonic() > began + _AT_ONCE_SECONDS:
                raise
            return self.call(method, *arguments, seconds=seconds)

    def _send(self, order: bytes, seconds: float) -> bytes:
        hint = "is oned running, and does the address end in /RPC2?"
        request = urllib.request.Request(self.endpoint, order, {"Content-Type": "text/xml"})  # noqa: S310  (the settings admit http and https only)
        until = time.monotonic() + seconds
        pieces, size = [], 0
        try:
            with urllib.request.urlopen(request, timeout=seconds) as answer:  # noqa: S310
                while piece := answer.read(_PIECE):
                    pieces.append(piece)
                    size += len(piece)
                    if size > _ANSWER_BYTES or time.monotonic() > until:
                        raise LostAnswerError(f"the answer of {self.endpoint} takes too long or is too large")
        except urllib.error.HTTPError as error:
            error.close()
            raise UnreachableError(f"{self.endpoint} answers HTTP {error.code} {error.reason}", hint=hint) from None
        except urllib.error.URLError as error:
            why = getattr(error.reason, "strerror", None) or error.reason
            # Whatever went wrong before a connection was there, nothing was asked of oned.
            kind = UnreachableError if isinstance(error.reason, _NOT_SENT) else LostAnswerError
            raise kind(f"{self.endpoint} cannot be reached: {why}", hint=hint) from None
        except (OSError, http.client.HTTPException) as error:
            raise LostAnswerError(f"{self.endpoint} did not answer: {error or type(error).__name__}") from None
        return b"".join(pieces)

    def _refusal(self, method: str, words: str, code: int) -> DeployError:
        """The error for one of oned's, whose codes are few and whose words say the rest."""
        said = f"OpenNebula: {words}"
        low = re.sub(r"^\[[\w.]+\]", "", words).lower()
        if code == _AUTHENTICATION:
            return CredentialsError(
                f"OpenNebula does not know the user {self.user!r} or the password",
                hint="set auth to file:PATH or env:NAME of a text user:password",
            )
        if "quota" in low:
            return CapacityError(said, hint="ask for a larger quota, use fewer machines, or give some back")
        if code == _AUTHORIZATION:
            return CredentialsError(said, hint=f"the rights of {self.user!r} do not suffice")
        if code == _NO_EXISTS:
            return NoSuchObjectError(said, retryable=False)
        if code == _ACTION:
            return WrongStateError(said)
        if code == _API:
            return DeployError(said, retryable=False)
        if code in (_INTERNAL, _ALLOCATE) and method.startswith("template."):
            return _not_instantiated(said, low)
        return DeployError(said)


def _not_instantiated(said: str, low: str) -> DeployError:
    if "lease" in low or "not enough space" in low or "capacity" in low:
        return CapacityError(said)
    if "image" in low or "disk" in low:
        return ImageError(said, hint="compare the template's DISK with the list of oneimage")
    if "network" in low or "cluster" in low or "template" in low:
        return PrerequisiteError(
            said, hint="compare the settings template, network and cluster with what OpenNebula has"
        )
    return DeployError(said)
