"""Prunes requests, notices, sessions, tokens and audit lines of a certain age."""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass

from tradewind.errors import TradewindError
from tradewind.service.accounts.identity import Principal
from tradewind.service.context import Context
from tradewind.store.service.operations import PruningStore

_log = logging.getLogger("tradewind.service.pruning")


@dataclass(frozen=True, slots=True)
class PruneCounts:
    """Counts of the rows that were removed, or would be.

    Attributes:
        requests: Requests that were over, with their events, files, links and notices.
        notices: Notices of no request: tests.
        links: Links that had run out.
        sessions: Sessions that were over.
        tokens: Tokens that had run out.
        audit: Lines of the audit log.
        kept: Requests that could not be removed.
    """

    requests: int = 0
    notices: int = 0
    links: int = 0
    sessions: int = 0
    tokens: int = 0
    audit: int = 0
    kept: int = 0


def prune(context: Context, who: Principal, seconds: float, *, only_count: bool = False) -> PruneCounts:
    """Remove requests that were over before a time, and what else is as old.

    Studies with what was measured stay: proposals are made from them. So does what requests have cost.

    Args:
        context: The server's shared context.
        who: The user who is named in the audit log.
        seconds: The age from which on things are removed.
        only_count: Remove nothing, and count what would be.
    """
    store = PruningStore(context.database)
    before = time.time() - seconds
    if only_count:
        return PruneCounts(requests=store.count_ended(before), **store.count_rest(before))
    removed = kept = last = 0
    while numbers := store.ended(before, after=last):
        last = numbers[-1]
        for number in numbers:
            try:
                context.requests.delete(who, number)
                removed += 1
            except TradewindError as error:
                _log.warning("request %d is kept: %s", number, error)
                kept += 1
    return PruneCounts(requests=removed, kept=kept, **store.remove_rest(before))
