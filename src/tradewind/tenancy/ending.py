"""Ends what a search has left running that has no Core any more, before it counts as over."""

from __future__ import annotations

import logging
import traceback
from contextlib import closing

from tradewind.errors import DeployError, StoreError, StudyNotFoundError, TradewindError
from tradewind.tenancy.core import CoreInbox, CoreSettings
from tradewind.tenancy.messages import CoreEndedMessage, CoreOutbox, EndOrder, RunFoundMessage
from tradewind.tenancy.resources import demand_of_run

_log = logging.getLogger("tradewind.tenancy")

_RETRY_SECONDS = 5.0
"""Seconds until the next attempt where an engine or the store did not answer."""


def end_runs(settings: CoreSettings, inbox: CoreInbox, outbox: CoreOutbox, *, over: CoreEndedMessage) -> None:
    """End the runs of a search, and pay for them; then it is over, and not before.

    What cannot be ended now is tried again, until the cluster ends: the next one goes on with it.

    Args:
        settings: The search; it has a study.
        inbox: Orders of the cluster.
        outbox: Where messages go; the last one is ``over``, or why it could not be.
        over: What becomes of the search.
    """
    try:
        while problem := _attempt(settings, outbox, over.reason):
            _log.warning("search %d: its runs cannot be ended now: %s", over.job, problem)
            if _is_left(inbox):
                over = CoreEndedMessage(over.job, "left", problem)
                break
    except TradewindError as error:
        over = CoreEndedMessage(over.job, "failed", f"{over.reason}; what it has left running cannot be ended: {error}")
    except Exception as error:
        traceback.print_exc()
        over = CoreEndedMessage(over.job, "failed", f"{over.reason}; unexpected {type(error).__name__}: {error}")
    outbox.put(over)


def _attempt(settings: CoreSettings, outbox: CoreOutbox, reason: str) -> str:
    """End what runs; what could not be ended for now, in words.

    Raises:
        TradewindError: It will not be possible later either.
    """
    from tradewind import plugins
    from tradewind.engine.cleanup.study_teardown import tear_down_study

    job = settings.job
    assert job.study_id is not None
    try:
        with closing(plugins.create("store", "sql", {}, url=settings.url)) as store:
            study = store.study(job.study_id)
            trials = {trial.number: trial for trial in store.trials(study.id)}
            for run in store.runs(study.id, open_only=True):  # until they have ended, their place is taken
                demand = demand_of_run(trials[run.trial].offer, job.options)
                outbox.put(RunFoundMessage(job.id, f"{job.id}/{run.trial}/{run.run_id}", demand))
            # Who runs the cluster has its searches: whoever else still holds this study finds out.
            ended = tear_down_study(store, study, settings.data_folder, reason=reason, force=True)
    except StudyNotFoundError:
        raise
    except (DeployError, StoreError) as error:
        return str(error)
    return "; ".join(ended.problems)


def _is_left(inbox: CoreInbox) -> bool:
    """Wait until the next attempt; True when the cluster ends meanwhile."""
    return inbox.get(_RETRY_SECONDS) == EndOrder("left")
