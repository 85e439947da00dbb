"""Views of shared clusters: usage by tenant, the queue, and searches that gave way."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from tradewind.errors import InputError, NotFoundError
from tradewind.service.accounts.identity import Principal
from tradewind.service.visibility import OTHERS, visible_job, visible_taking
from tradewind.store.base import Store
from tradewind.store.clusters.cluster_store import OPEN_JOB_STATES, TAKINGS, ClusterRow, ClusterStore, JobRow

Documents = list[dict[str, Any]]
"""A list of documents, one for each cluster or search."""

_MOST = 500


class ClusterService:
    """Shared clusters, read from their last snapshots.

    A user sees the whole of a cluster and its own tenant; the other tenants only together, and none of their searches.

    Args:
        store: Tenants and clusters.
    """

    def __init__(self, store: ClusterStore) -> None:
        self._store = store

    def list(self, who: Principal) -> Documents:
        """List all clusters, by name; each as in `get`."""
        return [self._document(who, row) for row in self._store.clusters()]

    def get(self, who: Principal, name: str) -> dict[str, Any]:
        """Return one cluster.

        Returns:
            ``name``, ``running``, ``age`` (seconds since the snapshot), ``settings`` (``engine``, ``fairness``,
            ``priority``), ``nodes`` (how many), ``total`` and ``used`` (by resource), ``tenants`` (``tenant``,
            ``weight``, ``due``: the share that its weight gives it, ``share``, ``used``, ``running``, ``waiting``,
            ``hours``: resource-hours so far), ``jobs`` (the searches that are not over, as the cluster sees them) and
            ``takings`` (the runs that were taken last for other tenants: ``at``, ``owner``, ``search``, ``name``,
            ``trial``, ``tenant``, ``for``: its search, ``why``, ``pays``), without those between others. A tenant that
            one may not see has no name there, and its search no number.

        Raises:
            NotFoundError: There is none of that name.
        """
        row = next((one for one in self._store.clusters() if one.name == name), None)
        if row is None:
            raise NotFoundError(f"there is no cluster {name!r}", hint="tradewind cluster start makes one")
        return self._document(who, row)

    def jobs(self, who: Principal, *, open_only: bool = False, before: int | None = None, limit: int = 50) -> Documents:
        """Searches that were submitted to clusters, the newest first.

        Args:
            who: The user who asks.
            open_only: Only those that are not over.
            before: Only those with a smaller number: the next page.
            limit: Rows at most.
        """
        tenant = who.sees
        limit = max(1, min(limit, _MOST))
        found = self._store.jobs(tenant=tenant, open_only=open_only, before=before, limit=limit)
        return [_job(job) for job in found]

    def job(self, who: Principal, number: int) -> dict[str, Any]:
        """One search that was submitted to a cluster.

        Raises:
            NotFoundError: There is none, or it is another tenant's.
        """
        found = self._store.jobs(before=number + 1, limit=1)
        if not found or found[0].id != number or not who.may_see(found[0].tenant):
            raise NotFoundError(f"there is no search {number} on a cluster")
        return _job(found[0])

    def may_continue(self, study: Mapping[str, Any]) -> bool:
        """True of a study, as `StudyService.get` has it, whose search on a cluster is over; none of a request."""
        if study["cluster_job"] is None or study["request"] or study["state"] == "running":
            return False
        return self._store.job(study["cluster_job"]).state not in OPEN_JOB_STATES

    def continue_study(
        self, who: Principal, study: Mapping[str, Any], studies: Store, budget: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Let the search of a study that is over go on; nothing that was paid for is run again.

        Args:
            who: The user who asks.
            study: The study, as `StudyService.get` has it.
            studies: The store.
            budget: ``trials`` or ``dollars`` of the whole study from now on, what it has used included.

        Returns:
            The search, as in `jobs`.

        Raises:
            NotFoundError: It is another tenant's.
            InputError: It is none of a cluster's, or not over, or nothing is left of its budget.
            StudyBusyError: Somebody lets it go on at the same moment.
            QuotaError: The dollars of the tenant's quota do not allow it.
        """
        from tradewind.tenancy.submission.continuation import resume_search

        if not self.may_continue(study):
            raise InputError(
                f"study {study['id']} cannot go on from here",
                hint="only a search that was submitted to a cluster, and is over",
            )
        number = study["cluster_job"]
        self.job(who, number)
        wanted = {key: value for key, value in budget.items() if value is not None and value != ""}
        return _job(resume_search(self._store, studies, self._store.job(number), wanted))

    def _document(self, who: Principal, row: ClusterRow) -> dict[str, Any]:
        snapshot = row.snapshot
        total = {str(kind): float(amount) for kind, amount in snapshot.get("total", {}).items()}
        used = _used(snapshot)
        jobs = [found for job in snapshot.get("jobs", []) if (found := visible_job(who, job)) is not None]
        takings = [found for each in snapshot.get(TAKINGS, ()) if (found := visible_taking(who, each)) is not None]
        settings = {name: row.settings.get(name, "") for name in ("engine", "fairness", "priority")}
        return {
            "name": row.name,
            "running": bool(row.holder),
            "holder": row.holder if who.is_admin else "",
            "age": max(0.0, time.time() - row.updated),
            "settings": settings,
            "nodes": len(snapshot.get("nodes", {})),
            "total": total,
            "used": used,
            "decisions": snapshot.get("decisions", 0),
            "tenants": _tenants(who, snapshot, total),
            "jobs": jobs,
            "takings": takings,
        }


def _used(snapshot: Mapping[str, Any]) -> dict[str, float]:
    used: dict[str, float] = {str(kind): 0.0 for kind in snapshot.get("total", {})}
    for node in snapshot.get("nodes", {}).values():
        for kind, amount in node["has"].items():
            used[kind] = used.get(kind, 0.0) + amount - node["free"].get(kind, 0.0)
    return {kind: max(0.0, round(amount, 6)) for kind, amount in used.items()}


def _tenants(who: Principal, snapshot: Mapping[str, Any], total: Mapping[str, float]) -> Documents:
    every: Mapping[str, Mapping[str, Any]] = snapshot.get("tenants", {})
    wanting = sum(float(one["weight"]) for one in every.values() if one["running"] or one["waiting"])
    shown: Documents = []
    hidden: Documents = []
    for name, one in every.items():
        active = one["running"] or one["waiting"]
        row: dict[str, Any] = {
            "tenant": name,
            "weight": float(one["weight"]),
            "due": float(one["weight"]) / wanting if active and wanting else 0.0,
            "share": float(one["share"]),
            "used": dict(one["used"]),
            "running": one["running"],
            "waiting": one["waiting"],
            "hours": {kind: amount / 3600.0 for kind, amount in one["usage"].items()},
        }
        (shown if who.may_see(name) else hidden).append(row)
    if hidden:
        used = {kind: sum(row["used"].get(kind, 0.0) for row in hidden) for kind in total}
        hours = {kind: sum(row["hours"].get(kind, 0.0) for row in hidden) for kind in total}
        together = {key: sum(row[key] for row in hidden) for key in ("weight", "due", "running", "waiting")}
        share = max((used[kind] / total[kind] for kind in total if total[kind]), default=0.0)
        shown.append({"tenant": OTHERS, **together, "share": share, "used": used, "hours": hours})
    return shown


def _job(job: JobRow) -> dict[str, Any]:
    return {
        "id": job.id,
        "tenant": job.tenant,
        "name": job.name,
        "study": job.study_id,
        "nice": job.nice,
        "wanted": job.wanted,
        "state": job.state,
        "open": job.state in OPEN_JOB_STATES,
        "reason": job.reason,
        "submitted": job.submitted,
        "started": job.started,
        "ended": job.ended,
    }
