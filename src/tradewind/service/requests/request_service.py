"""Operations on requests, called by REST, XML-RPC, the pages and the command line."""

from __future__ import annotations

import contextlib
import hashlib
import shutil
import threading
import time
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, BinaryIO

from tradewind.errors import ConflictError, ForbiddenError, InputError, NotFoundError
from tradewind.service.accounts.audit_log import audit_row
from tradewind.service.accounts.identity import Principal
from tradewind.service.requests.request_document import document_digest, fill_request, merge_documents
from tradewind.service.requests.request_planner import PlannerDependencies, RequestPlanner, code_folder, job_folder
from tradewind.service.requests.run_archive import archive_pieces
from tradewind.service.requests.run_files import RunFileEntry, RunLogPart
from tradewind.service.requests.run_output import RequestRuns, RunOutputReader
from tradewind.service.requests.state import DOLLARS, check_money, request_allowance
from tradewind.store.base import Store
from tradewind.store.service.claims import ClaimStore
from tradewind.store.service.request_parameters import parse_conditions
from tradewind.store.service.request_values import TenantQueueState
from tradewind.store.service.requests import ENDED, OPEN, NewRequestEvent, RequestEvent, RequestRow, RequestStore
from tradewind.store.sql.database import Database

SENT_DIGEST = "sent"
"""Key in a request's plan: the digest of the document that was sent with the caller's key."""

_RETRIES = "retries"
"""Key in a request's plan: digests of the keys that it was retried with, the newest last."""

_LONGEST_KEY = 200
_MOST_MARKS = 50  # nobody asks again for the answer of fifty attempts ago


def check_idempotency_key(key: str | None) -> str | None:
    """Check the caller's own key of a call, which makes repeated calls do nothing more; return it, or None.

    Raises:
        InputError: It is not valid.
    """
    if key is not None and not (0 < len(key) <= _LONGEST_KEY and key.isprintable()):
        raise InputError(f"key: 1 to {_LONGEST_KEY} characters, none of them a control character")
    return key


def digest_of_changes(number: int, changes: Mapping[str, Any]) -> str:
    """Compute a digest of a request to be like another one, with changes.

    Raises:
        InputError: The changes are no JSON document, or too large.
    """
    return document_digest({"resubmit": number, "changes": changes})


def was_retried(plan: Mapping[str, Any], who: Principal, key: str | None) -> bool:
    """True where a request was retried by this user with this key."""
    return key is not None and _key_mark(who, key) in plan.get(_RETRIES, ())


def with_retry(plan: Mapping[str, Any], who: Principal, key: str | None) -> dict[str, Any]:
    """Return the plan of a request that is retried with a key."""
    if key is None:
        return dict(plan)
    return {**plan, _RETRIES: [*plan.get(_RETRIES, ()), _key_mark(who, key)][-_MOST_MARKS:]}


def _key_mark(who: Principal, key: str) -> str:
    """Hash a key: whoever sees the request sees its plan."""
    return hashlib.sha256(f"{who.user_id}:{key}".encode()).hexdigest()[:32]


_WAIT_CACHE_SECONDS = 1.0
_MOST_TENANTS = 1_000


class WaitReasons:
    """Reasons why the tenants' requests wait, read once a second at most for each of them.

    Args:
        claims: The requests that wait.
    """

    def __init__(self, claims: ClaimStore) -> None:
        self._claims = claims
        self._known: dict[str, tuple[float, TenantQueueState, Sequence[int]]] = {}
        self._lock = threading.Lock()

    def why(self, row: RequestRow) -> str:
        """Explain in words why a request waits for a worker."""
        line, numbers = self._of(row.tenant)
        _, why = request_allowance(replace(line, first=row.id, plan=row.plan, cost=row.cost))
        before = bisect_left(numbers, row.id)
        others = f"{before} of {row.tenant} {'is' if before == 1 else 'are'} before it" if before else ""
        return "; ".join(each for each in (why, others) if each) or "waits for a free place"

    def _of(self, tenant: str) -> tuple[TenantQueueState, Sequence[int]]:
        now = time.monotonic()
        with self._lock:
            known = self._known.get(tenant)
        if known is None or known[0] < now:
            known = (now + _WAIT_CACHE_SECONDS, *self._claims.queue(tenant))
            with self._lock:
                if len(self._known) >= _MOST_TENANTS:
                    self._known.clear()
                self._known[tenant] = known
        return known[1], known[2]


# Within the class `list` is its own function.
RequestRows = list[RequestRow]
RequestEvents = list[RequestEvent]
RunFileEntries = list[RunFileEntry]

_MOST_ROWS = 500
_LONGEST_TEXT = 200  # what a database looks for has a length, too
_MOST_EVENTS = 5_000
_TRIES = 3  # somebody else may have changed the row meanwhile


class RequestService:
    """Requests, for those who make them and watch them.

    Args:
        database: The open database.
        studies: The studies, which have the runs.
        dependencies: Services needed to plan requests.
    """

    def __init__(self, database: Database, studies: Store, dependencies: PlannerDependencies) -> None:
        self.store = RequestStore(database)
        self.claims = ClaimStore(database)
        self.planner = RequestPlanner(dependencies)
        self._studies = studies
        self._dependencies = dependencies
        self._wake: list[Callable[[], None]] = []
        self._waiting = WaitReasons(self.claims)
        self.left = RunOutputReader(database, studies, dependencies.data_folder)
        self._runs = RequestRuns(self.store, studies, self.left, dependencies.data_folder)
        self._lock = threading.Lock()

    def on_change(self, wake: Callable[[], None]) -> None:
        """Register a function that is called whenever a request was made or changed in this process."""
        with self._lock:
            self._wake.append(wake)

    def submit(self, who: Principal, document: Mapping[str, Any], *, key: str | None = None) -> RequestRow:
        """Make a request.

        Args:
            who: The user who asks.
            document: The document: of Tradewind's own form, or of that of paper 5's figure 4.
            key: The caller's own key: asking again with the same one, after an answer that was lost, is the same
                request.

        Raises:
            InputError: Something in the document is wrong.
            NotFoundError: The application, backend or cluster is not there for this user.
            ForbiddenError: The user may not run this there.
            NoOfferError: The backend has nothing that was asked for.
            QuotaError: The tenant's money does not pay it.
            ConflictError: The key was used for another document.
        """
        sent = document_digest(document) if check_idempotency_key(key) is not None else None
        if (there := self._made(who, key, sent)) is not None:
            return there
        return self._submit(who, document, key, sent)

    def _made(self, who: Principal, key: str | None, sent: str | None) -> RequestRow | None:
        """Return the request that the same call made before, even if the application or the money has gone since."""
        there = self.store.of_key(who.user_id, key) if key is not None else None
        return there if there is not None and there.plan.get(SENT_DIGEST) == sent else None

    def _submit(self, who: Principal, document: Mapping[str, Any], key: str | None, sent: str | None) -> RequestRow:
        if not who.user_id:
            raise ForbiddenError("requests are made by users", hint="sign in, or send a token")
        accepted = self.planner.accept(who, document)
        check_money(self.claims.queue_state(who.tenant), float(accepted.plan.get(DOLLARS) or 0.0))
        row = RequestRow(
            0,
            who.tenant,
            who.user_id,
            accepted.kind,
            accepted.document,
            accepted.name,
            key,
            accepted.application_id,
            cluster=accepted.cluster,
            plan={**accepted.plan, SENT_DIGEST: sent} if sent is not None else accepted.plan,
        )
        entry = audit_row(
            who, "request.submit", kind=row.kind, application=row.application_id, may_cost=accepted.plan.get(DOLLARS)
        )
        stored, new = self.store.add(row, NewRequestEvent("pending", f"asked for by {who.name}"), entry)
        if new:
            self._changed()
        return stored

    def get(self, who: Principal, number: int) -> RequestRow:
        """Return one request.

        Raises:
            NotFoundError: There is none that this user may see.
        """
        row = self._row(who, number)
        if row.state == "pending" and row.hold_holder is None and not row.cluster:
            row = replace(row, progress={**row.progress, "waiting": self._waiting.why(row)})
        return row

    def _row(self, who: Principal, number: int) -> RequestRow:
        row = self.store.get(number)
        if not who.may_see(row.tenant):
            raise NotFoundError("there is no such request", hint="the list of requests shows all of yours")
        return row

    def status(self, who: Principal, number: int) -> dict[str, Any]:
        """Return the document of a request with its progress; one of figure 4 with its machines in their fields.

        Raises:
            NotFoundError: There is none that this user may see.
        """
        row = self._row(who, number)
        return fill_request(row.document, row.state, row.updated, list(row.progress.get("hosts") or ()))

    def list(
        self,
        who: Principal,
        *,
        states: Sequence[str] = (),
        application: str = "",
        text: str = "",
        parameters: Sequence[str] = (),
        tenant: str = "",
        before: int | None = None,
        limit: int = 50,
    ) -> RequestRows:
        """List requests that the user may see, the newest first.

        Args:
            who: The user who asks.
            states: Only in these states.
            application: Only of this application: ``name`` or ``name@version``.
            text: Only those that have it in their name, or as their number.
            parameters: Only those whose parameters meet all of these conditions, such as ``stars>500``.
            tenant: Only of this tenant.
            before: Only those with a smaller number: the next page.
            limit: Rows at most, 500 at most.

        Raises:
            InputError: There is no such state, the text is too long, or a condition cannot be read.
        """
        for state in states:
            if state not in (*OPEN, *ENDED):
                raise InputError(f"there is no state {state!r}", hint=f"known: {', '.join((*OPEN, *ENDED))}")
        if len(text) > _LONGEST_TEXT:
            raise InputError(f"the text has more than {_LONGEST_TEXT} characters", hint="a part of a name is enough")
        conditions = parse_conditions(parameters)
        if tenant and not who.may_see(tenant):
            return []
        return self.store.page(
            tenant=tenant or who.sees,
            states=states,
            application=application,
            text=text,
            parameters=conditions,
            before=before,
            limit=max(1, min(limit, _MOST_ROWS)),
        )

    def events(self, who: Principal, number: int | None = None, since: int = 0, limit: int = 500) -> RequestEvents:
        """List events after a known one, the oldest first.

        Args:
            who: The user who asks.
            number: Only of this request; without it, of all that the user may see.
            since: Number of the last event that is known.
            limit: Rows at most.

        Raises:
            NotFoundError: There is no such request that this user may see.
        """
        most = max(1, min(limit, _MOST_EVENTS))
        if number is not None:
            self._row(who, number)
            return self.store.events(request_id=number, since=since, limit=most)
        return self.store.events(tenant=who.sees, since=since, limit=most)

    def cancel(self, who: Principal, number: int) -> RequestRow:
        """End a request; one that is being carried out ends within moments, and what it used is paid.

        Raises:
            NotFoundError: There is none that this user may see.
            ConflictError: It is over.
        """
        row = self._row(who, number)
        if row.over:
            hint = "resubmit makes a new one of it" if row.state == "done" else "retry makes it run again"
            raise ConflictError(f"request {number} is over: it is {row.state}", hint=hint)
        words = f"cancelled by {who.name}"
        if row.hold_holder is None:
            fields = {"state": "cancelled", "problem": words, "hint": "", "ended": time.time()}
            with contextlib.suppress(ConflictError):  # somebody has just begun with it
                return self.store.change_free(number, OPEN, fields, NewRequestEvent("cancelled", words))
        wish = NewRequestEvent(row.state, f"{who.name} wants it cancelled", _by(who, "cancel"))
        changed = self.store.want(number, "cancel", wish)
        self._changed()
        return changed

    def delete(self, who: Principal, number: int) -> None:
        """Remove a request with its files and links; one that is being carried out is cancelled first.

        What it has cost stays in the audit log, and what was measured stays among the tenant's studies.

        Raises:
            NotFoundError: There is none that this user may see.
        """
        row = self._row(who, number)
        wish = NewRequestEvent(row.state, f"{who.name} wants it deleted", _by(who, "delete"))
        for _ in range(2):
            # Whoever carries it out reads the wish with its last write; afterwards nobody does.
            if row.hold_holder is not None and (row := self.store.want(number, "delete", wish)).hold_holder is not None:
                self._changed()
                return
            with contextlib.suppress(ConflictError):
                self.store.remove(number, _by(who, "delete"))
                self.remove_folders(row)
                return
            row = self.store.get(number)

    def retry(self, who: Principal, number: int, *, key: str | None = None) -> RequestRow:
        """Have a request that did not end well carried out once more; a search goes on where it was.

        Args:
            who: The user who asks.
            number: The request.
            key: The caller's own key: asking again with the same one, after an answer that was lost, changes nothing,
                also where the request has ended once more since.

        Raises:
            NotFoundError: There is none that this user may see.
            ConflictError: It is not over, or ended well.
        """
        check_idempotency_key(key)
        for _ in range(_TRIES - 1):
            with contextlib.suppress(ConflictError):
                return self._retry(who, number, key)
        return self._retry(who, number, key)

    def _retry(self, who: Principal, number: int, key: str | None) -> RequestRow:
        row = self._row(who, number)
        if was_retried(row.plan, who, key):
            return row
        if row.state == "done":
            raise ConflictError(f"request {number} has ended well", hint="resubmit makes a new one of it")
        # A study that is finished is looked at anew; what a cluster had of it is over, and handed over once more.
        plan = {**with_retry(row.plan, who, key), "before": self._trials_ended(row), "again": True}
        again = {"state": "pending", "wanted": "run", "problem": "", "hint": "", "ended": None, "plan": plan}
        again |= {"cluster_job": None, "started": None}  # the days in between are no time that it took
        remark = NewRequestEvent("pending", f"once more, wanted by {who.name}")
        entry = audit_row(who, "request.retry", cost=row.cost)
        changed = self.store.change_free(number, ENDED, again, remark, entry, since=row.updated)
        self._changed()
        return changed

    def resubmit(
        self, who: Principal, number: int, changes: Mapping[str, Any], *, key: str | None = None
    ) -> RequestRow:
        """Make a new request like another one.

        Args:
            who: The user who asks.
            number: The other one.
            changes: What is different, by key; a mapping changes the keys that it has, None takes a key out.
            key: The caller's own key, as `submit` takes one: also when the other one was deleted since.

        Raises:
            NotFoundError: There is none that this user may see.
            InputError: Something in the changed document is wrong.
            ConflictError: The key was used for another document.
        """
        sent = digest_of_changes(number, changes) if check_idempotency_key(key) is not None else None
        if (there := self._made(who, key, sent)) is not None:
            return there
        return self._submit(who, merge_documents(self._row(who, number).document, changes), key, sent)

    def remove_folders(self, row: RequestRow) -> None:
        """Remove what a request has left on this machine: its job's folder, and those of its runs."""
        data_folder = self._dependencies.data_folder
        places = [job_folder(data_folder, row.id).parent, code_folder(data_folder, row)]
        if row.study_id is not None:
            owner = self._studies.study(row.study_id).owner
            places += [data_folder / kind / owner for kind in ("runs", "uploads") if owner]
        for place in places:
            shutil.rmtree(place, ignore_errors=True)

    def _trials_ended(self, row: RequestRow) -> int:
        if row.study_id is None:
            return 0
        return sum(trial.state.ended for trial in self._studies.trials(row.study_id))

    # ------------------------------------------------------------------ what its runs leave

    def log(
        self,
        who: Principal,
        number: int,
        stream: str = "stdout",
        offset: int = 0,
        limit: int = 65536,
        *,
        trial: int | None = None,
        run: str = "",
    ) -> RunLogPart:
        """Read a part of what a request's program has printed, while it runs and after.

        Args:
            who: The user who asks.
            number: The request.
            stream: ``stdout``, ``stderr`` or another one of `files.LOGS`.
            offset: Offset to begin at, in bytes.
            limit: Bytes at most.
            trial: Of this trial of a search; without it, of the one that was started last, and once the search is over
                of the best one.
            run: Without a trial, the run that the offset is of: once its log is read to the end, that of the run that
                was started next follows, from its beginning, and ``run`` of the answer is another one.

        Raises:
            NotFoundError: There is no such request, trial or log.
        """
        return self._runs.log(self._row(who, number), stream, offset, limit, trial=trial, run=run)

    def files(self, who: Principal, number: int, *, trial: int | None = None) -> RunFileEntries:
        """List the files that a request's last run, a finished search's best one or that of a trial has left.

        Raises:
            NotFoundError: There is no such request or trial.
        """
        row = self._row(who, number)
        run = self._runs.last(row, trial)
        return self.left.files(row, run) if run is not None else []

    def file(self, who: Principal, number: int, path: str, *, trial: int | None = None) -> Path:
        """Locate a file that a request's last run has left; `open` reads it without a race.

        Raises:
            NotFoundError: There is no such request, trial or file.
        """
        self.open(who, number, path, trial=trial).close()
        run = self._runs.last(self._row(who, number), trial)
        assert run is not None
        return Path(run.folder) / path

    def open(self, who: Principal, number: int, path: str, *, trial: int | None = None) -> BinaryIO:
        """Open a file that a request's last run has left.

        Raises:
            NotFoundError: There is no such request, trial or file.
            UnreachableError: It is on another server, and too large to be sent, or that server does not answer.
        """
        row = self._row(who, number)
        run = self._runs.last(row, trial)
        if run is None:
            raise NotFoundError("the request has no files yet")
        return self.left.open(row, run, path)

    def archive(self, who: Principal, number: int, *, trial: int | None = None) -> Iterator[bytes]:
        """Return the pieces of a zip file with all files that `files` lists.

        Raises:
            NotFoundError: There is no such request or trial.
        """
        entries = self.files(who, number, trial=trial)
        return archive_pieces(entries, lambda path: self.open(who, number, path, trial=trial))

    def _changed(self) -> None:
        with self._lock:
            wake = list(self._wake)
        for call in wake:
            call()


def _by(who: Principal, wanted: str) -> dict[str, str]:
    return {"wanted": wanted, "user": who.name, "address": who.address}
