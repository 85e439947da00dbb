"""Ends the leases of machines that a study kept between trials, once they are given back."""

from __future__ import annotations

import time
from collections.abc import Collection
from dataclasses import replace

from tradewind.problem import Billing, Run, Trial, round_money
from tradewind.store.base import Change, Store


def end_leases(store: Store, study_id: int, billing: Billing, token: str, tags: Collection[str] | None = None) -> float:
    """Charge what keeping machines has cost until now, and let the rows say that they are gone.

    Args:
        store: Where the study is kept.
        study_id: The study.
        billing: How time becomes money.
        token: The hold on the study.
        tags: Only machines with these tags; all that are kept without it.

    Returns:
        USD that keeping them has cost, total.
    """
    now, total = time.time(), 0.0
    runs: list[Run] = []
    trials: dict[int, Trial] = {}
    for run in store.runs(study_id):
        lease = run.lease
        if lease is None or lease.ended is not None or (tags is not None and lease.cluster not in tags):
            continue
        # Those that somebody else gave back, or whose time was over, were not paid for until now.
        until = max(lease.since, min(now, lease.expires))
        cost = max(lease.cost, billing.further_cost(lease.seconds, until - lease.since, lease.hourly))
        own, total = run.own_cost, total + cost
        runs.append(replace(run, cost=round_money(own + cost), lease=replace(lease, cost=cost, ended=until)))
        trial = trials.get(run.trial) or store.trials(study_id, since=run.trial, limit=1)[0]
        trials[run.trial] = replace(trial, spent=round(trial.spent + cost, 9))
    if runs:
        store.write(study_id, Change(trials=list(trials.values()), runs=runs), token)
    return round_money(total)
