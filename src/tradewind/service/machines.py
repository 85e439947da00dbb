"""Running machines and jobs with their cost, and resources left over at providers."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any, TypeVar

from tradewind.engine.cleanup.orphan_policy import OrphanDecision, OrphanFate, decide_fate
from tradewind.engine.cleanup.orphan_reaper import OrphanReaper
from tradewind.errors import ConflictError, ForbiddenError
from tradewind.service.accounts.audit_log import record_action
from tradewind.service.accounts.identity import Principal
from tradewind.service.document_limits import check_text
from tradewind.service.visibility import visible_run
from tradewind.store.base import Store
from tradewind.store.sql.database import Database
from tradewind.store.studies.study_access import OpenRun, StudyAccess

T = TypeVar("T")

_NOTHING = "nothing of this id was found"


class MachineService:
    """Machines and jobs, as the store and the providers know them.

    Args:
        database: The open database.
        store: The studies in it.
        data_folder: Folder in which provisioners and runners keep what they need between processes.
    """

    def __init__(self, database: Database, store: Store, data_folder: Path) -> None:
        self._study_access = StudyAccess(database)
        self._database = database
        self._store = store
        self._data_folder = data_folder
        self._asking = threading.Lock()
        self._last: dict[str, Any] | None = None

    def leases(self, who: Principal) -> list[dict[str, Any]]:
        """List the runs in progress that a user may see, the oldest first.

        Returns:
            For each ``study``, ``study_id``, ``tenant``, ``run``, ``trial``, ``state``, ``nodes``, ``provider``,
            ``instance_type``, ``price_per_hour`` (USD per hour of all nodes), ``started``, ``so_far`` (USD this run),
            ``reserved`` (USD), ``reason`` (what keeps it from going on, or from being gone), ``holder`` (the process
            that watches it; empty when nobody does) and ``held_until``.
        """
        now, found = time.time(), self._study_access.open_runs(who.sees)
        reasons: dict[str, str] = {}
        for study in {run.study_id for run in found}:
            runs = self._store.runs(study, open_only=True)
            reasons |= {run.run_id: visible_run(who, run).reason for run in runs}
        return [_lease(run, reasons.get(run.run_id, ""), now) for run in found]

    def look(self, who: Principal) -> dict[str, Any]:
        """Ask all provisioners and runners of the studies for their resources, and decide what is left over.

        Returns:
            ``asked`` (seconds since the epoch), ``left_over`` and ``kept`` (``id``, ``what``, ``from``, ``run``,
            ``owner``, ``age``, ``expires``, ``alive``, ``why``, ``price_per_hour``, ``spent``), ``problems`` (what
            could not be asked, and why) and ``notes``.

        Raises:
            ForbiddenError: The user is no administrator.
            ConflictError: Somebody else is asking at this moment.
        """
        return self._with_yard(who, lambda yard: self._looked(yard)[0])

    def looked(self, who: Principal) -> dict[str, Any] | None:
        """Return the last result of `look` in this process, or None.

        Raises:
            ForbiddenError: The user is no administrator.
        """
        _require_admin(who)
        return self._last

    def reap(self, who: Principal, chosen: Collection[str]) -> list[dict[str, Any]]:
        """Give back what is left over, of what was chosen: all is looked at anew before.

        Args:
            who: The user who asks.
            chosen: Ids of `look`; what is not left over any more is kept.

        Returns:
            For each of the chosen ``id``, ``gone`` (whether it was given back) and ``problem`` (why it was not).

        Raises:
            ForbiddenError: The user is no administrator.
            ConflictError: Somebody else is asking at this moment.
            InputError: An id has a character that no database takes.
        """
        _require_admin(who)
        for one in chosen:
            check_text(one)

        def work(yard: OrphanReaper) -> list[dict[str, Any]]:
            _, decisions = self._looked(yard)
            there = {_id(one): one for one in decisions}
            gone = [there[i] for i in chosen if i in there and there[i].fate is not OrphanFate.KEEP]
            done = {_id(outcome.decision): outcome.problem for outcome in yard.give_back(gone)}
            found = []
            for one in dict.fromkeys(chosen):
                problem = done.get(one, there[one].why if one in there else _NOTHING)
                found.append({"id": one, "gone": not problem, "problem": problem})
            self._last = None
            for outcome in found:
                if outcome["id"] in there:  # what never was is not said to have been touched
                    facts = {"gone": outcome["gone"], "problem": outcome["problem"]}
                    record_action(self._database, who, "machines.reap", f"machines {outcome['id']}", **facts)
            return found

        return self._with_yard(who, work)

    def _with_yard(self, who: Principal, work: Callable[[OrphanReaper], T]) -> T:
        _require_admin(who)
        if not self._asking.acquire(blocking=False):
            raise ConflictError("the providers are being asked at this moment", hint="wait until that is over")
        try:
            yard = OrphanReaper(self._store, self._data_folder)
            try:
                return work(yard)
            finally:
                yard.close()
        finally:
            self._asking.release()

    def _looked(self, yard: OrphanReaper) -> tuple[dict[str, Any], list[OrphanDecision]]:
        findings = yard.look()
        known, now = yard.known(findings), time.time()
        decisions = [decide_fate(one, known, now) for one in findings]
        self._last = {
            "asked": now,
            "left_over": [_document(one) for one in decisions if one.fate is not OrphanFate.KEEP],
            "kept": [_document(one) for one in decisions if one.fate is OrphanFate.KEEP],
            "problems": list(yard.problems),
            "notes": list(yard.notes),
        }
        return self._last, decisions


def _require_admin(who: Principal) -> None:
    if not who.is_admin:
        raise ForbiddenError("only an administrator may do this")


def _id(decision: OrphanDecision) -> str:
    finding = decision.finding
    return f"{finding.kind.value}/{finding.part}/{finding.run_id}"


def _lease(run: OpenRun, reason: str, now: float) -> dict[str, Any]:
    hourly = None if run.price_per_hour is None else run.price_per_hour * run.nodes
    spent = None if hourly is None or run.started is None else max(0.0, now - run.started) / 3600.0 * hourly
    return {
        "study": run.study,
        "study_id": run.study_id,
        "tenant": run.tenant,
        "run": run.run_id,
        "trial": run.trial,
        "state": run.state.value,
        "nodes": run.nodes,
        "provider": run.provider,
        "instance_type": run.instance_type,
        "price_per_hour": hourly,
        "started": run.started,
        "so_far": spent,
        "reserved": run.reserved,
        "reason": reason,
        "holder": run.holder,
        "held_until": run.held_until if run.holder else None,
    }


def _document(decision: OrphanDecision) -> dict[str, Any]:
    finding = decision.finding
    return {
        "id": _id(decision),
        "what": finding.kind.value,
        "from": finding.part,
        "run": finding.run_id,
        "owner": finding.owner,
        "study": decision.study_id,
        "age": decision.age,
        "expires": finding.expires,
        "alive": finding.alive,
        "why": decision.why,
        "price_per_hour": decision.price_per_hour,
        "spent": decision.spent,
    }
