"""Follows the searches that were handed over to a shared cluster."""

from __future__ import annotations

import time
from typing import Any

from tradewind.engine.assemble import study_document
from tradewind.errors import StoreError, StudyNotFoundError, TradewindError
from tradewind.service.requests.planning import Planner, changed
from tradewind.service.requests.state import End, end_of_search, facts_of_trial, finite, share, words_of_trial
from tradewind.store.base import Store
from tradewind.store.claims import Claim, ClaimStore
from tradewind.store.cluster import ClusterStore, JobRow
from tradewind.store.request_values import Remark, Wanted

_STATES = {"queued": "pending", "running": "executing", "paused": "pending"}


class Following:
    """A request whose search is on a shared cluster.

    Args:
        claim: The request.
        claims: Where it is kept.
        studies: The studies.
        cluster: The queue of the clusters.
        planner: Makes its specification.
    """

    def __init__(
        self, claim: Claim, claims: ClaimStore, studies: Store, cluster: ClusterStore, planner: Planner
    ) -> None:
        self.claim = claim
        self.over = False
        self.wanted: Wanted = "run"
        self._claims, self._studies, self._cluster, self._planner = claims, studies, cluster, planner
        self._job = claim.row.cluster_job
        self._state = claim.row.state
        self._study = claim.row.study_id
        self._told = int(claim.row.progress.get("trials", 0))
        self._shown: dict[str, Any] = {}
        self._asked_to_end = False

    def look(self, wanted: Wanted) -> None:
        """Take in how far it is, and do what its owner wants; `over` is set when it has ended.

        Raises:
            StudyBusyError: Another process has taken it over.
            StoreError: The database cannot be used.
        """
        try:
            if self._job is None:
                if wanted != "run":
                    self._finish(End("cancelled", "cancelled before it was handed over"))
                    return
                self._hand_over()
            self._follow(wanted)
        except TradewindError as error:
            if isinstance(error, StoreError) and not isinstance(error, StudyNotFoundError):
                raise  # tried again at the next look
            self._finish(End("failed", error.message, error.hint or ""))

    def _hand_over(self) -> None:
        row = self.claim.row
        spec, _ = self._planner.prepare(row)
        if row.reserved:
            spec = changed(spec, {"budget": {"dollars": row.reserved}})
        job = JobRow(0, row.tenant, spec.name, study_document(spec), {"core": "thread"}, cluster=row.cluster)
        self._job = self._claims.name_job(self.claim, job)
        words = f"handed over to the cluster {row.cluster} as search {self._job}"
        self._claims.change(row.id, self.claim.token, {"started": time.time()}, [Remark("pending", words)])

    def _follow(self, wanted: Wanted) -> None:
        assert self._job is not None
        job = self._cluster.job(self._job)
        if wanted != "run" and not self._asked_to_end:
            self._asked_to_end = True
            if job.state in _STATES:
                self._cluster.want(self._job, "cancel")
        fields: dict[str, Any] = {}
        remarks: list[Remark] = []
        if self._study is None and job.study_id is not None:
            self._study = fields["study_id"] = job.study_id
        state = _STATES.get(job.state, "executing")
        if state != self._state:
            self._state = fields["state"] = state
            remarks.append(Remark(state, "the search begins" if state == "executing" else f"it is {job.state}"))
        fields |= self._progress(job, remarks)
        if job.state not in _STATES:
            self._finish(self._end(job), fields, remarks)
        elif fields:
            self._claims.change(self.claim.row.id, self.claim.token, fields, remarks, lasting=False)

    def _progress(self, job: JobRow, remarks: list[Remark]) -> dict[str, Any]:
        """How far its study is, where that has changed."""
        if self._study is None:
            running = any(one.name == self.claim.row.cluster and one.holder for one in self._cluster.clusters())
            shown: dict[str, Any] = {"waiting": "in the queue" if running else "the cluster is not running"}
        else:
            summary = self._studies.summaries([self._study])[0]
            ended = self._studies.trials(self._study, since=self._told)
            for trial in ended:
                if not trial.state.ended:
                    break
                remarks.append(Remark(self._state, words_of_trial(trial)))
                self._told = trial.number + 1
            budget = dict(summary.study.spec.get("budget") or {})
            shown = {
                "trials": self._told,
                "states": dict(summary.counts),
                "best": facts_of_trial(summary.best),
                "spent": summary.spent,
                "budget": budget,
                "share": share(summary.spent, budget, self._told, summary.study.elapsed),
            }
        if shown == self._shown:
            return {}
        self._shown = shown
        return {"progress": finite(shown), "cost": float(shown.get("spent", 0.0))}

    def _end(self, job: JobRow) -> End:
        if job.state == "cancelled":
            return End("cancelled", job.reason or "cancelled")
        if job.state == "failed":
            return End("failed", job.reason)
        return end_of_search(job.reason, self._told, found=self._shown.get("best") is not None)

    def _finish(self, end: End, fields: dict[str, Any] | None = None, remarks: list[Remark] | None = None) -> None:
        values = {**(fields or {}), "state": end.state, "problem": end.problem, "hint": end.hint}
        values |= {"ended": time.time(), "reserved": 0.0}
        remark = Remark(end.state, end.problem or "it has ended well", {"hint": end.hint} if end.hint else {})
        token = self.claim.token
        self.wanted = self._claims.change(self.claim.row.id, token, values, [*(remarks or ()), remark], release=True)
        self.over = True
