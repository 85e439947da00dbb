"""Errors of the server as the same errors here."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tradewind import errors
from tradewind.errors import ServiceError, TradewindError


def _kinds() -> dict[str, type[TradewindError]]:
    found = [TradewindError]
    for kind in found:
        found += kind.__subclasses__()
    return {kind.code: kind for kind in found if "code" in vars(kind) and kind.__module__ == errors.__name__}


_OF_HTTP = {401: errors.SignInError, 403: errors.ForbiddenError, 404: errors.NotFoundError, 409: errors.ConflictError}


def error_of(status: int, document: Mapping[str, Any], wait: float = 0.0) -> TradewindError:
    """The error that a problem document tells of.

    Args:
        status: The HTTP status.
        document: The problem document; empty where the answer was none.
        wait: Seconds after which it may be tried again.
    """
    kind = _kind(str(document.get("code", "")), status)
    # Some kinds are made of other things than their message; what they were made of is not sent.
    error = kind.__new__(kind)
    message = str(document.get("title") or f"the server answered with HTTP status {status}")
    TradewindError.__init__(error, message, hint=document.get("hint"))
    if isinstance(error, errors.InputError):
        error.file, error.line = None, document.get("line")
    if isinstance(error, errors.FormError):
        error.fields = dict(document.get("fields", {}))
    if isinstance(error, errors.ServiceError):
        error.wait = wait
    if isinstance(error, errors.InterpretationError):
        error.reason = ""
    if isinstance(error, errors.DeployError):
        error.retryable = False
    return error


def _kind(code: str, status: int) -> type[TradewindError]:
    """The class of a code; of one that a newer server has, that of the nearest kind above it."""
    known = _kinds()
    while code:
        if code in known:
            return known[code]
        code = code.rpartition(".")[0]
    return _OF_HTTP.get(status, ServiceError)
