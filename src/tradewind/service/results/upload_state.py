"""State of the upload of a request's results, and requests to try it again."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from tradewind.errors import ConflictError
from tradewind.service.accounts.audit_log import audit_row
from tradewind.service.accounts.identity import Principal
from tradewind.store.service.request_results import RETRY_REQUESTED, ResultUploadStore
from tradewind.store.service.request_values import RequestEvent

if TYPE_CHECKING:
    from tradewind.service.context import Context

UploadStage = Literal["none", "later", "waiting", "done", "failed"]


@dataclass(frozen=True, slots=True)
class UploadState:
    """State of the upload of a request's results.

    Attributes:
        state: ``none`` (they go nowhere), ``later`` (no run of it has ended yet), ``waiting``, ``done`` or ``failed``.
        address: The folder that they go to; there is a folder for each run in it.
        problem: Reason why they are not there yet.
    """

    state: UploadStage
    address: str = ""
    problem: str = ""


def upload_of(context: Context, who: Principal, number: int) -> UploadState:
    """Return the state of the upload of a request's results.

    Args:
        context: The server's shared context.
        who: The user who asks.
        number: The request.

    Raises:
        NotFoundError: There is no such request that this user may see.
    """
    row = context.requests.get(who, number)
    runs = context.store.runs(row.study_id) if row.study_id is not None else []
    addresses = [run.results for run in runs if run.results]
    if not addresses:
        wanted = str(row.document.get("results") or "")
        return UploadState("later", wanted) if wanted and not row.over else UploadState("none")
    address = addresses[-1].rpartition("/")[0]
    # What the worker could not upload before the request ended is noted among its events.
    event = ResultUploadStore(context.database).last(number)
    if event is None:
        return UploadState("done" if row.over else "waiting", address)
    state, problem = _state_of_event(event)
    return UploadState(state, address, problem)


def upload_again(context: Context, who: Principal, number: int) -> UploadState:
    """Have the upload of a request's results tried again at once, also one that was given up.

    The server that has the files does it within seconds, whichever server was asked.

    Args:
        context: The server's shared context.
        who: The user who asks.
        number: The request.

    Returns:
        The state: ``waiting``, until that server reports how it went.

    Raises:
        NotFoundError: There is no such request that this user may see.
        ConflictError: It is being carried out, its results go nowhere, or they are there.
    """
    row = context.requests.get(who, number)
    if not row.over or row.hold_holder is not None:
        hint = "until it is over, what its runs leave is tried again by itself"
        raise ConflictError(f"request {number} is being carried out", hint=hint)
    found = upload_of(context, who, number)
    if found.state in ("none", "later"):
        raise ConflictError(f"results of request {number} go nowhere", hint="resubmit it with a place for results")
    if found.state == "done":
        raise ConflictError(f"the results of request {number} are uploaded", hint=f"they are in {found.address}")
    words = f"{who.name} wants the upload tried again at once"
    ResultUploadStore(context.database).ask(number, words, audit_row(who, "request.upload"))
    return upload_of(context, who, number)


def upload_trouble(context: Context, number: int) -> UploadState | None:
    """Describe what is wrong with the upload of a request that is over, for its page; None where nothing is.

    It reads no runs, of which a search has many, so that it has no address.

    Args:
        context: The server's shared context.
        number: A request that the user may see.
    """
    event = ResultUploadStore(context.database).last(number)
    if event is None:
        return None
    state, problem = _state_of_event(event)
    return None if state == "done" else UploadState(state, "", problem)


def _state_of_event(event: RequestEvent) -> tuple[UploadStage, str]:
    """Read from an event the state of the upload, and why it is not done."""
    states: dict[str, UploadStage] = {"waiting": "waiting", "failed": "failed", RETRY_REQUESTED: "waiting"}
    word = str(event.details["results"])
    state = states.get(word, "done")
    return state, "" if state == "done" or word == RETRY_REQUESTED else event.text.partition(": ")[2]
