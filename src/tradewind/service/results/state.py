"""How far the upload of a request's results is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from tradewind.service.people import Principal

if TYPE_CHECKING:
    from tradewind.service.context import Context

State = Literal["none", "later", "waiting", "done", "failed"]

_MOST = 100_000


@dataclass(frozen=True, slots=True)
class UploadState:
    """How far the upload of a request's results is.

    Attributes:
        state: ``none`` (they go nowhere), ``later`` (no run of it has ended yet), ``waiting``, ``done`` or ``failed``.
        address: The folder that they go to; there is a folder for each run in it.
        problem: Why they are not there yet.
    """

    state: State
    address: str = ""
    problem: str = ""


def upload_of(context: Context, who: Principal, number: int) -> UploadState:
    """How far the upload of a request's results is.

    Args:
        context: What the parts of the server share.
        who: Who asks.
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
    events = context.requests.events(who, number, limit=_MOST)
    told = next((event for event in reversed(events) if event.details.get("results")), None)
    if told is None:
        return UploadState("done" if row.over else "waiting", address)
    states: dict[str, State] = {"waiting": "waiting", "failed": "failed"}
    state = states.get(str(told.details["results"]), "done")
    return UploadState(state, address, "" if state == "done" else told.text.partition(": ")[2])
