"""How errors look on the wire: problem documents (RFC 9457) over REST, numbered faults over XML-RPC."""

from __future__ import annotations

from typing import Any

from tradewind import errors

_STATUS: tuple[tuple[type[errors.TradewindError], int], ...] = (
    (errors.SignInError, 401),
    (errors.ForbiddenError, 403),
    (errors.NotFoundError, 404),
    (errors.StudyNotFoundError, 404),
    (errors.ConflictError, 409),
    (errors.StudyBusyError, 409),
    (errors.QuotaError, 429),
    (errors.TooManyError, 429),
    (errors.TooLargeError, 413),
    (errors.SlowError, 408),
    (errors.BusyError, 503),
    (errors.InputError, 422),
    (errors.NoOfferError, 422),
    (errors.NoHistoryError, 422),
    (errors.BudgetError, 422),
    (errors.PluginError, 422),
    (errors.DeployError, 502),  # another server did not do what this one asked of it
    (errors.StoreLockedError, 503),
    (errors.StoreError, 503),
    (errors.ServiceError, 400),
)


def http_status(error: errors.TradewindError) -> int:
    """The HTTP status of an error; 500 for one that a caller can do nothing about."""
    return next((status for kind, status in _STATUS if isinstance(error, kind)), 500)


def problem_document(error: errors.TradewindError) -> dict[str, Any]:
    """An error as a problem document."""
    document: dict[str, Any] = {
        "type": f"urn:tradewind:{error.code}",
        "title": error.message,
        "status": http_status(error),
        "code": error.code,
    }
    if error.hint:
        document["hint"] = error.hint
    if isinstance(error, errors.FormError):
        document["fields"] = error.fields
    if isinstance(error, errors.InputError) and error.line is not None:
        document["line"] = error.line
    return document


def xmlrpc_fault(error: errors.TradewindError) -> tuple[int, str]:
    """An error as number and text of an XML-RPC fault: the number is that of its HTTP status."""
    return http_status(error), f"{error.code}: {error}"
