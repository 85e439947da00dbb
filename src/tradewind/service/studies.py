"""Views of studies: the list, one of them, its trials, and the data of its charts."""

from __future__ import annotations

import hashlib
import io
import json
import re
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from tradewind.errors import InputError, NotFoundError
from tradewind.reporting.study.documents import summary_document
from tradewind.service.accounts.identity import Principal
from tradewind.service.document_limits import check_text
from tradewind.service.visibility import visible_run
from tradewind.store.base import Store
from tradewind.store.sql.database import Database
from tradewind.store.studies.study_access import StudyAccess, StudyOwnership
from tradewind.store.studies.tabular import trial_document as trial_document

if TYPE_CHECKING:
    from tradewind.reporting.study.data import StudyData

STATES = ("running", "stopped", "finished", "interrupted")
"""The states of a study, as people see them."""

MAX_STUDIES = 200
"""Studies of a page of the list."""

Documents = list[dict[str, Any]]
"""A list of documents, one for each study."""

_LARGE = 2000
"""Trials from which on a study is not read anew for every trial as long as somebody watches it."""

_SHARE = 10.0
"""Reading such a study takes one part in so many of the time at most."""

_KEPT_TRIALS = 250_000
_KEPT_SUMMARIES = 1000


@dataclass
class _View:
    """A cached study: its state at one moment, the time until which it is shown, and what was made of it."""

    stamp: str
    data: StudyData
    lasts: float
    made: dict[str, bytes] = field(default_factory=dict)
    shown: dict[str, _View] = field(default_factory=dict)
    """What users of one tenant see of it, by the tenant, where that is not all."""


class StudyService:
    """Studies, each shown to the tenant of its request or of its search on a cluster.

    Studies that were made on the command line belong to nobody's tenant: administrators see them. What was read of a
    study is kept until it changes, so that several who watch the same one cost no more than one.

    Args:
        database: The open database.
        store: The studies in it.
        clock: Returns the time, in seconds.
    """

    def __init__(self, database: Database, store: Store, clock: Callable[[], float] = time.monotonic) -> None:
        self._study_access = StudyAccess(database)
        self._store = store
        self._clock = clock
        self._views: OrderedDict[int, _View] = OrderedDict()
        self._summaries: OrderedDict[int, tuple[str, dict[str, Any]]] = OrderedDict()
        self._lock = threading.Lock()
        self._reading: dict[int, threading.Lock] = {}

    # ------------------------------------------------------------------ many

    def list(
        self,
        who: Principal,
        *,
        tenant: str = "",
        states: Collection[str] = (),
        text: str = "",
        single_runs: bool = False,
        before: int | None = None,
        limit: int = 50,
    ) -> Documents:
        """List studies with their summaries, the newest first.

        Args:
            who: The user who asks.
            tenant: Only of this tenant.
            states: Only in one of `STATES`.
            text: Only those whose name has this in it.
            single_runs: Also those of requests for a single run.
            before: Only those with a smaller number: the next page.
            limit: Rows at most, up to `MAX_STUDIES`.

        Returns:
            For each `tradewind.reporting.study.documents.summary_document` with ``tenant``, ``request``,
            ``cluster_job`` and ``stamp``.

        Raises:
            InputError: A state is not one, or a text has a character that no database takes.
        """
        unknown = sorted(set(states) - set(STATES))
        if unknown:
            raise InputError(f"{unknown[0]!r} is no state of a study", hint=f"one of {', '.join(STATES)}")
        check_text(text + tenant)
        if tenant and not who.may_see(tenant):
            return []
        mine = tenant or who.sees
        limit = max(1, min(limit, MAX_STUDIES))
        found = self._study_access.page(
            tenant=mine, states=states, text=text, single_runs=single_runs, before=before, limit=limit
        )
        return self._documents(found)

    def get(self, who: Principal, study_id: int) -> dict[str, Any]:
        """Return one study, as in `list`.

        Raises:
            NotFoundError: There is none, or it is another tenant's.
        """
        return self._documents([self._seen(who, study_id)])[0]

    def stamp(self, who: Principal, study_id: int) -> str:
        """Return a short text that changes whenever the study does: its ETag.

        Raises:
            NotFoundError: There is none, or it is another tenant's.
        """
        return self._stamp(self._seen(who, study_id).study_id)

    # ------------------------------------------------------------------ one

    def figures(self, who: Principal, study_id: int) -> dict[str, Any]:
        """Return the data of its charts beside its trials: see `tradewind.reporting.study.documents.figures_document`.

        Raises:
            NotFoundError: There is none, or it is another tenant's.
        """
        document: dict[str, Any] = json.loads(self.figures_json(who, study_id)[1])
        return document

    def figures_json(self, who: Principal, study_id: int) -> tuple[str, bytes]:
        """Return `figures` as JSON, made once for all who watch, with the stamp of the study then.

        Raises:
            NotFoundError: There is none, or it is another tenant's.
        """
        from tradewind.reporting.study.documents import axis_words, figures_document

        seen = self._seen(who, study_id)
        view = self._view(who, seen)

        def make() -> dict[str, Any]:
            metric = view.data.goal.objective.metric
            thresholds = [str(threshold) for threshold in view.data.goal.constraints.thresholds]
            found = {"stamp": view.stamp, "axis": axis_words(metric), "thresholds": thresholds}
            return found | figures_document(view.data, by_command=not seen.tenant)

        return view.stamp, self._made(view, "figures", make)

    def trials(self, who: Principal, study_id: int, *, since: int = 0, limit: int | None = None) -> dict[str, Any]:
        """Return trials by column: see `tradewind.reporting.study.documents.trials_document`.

        Args:
            who: The user who asks.
            study_id: The study.
            since: The number of the first trial; a page that has all before ``open_from`` asks for what is new by it.
            limit: So many at most; all without it.

        Raises:
            NotFoundError: There is none, or it is another tenant's.
        """
        document: dict[str, Any] = json.loads(self.trials_json(who, study_id, since=since, limit=limit)[1])
        return document

    def trials_json(
        self, who: Principal, study_id: int, *, since: int = 0, limit: int | None = None
    ) -> tuple[str, bytes]:
        """Return `trials` as JSON, made once for all who watch, with the stamp of the study then.

        Raises:
            NotFoundError: There is none, or it is another tenant's.
        """
        from tradewind.reporting.study.documents import trials_document

        view = self._view(who, self._seen(who, study_id))
        since, limit = max(0, since), None if limit is None else max(1, limit)
        return view.stamp, self._made(
            view, f"trials {since} {limit}", lambda: {"stamp": view.stamp} | trials_document(view.data, since, limit)
        )

    def trial(self, who: Principal, study_id: int, number: int) -> dict[str, Any]:
        """Everything known of one trial: what was proposed and why, the machines, what it did, and its runs.

        Raises:
            NotFoundError: There is none, or it is another tenant's.
        """
        found = self._store.trials(self._seen(who, study_id).study_id, since=number, limit=1) if number >= 0 else []
        if not found or found[0].number != number:
            raise NotFoundError(f"study {study_id} has no trial {number}")
        trial = found[0]
        runs = [
            {
                "run": run.run_id,
                "attempt": run.attempt,
                "state": run.state.value,
                "cost": run.cost,
                "runtime": run.runtime,
                "started": run.started,
                "ended": run.ended,
                "exit_code": run.exit_code,
                "reason": run.reason,
            }
            for run in (visible_run(who, one) for one in self._store.runs(study_id, trial=number))
        ]
        return {
            **trial_document(trial),
            "why": dict(trial.proposal.why),
            "abort_cost": trial.proposal.abort_cost,
            "abort_time": trial.proposal.abort_time,
            "runs": runs,
        }

    def csv(self, who: Principal, study_id: int) -> tuple[str, str]:
        """Write all trials as a CSV file; return its name and its text.

        Words that a spreadsheet would carry out as a formula have an apostrophe before them.

        Raises:
            NotFoundError: There is none, or it is another tenant's.
        """
        from tradewind.reporting.study.documents import write_csv

        seen = self._seen(who, study_id)
        stream = io.StringIO(newline="")
        write_csv(self._store, study_id, stream, guarded=True)
        name = re.sub(r"[^A-Za-z0-9_-]+", "-", seen.name).strip("-")[:60] or "study"
        return f"{name}-{study_id}.csv", stream.getvalue()

    # ------------------------------------------------------------------ what is kept

    def _seen(self, who: Principal, study_id: int) -> StudyOwnership:
        found = self._study_access.of(study_id)
        if found is None or not who.may_see(found.tenant):
            raise NotFoundError(f"there is no study {study_id}", hint="the list of studies has all that you may see")
        return found

    def _stamp(self, study_id: int) -> str:
        return _digest(self._study_access.stamps([study_id]).get(study_id, ""))

    def _documents(self, found: Sequence[StudyOwnership]) -> Documents:
        ids = [one.study_id for one in found]
        stamps = {study_id: _digest(text) for study_id, text in self._study_access.stamps(ids).items()}
        with self._lock:
            known = {i: self._summaries[i][1] for i in ids if self._summaries.get(i, ("",))[0] == stamps.get(i)}
        missing = [study_id for study_id in ids if study_id not in known]
        if missing:
            fresh = {one.study.id: summary_document(one) for one in self._store.summaries(missing)}
            known |= fresh
            with self._lock:
                self._summaries.update({i: (stamps[i], one) for i, one in fresh.items() if i in stamps})
                while len(self._summaries) > _KEPT_SUMMARIES:
                    self._summaries.popitem(last=False)
        return [
            {
                **known[one.study_id],
                "tenant": one.tenant,
                "request": one.request_id,
                "cluster_job": one.cluster_job,
                "stamp": stamps.get(one.study_id, ""),
            }
            for one in found
            if one.study_id in known
        ]

    def _view(self, who: Principal, study: StudyOwnership) -> _View:
        """Return the study as it is now, with what the user may see of it."""
        view = self._whole_view(study.study_id)
        taken = [visible_run(who, run) for run in view.data.taken]
        if all(mine is run for mine, run in zip(taken, view.data.taken, strict=True)):
            return view
        with self._lock:
            if (known := view.shown.get(who.tenant)) is None:
                known = view.shown[who.tenant] = _View(view.stamp, replace(view.data, taken=taken), view.lasts)
        return known

    def _whole_view(self, study_id: int) -> _View:
        """Return the study as it is now; read again only when it has changed, and by one thread at a time."""
        from tradewind.reporting.study.data import StudyData

        with self._lock:
            reading = self._reading.setdefault(study_id, threading.Lock())
        with reading:
            stamp = self._stamp(study_id)
            with self._lock:
                view = self._views.get(study_id)
            began = self._clock()
            if view is None or (view.stamp != stamp and began >= view.lasts):
                data = StudyData.load(self._store, study_id)
                now = self._clock()
                view = _View(stamp, data, now + _SHARE * (now - began) if len(data) >= _LARGE else now)
            with self._lock:
                self._views[study_id] = view
                self._views.move_to_end(study_id)
                while len(self._views) > 1 and sum(len(one.data) for one in self._views.values()) > _KEPT_TRIALS:
                    gone, _ = self._views.popitem(last=False)
                    self._reading.pop(gone, None)
            return view

    def _made(self, view: _View, name: str, make: Any) -> bytes:
        with self._lock:
            known = view.made.get(name)
        if known is None:
            known = json.dumps(make(), separators=(",", ":"), allow_nan=False, default=str).encode()
            with self._lock:
                while len(view.made) >= 8:  # pages of a listing: the oldest one has been sent
                    view.made.pop(next(iter(view.made)))
                view.made[name] = known
        return known


def _digest(text: str) -> str:
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()
