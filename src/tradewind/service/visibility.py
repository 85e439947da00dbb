"""The one rule of what a reader is told of tenants that the reader may not see: neither names nor searches."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tradewind.problem import Run
from tradewind.service.accounts.identity import Principal

OTHERS = "other tenants"
"""Name for all tenants together that one may not see."""

ANOTHER = "another tenant"
"""Name for one tenant that one may not see."""


def visible_run(who: Principal, run: Run) -> Run:
    """The row of a run that one may see; a tenant that it was taken for has no name where one may not see that.

    Args:
        who: The user who asks.
        run: The run.
    """
    if run.preemption is None or who.may_see(run.preemption.tenant):
        return run
    return run.without_taker()


def visible_job(who: Principal, job: Mapping[str, Any]) -> dict[str, Any] | None:
    """The document of a search in the snapshot of a cluster; None where it is one of a tenant that one may not see.

    Args:
        who: The user who asks.
        job: The document; ``taken`` in it names the tenant that its last run was taken for.
    """
    if not who.may_see(str(job.get("tenant", ""))):
        return None
    taken = job.get("taken")
    if taken is None or who.may_see(taken["tenant"]):
        return dict(job)
    return {**job, "taken": {**taken, "tenant": ANOTHER}}


def visible_taking(who: Principal, taking: Mapping[str, Any]) -> dict[str, Any] | None:
    """The document of a run that was taken; None where it is between tenants that one may not see.

    Args:
        who: The user who asks.
        taking: The document: the run of ``owner`` that was taken for ``tenant``.
    """
    owns, takes = who.may_see(taking["owner"]), who.may_see(taking["tenant"])
    if not owns and not takes:
        return None
    found = dict(taking)
    if not owns:
        found |= {"owner": ANOTHER, "search": None, "name": "", "trial": None}
    if not takes:
        found |= {"tenant": ANOTHER, "for": None}
    return found
