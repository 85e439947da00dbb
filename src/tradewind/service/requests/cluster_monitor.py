"""Follows the searches that were handed over to a shared cluster."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tradewind.deployer.compatibility import is_simulated
from tradewind.engine.search_builder import study_document
from tradewind.errors import InputError, StoreError, StudyNotFoundError, TradewindError
from tradewind.service.requests.request_planner import RequestPlanner, change_spec
from tradewind.service.requests.state import (
    RequestOutcome,
    budget_share,
    describe_trial,
    outcome_of_search,
    trial_facts,
)
from tradewind.store.base import Store
from tradewind.store.clusters.cluster_store import ClusterStore, JobRow
from tradewind.store.service.claims import Claim, ClaimStore
from tradewind.store.service.request_values import NewRequestEvent, RequestIntent, RequestState
from tradewind.utils.units import json_safe

_STATES: dict[str, RequestState] = {"queued": "pending", "running": "executing", "paused": "pending"}


@dataclass(frozen=True, slots=True)
class _SearchProgress:
    """Progress of a search when it was last looked at, as its request's row has it."""

    state: RequestState
    study: int | None
    reported: int  # the trials before this one are among the events
    shown: dict[str, Any] = field(default_factory=dict)


class ClusterRequestMonitor:
    """Monitor of a request whose search is on a shared cluster.

    Args:
        claim: The request.
        claims: The table of claimed requests.
        studies: The studies.
        cluster: The queue of the clusters.
        planner: Makes its specification.
    """

    def __init__(
        self, claim: Claim, claims: ClaimStore, studies: Store, cluster: ClusterStore, planner: RequestPlanner
    ) -> None:
        self.claim = claim
        self.over = False
        self.wanted: RequestIntent = "run"
        self._claims, self._studies, self._cluster, self._planner = claims, studies, cluster, planner
        self._job = claim.row.cluster_job
        row = claim.row
        self._seen = _SearchProgress(row.state, row.study_id, int(row.progress.get("told", 0)))
        self._asked_to_end = False

    def look(self, wanted: RequestIntent) -> None:
        """Update the request from its search, and do what its owner wants; `over` is set when it has ended.

        Raises:
            StudyBusyError: Another process has taken it over.
            StoreError: The database cannot be used.
        """
        try:
            if self._job is None:
                if wanted != "run":
                    self._finish(RequestOutcome("cancelled", "cancelled before it was handed over"))
                    return
                self._hand_over()
            self._follow(wanted)
        except TradewindError as error:
            if isinstance(error, StoreError) and not isinstance(error, StudyNotFoundError):
                raise  # tried again at the next look
            if self._job is not None:
                with contextlib.suppress(TradewindError):  # it is over, or gone
                    self._cluster.want(self._job, "cancel")
            self._finish(RequestOutcome("failed", error.message, error.hint or ""))

    def _hand_over(self) -> None:
        row = self.claim.row
        spec, _ = self._planner.prepare(row)
        if row.reserved:
            spec = change_spec(spec, {"budget": {"dollars": row.reserved}})
        document, options = study_document(spec), {"core": "thread", **self._planner.cluster_code(row)}
        job = JobRow(0, row.tenant, spec.name, document, options, study_id=row.study_id, cluster=row.cluster)
        words = f"handed over to the cluster {row.cluster} as search"
        self._job = self._claims.name_job(self.claim, job, {"started": time.time()}, words)

    def _follow(self, wanted: RequestIntent) -> None:
        assert self._job is not None
        if wanted != "run" and not self._asked_to_end:
            with contextlib.suppress(InputError):  # it has ended by itself
                self._cluster.want(self._job, "cancel")
            self._asked_to_end = True
        job = self._cluster.job(self._job)
        if self._asked_to_end and job.state in _STATES and self._is_left(job):
            # A cluster that is started at this very moment finds the wish, and does the same.
            reason = "cancelled by its owner"
            job = self._cluster.change_job(job.id, state="cancelled", reason=reason, ended=time.time())
        seen, remarks = self._see(job)
        fields: dict[str, Any] = {}
        if seen.study != self._seen.study:
            fields["study_id"] = seen.study
        if seen.state != self._seen.state:
            fields["state"] = seen.state
        if seen.shown != self._seen.shown:
            fields |= {"progress": json_safe(seen.shown), "cost": _cost(seen.shown)}
        if job.state not in _STATES:
            self._finish(self._end(job, seen), fields, remarks)
        elif fields:
            self._claims.change(self.claim.row.id, self.claim.token, fields, remarks, lasting=False)
        self._seen = seen  # only now: what could not be written is written at the next look

    def _is_left(self, job: JobRow) -> bool:
        """True where nobody runs the cluster and nothing of the search runs either."""
        if self._cluster.is_run(job.cluster):
            return False
        return job.study_id is None or not self._studies.runs(job.study_id, open_only=True)

    def _see(self, job: JobRow) -> tuple[_SearchProgress, list[NewRequestEvent]]:
        """Return the progress of the search, and the events since the last time."""
        known = self._seen
        state = _STATES.get(job.state, "executing")
        study = job.study_id if known.study is None else known.study
        remarks = []
        if state != known.state:
            remarks.append(
                NewRequestEvent(state, "the search begins" if state == "executing" else f"it is {job.state}")
            )
        shown: dict[str, Any] = {}
        if not self._cluster.is_run(job.cluster):
            left = ": what the search has left is ended when it is started" if self._asked_to_end else ""
            shown["waiting"] = f"the cluster {self.claim.row.cluster} is not running{left}"
        elif job.state == "queued":
            shown["waiting"] = "in the queue"
        if study is None:
            return _SearchProgress(state, None, known.reported, shown), remarks
        summary = self._studies.summaries([study])[0]
        budget, objective = dict(summary.study.spec.get("budget") or {}), summary.study.spec["objective"]
        reported = known.reported
        for trial in self._studies.trials(study, since=reported):
            if not trial.state.ended:
                break
            remarks.append(NewRequestEvent(state, describe_trial(trial, objective["metric"])))
            reported = trial.number + 1
        trials = sum(summary.counts.values())
        shown |= {
            "trials": trials,
            "told": reported,
            "states": dict(summary.counts),
            "best": trial_facts(summary.best),
            "metric": objective["metric"],
            "goal": objective["goal"],
            "spent": summary.spent,
            **({"simulated": True} if is_simulated(summary.study.spec) else {}),
            "budget": budget,
            "share": budget_share(summary.spent, budget, trials, summary.study.elapsed),
        }
        return _SearchProgress(state, study, reported, shown), remarks

    def _end(self, job: JobRow, seen: _SearchProgress) -> RequestOutcome:
        if job.state == "cancelled":
            return RequestOutcome("cancelled", job.reason or "cancelled")
        if job.state == "failed":
            return RequestOutcome("failed", job.reason)
        return outcome_of_search(job.reason, seen.reported, found=seen.shown.get("best") is not None)

    def _finish(
        self, end: RequestOutcome, fields: dict[str, Any] | None = None, remarks: list[NewRequestEvent] | None = None
    ) -> None:
        values = {**(fields or {}), "state": end.state, "problem": end.problem, "hint": end.hint}
        values |= {"ended": time.time(), "reserved": 0.0}
        remark = NewRequestEvent(end.state, end.problem or "it has ended well", {"hint": end.hint} if end.hint else {})
        token = self.claim.token
        self.wanted = self._claims.change(self.claim.row.id, token, values, [*(remarks or ()), remark], hold="release")
        self.over = True


def _cost(shown: Mapping[str, Any]) -> float:
    """USD that somebody has paid, of a search's progress."""
    return 0.0 if shown.get("simulated") else float(shown.get("spent", 0.0))
